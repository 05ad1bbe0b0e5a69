"""Functions of narrow floats, which are computed in float32 and rounded once."""

from ._tensorloom import _arrays


def _narrow(dtype):
    return dtype.kind == "f" and dtype.itemsize < 4


def rounded(f, *xs):
    """What `f` gives for arrays; narrow floats among them are float32 there, and the result has the type that all have together.
    A number has the type of the arrays beside it."""
    from .numpy import result_type

    xs = _arrays(*xs)
    if not any(_narrow(x.dtype) for x in xs):
        return f(*xs)
    y, kind = f(*(x.astype("float32") if _narrow(x.dtype) else x for x in xs)), result_type(*xs)
    return y.astype(kind) if _narrow(kind) else y
