"""Methods of tensors: functions of `tensorloom.numpy` with the tensor in front, put into the class when the package is imported."""

import functools
import inspect

from ._tensorloom import Tensor

# Functions whose first argument is no tensor, by its name.
_NO_TENSOR = {"shape", "n", "start", "spec", "subscripts", "xs", "condition", "dtype", "args", "f", "arrays", "from_", "which", "object", "dimensions", "multi_index", "N", "M"}
_NO_TENSOR |= {"tup", "file", "buffer", "iter", "string", "func", "func1d", "pyfunc", "function", "condlist", "element", "int_type", "arg1", "type1", "kwargs", "y"}
# Methods that take sizes or axes one by one too: x.reshape(2, 3) and x.reshape((2, 3)).
_FLAT = {"reshape", "transpose", "permute_dims", "broadcast_to", "tile"}


def takes_tensor(f):
    """Whether the first argument of a function may be the tensor of a method."""
    try:
        p = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return False
    return bool(p) and p[0].name not in _NO_TENSOR and p[0].kind is not inspect.Parameter.VAR_POSITIONAL


def _astype(self, dtype, copy=True):
    """The elements in another type."""
    from . import numpy as tnp

    return tnp.astype(self, dtype)


def _flatten(self, order="C"):
    """All elements in a row."""
    from . import numpy as tnp

    return tnp.ravel(self, order)


def _compress(self, condition, axis=None, **named):
    """The entries along an axis for which a condition holds."""
    from . import numpy as tnp

    return tnp.compress(condition, self, axis, **named)


def _view(self, dtype=None):
    """The same bits as numbers of another type; not inside of a trace."""
    from . import numpy as tnp

    if dtype is None:
        return self
    dtype = tnp.dtype(dtype)
    return tnp.asarray(self.numpy().view(dtype.name if dtype.name != "bfloat16" else _ml_dtypes().bfloat16))


def _ml_dtypes():
    import ml_dtypes

    return ml_dtypes


def _copy(self, order="C"):
    """A copy."""
    return self.__copy__()


def _tobytes(self, order="C"):
    """The elements as bytes."""
    return self.numpy().tobytes(order)


def _devices(self):
    """Where it is: a set of one."""
    return {self.device}


def _at(self):
    """Indexed, it gives arrays with some elements changed: `x.at[0].set(1.0)`."""
    from ._index import At

    return At(self)


def _reversed(self):
    """The entries of the first axis, from the last on."""
    return reversed(list(self))


_OWN = {
    "astype": _astype, "copy": _copy, "flatten": _flatten, "ravel": _flatten, "compress": _compress, "tobytes": _tobytes, "view": _view,
    "devices": _devices, "__reversed__": _reversed,
}
# What is no method but a part.
_PARTS = {
    "at": property(_at), "real": property(lambda x: x, doc="The tensor itself: it is real."),
    "imag": property(lambda x: x.zeros_like(), doc="Zeros: a tensor is real."),
    "weak_type": property(lambda x: False, doc="Whether its type gives way to others: never."),
}


def _method(name, f):
    @functools.wraps(f)
    def run(self, *args, out=None, **named):
        # NumPy's own functions (`np.sum(x)`) call methods with `out=None`.
        if out is not None:
            raise TypeError("a tensor cannot be used as `out`; assign the result instead")
        if named.get("dtype", 0) is None:
            del named["dtype"]
        return f(self, *args, **named)

    @functools.wraps(f)
    def flat(self, *dims, **named):
        if not dims:
            return f(self, **named)
        return f(self, dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims, **named)

    made = flat if name in _FLAT else run
    made._of_numpy = True
    return made


def install():
    """Gives the class its methods. What it has of its own stays."""
    from . import numpy as tnp

    for name, f in vars(tnp).items():
        if not name.startswith("_") and inspect.isfunction(f) and not hasattr(Tensor, name) and name not in _OWN and takes_tensor(f):
            setattr(Tensor, name, _method(name, f))
    for name, f in _OWN.items():
        f.__name__, f.__qualname__ = name, f"Tensor.{name}"
        setattr(Tensor, name, f)
    for name, part in _PARTS.items():
        setattr(Tensor, name, part)


def method(x, name):
    """What is asked for and is not there."""
    raise AttributeError(f"a Tensor has no attribute {name!r}")
