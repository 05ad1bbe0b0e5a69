"""Complex arrays of the array API: a real and an imaginary tensor, and the standard's functions of them.

The compiler has no complex types, so every function here is written with real ones; it is traced, compiled and differentiated as such.
"""

import functools as _functools
import math as _math

import numpy as _np

from . import _tensorloom as _core
from . import numpy as _n
from . import tree
from ._tensorloom import DType, Tensor, float32, float64


class ComplexDType:
    """An element type of two floats."""

    kind = "c"

    def __init__(self, name, part):
        self.name, self.part, self.itemsize = name, part, 2 * part.itemsize

    def __repr__(self):
        return self.name

    def __eq__(self, other):
        return getattr(other, "name", getattr(other, "__name__", other)) == self.name

    def __hash__(self):
        return hash(self.name)

    def __reduce__(self):
        return of_name, (self.name,)


complex64, complex128 = ComplexDType("complex64", float32), ComplexDType("complex128", float64)
_BY_PART = {float32: complex64, float64: complex128}


def of_name(name):
    """The type of a name, or of one of NumPy's or Python's types; none if it isn't complex."""
    if isinstance(name, ComplexDType):
        return name
    name = getattr(name, "name", getattr(name, "__name__", name))
    return {"complex64": complex64, "complex128": complex128, "complex": complex64}.get(name)


class ComplexTensor:
    """A complex array: the tensors `real` and `imag`, of one shape and type."""

    __slots__ = ("real", "imag", "__weakref__")
    # NumPy leaves operators to us.
    __array_ufunc__ = None

    def __init__(self, real, imag):
        self.real, self.imag = real, imag

    shape = property(lambda x: x.real.shape, doc="Sizes.")
    ndim = property(lambda x: x.real.ndim, doc="Number of axes.")
    size = property(lambda x: x.real.size, doc="Number of elements.")
    device = property(lambda x: x.real.device, doc="Where it is.")
    dtype = property(lambda x: _BY_PART[x.real.dtype], doc="Element type.")
    itemsize = property(lambda x: x.dtype.itemsize, doc="Bytes of an element.")
    nbytes = property(lambda x: 2 * x.real.nbytes, doc="Bytes of all elements.")
    T = property(lambda x: ComplexTensor(x.real.T, x.imag.T), doc="The axes in reverse order.")
    mT = property(lambda x: ComplexTensor(x.real.mT, x.imag.mT), doc="The last two axes exchanged.")

    def __array_namespace__(self, *, api_version=None):
        return self.real.__array_namespace__(api_version=api_version)

    def to_device(self, device, /, *, stream=None):
        """The array on a device."""
        return ComplexTensor(self.real.to_device(device, stream=stream), self.imag.to_device(device, stream=stream))

    def numpy(self):
        """A copy as an array of NumPy's."""
        out = _np.empty(self.shape, self.dtype.name)
        out.real, out.imag = self.real.numpy(), self.imag.numpy()
        return out

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("a complex array can only be converted to NumPy by a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy is False:
            raise BufferError("a complex array consists of two tensors; it can only be exported by a copy")
        if max_version is None:
            return self.numpy().__dlpack__()
        return self.numpy().__dlpack__(max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self):
        return self.real.__dlpack_device__()

    def item(self):
        """The one element as a number of Python's."""
        return complex(self.real.item(), self.imag.item())

    def tolist(self):
        """Nested lists of numbers."""
        return self.numpy().tolist()

    def astype(self, dtype, copy=True):
        """The elements in another type."""
        return astype(self, dtype, copy=copy)

    def reshape(self, *shape):
        """The elements in another shape."""
        return ComplexTensor(self.real.reshape(*shape), self.imag.reshape(*shape))

    def conj(self):
        """With the imaginary part negated."""
        return conj(self)

    def block_until_ready(self):
        """Computes it now."""
        self.real.block_until_ready(), self.imag.block_until_ready()
        return self

    def __copy__(self):
        return ComplexTensor(self.real.__copy__(), self.imag.__copy__())

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __reduce__(self):
        return ComplexTensor, (self.real, self.imag)

    def __repr__(self):
        if self.real._traced:
            return f"ComplexTensor({tuple(self.shape)}, dtype={self.dtype}, traced)"
        return f"ComplexTensor({_np.array2string(self.numpy(), separator=', ')}, dtype={self.dtype})"

    def __len__(self):
        return len(self.real)

    def __iter__(self):
        return (ComplexTensor(a, b) for a, b in zip(self.real, self.imag))

    def __hash__(self):
        return id(self) >> 4

    def __bool__(self):
        return bool(self.real) or bool(self.imag)

    def __complex__(self):
        return self.item()

    def __float__(self):
        raise TypeError("a complex array is not a real number; take its real part")

    def __int__(self):
        raise TypeError("a complex array is not an integer")

    __index__ = __int__

    def __getitem__(self, index):
        return ComplexTensor(self.real[index], self.imag[index])

    def __setitem__(self, index, value):
        value = lift(value, self.dtype)
        self.real[index], self.imag[index] = value.real, value.imag

    def __neg__(self):
        return ComplexTensor(-self.real, -self.imag)

    def __pos__(self):
        return self.__copy__()

    def __abs__(self):
        return abs_(self)

    def __lt__(self, other):
        raise TypeError("complex numbers are not ordered")

    __le__ = __gt__ = __ge__ = __lt__


def is_complex(x):
    """Whether something is a complex array, type or number."""
    return isinstance(x, (ComplexTensor, ComplexDType, complex))


def lift(x, dtype=None):
    """A real or complex array or number as a complex array of a type."""
    if isinstance(x, (int, float, complex)):
        x, kind = complex(x), dtype or complex64
        return ComplexTensor(_core.asarray(x.real, kind.part), _core.asarray(x.imag, kind.part))
    if not isinstance(x, (Tensor, ComplexTensor)):
        x = asarray(x)
    if isinstance(x, ComplexTensor):
        part = (dtype or x.dtype).part
        return x if x.real.dtype == part else ComplexTensor(x.real.astype(part), x.imag.astype(part))
    part = dtype.part if dtype else (float64 if x.dtype == float64 else float32)
    re = x if x.dtype == part else x.astype(part)
    return ComplexTensor(re, _n.zeros_like(re))


def common(*xs):
    """The complex type of arrays and types of which some are complex."""
    wide = False
    for x in xs:
        d = x if isinstance(x, (ComplexDType, DType)) else getattr(x, "dtype", x)
        if isinstance(d, (int, float, complex)):
            continue
        if not isinstance(d, ComplexDType) and _core.dtype(d).kind != "f":
            raise TypeError(f"{d} and complex types don't promote")
        wide = wide or d == complex128 or d == float64
    return complex128 if wide else complex64


def pair(x, y):
    """Operands in their common complex type."""
    for a in (x, y):
        if not isinstance(a, (Tensor, ComplexTensor, int, float, complex)):
            raise TypeError(f"an operand is {type(a).__name__}; use arrays and numbers")
    d = common(x, y)
    return lift(x, d), lift(y, d)


def of(re, im):
    """The array of its parts, in their common shape."""
    if re.shape != im.shape:
        re, im = _n.broadcast_arrays([re, im])
    return ComplexTensor(re, im)


def _times_i(z):
    return ComplexTensor(-z.imag, z.real)


def _over_i(z):
    return ComplexTensor(z.imag, -z.real)


# Arithmetic

def add(x1, x2):
    a, b = pair(x1, x2)
    return of(a.real + b.real, a.imag + b.imag)


def subtract(x1, x2):
    a, b = pair(x1, x2)
    return of(a.real - b.real, a.imag - b.imag)


def multiply(x1, x2):
    a, b = pair(x1, x2)
    return of(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def divide(x1, x2):
    """By Smith's method: the larger part of the divisor is divided by, so nothing overflows on the way."""
    a, b = pair(x1, x2)
    wide = _n.abs(b.real) >= _n.abs(b.imag)
    large, small = _n.where(wide, b.real, b.imag), _n.where(wide, b.imag, b.real)
    zero = large == 0
    ratio = small / _n.where(zero, 1.0, large)
    whole = large + small * ratio
    re = _n.where(wide, a.real + a.imag * ratio, a.real * ratio + a.imag) / whole
    im = _n.where(wide, a.imag - a.real * ratio, a.imag * ratio - a.real) / whole
    return of(re, im)


def equal(x1, x2):
    a, b = pair(x1, x2)
    return _n.logical_and(a.real == b.real, a.imag == b.imag)


def not_equal(x1, x2):
    return _n.logical_not(equal(x1, x2))


def power(x1, x2):
    a, b = pair(x1, x2)
    y = exp(multiply(b, log(a)))
    zero, nothing = _is_zero(a), _is_zero(b)
    # 0 to a power with a positive real part is 0, and to the power of 0 it is 1.
    rest = _n.where(b.real > 0, 0.0, _math.nan)
    re, im = _n.where(zero, rest, y.real), _n.where(zero, rest, y.imag)
    return of(_n.where(nothing, 1.0, re), _n.where(nothing, 0.0, im))


def _is_zero(z):
    return _n.logical_and(z.real == 0, z.imag == 0)


def abs_(x):
    return _n.hypot(x.real, x.imag)


def conj(x):
    return ComplexTensor(x.real.__copy__(), -x.imag)


def sign(x):
    zero = _is_zero(x)
    size = _n.where(zero, 1.0, abs_(x))
    return ComplexTensor(_n.where(zero, 0.0, x.real / size), _n.where(zero, 0.0, x.imag / size))


def reciprocal(x):
    return divide(1.0, x)


def square(x):
    return multiply(x, x)


def _flat(f):
    return lambda x: ComplexTensor(f(x.real), f(x.imag))


# Functions, with the cuts of the standard

def _scaled(size, x):
    """size * x, where 0 times infinity is 0."""
    return _n.where(x == 0, x, size * x)


def _cases(y, *rules):
    """Results at infinities and NaN, as the standard lists them: where a condition holds, these parts; None leaves a part."""
    re, im = y.real, y.imag
    for where, a, b in rules:
        re = re if a is None else _n.where(where, a, re)
        im = im if b is None else _n.where(where, b, im)
    return ComplexTensor(re, im)


def _edges(x):
    """Where the parts are infinite or NaN, and where the imaginary one is either."""
    both = _n.logical_and
    inf_re, inf_im, nan_re, nan_im = _n.isinf(x.real), _n.isinf(x.imag), _n.isnan(x.real), _n.isnan(x.imag)
    return both, inf_re, inf_im, nan_re, nan_im, _n.logical_or(inf_im, nan_im)


def exp(x):
    size = _n.exp(x.real)
    y = ComplexTensor(_scaled(size, _n.cos(x.imag)), _scaled(size, _n.sin(x.imag)))
    both, *_, wild = _edges(x)
    return _cases(y, (both(x.real == -_math.inf, wild), 0.0, 0.0), (both(x.real == _math.inf, wild), _math.inf, _math.nan))


def expm1(x):
    half = _n.sin(x.imag * 0.5)
    re = _n.expm1(x.real) * _n.cos(x.imag) - 2.0 * half * half
    y = ComplexTensor(re, _scaled(_n.exp(x.real), _n.sin(x.imag)))
    both, *_, wild = _edges(x)
    return _cases(
        y, (both(x.real == -_math.inf, wild), -1.0, 0.0), (both(x.real == _math.inf, wild), _math.inf, _math.nan), (_is_zero(x), 0.0, None))


def _log_size(re, im):
    """The logarithm of the absolute value, which itself may be out of range."""
    a, b = _n.abs(re), _n.abs(im)
    large, small = _n.maximum(a, b), _n.minimum(a, b)
    plain = _n.logical_and(large > 0, large < _math.inf)
    ratio = small / _n.where(plain, large, 1.0)
    near = _n.logical_and(large > 0.5, large < 2.0)
    # Near 1 the sum of squares less 1 keeps what the logarithm would lose.
    close = 0.5 * _n.log1p(_n.where(near, (large - 1.0) * (large + 1.0) + small * small, 0.0))
    y = _n.where(near, close, _n.where(plain, _n.log(large) + 0.5 * _n.log1p(ratio * ratio), _n.log(_n.hypot(re, im))))
    return _n.where(_n.logical_or(_n.isinf(re), _n.isinf(im)), _math.inf, y)


def log(x):
    return ComplexTensor(_log_size(x.real, x.imag), _n.atan2(x.imag, x.real))


def log1p(x):
    # |1+z|² - 1 = x (2 + x) + y² near 0, the logarithm itself elsewhere.
    near = _n.logical_and(_n.abs(x.real) < 0.5, _n.abs(x.imag) < 0.5)
    re, im = _n.where(near, x.real, 0.0), _n.where(near, x.imag, 0.0)
    close = 0.5 * _n.log1p(re * (2.0 + re) + im * im)
    return ComplexTensor(_n.where(near, close, _log_size(1.0 + x.real, x.imag)), _n.atan2(x.imag, 1.0 + x.real))


def _log_by(base):
    def run(x):
        y = log(x)
        return ComplexTensor(y.real / _math.log(base), y.imag / _math.log(base))

    return run


def sqrt(x):
    a, b = _n.abs(x.real), _n.abs(x.imag)
    # Halved by 4 where the sum could leave the range.
    huge = _n.maximum(a, b) > float(_np.finfo(x.real.dtype.name).max) / 4
    s = _n.where(huge, 0.25, 1.0)
    t = _n.sqrt((a * s + _n.hypot(a * s, b * s)) * 0.5) * _n.where(huge, 2.0, 1.0)
    none = t == 0
    other = b / _n.where(none, 1.0, 2.0 * t)
    right = x.real >= 0
    re, im = _n.where(right, t, other), _n.where(right, other, t)
    re, im = _n.where(none, 0.0, re), _n.where(none, 0.0, im)
    both, inf_re, inf_im, _, nan_im, _ = _edges(x)
    y = _cases(
        ComplexTensor(re, im), (inf_im, _math.inf, _math.inf), (both(x.real == _math.inf, nan_im), _math.inf, _math.nan),
        (both(x.real == -_math.inf, nan_im), _math.nan, _math.inf))
    return ComplexTensor(y.real, _n.copysign(y.imag, x.imag))


def sinh(x):
    y = ComplexTensor(_scaled(_n.sinh(x.real), _n.cos(x.imag)), _scaled(_n.cosh(x.real), _n.sin(x.imag)))
    both, inf_re, *_, wild = _edges(x)
    return _cases(y, (both(_n.logical_or(inf_re, x.real == 0), wild), x.real, _math.nan))


def cosh(x):
    y = ComplexTensor(_scaled(_n.cosh(x.real), _n.cos(x.imag)), _scaled(_n.sinh(x.real), _n.sin(x.imag)))
    both, inf_re, *_, wild = _edges(x)
    return _cases(y, (both(x.real == 0, wild), _math.nan, 0.0), (both(inf_re, wild), _math.inf, _math.nan))


def tanh(x):
    # tanh(x + iy) = (sinh 2x + i sin 2y) / (cosh 2x + cos 2y); for large x what is left of the imaginary part.
    far = _n.abs(x.real) > 20.0
    a = _n.where(far, 0.0, x.real)
    t = _n.tan(x.imag)
    beta, s = 1.0 + t * t, _n.sinh(a)
    below = 1.0 + beta * s * s
    re, im = beta * _n.sqrt(1.0 + s * s) * s / below, t / below
    away = 4.0 * _n.sin(x.imag) * _n.cos(x.imag) * _n.exp(-2.0 * _n.abs(x.real))
    y = ComplexTensor(_n.where(far, _n.sign(x.real), re), _n.where(far, away, im))
    both, inf_re, _, nan_re, _, wild = _edges(x)
    return _cases(
        y, (wild, _math.nan, _math.nan), (both(x.real == 0, wild), x.real, _math.nan), (both(inf_re, wild), _n.sign(x.real), 0.0),
        (both(nan_re, x.imag == 0), _math.nan, x.imag), (both(inf_re, _n.isfinite(x.imag)), None, _n.copysign(_n.zeros_like(x.imag), x.imag)))


def sin(x):
    return _over_i(sinh(_times_i(x)))


def cos(x):
    return cosh(_times_i(x))


def tan(x):
    return _over_i(tanh(_times_i(x)))


def _shifted(x, by, turned=False):
    """by + x, or by - x."""
    return ComplexTensor(by - x.real, -x.imag) if turned else ComplexTensor(by + x.real, x.imag)


def _large(x):
    return _n.maximum(_n.abs(x.real), _n.abs(x.imag)) > float(_np.finfo(x.real.dtype.name).max) ** 0.5 / 8


def _arc(x, small, far):
    """A function of moderate numbers, and what it becomes for those whose squares leave the range."""
    large = _large(x)
    kept = ComplexTensor(_n.where(large, 0.5, x.real), _n.where(large, 0.5, x.imag))
    a, b = small(kept), far(x)
    return ComplexTensor(_n.where(large, b.real, a.real), _n.where(large, b.imag, a.imag))


def _asin(x):
    """Kahan's formulas, which keep the signs of zeros on the cuts."""
    def near(z):
        low, high = sqrt(_shifted(z, 1.0, True)), sqrt(_shifted(z, 1.0))
        re = _n.atan2(z.real, low.real * high.real - low.imag * high.imag)
        return ComplexTensor(re, _n.asinh(low.real * high.imag - low.imag * high.real))

    def far(z):
        size = _log_size(z.real, z.imag) + _math.log(2.0)
        return ComplexTensor(_n.atan2(z.real, _n.abs(z.imag)), _n.copysign(size, z.imag))

    return _arc(x, near, far)


def acos(x):
    def near(z):
        low, high = sqrt(_shifted(z, 1.0, True)), sqrt(_shifted(z, 1.0))
        re = 2.0 * _n.atan2(low.real, high.real)
        return ComplexTensor(re, _n.asinh(high.real * low.imag - high.imag * low.real))

    def far(z):
        size = _log_size(z.real, z.imag) + _math.log(2.0)
        return ComplexTensor(_n.atan2(_n.abs(z.imag), z.real), -_n.copysign(size, z.imag))

    both, inf_re, inf_im, nan_re, nan_im, _ = _edges(x)
    return _cases(
        _arc(x, near, far), (both(x.real == 0, nan_im), _math.pi / 2, _math.nan), (both(inf_re, nan_im), _math.nan, _math.inf),
        (both(nan_re, inf_im), _math.nan, -x.imag))


def acosh(x):
    def near(z):
        low, high = sqrt(_shifted(z, -1.0)), sqrt(_shifted(z, 1.0))
        re = _n.asinh(low.real * high.real + low.imag * high.imag)
        return ComplexTensor(re, 2.0 * _n.atan2(low.imag, high.real))

    def far(z):
        return ComplexTensor(_log_size(z.real, z.imag) + _math.log(2.0), _n.atan2(z.imag, z.real))

    both, inf_re, inf_im, nan_re, nan_im, _ = _edges(x)
    return _cases(
        _arc(x, near, far), (both(x.real == 0, nan_im), _math.nan, _math.pi / 2), (both(inf_re, nan_im), _math.inf, _math.nan),
        (both(nan_re, inf_im), _math.inf, _math.nan))


def atanh(x):
    def near(z):
        below = (1.0 - z.real) * (1.0 - z.real) + z.imag * z.imag
        above = (1.0 + z.real) * (1.0 + z.real) + z.imag * z.imag
        # 4x/below would be -1 where above is 0.
        left = z.real < 0
        ratio = 4.0 * _n.abs(z.real) / _n.where(left, above, below)
        re = _n.copysign(0.25 * _n.log1p(ratio), z.real)
        return ComplexTensor(re, 0.5 * _n.atan2(2.0 * z.imag, (1.0 - z.real) * (1.0 + z.real) - z.imag * z.imag))

    def far(z):
        y = divide(1.0, z)
        return ComplexTensor(y.real, _n.copysign(_n.full(z.shape, _math.pi / 2, z.real.dtype), z.imag))

    both, inf_re, inf_im, nan_re, nan_im, _ = _edges(x)
    none, quarter = _n.copysign(_n.zeros_like(x.real), x.real), _n.copysign(_n.full(x.shape, _math.pi / 2, x.real.dtype), x.imag)
    return _cases(
        _arc(x, near, far), (both(x.real == 0, nan_im), none, _math.nan), (both(inf_re, nan_im), none, _math.nan), (inf_im, none, quarter),
        (both(inf_re, _n.isfinite(x.imag)), none, quarter))


def asinh(x):
    both, _, inf_im, nan_re, _, _ = _edges(x)
    return _cases(
        _over_i(_asin(_times_i(x))), (both(nan_re, x.imag == 0), _math.nan, x.imag), (both(nan_re, inf_im), _math.inf, _math.nan))


def asin(x):
    return _over_i(asinh(_times_i(x)))


def atan(x):
    return _over_i(atanh(_times_i(x)))


# Reductions

def product(x, *, axis=None, dtype=None, keepdims=False):
    x = lift(x, of_name(dtype)) if dtype is not None else x
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in ((axis,) if isinstance(axis, int) else axis))
    rest = [a for a in range(x.ndim) if a not in axes]
    order, kept = [*axes, *rest], [x.shape[a] for a in rest]
    n = _math.prod(x.shape[a] for a in axes)
    each = lambda t: (_n.permute_dims(t, order) if t.ndim > 1 else t).reshape((n, *kept))  # noqa: E731
    y = ComplexTensor(each(x.real), each(x.imag))
    if n == 0:
        y = ComplexTensor(_n.ones(kept, y.real.dtype), _n.zeros(kept, y.real.dtype))
    else:
        while (n := y.shape[0]) > 1:
            half = n // 2
            left = multiply(y[:half], y[half:2 * half])
            if n % 2:
                left = ComplexTensor(*(_n.concatenate([a, b[-1:]]) for a, b in ((left.real, y.real), (left.imag, y.imag))))
            y = left
        y = y[0]
    return y.reshape([1 if a in axes else s for a, s in enumerate(x.shape)]) if keepdims else y


def running_product(x, axis):
    from . import lax

    if x.shape[axis] == 0:
        return x.__copy__()

    def f(a, b):
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    return ComplexTensor(*lax.associative_scan(f, (x.real, x.imag), axis=axis % x.ndim))


# Making

def asarray(obj, *, dtype=None, device=None, copy=None):
    """An array from complex numbers, lists of them, arrays of NumPy's."""
    kind = None if dtype is None else of_name(dtype)
    if dtype is not None and kind is None:
        raise TypeError(f"complex numbers cannot be converted to {dtype}")
    if isinstance(obj, ComplexTensor):
        if kind is not None and kind != obj.dtype:
            if copy is False:
                raise ValueError(f"cannot convert {obj.dtype} to {kind} without a copy")
            return lift(obj, kind)
        return obj.__copy__() if copy else obj
    if copy is False:
        raise ValueError("complex arrays consist of two tensors, so this needs a copy")
    if isinstance(obj, (int, float, complex)):
        return lift(obj, kind)
    if isinstance(obj, Tensor):
        return lift(obj, kind)
    if isinstance(obj, (list, tuple)):
        obj = _np.asarray([_listed(x) for x in obj])
        kind = kind or complex64
    else:
        obj = _np.from_dlpack(obj) if not hasattr(obj, "__array__") else _np.asarray(obj)
    kind = kind or (complex64 if obj.dtype.name in ("complex64", "float32") else complex128)
    part = kind.part
    return ComplexTensor(_core.asarray(_np.ascontiguousarray(obj.real)).astype(part).reshape(obj.shape),
                         _core.asarray(_np.ascontiguousarray(obj.imag)).astype(part).reshape(obj.shape))


def _listed(x):
    return [_listed(y) for y in x] if isinstance(x, (list, tuple)) else (x.numpy() if isinstance(x, (Tensor, ComplexTensor)) else x)


def listed(obj):
    """Whether lists hold something complex."""
    if isinstance(obj, (list, tuple)):
        return any(listed(x) for x in obj)
    return isinstance(obj, (complex, ComplexTensor)) or getattr(getattr(obj, "dtype", None), "kind", None) == "c"


def astype(x, dtype, *, copy=True, device=None):
    kind = of_name(dtype)
    if kind is None:
        raise TypeError(f"{x.dtype} to {dtype} would lose the imaginary part; take real(x) first")
    if isinstance(x, ComplexTensor) and x.dtype == kind:
        return x.__copy__() if copy else x
    return lift(x, kind)


def full(shape, fill_value, *, dtype=None, device=None):
    kind = of_name(dtype) if dtype is not None else complex64
    if kind is None:
        raise TypeError(f"cannot convert {fill_value} to {dtype}")
    value = complex(fill_value)
    return ComplexTensor(_n.full(shape, value.real, kind.part), _n.full(shape, value.imag, kind.part))


def linspace(start, stop, num, *, dtype=None, device=None, endpoint=True):
    return asarray(_np.linspace(complex(start), complex(stop), num, endpoint=endpoint), dtype=dtype or complex64)


def unique(x):
    """Different elements, where they first stand, which one each is, how often they occur."""
    got = _np.unique(x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values, index, inverse, counts = got
    return asarray(values), _core.asarray(index), _core.asarray(inverse.reshape(x.shape)), _core.asarray(counts)


def matmul(x1, x2):
    a, b = pair(x1, x2)
    return ComplexTensor(_n.matmul(a.real, b.real) - _n.matmul(a.imag, b.imag), _n.matmul(a.real, b.imag) + _n.matmul(a.imag, b.real))


def _bilinear(f, x1, x2, *rest, **more):
    """A function that is linear in two operands."""
    a, b = pair(x1, x2)
    g = lambda p, q: f(p, q, *rest, **more)  # noqa: E731
    return ComplexTensor(g(a.real, b.real) - g(a.imag, b.imag), g(a.real, b.imag) + g(a.imag, b.real))


def split(x, kind=None):
    """An argument's real or imaginary part: arrays alone and in lists, types and numbers."""
    part = (lambda t: t.real), (lambda t: t.imag)
    return tuple(_half(x, p, kind) for p in part)


def _half(x, part, kind):
    if isinstance(x, ComplexTensor):
        return part(x)
    if isinstance(x, ComplexDType):
        return x.part
    if isinstance(x, (list, tuple)) and any(isinstance(y, (ComplexTensor, Tensor)) for y in x):
        return [_half(lift(y, kind) if isinstance(y, Tensor) and kind else y, part, kind) for y in x]
    return x


def linear(f):
    """A function that treats both parts alike: one that moves elements, or adds them up."""
    def run(*args, **named):
        lists = [y for x in (*args, *named.values()) if isinstance(x, (list, tuple)) for y in x]
        found = [x for x in (*args, *named.values(), *lists) if isinstance(x, (ComplexTensor, ComplexDType))]
        arrays = [x for x in (*args, *lists) if isinstance(x, (Tensor, ComplexTensor))]
        kind = common(*[x for x in arrays if isinstance(x, ComplexTensor) or x.dtype.kind == "f"], *found)
        halves = []
        for k in (0, 1):
            halves.append(f(*(split(x, kind)[k] for x in args), **{n: split(x, kind)[k] for n, x in named.items()}))
        re, im = halves
        if isinstance(re, (list, tuple)):
            return type(re)(ComplexTensor(a, b) for a, b in zip(re, im))
        return ComplexTensor(re, im)

    return run


def _operator(f, swapped=False):
    def run(self, other):
        if not isinstance(other, (Tensor, ComplexTensor, int, float, complex)):
            return NotImplemented
        return f(other, self) if swapped else f(self, other)

    return run


for _name, _f in {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "pow": power, "matmul": matmul}.items():
    setattr(ComplexTensor, f"__{_name}__", _operator(_f))
    setattr(ComplexTensor, f"__r{_name}__", _operator(_f, True))
ComplexTensor.__eq__, ComplexTensor.__ne__ = _operator(equal), _operator(not_equal)


def with_number(x, name, number):
    """An operator of a real tensor and a complex number."""
    if x.dtype.kind != "f":
        raise TypeError(f"a complex number cannot be combined with {x.dtype}")
    return getattr(lift(x), name)(number)


UNARY = {
    "abs": abs_, "acos": acos, "acosh": acosh, "asin": asin, "asinh": asinh, "atan": atan, "atanh": atanh, "conj": conj, "cos": cos, "cosh": cosh,
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "log2": _log_by(2.0), "log10": _log_by(10.0), "negative": ComplexTensor.__neg__,
    "positive": ComplexTensor.__copy__, "reciprocal": reciprocal, "sign": sign, "sin": sin, "sinh": sinh, "square": square, "sqrt": sqrt,
    "tan": tan, "tanh": tanh, "real": lambda x: x.real.__copy__(), "imag": lambda x: x.imag.__copy__(), "round": _flat(_n.rint),
    "isfinite": lambda x: _n.logical_and(_n.isfinite(x.real), _n.isfinite(x.imag)),
    "isinf": lambda x: _n.logical_or(_n.isinf(x.real), _n.isinf(x.imag)), "isnan": lambda x: _n.logical_or(_n.isnan(x.real), _n.isnan(x.imag)),
}
BINARY = {"add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "equal": equal, "not_equal": not_equal, "pow": power,
          "matmul": matmul}
truth = lambda x: _n.logical_or(x.real != 0, x.imag != 0)  # noqa: E731
bilinear = lambda f: _functools.partial(_bilinear, f)  # noqa: E731
del _name, _f
tree.register_node(ComplexTensor, lambda z: ((z.real, z.imag), None), lambda _, parts: ComplexTensor(*parts))
