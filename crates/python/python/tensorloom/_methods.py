"""Methods of tensors: functions of `tensorloom.numpy` with the tensor in front."""

import functools

_FLAT = {"reshape", "transpose", "permute_dims", "broadcast_to", "tile"}


def _astype(x, dtype, copy=True):
    from . import numpy as tnp

    return tnp.astype(x, dtype)


_OWN = {
    "astype": _astype,
    "copy": lambda x: x.__copy__(),
    "flatten": lambda x: x.reshape(-1),
    "ravel": lambda x: x.reshape(-1),
    "tobytes": lambda x: x.numpy().tobytes(),
}
# What is no method but a part.
_PARTS = {"real": lambda x: x, "imag": lambda x: x.zeros_like()}


def _into(f, x, *args, out=None, **named):
    """NumPy's own functions (`np.sum(x)`) call methods with `out=None`."""
    if out is not None:
        raise TypeError("a tensor is no `out`; assign the result instead")
    if named.get("dtype", 0) is None:
        del named["dtype"]
    return f(x, *args, **named)


def method(x, name):
    from . import numpy as tnp

    if name == "at":
        from ._index import At

        return At(x)
    if name in _PARTS:
        return _PARTS[name](x)
    own = _OWN.get(name)
    if own is not None:
        return functools.partial(own, x)
    f = tnp.__dict__.get(name) if not name.startswith("_") else None
    if not callable(f) or isinstance(f, type):
        raise AttributeError(f"a Tensor has no attribute {name!r}")
    if name in _FLAT:
        # x.reshape(2, 3) and x.reshape((2, 3)).
        return lambda *dims, **k: f(x, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims, **k) if dims else f(x, **k)
    return functools.partial(_into, f, x)
