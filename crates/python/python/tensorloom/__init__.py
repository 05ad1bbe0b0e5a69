"""Tensors, transforms and compiled functions.

>>> import tensorloom as tl, tensorloom.numpy as tnp
>>> f = tl.jit(lambda x: tnp.sin(x).sum())
>>> tl.grad(f)(tnp.array([0.0, 1.0]))
Tensor([1.       , 0.5403023], dtype=float32)

Names are those of JAX: `jit grad value_and_grad vmap jvp vjp linearize jacfwd jacrev hessian checkpoint`, `lax`, `numpy`, `nn`,
`random`, `linalg`, `fft`, `special`, `tree`. `tensorloom.array_api` is the array API's namespace, `models` runs and trains models,
`safetensors` reads and writes files, `vsla` (imported by itself) has tensors of variable shapes.
"""

import contextlib as _contextlib
import functools as _functools
import inspect as _inspect

from . import _tensorloom as _core
from ._custom import custom_jvp, custom_vjp
from ._tensorloom import (
    DType, Tensor, TensorError, TracerError, __version__, asarray, bfloat16, bool_, dtype, float16, float32, float64,
    float8_e4m3fn, float8_e5m2, from_dlpack, int8, int16, int32, int64, make_graph, uint8, uint16, uint32, uint64,
)
from ._tensorloom import linearize as _linearize, vjp as _vjp
from . import fft, lax, linalg, models, nn, numpy, optim, random, safetensors, special, tree, tree_util  # noqa: E402
from . import array_api, errors, flatten_util, image, ops, scipy  # noqa: E402
from ._custom import custom_gradient  # noqa: E402
from ._lowered import Lowered as _Lowered  # noqa: E402
from ._methods import install as _install  # noqa: E402

_install()
Array = Tensor


class ShapeDtypeStruct:
    """The shape and type of an array that isn't there."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), _core.dtype(dtype)

    ndim = property(lambda x: len(x.shape), doc="Number of axes.")

    def __repr__(self):
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"

    def __eq__(self, other):
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self):
        return hash((self.shape, self.dtype))


def _array(x):
    return numpy.zeros(x.shape, x.dtype) if isinstance(x, ShapeDtypeStruct) else asarray(x)


def eval_shape(f, *args, **kwargs):
    """What a function gives, without computing it: a tree of `ShapeDtypeStruct`. Arguments may be such too."""
    args = tree.map(lambda x: _array(x) if isinstance(x, ShapeDtypeStruct) else x, args)
    out, types = _core._eval_shape(_functools.partial(f, **kwargs) if kwargs else f, args)
    return tree.map(lambda place: ShapeDtypeStruct(*types[int(place)]), out)


def jit(
    f=None, *, static_argnums=(), static_argnames=(), donate_argnums=(), donate_argnames=(), keep_unused=False, device=None, backend=None,
    inline=False,
):
    """Compiles a function: traced once for each signature, run as one program.

    Arguments named by `static_argnums` and `static_argnames` are part of the program; they must be hashable. An argument that has both
    a place and a name is static either way, however it is given. Donated arguments are taken for JAX's sake: memory that nobody refers to
    is used again in any case, and what somebody refers to stays. So are `keep_unused` and `inline`; the device is "cpu".
    """
    for where in (device, backend):
        if where not in (None, "cpu"):
            raise ValueError(f"device {where!r}; arrays are on \"cpu\"")
    if f is None:
        return _functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames)
    numbers = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums)
    names = [static_argnames] if isinstance(static_argnames, str) else list(static_argnames)
    numbers, names = _statics(f, numbers, names)
    made = _named(_core.Jitted(f, numbers, names), f)
    made._static_argnums, made._static_argnames = numbers, names
    return made


def _statics(f, numbers, names):
    """Places and names of static arguments, those that the function's signature adds included."""
    if not numbers and not names or not callable(f):
        return numbers, names
    try:
        known = list(_inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some functions of C have none
        if any(n < 0 for n in numbers):
            raise ValueError(f"static_argnums has {numbers}, but {f} has no signature") from None
        return numbers, names
    kinds = _inspect.Parameter
    places = [p for p in known if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    more = {p.kind for p in known}
    for n in numbers:
        if n < -len(places) or n >= len(places) and kinds.VAR_POSITIONAL not in more:
            raise ValueError(f"static_argnums has {n}, but the function has {len(places)} positional arguments")
    by_name = [p.name for p in known if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    for name in names:
        if name not in by_name and kinds.VAR_KEYWORD not in more:
            raise ValueError(f"static_argnames has {name!r}, but the function has {', '.join(by_name) or 'no named arguments'}")
    numbers = {n + len(places) if n < 0 else n for n in numbers}
    numbers |= {i for i, p in enumerate(places) if p.name in names}
    named = {p.name for i, p in enumerate(places) if i in numbers and p.kind is kinds.POSITIONAL_OR_KEYWORD}
    return sorted(numbers), sorted(named.union(names))


@_contextlib.contextmanager
def disable_jit(disable=True):
    """Inside of it, compiled functions are called as they were written, so that values can be looked at: `with tl.disable_jit(): ..`"""
    before = _core._disable_jit(bool(disable))
    try:
        yield
    finally:
        _core._disable_jit(before)


def set_debug(level):
    """Prints every program that is compiled from now on to standard error, in place of the environment variable `LOOM_DEBUG`.

    Level 0 prints nothing, 1 the graph, 2 also the graph after each compiler pass, 3 also the steps and buffers, 4 also the loops of each
    kernel, 5 also the code of each kernel.
    """
    _core.set_debug(level)


_core.Jitted.lower = lambda self, *args, **kwargs: _Lowered(self, args, kwargs)


def _named(made, f):
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(made, name, getattr(f, name))
        except (AttributeError, TypeError):
            pass
    try:
        made.__wrapped__ = f
    except (AttributeError, TypeError):
        pass
    return made


def value_and_grad(f, argnums=0, has_aux=False):
    """The value of a function and its gradient with respect to the arguments that `argnums` names."""

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        (value, aux), grads = _core._value_and_grad(f, argnums, has_aux, args, kwargs or None)
        return ((value, aux) if has_aux else value), grads

    return run


def grad(f, argnums=0, has_aux=False):
    """The gradient of a function that gives a float of no axes."""

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        (_, aux), grads = _core._value_and_grad(f, argnums, has_aux, args, kwargs or None)
        return (grads, aux) if has_aux else grads

    return run


def vmap(f, in_axes=0, out_axes=0, axis_name=None, axis_size=None):
    """Calls a function for every entry of an axis of its arguments, all at once. There are no collectives over `axis_name`."""

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        return _core._vmap(f, axes, out_axes, axis_size, args, kwargs or None)

    return run


def jvp(f, primals, tangents, has_aux=False):
    """The value of a function and its derivative along the tangents; with `has_aux`, what else it gives behind them."""
    if has_aux:
        split = _Aside(f)
        (y, aux), (dy, _) = _core._jvp(split, tuple(primals), tuple(tangents))
        return y, dy, split.joined(aux)
    return _core._jvp(f, tuple(primals), tuple(tangents))


def vjp(f, *primals, has_aux=False):
    """The value of a function and the function from its cotangents to those of the arguments; with `has_aux`, what else it gives."""
    if not has_aux:
        return _vjp(f, *primals)
    split = _Aside(f)
    (y, aux), back = _vjp(split, *primals)
    zeros = [numpy.zeros_like(x) for x in aux]
    return y, lambda ct: back((ct, zeros)), split.joined(aux)


def linearize(f, *primals, has_aux=False):
    """The value of a function and its derivative there as a function of tangents; with `has_aux`, what else it gives behind them."""
    if not has_aux:
        return _linearize(f, *primals)
    split = _Aside(f)
    (y, aux), push = _linearize(split, *primals)
    return y, lambda *tangents: push(*tangents)[0], split.joined(aux)


class _Aside:
    """A function of a pair, whose second part is given as a list of its tensors; the rest of it may be anything."""

    def __init__(self, f):
        self.f = f

    def __call__(self, *args):
        y, aux = self.f(*args)
        self.leaves, self.treedef = tree.flatten(aux)
        return y, [x for x in self.leaves if isinstance(x, Tensor)]

    def joined(self, tensors):
        """The second part with these tensors."""
        tensors = iter(tensors)
        return self.treedef.unflatten([next(tensors) if isinstance(x, Tensor) else x for x in self.leaves])


def _jacobian(f, argnums, reverse, has_aux=False):
    many = not isinstance(argnums, int)
    if has_aux:
        @_functools.wraps(f, updated=())
        def with_aux(*args, **kwargs):
            # What else the function gives comes from a call of its own.
            main = _jacobian(lambda *a, **k: f(*a, **k)[0], argnums, reverse)
            return main(*args, **kwargs), f(*args, **kwargs)[1]

        return with_aux

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        g = _functools.partial(f, **kwargs) if kwargs else f
        each = _reverse_of_tree if reverse else _forward_of_tree
        plain = lambda i: _is_array(args[i])  # noqa: E731
        one = lambda i: _core._jacobian(g, reverse, i, args) if plain(i) else each(g, i, args)  # noqa: E731
        if not many:
            return one(argnums % len(args))
        rows = [one(i % len(args)) for i in argnums]
        # One tree of results, whose leaves are tuples.
        return tree.map(lambda *parts: tuple(parts), *rows, is_leaf=None if all(plain(i) for i in argnums) else _is_leaf_of(g, args))

    return run


def _is_array(x):
    return tree._open(x) is None


def _is_leaf_of(f, args):
    """Where the leaves of a function's result stand in a tree of Jacobians: at the depth of the result itself."""
    shape = tree.structure(eval_shape(f, *args))
    return None if shape.num_leaves == 0 else _Depth(shape)


class _Depth:
    """Walks beside a structure and stops where it has leaves."""

    def __init__(self, shape):
        self.left = [shape]

    def __call__(self, _):
        here = self.left.pop(0)
        if here.kind is tree._LEAF:
            return True
        self.left[:0] = here.children
        return False


def _basis(x):
    return numpy.eye(x.size, dtype=x.dtype).reshape((x.size, *x.shape))


def _reverse_of_tree(f, i, args):
    """Rows of the Jacobian with respect to a tree: a tree of results whose leaves are trees of arguments."""
    y, back = vjp(lambda p: f(*args[:i], p, *args[i + 1:]), args[i])
    leaves, shape = tree.flatten(y)
    rows = []
    for k, leaf in enumerate(leaves):
        others = [numpy.zeros_like(x) for x in leaves]
        pull = lambda e, k=k, others=others: back(shape.unflatten([*others[:k], e, *others[k + 1:]]))[0]  # noqa: E731
        rows.append(tree.map(lambda t, s=leaf.shape: t.reshape((*s, *t.shape[1:])), vmap(pull)(_basis(leaf))))
    return shape.unflatten(rows)


def _forward_of_tree(f, i, args):
    """The same, by columns."""
    leaves, shape = tree.flatten(tree.map(numpy.asarray, args[i]))
    columns = []
    for k, leaf in enumerate(leaves):
        others = [numpy.zeros_like(x) for x in leaves]

        def push(e, k=k, others=others):
            tangent = shape.unflatten([*others[:k], e, *others[k + 1:]])
            return jvp(lambda p: f(*args[:i], p, *args[i + 1:]), (shape.unflatten(leaves),), (tangent,))[1]

        made = vmap(push)(_basis(leaf))
        columns.append(tree.map(lambda t, s=leaf.shape: numpy.moveaxis(t, 0, -1).reshape((*t.shape[1:], *s)), made))
    flat = [tree.leaves(c) for c in columns]
    return tree.structure(columns[0]).unflatten([shape.unflatten(list(row)) for row in zip(*flat)])


def jacfwd(f, argnums=0, has_aux=False):
    """The Jacobian of a function, column by column."""
    return _jacobian(f, argnums, False, has_aux)


def jacrev(f, argnums=0, has_aux=False):
    """The Jacobian of a function, row by row."""
    return _jacobian(f, argnums, True, has_aux)


def hessian(f, argnums=0, has_aux=False):
    """The second derivatives of a function that gives one number."""
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


jacobian = jacrev


def checkpoint(f, *, prevent_cse=True, policy=None, static_argnums=()):
    """Keeps only the arguments of a function for backward, where the rest is computed again."""
    if policy is not None:
        raise NotImplementedError("checkpoint saves only the arguments; apply it to smaller parts to save more")
    if f is None:
        return checkpoint

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        g, rest = _without(f, args, static_argnums)
        return _core._checkpoint(g, rest, kwargs or None)

    return run


def _without(f, args, static_argnums):
    """The function of the arguments that are not static, and those."""
    numbers = [static_argnums] if isinstance(static_argnums, int) else static_argnums
    fixed = {n % len(args) if args else n for n in numbers}
    moving = [i for i in range(len(args)) if i not in fixed]

    def g(*xs, **kwargs):
        full = list(args)
        for i, x in zip(moving, xs):
            full[i] = x
        return f(*full, **kwargs)

    return (g, tuple(args[i] for i in moving)) if fixed else (f, args)


remat = checkpoint


def block_until_ready(x):
    """Computes everything in a tree and gives it back."""
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


def make_jaxpr(f, static_argnums=()):
    """A function of the same arguments that gives the program of `f` as text."""
    def run(*args):
        g, rest = _without(f, args, static_argnums)
        return make_graph(g, *rest)

    return run


def typeof(x):
    """The shape and type of an array."""
    x = asarray(x)
    return ShapeDtypeStruct(x.shape, x.dtype)


def linear_transpose(fun, *primals):
    """The function that takes a linear one backwards. Arguments give shapes and types alone."""
    zeros = tree.map(lambda x: numpy.zeros_like(_array(x)), primals)
    return _vjp(fun, *zeros)[1]


def named_call(fun, *, name=None):
    """The same function; programs here have no names for their parts."""
    return fun


@_contextlib.contextmanager
def named_scope(name):
    """Changes nothing; programs here have no names for their parts."""
    yield


def clear_caches():
    """Changes nothing: a compiled function's programs go with it."""


def devices(backend=None):
    """Where tensors may be."""
    return ["cpu"]


def device_count(backend=None):
    """How many devices there are for tensors."""
    return 1


def local_devices(process_index=None, backend=None, host_id=None):
    """Where tensors of this process may be."""
    return devices(backend)


def local_device_count(backend=None):
    """How many devices there are for tensors of this process."""
    return 1


def process_index(backend=None):
    """The number of this process: 0."""
    return 0


def process_count(backend=None):
    """How many processes there are: 1."""
    return 1


def default_backend():
    """Where tensors are."""
    return "cpu"


def device_get(x):
    """A tree with NumPy's arrays in place of tensors."""
    return tree.map(lambda t: t.numpy() if hasattr(t, "numpy") else t, x)


def device_put(x, device=None):
    """A tree with tensors in place of NumPy's arrays; the one device is the processor."""
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r}; arrays are on \"cpu\"")
    return tree.map(asarray, x)


def _unpickle(data, what):
    kind, _, shape = what.partition(":")
    return _core._from_bytes(data, kind, [int(n) for n in shape.split(",") if n])
