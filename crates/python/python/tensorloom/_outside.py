"""Arrays from files, bytes and iterators and back, in NumPy's formats; and how arrays are shown."""

import numpy as _np

from ._tensorloom import asarray


def set_printoptions(*args, **kwargs):
    """How arrays are shown from now on, those of NumPy too."""
    _np.set_printoptions(*args, **kwargs)


def get_printoptions():
    """How arrays are shown."""
    return _np.get_printoptions()


def printoptions(*args, **kwargs):
    """How arrays are shown inside of `with`."""
    return _np.printoptions(*args, **kwargs)


def save(file, arr, allow_pickle=True):
    """Writes an array to a file of NumPy's (`.npy`)."""
    _np.save(file, asarray(arr).numpy(), allow_pickle=allow_pickle)


def savez(file, *args, **kwds):
    """Writes arrays to a file of NumPy's (`.npz`), by names or as `arr_0`, `arr_1`, .."""
    _np.savez(file, *(asarray(a).numpy() for a in args), **{n: asarray(a).numpy() for n, a in kwds.items()})


def load(file, *args, **kwargs):
    """Reads a file of NumPy's: an array, or what gives arrays of NumPy's by their names (`.npz`)."""
    got = _np.load(file, *args, **kwargs)
    return asarray(got) if isinstance(got, _np.ndarray) else got


def _named(dtype):
    return dtype.name if hasattr(dtype, "name") else dtype


def frombuffer(buffer, dtype="float32", count=-1, offset=0):
    """The numbers in bytes."""
    return asarray(_np.frombuffer(buffer, _named(dtype), count, offset))


def fromfile(file, dtype="float32", count=-1, sep="", offset=0):
    """The numbers in a file."""
    return asarray(_np.fromfile(file, _named(dtype), count, sep, offset))


def fromiter(iter, dtype, count=-1):  # noqa: A002
    """The numbers that an iterator gives."""
    return asarray(_np.fromiter(iter, _named(dtype), count))


def fromstring(string, dtype="float32", count=-1, *, sep):
    """The numbers in a text."""
    return asarray(_np.fromstring(string, _named(dtype), count, sep=sep))


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """How an array is shown."""
    with _np.printoptions(**{k: v for k, v in dict(linewidth=max_line_width, precision=precision, suppress=suppress_small).items() if v is not None}):
        return repr(asarray(arr))


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """The elements of an array as text."""
    return _np.array_str(asarray(a).numpy(), max_line_width, precision, suppress_small)


def packbits(a, axis=None, bitorder="big"):
    """Eight bits to each byte."""
    return asarray(_np.packbits(asarray(a).numpy(), axis, bitorder))


def unpackbits(a, axis=None, count=None, bitorder="big"):
    """The bits of bytes."""
    return asarray(_np.unpackbits(asarray(a).numpy(), axis, count, bitorder))
