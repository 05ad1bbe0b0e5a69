"""Functions of the table with the further arguments that NumPy and JAX have."""

import builtins as _b
import math as _math

import numpy as _np

from ._tensorloom import Tensor as _Tensor
from ._tensorloom import _arrays, asarray

_NUMBERS = (int, float)


def _tnp():
    from . import numpy as tnp

    return tnp


def _t(name):
    return _tnp()._table[name]


def _given(f, name, doc=None):
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc or f.__doc__
    return f


def _never_in_place(inplace):
    if inplace:
        raise ValueError("arrays cannot be modified in place; use the result, with inplace=False")


# Sums and products of bools, which stay bools.

def add(x, y, /):
    """Sums; of two bools, whether one of them is true."""
    return _t("logical_or" if _bools(x, y) else "add")(x, y)


def multiply(x, y, /):
    """Products; of two bools, whether both are true."""
    return _t("logical_and" if _bools(x, y) else "multiply")(x, y)


def _bools(x, y):
    one = lambda v: isinstance(v, _b.bool) or getattr(getattr(v, "dtype", None), "kind", "") == "b"  # noqa: E731
    return one(x) and one(y)


# Products of matrices

def _product(name, doc):
    def run(a, b, *, precision=None, preferred_element_type=None):
        return _t(name)(*_wide(preferred_element_type, a, b))

    return _given(run, name, doc + " They are summed in f32 at least whatever `precision` says; the result has the preferred type.")


def _wide(dtype, *arrays):
    return arrays if dtype is None else tuple(asarray(a).astype(dtype) for a in arrays)


dot, matmul = _product("dot", "Products of matrices and vectors."), _product("matmul", "Products of matrices.")
inner, vdot = _product("inner", "Products along the last axes."), _product("vdot", "The product of all elements.")


def vecdot(x1, x2, axis=-1, *, precision=None, preferred_element_type=None):
    """Products of vectors along an axis."""
    return _t("vecdot")(*_wide(preferred_element_type, x1, x2), axis)


def tensordot(a, b, axes=2, *, precision=None, preferred_element_type=None):
    """Contracts axes of two arrays."""
    return _tnp()._tensordot(*_wide(preferred_element_type, a, b), axes)


def einsum(subscripts, *operands, optimize=True, precision=None, preferred_element_type=None):
    """Einstein's summation, by a text or by lists of axes: `einsum("ij,jk", x, y)`, `einsum(x, [0, 1], y, [1, 2])`."""
    if not isinstance(subscripts, str):
        subscripts, operands = _spelt(subscripts, *operands)
    return _t("einsum")(subscripts, list(_wide(preferred_element_type, *_arrays(*operands))))


def _spelt(*items):
    """The text of an einsum that was given by lists of numbers, and its arrays."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text = lambda axes: "".join("..." if a is Ellipsis else letters[int(a)] for a in axes)  # noqa: E731
    out = "" if len(items) % 2 == 0 else "->" + text(items[-1])
    pairs = list(zip(items[0::2], items[1::2]))
    return ",".join(text(axes) for _, axes in pairs) + out, [x for x, _ in pairs]


def einsum_path(subscripts, *operands, optimize="greedy"):
    """The order of products that NumPy proposes, and a text about it."""
    return _np.einsum_path(subscripts, *(_np.broadcast_to(0.0, asarray(x).shape) for x in operands), optimize=optimize)


def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """Products of vectors of three, or of two numbers."""
    tnp = _tnp()
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = tnp.moveaxis(asarray(a), axisa, -1), tnp.moveaxis(asarray(b), axisb, -1)
    if a.shape[-1] == 3 and b.shape[-1] == 3:
        return tnp.moveaxis(_t("cross")(*tnp.broadcast_arrays(a, b)), -1, axisc)
    if not {a.shape[-1], b.shape[-1]} <= {2, 3}:
        raise ValueError(f"vectors of {a.shape[-1]} and {b.shape[-1]} numbers; cross takes those of 2 or 3")
    x, y = a[..., 0] * b[..., 1], a[..., 1] * b[..., 0]
    if a.shape[-1] == b.shape[-1]:
        return x - y
    left, right = (tnp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, 3 - v.shape[-1])]) for v in (a, b))
    return cross(left, right, axisc=axisc)


# Shapes

def reshape(a, shape, order="C", *, copy=None):
    """The elements in another shape; with `order="F"`, the first axis runs fastest."""
    if order in ("C", "A", "K"):
        return _t("reshape")(a, shape)
    _columns(order)
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return _t("reshape")(asarray(a).T, shape[::-1]).T


def ravel(a, order="C"):
    """All elements in a row."""
    if order in ("C", "A", "K"):
        return _t("reshape")(a, -1)
    _columns(order)
    return _t("reshape")(asarray(a).T, -1)


def _columns(order):
    if order != "F":
        raise ValueError(f"order {order!r}; use \"C\" or \"F\"")


def size(a, axis=None):
    """The number of elements, or of those along axes."""
    shape = asarray(a).shape
    axes = range(len(shape)) if axis is None else ([axis] if isinstance(axis, int) else axis)
    return _math.prod(shape[i] for i in axes)


def broadcast_shapes(*shapes):
    """The shape that arrays of these shapes have together."""
    return tuple(_np.broadcast_shapes(*shapes))


def rot90(m, k=1, axes=(0, 1)):
    """Turned by quarters from the first of two axes to the second."""
    return _t("rot90")(m, k, *axes)


def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
    """Sums of diagonals."""
    return _tnp().sum(_t("diagonal")(a, offset, axis1, axis2), axis=-1, dtype=dtype)


def array_split(ary, indices_or_sections, axis=0):
    """Parts, the first of which may be larger by one; or parts that end before these places."""
    if isinstance(indices_or_sections, int):
        return _t("array_split")(ary, indices_or_sections, axis)
    return _tnp().split(ary, indices_or_sections, axis)


def _splits(name, axis):
    def run(ary, indices_or_sections):
        x = asarray(ary)
        return _tnp().split(x, indices_or_sections, 0 if name == "hsplit" and x.ndim == 1 else axis)

    return _given(run, name, f"`split` along axis {axis}.")


vsplit, hsplit, dsplit = _splits("vsplit", 0), _splits("hsplit", 1), _splits("dsplit", 2)


def _stacks(name):
    def run(tup, *, dtype=None):
        tnp = _tnp()
        xs = tnp._promoted(_arrays(*tup))
        return _t(name)(xs if dtype is None else [x.astype(dtype) for x in xs])

    return _given(run, name, "Arrays beside each other.")


vstack, hstack, dstack, column_stack = _stacks("vstack"), _stacks("hstack"), _stacks("dstack"), _stacks("column_stack")


def tril_indices(n, k=0, m=None):
    """Where a matrix of n rows and m columns is on or below a diagonal."""
    return _t("tril_indices")(n, k, n if m is None else m)


def triu_indices(n, k=0, m=None):
    """Where a matrix of n rows and m columns is on or above a diagonal."""
    return _t("triu_indices")(n, k, n if m is None else m)


def diag_indices(n, ndim=2):
    """Where the diagonal of an array of `ndim` axes of n is."""
    return tuple(_t("diag_indices")(n, ndim))


def mask_indices(n, mask_func, k=0):
    """Where a function of a matrix and a diagonal, such as `triu`, leaves elements."""
    tnp = _tnp()
    return tnp.nonzero(mask_func(tnp.ones((n, n)), k))


def apply_over_axes(func, a, axes):
    """A reduction over one axis after the other; axes stay."""
    a = asarray(a)
    for axis in [axes] if isinstance(axes, int) else axes:
        y = func(a, axis=axis)
        a = y if y.ndim == a.ndim else _tnp().expand_dims(y, axis)
    return a


# Elements by their places

def extract(condition, arr, *, size=None, fill_value=0):
    """The elements where a condition holds; of a fixed `size` inside of a trace."""
    return compress(asarray(condition).reshape(-1), asarray(arr).reshape(-1), size=size, fill_value=fill_value)


def compress(condition, a, axis=None, *, size=None, fill_value=0):
    """The entries along an axis for which a condition holds; of a fixed `size` inside of a trace."""
    tnp = _tnp()
    a, condition = asarray(a), asarray(condition)
    if condition.ndim != 1:
        raise ValueError(f"the condition has shape {condition.shape}; it must have one axis")
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis % a.ndim)
    if condition.shape[0] > a.shape[axis]:
        raise ValueError(f"{condition.shape[0]} conditions for an axis of {a.shape[axis]}")
    y = tnp.take(a, tnp.flatnonzero(condition, size=size), axis)
    if size is None:
        return y
    held = tnp.arange(size) < tnp.count_nonzero(condition)
    return tnp.where(held.reshape([-1 if i == axis else 1 for i in range(a.ndim)]), y, fill_value)


def take(a, indices, axis=None, mode=None, fill_value=None, unique_indices=False, indices_are_sorted=False):
    """Entries of an axis; of all elements if it is None. Those outside are errors, or by `mode` moved to the end ("clip"), counted on
    from the start ("wrap"), or replaced ("fill")."""
    tnp = _tnp()
    a, indices = asarray(a), asarray(indices)
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis % a.ndim)
    n = a.shape[axis]
    if mode == "wrap":
        indices = indices % n
    elif mode == "clip":
        indices = tnp.clip(indices, 0, n - 1)
    elif mode == "fill":
        lost = tnp.logical_or(indices < -n, indices >= n)
        y = tnp._take(a, tnp.where(lost, 0, indices), axis)
        lost = lost.reshape([1] * axis + list(indices.shape) + [1] * (a.ndim - axis - 1))
        return tnp.where(lost, _missing(a.dtype) if fill_value is None else fill_value, y)
    elif mode not in (None, "raise"):
        raise ValueError(f"mode {mode!r}; use \"raise\", \"clip\", \"wrap\" or \"fill\"")
    return tnp._take(a, indices, axis)


def _missing(dtype):
    if dtype.kind == "f":
        return _math.nan
    return True if dtype.kind == "b" else int(_np.iinfo(dtype.name).min if dtype.kind == "i" else _np.iinfo(dtype.name).max)


def take_along_axis(arr, indices, axis=-1, mode=None, fill_value=None):
    """Elements along an axis, for each place its own; those outside as `take` has them."""
    tnp = _tnp()
    arr, indices = asarray(arr), asarray(indices)
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    n = arr.shape[axis]
    if mode == "wrap":
        indices = indices % n
    elif mode == "clip":
        indices = tnp.clip(indices, 0, n - 1)
    elif mode == "fill":
        lost = tnp.logical_or(indices < -n, indices >= n)
        y = _t("take_along_axis")(arr, tnp.where(lost, 0, indices), axis)
        return tnp.where(lost, _missing(arr.dtype) if fill_value is None else fill_value, y)
    return _t("take_along_axis")(arr, indices, axis)


def put_along_axis(arr, indices, values, axis, inplace=False, *, mode=None):
    """The array with elements along an axis replaced, for each place its own."""
    _never_in_place(inplace)
    arr, indices = asarray(arr), asarray(indices)
    if axis is None:
        return _t("put_along_axis")(arr.reshape(-1), indices, values, 0).reshape(arr.shape)
    shape = [m if k == axis % arr.ndim else n for k, (m, n) in enumerate(zip(indices.shape, arr.shape))]
    return _t("put_along_axis")(arr, _tnp().broadcast_to(indices, shape), values, axis)


def fill_diagonal(a, val, wrap=False, *, inplace=False):
    """The array with another diagonal."""
    _never_in_place(inplace)
    if wrap:
        raise NotImplementedError("fill_diagonal does not support wrap=True")
    return _t("fill_diagonal")(a, val)


def place(arr, mask, vals, *, inplace=False):
    """The array with the elements of a mask replaced, one after the other."""
    _never_in_place(inplace)
    arr, vals = _arrays(arr, vals)
    return _t("place")(arr, mask, vals.reshape(-1))


def put(a, ind, v, mode=None, *, inplace=False):
    """The array with elements at flat places replaced; by `mode`, places outside are moved to the end ("clip") or counted on ("wrap")."""
    _never_in_place(inplace)
    (a, v), ind = _arrays(a, v), asarray(ind)
    if mode == "clip":
        ind = _tnp().clip(ind, 0, a.size - 1)
    elif mode == "wrap":
        ind = ind % a.size
    return _t("put")(a, ind, v)


def repeat(a, repeats, axis=None, *, total_repeat_length=None):
    """Each entry several times, or as often as a list says; then a trace needs to know how many there will be."""
    tnp = _tnp()
    a = asarray(a)
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis % a.ndim)
    if isinstance(repeats, int) and total_repeat_length is None:
        return _t("repeat")(a, repeats, axis)
    repeats = tnp.broadcast_to(asarray(repeats), (a.shape[axis],))
    if total_repeat_length is None:
        return tnp.take(a, asarray(_np.repeat(_np.arange(a.shape[axis]), repeats.numpy())), axis)
    places = tnp.searchsorted(tnp.cumsum(repeats), tnp.arange(total_repeat_length), side="right")
    return tnp.take(a, places, axis, mode="clip")


def where(condition, x=None, y=None, *, size=None, fill_value=None):
    """Elements of x where the condition holds, of y elsewhere; or the places where it holds."""
    if x is None and y is None:
        return _tnp().nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ValueError("where takes a condition only, or a condition with both x and y")
    if isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
        x = asarray(x)
    return _t("where")(condition, x, y)


def argwhere(a, *, size=None, fill_value=None):
    """Indices of elements other than zero, a row for each."""
    tnp = _tnp()
    a = asarray(a)
    if a.ndim == 0:
        return _t("argwhere")(a, tnp._count(a) if size is None else size)
    return tnp.stack(tnp.nonzero(a, size=size, fill_value=fill_value), -1)
