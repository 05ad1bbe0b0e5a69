"""Images in other sizes, by the names of JAX."""

from . import numpy as _n


def _triangle(x):
    return _n.maximum(0.0, 1.0 - _n.abs(x))


def _keys_cubic(x):
    """Keys' cubic with -0.5."""
    x = _n.abs(x)
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return _n.where(x >= 2.0, 0.0, _n.where(x >= 1.0, far, near))


def _lanczos(radius):
    return lambda x: _n.where(_n.abs(x) < radius, _n.sinc(x) * _n.sinc(x / radius), 0.0)


_KERNELS = {
    "linear": _triangle, "bilinear": _triangle, "trilinear": _triangle, "triangle": _triangle, "cubic": _keys_cubic, "bicubic": _keys_cubic,
    "tricubic": _keys_cubic, "lanczos3": _lanczos(3.0), "lanczos5": _lanczos(5.0),
}


def _weights(old, new, kernel, antialias, dtype):
    """What each old element counts for each new one, a column for each."""
    scale = new / old
    wide = max(1.0 / scale, 1.0) if antialias else 1.0
    at = (_n.arange(new, dtype="float32") + 0.5) / scale - 0.5
    w = kernel(_n.abs(at[None, :] - _n.arange(old, dtype="float32")[:, None]) / wide)
    total = w.sum(0, keepdims=True)
    w = _n.where(_n.abs(total) > 1000.0 * 1.1920929e-07, w / _n.where(total != 0, total, 1.0), 0.0)
    inside = _n.logical_and(at >= -0.5, at <= old - 0.5)
    return _n.where(inside[None, :], w, 0.0).astype(dtype)


def resize(image, shape, method, antialias=True, precision=None):
    """An array in another size, each axis by itself: by the "nearest" element, or "linear", "cubic", "lanczos3", "lanczos5"."""
    x = _n.asarray(image)
    x = x if x.dtype.kind == "f" else x.astype("float32")
    if len(shape) != x.ndim:
        raise ValueError(f"shape {tuple(shape)} for an array of shape {x.shape}; it must have as many axes")
    if method != "nearest" and method not in _KERNELS:
        raise ValueError(f"method {method!r}; use \"nearest\", {', '.join(repr(k) for k in _KERNELS)}")
    for axis, (old, new) in enumerate(zip(x.shape, shape)):
        if old == new:
            continue
        if method == "nearest":
            at = _n.floor((_n.arange(new, dtype="float32") + 0.5) * (old / new)).astype("int32")
            x = _n.take(x, at, axis)
        else:
            w = _weights(old, new, _KERNELS[method], antialias, x.dtype)
            x = _n.moveaxis(_n.tensordot(x, w, ([axis], [0])), -1, axis)
    return x
