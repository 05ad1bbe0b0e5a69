"""Programs: described, validated, planned, run on arrays where they lie, differentiated."""

import ctypes as c

import numpy as np

from ._lib import DTYPES, KIND, Handle, Io, array, attrs, call, dtype_code, model_code, seed_code, sizes, text

PARAM, INPUT, OUTPUT = 0, 1, 2


class Graph:
    """A program under description. Values are ids."""

    def __init__(self, narrow_products=False):
        """With `narrow_products`, products of float32 accumulate in float32: faster, less exact."""
        self._handle = Handle("vsla_graph_create")
        if narrow_products:
            call("vsla_graph_numerics", self._handle.at, 1, 0)

    def _value(self, tag, shape, dtype, name, model):
        id_ = c.c_uint32()
        shape, rank = sizes(shape)
        name = name.encode() if name else None
        call("vsla_graph_value", self._handle.at, tag, dtype_code(dtype), model_code(model), rank, shape, None, name, c.byref(id_))
        return id_.value

    def input(self, shape, dtype=np.float32, name="", model="A"):
        """Declares an input."""
        return self._value(INPUT, shape, dtype, name, model)

    def param(self, shape, dtype=np.float32, name="", model="A"):
        """Declares a parameter."""
        return self._value(PARAM, shape, dtype, name, model)

    def op(self, kind, *inputs, outputs=1, **attributes):
        """Adds an operation by the name of its kind ("matmul", "add", "sum", ..); gives its value, or a list of several.

        Attributes are `axis value size stride list_ list2 form`, as the header says for each kind.
        """
        if kind not in KIND:
            raise ValueError(f"{kind!r} is not an operation; use one of {', '.join(KIND)}")
        ids = (c.c_uint32 * len(inputs))(*inputs)
        out = (c.c_uint32 * outputs)()
        a = attrs(**attributes)
        call("vsla_graph_node", self._handle.at, KIND[kind], ids, len(inputs), c.byref(a), out, outputs)
        return out[0] if outputs == 1 else list(out)

    def output(self, id_):
        """Marks a value as an output."""
        call("vsla_graph_output", self._handle.at, id_)

    def checkpoint(self, id_):
        """Marks a value to be kept for backward; values without a mark are computed again."""
        call("vsla_graph_checkpoint", self._handle.at, id_)

    def build(self):
        """Validates the description and freezes it."""
        return Program(Handle("vsla_program_build", self._handle.at))


class Program:
    """A validated program."""

    def __init__(self, handle):
        self._handle = handle
        self.params, self.inputs, self.outputs = (self._ids(tag) for tag in (PARAM, INPUT, OUTPUT))

    def _ids(self, tag):
        count = c.c_size_t()
        call("vsla_program_values", self._handle.at, tag, None, 0, c.byref(count))
        ids = (c.c_uint32 * count.value)()
        call("vsla_program_values", self._handle.at, tag, ids, count.value, c.byref(count))
        return list(ids)

    def name(self, id_):
        """The name of a value; may be empty."""
        return text("vsla_program_value_name", self._handle.at, id_)

    def shape(self, id_):
        """The shape of a value."""
        rank = c.c_size_t()
        call("vsla_program_shape", self._handle.at, id_, c.byref(rank), None, 0)
        shape = (c.c_uint64 * rank.value)()
        call("vsla_program_shape", self._handle.at, id_, c.byref(rank), shape, rank.value)
        return tuple(shape)

    def dtype(self, id_):
        """The NumPy dtype of a value."""
        dtype, model = c.c_uint32(), c.c_uint32()
        call("vsla_program_value_kind", self._handle.at, id_, c.byref(dtype), c.byref(model))
        if dtype.value >= len(DTYPES):
            raise TypeError("the value is bf16, which NumPy does not support")
        return DTYPES[dtype.value]

    def plan(self, threads=0):
        """Compiles the program; 0 threads is one for each core."""
        return Plan(self, threads)


class _Lists:
    """Lists of values and their arrays, as C reads them. Keeps the arrays."""

    def __init__(self, arrays):
        n = len(arrays)
        self.keep = list(arrays.values())
        self.values = (c.c_uint32 * n)(*arrays)
        self.data = (c.c_void_p * n)(*[a.ctypes.data if a.size else None for a in self.keep])
        self.bytes = (c.c_size_t * n)(*[a.nbytes for a in self.keep])
        self.io = Io(n, self.values, self.data, self.bytes)

    @property
    def at(self):
        return c.byref(self.io)


class Plan:
    """A compiled program. Call it with its inputs in order; it gives its output, or a tuple of several."""

    def __init__(self, program, threads=0):
        self.program = program
        self._backend = Handle("vsla_backend_create_cpu", threads)
        self._stream = Handle("vsla_backend_create_stream", self._backend.at)
        self._plan = Handle("vsla_program_plan", program._handle.at, self._backend.at)
        self._bound = Handle("vsla_program_bind", self._plan.at, None)
        self._backward = None

    def __str__(self):
        return text("vsla_plan_report", self._plan.at)

    def _fitting(self, id_, x):
        shape, dtype = self.program.shape(id_), self.program.dtype(id_)
        x = array(np.asarray(x, dtype=dtype))
        if x.shape != shape:
            name = self.program.name(id_) or str(id_)
            raise ValueError(f"value {name} has shape {shape}, but the array has {x.shape}")
        return x

    def _inputs(self, inputs):
        ids = self.program.inputs
        if len(inputs) != len(ids):
            raise TypeError(f"{len(inputs)} inputs were given, but the program has {len(ids)}")
        return {i: self._fitting(i, x) for i, x in zip(ids, inputs)}

    def set_param(self, id_, x):
        """Sets a parameter; it stays from run to run."""
        if id_ not in self.program.params:
            raise ValueError(f"value {id_} is not a parameter")
        x = self._fitting(id_, x)
        call("vsla_bindings_write", self._bound.at, id_, x.ctypes.data if x.size else None, x.nbytes)

    def seed(self, seed):
        """Seeds the random operations of the next runs."""
        call("vsla_bindings_seed", self._bound.at, seed_code(seed))
        self._seed = seed

    def __call__(self, *inputs, out=None):
        """Runs on arrays where they lie. `out` is a list of arrays for the outputs."""
        ids = self.program.outputs
        if out is None:
            outs = [np.empty(self.program.shape(i), self.program.dtype(i)) for i in ids]
        else:
            outs = list(out)
            if len(outs) != len(ids):
                raise TypeError(f"{len(outs)} arrays for {len(ids)} outputs")
            for i, x in zip(ids, outs):
                good = isinstance(x, np.ndarray) and x.shape == self.program.shape(i) and x.dtype == self.program.dtype(i)
                if not (good and x.flags.c_contiguous and x.flags.writeable):
                    raise ValueError("arrays for outputs must be contiguous, writeable, and of the output's shape and dtype")
        given, taken = _Lists(self._inputs(inputs)), _Lists(dict(zip(ids, outs)))
        call("vsla_program_execute", self._plan.at, self._bound.at, given.at, taken.at, self._stream.at)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def gradients(self, *inputs, cotangents=None, of_inputs=False):
        """Runs forward and backward: the outputs, and a dict of gradients by id.

        `cotangents` are arrays for the outputs, ones if absent. Gradients are of the parameters and, if asked, the inputs.
        """
        if self._backward is None or self._backward[0] != of_inputs:
            back = Handle("vsla_autograd_build_backward", self.program._handle.at, int(of_inputs))
            plan = Handle("vsla_autograd_plan_backward", back.at, self._backend.at)
            bound = Handle("vsla_autograd_bind", plan.at, self._bound.at)
            self._backward = (of_inputs, plan, bound)
        _, plan, bound = self._backward
        if getattr(self, "_seed", None) is not None:
            call("vsla_ad_bindings_seed", bound.at, seed_code(self._seed))
        ids = self.program.outputs
        outs = {i: np.empty(self.program.shape(i), self.program.dtype(i)) for i in ids}
        if cotangents is None:
            cotangents = [np.ones(self.program.shape(i), self.program.dtype(i)) for i in ids]
        if len(cotangents) != len(ids):
            raise TypeError(f"{len(cotangents)} cotangents for {len(ids)} outputs")
        wrt = self.program.params + (self.program.inputs if of_inputs else [])
        grads = {i: np.empty(self.program.shape(i), self.program.dtype(i)) for i in wrt}
        given, taken = _Lists(self._inputs(inputs)), _Lists(outs)
        seeds, got = _Lists({i: self._fitting(i, x) for i, x in zip(ids, cotangents)}), _Lists(grads)
        call("vsla_autograd_execute", plan.at, bound.at, given.at, taken.at, seeds.at, got.at, self._stream.at)
        values = tuple(outs[i] for i in ids)
        return (values[0] if len(values) == 1 else values), grads
