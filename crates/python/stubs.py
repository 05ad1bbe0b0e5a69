"""Writes the type stubs of the package, from the table of functions and from the package itself.

    python stubs.py FOLDER        writes FOLDER/*.pyi; the package is imported, so it has to be installed

Types of arguments and results come from the table where a function stands there, else from the names of its arguments.
"""

import importlib
import inspect
import re
import sys
import types
from pathlib import Path

import tensorloom as tl
import tensorloom.vsla  # noqa: F401
from tensorloom import _functions, _methods
from tensorloom import _tensorloom as core
from tensorloom._complex import ComplexDType

MODULES = (
    "__init__ array_api errors fft flatten_util image initializers lax linalg models nn numpy ops optim random safetensors scipy scipy.linalg scipy.special "
    "scipy.stats special tree tree_util vsla"
).split()

# Rust's types as Python's.
ARGUMENTS = {
    "&Tensor": "ArrayLike", "impl Into<Operand>": "ArrayLike", "f64": "float", "bool": "bool", "&str": "str", "DType": "DTypeLike",
    "impl Into<ReduceAxes>": "Axes", "Option<usize>": "int | None", "Option<f64>": "float | None", "Option<&Tensor>": "ArrayLike | None",
    "Option<Operand>": "ArrayLike | None", "Option<(f64, f64)>": "tuple[float, float] | None", "[usize; 2]": "tuple[int, int]",
    "&[usize]": "int | Sequence[int]", "&[isize]": "int | Sequence[int]", "impl Dims": "int | Sequence[int]", "&[bool]": "Sequence[bool]",
    "&[&Tensor]": "Sequence[ArrayLike]", "&[Tensor]": "Sequence[ArrayLike]", "Option<&[usize]>": "Sequence[int] | None",
    "&[(usize, usize)]": "Sequence[tuple[int, int]]", "&[&[usize]]": "Sequence[Sequence[int]]", "impl Into<Number>": "float",
    "impl Into<Complex>": "ComplexLike", "Norm": "str | None", "impl Into<Norm>": "float | str | None", "PadMode": "float | str",
}
RESULTS = {
    "Tensor": "Tensor", "(Tensor, Tensor)": "tuple[Tensor, Tensor]", "(Tensor, Tensor, Tensor)": "tuple[Tensor, Tensor, Tensor]",
    "(Tensor, Tensor, Tensor, Tensor)": "tuple[Tensor, Tensor, Tensor, Tensor]", "Vec<Tensor>": "list[Tensor]",
    "(Tensor, Vec<Tensor>)": "tuple[Tensor, list[Tensor]]", "Complex": "tuple[Tensor, Tensor]", "bool": "bool", "Result<bool>": "bool",
    "usize": "int", "Vec<usize>": "list[int]", "Option<Vec<usize>>": "list[int] | None", "Option<DType>": "DType | None",
    "Option<(i128, i128)>": "tuple[int, int] | None",
}
# Arguments of functions that are written by hand, by their names.
NAMES = {
    "axis": "Axes", "keepdims": "bool", "dtype": "DTypeLike | None", "device": "str | None", "copy": "bool | None", "shape": "int | Sequence[int]",
    "k": "int", "num": "int", "endpoint": "bool", "indexing": "str", "side": "str", "mode": "str", "descending": "bool", "stable": "bool",
    "include_initial": "bool", "size": "int | None", "spec": "str", "n": "int", "m": "int | None", "n_rows": "int", "n_cols": "int | None",
    "f": "Callable[..., Any]", "argnums": "int | Sequence[int]", "has_aux": "bool", "static_argnums": "int | Sequence[int]",
    "static_argnames": "str | Sequence[str]", "tree": "Any", "initial": "Any", "axis_size": "int | None", "in_axes": "Any", "out_axes": "Any",
    "primals": "Sequence[Any]", "tangents": "Sequence[Any]", "branches": "Sequence[Callable[..., Any]]", "operands": "Any", "args": "Any",
    "kwargs": "Any", "correction": "float", "path": "str | PathLike[str]", "dir": "str | PathLike[str]", "metadata": "dict[str, str] | None",
    "tensors": "dict[str, ArrayLike]", "data": "bytes", "return_index": "bool", "return_inverse": "bool", "return_counts": "bool",
    "repeats": "int | ArrayLike", "kind": "Any", "type": "DTypeLike | Tensor", "from_": "DTypeLike | Tensor", "to": "DTypeLike",
    "rtol": "float", "atol": "float", "reps": "int | Sequence[int]", "repetitions": "int | Sequence[int]", "shift": "int | Sequence[int]",
    "source": "int | Sequence[int]", "destination": "int | Sequence[int]", "pad_width": "Any", "stat_length": "Any", "reflect_type": "str", "min": "ArrayLike | None", "max": "ArrayLike | None",
    "axes": "int | Sequence[int] | Sequence[Sequence[int]]", "init": "Any", "xs": "Any", "length": "int | None", "reverse": "bool", "body": "Callable[..., Any]",
    "body_fun": "Callable[..., Any]", "cond_fun": "Callable[..., Any]", "init_val": "Any", "lower": "Any", "upper": "Any", "pred": "ArrayLike",
    "true_fun": "Callable[..., Any]", "false_fun": "Callable[..., Any]", "offset": "int", "upper_": "bool", "full_matrices": "bool", "ord": "Any",
    "index": "ArrayLike", "module": "str", "sizes": "dict[str, Any] | None", "seed": "int", "model": "str | None", "tokenizer": "str | PathLike[str] | None",
    "prompt": "str | ArrayLike", "max_new": "int | None", "temperature": "float", "top_k": "int", "top_p": "float", "min_p": "float", "typical_p": "float",
    "repetition": "float", "presence": "float", "frequency": "float", "ends": "Sequence[int] | None", "ids": "ArrayLike", "labels": "ArrayLike | None",
    "params": "dict[str, Any]", "text": "str", "batch": "int", "steps": "int", "out": "str | PathLike[str]", "resume": "bool",
    "callback": "Callable[[dict[str, Any]], Any] | None", "settings": "Any", "ignore": "int", "stream": "Any", "max_version": "tuple[int, int] | None",
    "dl_device": "tuple[int, int] | None", "api_version": "str | None", "rest": "Any", "elems": "Any", "ct": "Any", "fill_value": "ArrayLike", "start": "float",
    "stop": "float | None", "step": "float", "initial_value": "Any", "unroll": "int | None",
    "transforms": "GradientTransformation", "learning_rate": "Any", "momentum": "float | None", "nesterov": "bool", "b1": "float", "b2": "float", "eps": "float", "eps_root": "float",
    "weight_decay": "float", "decay": "float", "centered": "bool", "threshold": "float", "rho": "float", "initial_accumulator_value": "float", "step_size": "float",
    "step_size_fn": "Any", "max_delta": "float", "max_norm": "float", "debias": "bool", "updates": "Any", "treedef": "Any", "leaves": "Sequence[Any]", "is_leaf": "Callable[[Any], bool] | None",
    "outer": "Any", "inner": "Any", "flatten_func": "Callable[[Any], Any]", "unflatten_func": "Callable[[Any, Any], Any]", "data_fields": "Sequence[str] | None",
    "meta_fields": "Sequence[str] | None", "init_value": "float", "end_value": "float | None", "power": "float", "transition_steps": "int", "transition_begin": "int", "decay_rate": "float",
    "staircase": "bool", "decay_steps": "int", "alpha": "Any", "exponent": "float", "schedules": "Sequence[Callable[[Any], Any]]", "boundaries": "Sequence[int]", "peak_value": "float",
    "warmup_steps": "int", "boundaries_and_scales": "dict[int, float] | None", "value": "float", "batch_size": "int | None", "fn": "Callable[..., Any]", "axis_name": "str | None",
    "donate_argnums": "int | Sequence[int]", "donate_argnames": "str | Sequence[str]", "policy": "None", "prevent_cse": "bool", "indices_or_sections": "int | Sequence[int]",
    "replace": "bool", "independent": "bool", "compute_uv": "bool", "symmetrize_input": "bool", "is_causal": "bool", "approximate": "bool", "num_classes": "int", "negative_slope": "float",
    "window_strides": "Sequence[int]", "padding": "Any", "dimension_numbers": "Any", "feature_group_count": "int", "batch_group_count": "int", "lhs_dilation": "Sequence[int] | None",
    "rhs_dilation": "Sequence[int] | None", "computation": "Callable[..., Any]", "window_dimensions": "Sequence[int]", "dimension": "int", "dimensions": "Sequence[int] | None",
    "new_sizes": "Sequence[int]", "permutation": "Sequence[int]", "ddof": "int", "is_stable": "bool", "num_keys": "int", "index_dtype": "DTypeLike", "new_dtype": "DTypeLike",
    "broadcast_dimensions": "Sequence[int]", "start_indices": "Sequence[Any]", "limit_indices": "Sequence[int]", "strides": "Sequence[int] | None", "slice_sizes": "Sequence[int]",
    "padding_config": "Sequence[Any]", "excluded": "Sequence[int]", "condlist": "Sequence[ArrayLike]", "funclist": "Sequence[Any]", "choices": "Sequence[ArrayLike]", "minlength": "int", "level": "int",
}
# Results of those, by module and name or by name.
GIVES = {
    "jit": "Callable[..., Any]", "grad": "Callable[..., Any]", "value_and_grad": "Callable[..., Any]", "vmap": "Callable[..., Any]",
    "jacfwd": "Callable[..., Any]", "jacrev": "Callable[..., Any]", "hessian": "Callable[..., Any]", "checkpoint": "Callable[..., Any]",
    "remat": "Callable[..., Any]", "jvp": "tuple[Any, Any]", "vjp": "tuple[Any, Callable[..., Any]]", "linearize": "tuple[Any, Callable[..., Any]]",
    "make_graph": "str", "dtype": "DType", "block_until_ready": "Any", "tree.leaves": "list[Any]", "tree.map": "Any", "tree.reduce": "Any", "tree.unflatten": "Any",
    "tree.flatten": "tuple[list[Any], TreeDef]", "tree.structure": "TreeDef", "tree.transpose": "Any", "tree.leaves_with_path": "list[Any]", "tree.map_with_path": "Any",
    "tree.flatten_with_path": "tuple[list[Any], TreeDef]", "tree.register_node": "None", "tree.register_node_class": "Any", "tree.register_dataclass": "Any",
    **{f"tree_util.{n}": "Any" for n in ("tree_flatten tree_flatten_with_path tree_leaves tree_map tree_map_with_path tree_reduce register_dataclass "
       "register_pytree_node register_pytree_node_class tree_structure tree_transpose tree_unflatten").split()}, "tree_util.tree_all": "bool",
    "eval_shape": "Any", "device_get": "Any", "device_put": "Any", "jacobian": "Callable[..., Any]", "make_jaxpr": "Callable[..., str]", "devices": "list[str]", "device_count": "int", "default_backend": "str",
    **{f"initializers.{n}": "Callable[..., Tensor]" for n in ("constant normal uniform truncated_normal variance_scaling glorot_uniform glorot_normal xavier_uniform xavier_normal "
       "he_uniform he_normal kaiming_uniform kaiming_normal lecun_uniform lecun_normal").split()}, "optim.apply_updates": "Any", "optim.global_norm": "Tensor",
    **{f"optim.{n}": "Callable[[Any], Tensor]" for n in ("constant_schedule polynomial_schedule linear_schedule exponential_decay cosine_decay_schedule join_schedules "
       "warmup_cosine_decay_schedule warmup_constant_schedule piecewise_constant_schedule").split()},
    "numpy.can_cast": "bool", "issubdtype": "bool", "iscomplexobj": "bool", "isrealobj": "bool", "vectorize": "Callable[..., Any]", "ix_": "tuple[Tensor, ...]",
    "atleast_1d": "Any", "atleast_2d": "Any", "atleast_3d": "Any", "numpy.split": "list[Tensor]", "lax.split": "list[Tensor]", "lax.sort": "Any", "top_k": "tuple[Tensor, Tensor]", "scan": "tuple[Any, Any]", "fori_loop": "Any", "while_loop": "Any", "cond": "Any", "switch": "Any",
    "associative_scan": "Any", "lax.map": "Any", "lax.stop_gradient": "Any", "save_file": "None", "safetensors.save": "bytes",
    "safetensors.load": "dict[str, Tensor]", "load_file": "dict[str, Tensor]", "safetensors.metadata": "dict[str, str]", "models.load": "Model",
    "models.fresh": "Model", "models.train": "dict[str, Any]", "models.settings": "dict[str, str]", "can_cast": "bool", "isdtype": "bool",
    "result_type": "DType", "finfo": "Any", "iinfo": "Any", "__array_namespace_info__": "Any", "broadcast_arrays": "list[Tensor]",
    "meshgrid": "list[Tensor]", "unstack": "tuple[Tensor, ...]", "array_api.nonzero": "tuple[Tensor, ...]", "numpy.nonzero": "tuple[Tensor, ...]",
    "numpy.where": "Any", "numpy.unique": "Any", "unique_all": "Any", "unique_counts": "Any", "unique_inverse": "Any", "isscalar": "bool",
    "numpy.shape": "tuple[int, ...]", "set_printoptions": "None", "get_printoptions": "dict[str, Any]", "printoptions": "Any", "numpy.size": "int", "broadcast_shapes": "tuple[int, ...]",
    "numpy.load": "Any", "numpy.save": "None", "savez": "None", "array_repr": "str", "array_str": "str", "einsum_path": "Any", "iterable": "bool", "union1d": "Tensor", "intersect1d": "Any",
    "histogram": "tuple[Tensor, Tensor]", "histogram2d": "tuple[Tensor, Tensor, Tensor]", "histogramdd": "tuple[Tensor, list[Tensor]]", "gradient": "Any", "average": "Any", "numpy.linspace": "Any",
    "array_split": "list[Tensor]", "hsplit": "list[Tensor]", "vsplit": "list[Tensor]", "dsplit": "list[Tensor]", "diag_indices": "tuple[Tensor, ...]", "tril_indices": "tuple[Tensor, Tensor]",
    "triu_indices": "tuple[Tensor, Tensor]", "indices": "Any", "mask_indices": "tuple[Tensor, ...]", "numpy.finfo": "Any", "numpy.iinfo": "Any", "unique_values": "Tensor", "tree.broadcast": "Any",
    "tree.register_static": "Any", "tree.register_node_with_keys": "None", "tree.register_node_with_keys_class": "Any", "keystr": "str", "ravel_pytree": "tuple[Tensor, Callable[[ArrayLike], Any]]",
    **{f"tree_util.{n}": "Any" for n in "tree_broadcast tree_leaves_with_path register_static register_pytree_with_keys register_pytree_with_keys_class treedef_children treedef_tuple".split()},
    "treedef_is_leaf": "bool", "all_leaves": "bool", "disable_jit": "Any", "named_scope": "Any", "named_call": "Callable[..., Any]", "custom_gradient": "Callable[..., Any]", "clear_caches": "None", "set_debug": "None",
    "linear_transpose": "Callable[..., Any]", "local_devices": "list[str]", "local_device_count": "int", "process_index": "int", "process_count": "int", "typeof": "ShapeDtypeStruct",
    "approx_max_k": "tuple[Tensor, Tensor]", "approx_min_k": "tuple[Tensor, Tensor]", "sort_key_val": "Any", "optimization_barrier": "Any", "lstsq": "tuple[Tensor, Tensor, Tensor, Tensor]",
    "cho_factor": "tuple[Tensor, bool]", "lu_factor": "tuple[Tensor, Tensor]", "scipy.linalg.lu": "Any", "allclose": "bool", "eigh": "Any", "qr": "Any", "slogdet": "Any", "svd": "Any",
}
HEAD = '''"""{doc}"""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any{more}
'''
TYPES = '''
ArrayLike = Any
"""A tensor, a number, nested lists of numbers, or an array of NumPy or of anyone who speaks DLPack or the buffer protocol."""
Axes = int | Sequence[int] | None
DTypeLike = Any
"""A `DType`, its name, or a type of NumPy."""
ComplexLike = Any
"""A tensor, or a pair of real and imaginary part."""

class _At:
    def __getitem__(self, index: Any, /) -> _Place: ...

class _Place:
    def get(self, mode: str | None = None, fill_value: float | None = None, **options: Any) -> Tensor: ...
    def apply(self, f: Callable[..., Any], **options: Any) -> Tensor: ...
    def set(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def add(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def subtract(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def multiply(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def mul(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def divide(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def power(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def min(self, values: ArrayLike, **options: Any) -> Tensor: ...
    def max(self, values: ArrayLike, **options: Any) -> Tensor: ...
'''
# Attributes and methods of classes, where they are no functions of the table.
ATTRIBUTES = {
    "T": "Tensor", "mT": "Tensor", "real": "Tensor", "imag": "Tensor", "at": "_At", "weak_type": "bool", "device": "str", "dtype": "DType", "itemsize": "int", "nbytes": "int", "ndim": "int", "shape": "tuple[int, ...]",
    "size": "int", "name": "str", "kind": "str", "parameter_count": "int", "vocabulary": "int | None", "max_sequence": "int | None",
    "has_tokenizer": "bool", "ids": "list[int]",
}
METHODS = {
    "__len__": "int", "__iter__": "Iterator[Any]", "__bool__": "bool", "__float__": "float", "__int__": "int", "__complex__": "complex", "__index__": "int",
    "__hash__": "int", "__repr__": "str", "__eq__": "Any", "__ne__": "Any", "__setitem__": "None", "__next__": "Any", "__array__": "Any",
    "__dlpack__": "Any", "__dlpack_device__": "tuple[int, int]", "__array_namespace__": "Any", "__divmod__": "tuple[Tensor, Tensor]",
    "__rdivmod__": "tuple[Tensor, Tensor]", "__getattr__": "Any", "numpy": "Any", "item": "Any", "tolist": "Any", "block_until_ready": "Tensor",
    "to_device": "Tensor", "params": "dict[str, Tensor]", "update": "None", "apply": "Tensor", "logits": "Tensor", "loss": "float",
    "value_and_grad": "tuple[Tensor, dict[str, Tensor]]", "generate": "Generation", "encode": "list[int]", "decode": "str", "save": "None", "graph": "str",
    "close": "None", "tobytes": "bytes", "devices": "set[str]", "__reversed__": "Iterator[Any]", "__call__": "Any", "__buffer__": "memoryview",
}
OPTIMIZER = {"init": "Any", "update": "tuple[Any, Any]"}
# Operators that take something else than one operand.
SLOTS = dict.fromkeys(
    "__len__ __iter__ __bool__ __float__ __int__ __index__ __hash__ __repr__ __next__ __neg__ __pos__ __abs__ __invert__".split(), ""
) | {"__setitem__": ", key: Any, value: ArrayLike, /", "__getitem__": ", key: Any, /", "__pow__": ", other: Any, mod: None = None, /",
     "__rpow__": ", other: Any, mod: None = None, /", "__call__": ", *args: Any, **kwargs: Any"}
NOTED = {
    "__dlpack__": "A capsule of the same memory, marked as read-only; of a copy before version 1.0, which has no such mark.", "__dlpack_device__": "The processor.", "__array__": "An array of NumPy's.",
    "__array_namespace__": "The array API's namespace.", "__complex__": "The one element.",
}
SKIP = {"__new__", "__reduce__", "__copy__", "__deepcopy__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__init__", "__delitem__",
        "__init_subclass__", "__subclasshook__", "__format__", "__sizeof__", "__dir__", "__str__", "__reduce_ex__", "__getstate__", "__doc__", "__module__",
        "__weakref__", "__dict__", "__release_buffer__", "__buffer__", "__getattr__", "__basicsize__"}


def show(value):
    """A default as a stub has it."""
    if isinstance(value, tl.DType):
        return "..."
    return repr(value) if isinstance(value, (int, float, str, bool, tuple, type(None))) and value == value else "..."


def signature(f):
    """The parameters of a function; of one that doesn't tell, anything."""
    try:
        return list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL), inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]


def written(parameters, types):
    """Parameters as text."""
    out, star, slash = [], False, False
    kinds = inspect.Parameter
    for i, p in enumerate(parameters):
        if slash and p.kind is not kinds.POSITIONAL_ONLY:
            out.append("/")
            slash = False
        if p.kind is kinds.KEYWORD_ONLY and not star:
            out.append("*")
            star = True
        if p.name == "self":
            out.append("self")
            slash = p.kind is kinds.POSITIONAL_ONLY and len(parameters) > 1 and parameters[1].kind is kinds.POSITIONAL_ONLY
            continue
        kind = types.get(p.name) or NAMES.get(p.name) or ("Any" if p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) else "ArrayLike")
        mark = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        star = star or mark == "*"
        slash = slash or p.kind is kinds.POSITIONAL_ONLY
        text = f"{mark}{p.name}: {kind}"
        if p.default is not p.empty:
            if p.default is None and "None" not in kind and kind not in ("Any", "Axes", "ArrayLike", "DTypeLike"):
                text += " | None"
            text += f" = {show(p.default)}"
        out.append(text)
    if slash:
        out.append("/")
    return ", ".join(out)


def function(module, name, f, rows, method=False):
    """A function as a stub has it."""
    types, gives = {}, GIVES.get(f"{module}.{name}") or GIVES.get(name) or "Tensor"
    row = rows.get((getattr(f, "__module__", ""), name))
    if row and getattr(f, "__doc__", None) == row[4]:
        types = {_functions.named(row[0], row[1], i, a): ARGUMENTS.get(k, "int") for i, (a, k) in enumerate(row[2])}
        gives = RESULTS[row[3]]
    parameters = signature(f)
    if method:
        parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *parameters[1:]]
    # Indented alike by every version of Python.
    doc = inspect.cleandoc(f.__doc__ or "").replace("\\", "\\\\").replace("\n", "\n    ")
    doc = doc if not doc.endswith('"') else doc + " "
    pad = "    " if method else ""
    if module == "optim" and gives == "Tensor" and name != "global_norm":
        gives = "GradientTransformation"
    return f'{pad}def {name}({written(parameters, types)}) -> {gives}:\n{pad}    """{doc}"""\n'


def shown(f, name):
    """The parameters of a method of a class of the library."""
    found = signature(f)
    return found if found and found[0].name == "self" else [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *found]


def klass(c, rows):
    """A class as a stub has it."""
    base = next((b.__name__ for b in c.__mro__[1:] if b is not object and not b.__name__.startswith("_")), "")
    lines = [f"class {c.__name__}{f'({base})' if base else ''}:", f'    """{(inspect.getdoc(c) or c.__name__)}"""\n'.replace("\n", "\n    ").rstrip(" ")]
    if issubclass(c, BaseException):
        return "\n".join(lines)
    for name in sorted(vars(c)):
        member = vars(c)[name]
        if name in SKIP or (name.startswith("_") and not name.startswith("__")) or getattr(member, "_of_numpy", False):
            continue
        doc = inspect.cleandoc(getattr(member, "__doc__", None) or name).replace("\n", "\n        ")
        if isinstance(member, types.WrapperDescriptorType):
            # What Python says about its operators differs from version to version.
            gives = METHODS.get(name, "Tensor" if c is tl.Tensor else "bool" if c is tl.DType else "Any")
            lines.append(f"    def {name}(self{SLOTS.get(name, ', other: Any, /')}) -> {gives}: ...\n")
            continue
        if inspect.isgetsetdescriptor(member) or inspect.ismemberdescriptor(member) or isinstance(member, property):
            lines.append(f'    @property\n    def {name}(self) -> {ATTRIBUTES.get(name, "Any")}:\n        """{doc}"""\n')
        elif callable(member):
            if name.startswith("__") and not getattr(member, "__doc__", None):
                doc = NOTED.get(name, name)
            gives = METHODS.get(name, "Tensor" if c is tl.Tensor else "Any")
            gives = OPTIMIZER.get(name, gives) if c is tl.optim.GradientTransformation else gives
            lines.append(f'    def {name}({written(shown(member, name), {})}) -> {gives}:\n        """{doc}"""\n')
        elif member is not None:
            lines.append(f"    {name}: Any\n")
    if c is tl.Tensor:
        lines.append('    def __buffer__(self, flags: int, /) -> memoryview:\n        """The elements where they lie, read-only."""\n')
        for name in sorted(n for n, f in vars(c).items() if getattr(f, "_of_numpy", False)):
            f = vars(tl.numpy)[name]
            if name in _methods._FLAT:
                lines.append(f'    def {name}(self, *dims: Any, **options: Any) -> Tensor:\n        """{inspect.cleandoc(f.__doc__)}"""\n')
            else:
                lines.append(function("numpy", name, f, rows, method=True))
    return "\n".join(lines)


def public(m):
    """The names of a module that are meant for others."""
    named = getattr(m, "__all__", None)
    if named is not None:
        return sorted(named)
    names = [n for n in vars(m) if not n.startswith("_") or n in ("__version__", "__array_api_version__", "__array_namespace_info__")]
    return sorted(n for n in names if not (inspect.ismodule(vars(m)[n]) and not vars(m)[n].__name__.startswith("tensorloom")))


def stub(where):
    """The stub of a module."""
    m = tl if where == "__init__" else importlib.import_module(f"tensorloom.{where}")
    titles = {"np": "numpy", "": ""}
    rows = {}
    for row in core._table():
        name = row[1][:-1] if row[1].endswith("_") else row[1]
        rows[("tensorloom." + titles.get(row[0], row[0]), name)] = row
    # Names that are defined elsewhere come by an import.
    home = "__init__" if where == "__init__" else where
    above = ".." if where.startswith("scipy") else "."
    more = "" if where == "__init__" else f"\n\nfrom {above} import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor"
    body, constants = [], []
    for name in public(m):
        x = vars(m)[name]
        if inspect.ismodule(x):
            constants.append(f"from . import {name} as {name}")
        elif isinstance(x, type) and x.__module__ == "numpy" or isinstance(x, ComplexDType):
            constants.append(f"{name}: Any")
        elif isinstance(x, type):
            if x in (tl.Tensor, tl.DType) and home != "__init__":
                if name not in ("Tensor", "DType"):
                    constants.append(f"{name} = {x.__name__}")
            elif x.__name__ != name:
                constants.append(f"{name} = {x.__name__}")
            else:
                body.append(klass(x, rows))
        elif isinstance(x, tl.DType):
            constants.append(f"{name}: DType")
        elif callable(x):
            body.append(function(where, name, x, rows))
        else:
            constants.append(f"{name}: {type(x).__name__ if x is not None else 'None'}")
    doc = (m.__doc__ or where).strip().splitlines()[0]
    text = HEAD.format(doc=doc, more=more) + (TYPES if where == "__init__" else "") + "\n" + "\n".join(sorted(constants)) + "\n\n" + "\n".join(body)
    if where == "vsla":
        # Its files are another package too, which has nothing of this one.
        text = text.replace("from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor", "from numpy import ndarray\n" + TYPES.strip())
        text = re.sub(r"(?m)^( *def .*) -> Tensor:", r"\1 -> ndarray:", text)
    if "bool" in public(m):
        # The namespace has a type of this name.
        text = re.sub(r"(?m)^( *def .*)$", lambda line: re.sub(r"\bbool\b", "_bool", line[0]), text)
        text = text.replace("from os import PathLike\n", "from builtins import bool as _bool\nfrom os import PathLike\n")
    return re.sub(r"(?m) +$", "", text).rstrip() + "\n"


def file(folder, where):
    """Where the stub of a module is."""
    return folder / (f"{where}/__init__.pyi" if where in ("vsla", "scipy") else f"{where.replace('.', '/')}.pyi")


def write(folder):
    """Writes all stubs."""
    for where in MODULES:
        file(Path(folder), where).write_text(stub(where))
    (Path(folder) / "py.typed").write_text("")


if __name__ == "__main__":
    write(sys.argv[1])
