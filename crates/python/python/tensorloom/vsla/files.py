"""Files of tensors: safetensors with logical shapes and models in their metadata."""

import ctypes as c
import os

from ._lib import Handle, call, text
from .ops import tensor, to_array


def save(path, arrays):
    """Writes a dict of arrays."""
    tensors = [tensor(x) for x in arrays.values()]
    names = (c.c_char_p * len(tensors))(*[n.encode() for n in arrays])
    list_ = (c.c_void_p * len(tensors))(*[t.at for t in tensors])
    call("vsla_save", os.fspath(path).encode(), names, list_, len(tensors))


def load(path):
    """Reads a dict of arrays, each in its logical shape."""
    archive = Handle("vsla_load", os.fspath(path).encode())
    count = c.c_size_t()
    call("vsla_archive_count", archive.at, c.byref(count))
    names = [text("vsla_archive_name", archive.at, i) for i in range(count.value)]
    return {n: to_array(Handle("vsla_archive_tensor", archive.at, n.encode())) for n in names}
