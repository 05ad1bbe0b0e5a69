"""Tensors, transforms and compiled functions.

>>> import tensorloom as tl, tensorloom.numpy as tnp
>>> f = tl.jit(lambda x: tnp.sin(x).sum())
>>> tl.grad(f)(tnp.array([0.0, 1.0]))
Tensor([1.       , 0.5403023], dtype=float32)

Names are those of JAX: `jit grad value_and_grad vmap jvp vjp linearize jacfwd jacrev hessian checkpoint`, `lax`, `numpy`, `nn`,
`random`, `linalg`, `fft`, `special`, `tree`. `tensorloom.array_api` is the array API's namespace, `models` runs and trains models,
`safetensors` reads and writes files, `vsla` (imported by itself) has tensors of variable shapes.
"""

import functools as _functools
import inspect as _inspect

from . import _tensorloom as _core
from ._tensorloom import (
    DType, Tensor, TensorError, TracerError, __version__, asarray, bfloat16, bool_, dtype, float16, float32, float64,
    float8_e4m3fn, float8_e5m2, from_dlpack, int8, int16, int32, int64, linearize, make_graph, uint8, uint16, uint32, uint64,
    vjp,
)
from . import fft, lax, linalg, models, nn, numpy, random, safetensors, special, tree  # noqa: E402
from . import array_api  # noqa: E402

Array = Tensor


def jit(f=None, *, static_argnums=(), static_argnames=()):
    """Compiles a function: traced once for each signature, run as one program.

    Arguments named by `static_argnums` and `static_argnames` are part of the program; they must be hashable. An argument that has both
    a place and a name is static either way, however it is given.
    """
    if f is None:
        return _functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames)
    numbers = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums)
    names = [static_argnames] if isinstance(static_argnames, str) else list(static_argnames)
    return _named(_core.Jitted(f, *_statics(f, numbers, names)), f)


def _statics(f, numbers, names):
    """Places and names of static arguments, those that the function's signature adds included."""
    if not numbers and not names or not callable(f):
        return numbers, names
    try:
        known = list(_inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some functions of C have none
        if any(n < 0 for n in numbers):
            raise ValueError(f"static_argnums has {numbers}, and {f} doesn't say how many arguments it has") from None
        return numbers, names
    kinds = _inspect.Parameter
    places = [p for p in known if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    more = {p.kind for p in known}
    for n in numbers:
        if n < -len(places) or n >= len(places) and kinds.VAR_POSITIONAL not in more:
            raise ValueError(f"static_argnums has {n}, and the function has {len(places)} arguments in order")
    by_name = [p.name for p in known if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    for name in names:
        if name not in by_name and kinds.VAR_KEYWORD not in more:
            raise ValueError(f"static_argnames has {name!r}, and the function has {', '.join(by_name) or 'no arguments by name'}")
    numbers = {n + len(places) if n < 0 else n for n in numbers}
    numbers |= {i for i, p in enumerate(places) if p.name in names}
    named = {p.name for i, p in enumerate(places) if i in numbers and p.kind is kinds.POSITIONAL_OR_KEYWORD}
    return sorted(numbers), sorted(named.union(names))


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


def vmap(f, in_axes=0, out_axes=0, axis_size=None):
    """Calls a function for every entry of an axis of its arguments, all at once."""

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        return _core._vmap(f, axes, out_axes, axis_size, args, kwargs or None)

    return run


def jvp(f, primals, tangents):
    """The value of a function and its derivative along the tangents."""
    return _core._jvp(f, tuple(primals), tuple(tangents))


def _jacobian(f, argnums, reverse):
    many = not isinstance(argnums, int)

    @_functools.wraps(f, updated=())
    def run(*args):
        if many:
            return tuple(_core._jacobian(f, reverse, i, args) for i in argnums)
        return _core._jacobian(f, reverse, argnums % len(args), args)

    return run


def jacfwd(f, argnums=0):
    """The Jacobian of a function, column by column."""
    return _jacobian(f, argnums, False)


def jacrev(f, argnums=0):
    """The Jacobian of a function, row by row."""
    return _jacobian(f, argnums, True)


def hessian(f, argnums=0):
    """The second derivatives of a function that gives one number."""
    return jacfwd(jacrev(f, argnums), argnums)


def checkpoint(f):
    """Keeps only the arguments of a function for backward, where the rest is computed again."""

    @_functools.wraps(f, updated=())
    def run(*args, **kwargs):
        return _core._checkpoint(f, args, kwargs or None)

    return run


remat = checkpoint


def block_until_ready(x):
    """Computes everything in a tree and gives it back."""
    tree.map(lambda t: t.block_until_ready(), x)
    return x


def _unpickle(data, what):
    kind, _, shape = what.partition(":")
    return _core._from_bytes(data, kind, [int(n) for n in shape.split(",") if n])
