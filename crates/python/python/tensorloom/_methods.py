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
}


def method(x, name):
    from . import numpy as tnp

    if name == "at":
        from ._index import At

        return At(x)
    own = _OWN.get(name)
    if own is not None:
        return functools.partial(own, x)
    f = tnp.__dict__.get(name) if not name.startswith("_") else None
    if not callable(f) or isinstance(f, type):
        raise AttributeError(f"a Tensor has no attribute {name!r}")
    if name in _FLAT:
        # x.reshape(2, 3) and x.reshape((2, 3)).
        return lambda *dims, **k: f(x, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims, **k) if dims else f(x, **k)
    return functools.partial(f, x)
