"""The library: found, opened, its functions declared, its errors raised.

These files are two packages: `tensorloom.vsla`, whose library is that of `tensorloom`, and `tensorloom_vsla`, which needs nothing but
the C library (bindings/python links here).
"""

import ctypes as c
import os
import sys
from pathlib import Path

import numpy as np

# The part of the version that this wrapper goes with.
COMPATIBLE = (0, 1)

CODES = [
    "OK", "OOM", "INVALID_ARG", "INVALID_SHAPE", "INVALID_PROGRAM", "PLANNING_FAILED", "BACKEND_ERROR", "NOT_IMPLEMENTED",
    "UNKNOWN",
]
KINDS = [
    "add", "sub", "hadamard", "conv1d", "kronecker", "softmax", "layernorm", "rmsnorm", "matmul", "relu", "gelu", "sigmoid",
    "tanh", "dropout", "sum", "mean", "stack", "window", "reshape", "transpose", "slice", "gather", "scatter", "mask", "exp",
    "log", "mul_scalar", "repeat", "attention",
]
KIND = {name: i for i, name in enumerate(KINDS)}
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)]
MODELS = {"A": 0, "B": 1}


class VslaError(Exception):
    """A call failed. `code` is the name of its error."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Attrs(c.Structure):
    _fields_ = [
        ("axis", c.c_int64), ("value", c.c_double), ("size", c.c_uint64), ("stride", c.c_uint64),
        ("list", c.POINTER(c.c_uint64)), ("list_len", c.c_size_t),
        ("list2", c.POINTER(c.c_uint64)), ("list2_len", c.c_size_t), ("form", c.c_uint32),
    ]


class Io(c.Structure):
    _fields_ = [
        ("count", c.c_size_t), ("values", c.POINTER(c.c_uint32)), ("data", c.POINTER(c.c_void_p)),
        ("bytes", c.POINTER(c.c_size_t)),
    ]


_H, _U32, _U64, _N, _S = c.c_void_p, c.c_uint32, c.c_uint64, c.c_size_t, c.c_char_p
_OUT, _IO = c.POINTER(c.c_void_p), c.POINTER(Io)
_SIZES, _IDS, _LIST = c.POINTER(_U64), c.POINTER(_U32), c.POINTER(c.c_void_p)

# Functions that return a code, with their arguments.
SIGNATURES = {
    "vsla_destroy": [_H],
    "vsla_ops_clear": [],
    "vsla_tensor_create": [_U32, _U32, _N, _SIZES, _H, _N, _OUT],
    "vsla_tensor_shape": [_H, c.POINTER(_N), _SIZES, _N],
    "vsla_tensor_kind": [_H, c.POINTER(_U32), c.POINTER(_U32)],
    "vsla_tensor_read": [_H, _H, _N],
    "vsla_tensor_op": [_U32, _LIST, _N, c.POINTER(Attrs), _U64, _OUT, _N],
    "vsla_shrink": [_H, _OUT],
    "vsla_save": [_S, c.POINTER(_S), _LIST, _N],
    "vsla_load": [_S, _OUT],
    "vsla_archive_count": [_H, c.POINTER(_N)],
    "vsla_archive_name": [_H, _N, _S, _N, c.POINTER(_N)],
    "vsla_archive_tensor": [_H, _S, _OUT],
    "vsla_graph_create": [_OUT],
    "vsla_graph_value": [_H, _U32, _U32, _U32, _N, _SIZES, _SIZES, _S, c.POINTER(_U32)],
    "vsla_graph_node": [_H, _U32, _IDS, _N, c.POINTER(Attrs), _IDS, _N],
    "vsla_graph_output": [_H, _U32],
    "vsla_graph_checkpoint": [_H, _U32],
    "vsla_graph_numerics": [_H, _U32, _U32],
    "vsla_program_build": [_H, _OUT],
    "vsla_program_shape": [_H, _U32, c.POINTER(_N), _SIZES, _N],
    "vsla_program_values": [_H, _U32, _IDS, _N, c.POINTER(_N)],
    "vsla_program_value_name": [_H, _U32, _S, _N, c.POINTER(_N)],
    "vsla_program_value_kind": [_H, _U32, c.POINTER(_U32), c.POINTER(_U32)],
    "vsla_program_plan": [_H, _H, _OUT],
    "vsla_program_bind": [_H, _H, _OUT],
    "vsla_program_execute": [_H, _H, _IO, _IO, _H],
    "vsla_bindings_write": [_H, _U32, _H, _N],
    "vsla_bindings_seed": [_H, _U64],
    "vsla_plan_report": [_H, _S, _N, c.POINTER(_N)],
    "vsla_backend_create_cpu": [_U32, _OUT],
    "vsla_backend_create_stream": [_H, _OUT],
    "vsla_autograd_build_backward": [_H, _U32, _OUT],
    "vsla_autograd_plan_backward": [_H, _H, _OUT],
    "vsla_autograd_bind": [_H, _H, _OUT],
    "vsla_autograd_execute": [_H, _H, _IO, _IO, _IO, _IO, _H],
    "vsla_ad_bindings_seed": [_H, _U64],
}


def _names():
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    prefix = "" if sys.platform == "win32" else "lib"
    plain = f"{prefix}tensorloom_vsla{suffix}"
    given = os.environ.get("TENSORLOOM_VSLA")
    if given:
        # What is asked for by name is not replaced by something else.
        return [given]
    versioned = f"{plain}.{COMPATIBLE[0]}.{COMPATIBLE[1]}" if suffix == ".so" else plain
    here = Path(__file__).parent
    return [*_inside(), str(here / plain), versioned, plain]


def _inside():
    """The library of the package `tensorloom`, if this is a part of it: the same functions are in there."""
    if __package__ != "tensorloom.vsla":
        return []
    from .. import _tensorloom

    return [_tensorloom.__file__]


def _open():
    tried = []
    for name in _names():
        try:
            return c.CDLL(name)
        except OSError as e:
            tried.append(f"  {name}: {e}")
    raise ImportError(
        "the tensorloom_vsla library was not found; build it by `cargo build --release -p tensorloom-c` and set "
        "TENSORLOOM_VSLA to the file, or install it by `cargo xtask install-c PREFIX`. Tried:\n" + "\n".join(tried)
    )


_lib = _open()
_lib.vsla_version.restype = _S
_lib.vsla_get_last_error_string.restype = _S


def version():
    """The version of the library."""
    return _lib.vsla_version().decode()


_found = tuple(int(x) for x in version().split(".")[:2])
if (_found if _found[0] == 0 else _found[:1]) != (COMPATIBLE if COMPATIBLE[0] == 0 else COMPATIBLE[:1]):
    raise ImportError(f"the library has version {version()}, but this package needs {COMPATIBLE[0]}.{COMPATIBLE[1]}")

for _name, _args in SIGNATURES.items():
    getattr(_lib, _name).argtypes = _args
    getattr(_lib, _name).restype = c.c_int


def call(name, *args):
    """Calls a function that returns a code; raises what it says."""
    code = getattr(_lib, name)(*args)
    if code:
        message = _lib.vsla_get_last_error_string().decode(errors="replace")
        known = CODES[code] if 0 <= code < len(CODES) else str(code)
        raise VslaError(known, message)


class Handle:
    """A handle of the library; destroyed with this object."""

    def __init__(self, make, *args):
        at = c.c_void_p()
        call(make, *args, c.byref(at))
        self.at = at.value

    @classmethod
    def of(cls, at):
        self = cls.__new__(cls)
        self.at = at
        return self

    def __del__(self):
        at, self.at = getattr(self, "at", None), None
        if at:
            _lib.vsla_destroy(at)


def sizes(list_):
    """A list of sizes as C has it."""
    list_ = [int(x) for x in list_]
    if any(x < 0 for x in list_):
        raise ValueError(f"sizes and indices must not be negative: {list_}")
    return (_U64 * len(list_))(*list_), len(list_)


def attrs(axis=0, value=0.0, size=0, stride=0, list_=(), list2=(), form=0):
    """Attributes of an operation."""
    a = Attrs(axis=axis, value=value, size=size, stride=stride, form=form)
    first, a.list_len = sizes(list_)
    second, a.list2_len = sizes(list2)
    a.list = c.cast(first, c.POINTER(_U64))
    a.list2 = c.cast(second, c.POINTER(_U64))
    a.keep = (first, second)
    return a


def dtype_code(dtype):
    """The number of a dtype."""
    dtype = np.dtype(dtype)
    if dtype not in DTYPES:
        raise TypeError(f"{dtype} is not a supported dtype; use float32, float64 or float16")
    return DTYPES.index(dtype)


def model_code(model):
    """The number of a model."""
    if model not in MODELS:
        raise ValueError(f"model {model!r}; use 'A' (convolution) or 'B' (Kronecker product)")
    return MODELS[model]


def array(x):
    """A dense array of a dtype that the library has. Integers become float64."""
    x = np.asarray(x)
    if x.dtype.kind in "iub":
        x = x.astype(np.float64)
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    dtype_code(x.dtype)
    # One axis at least; 0-dimensional arrays don't exist here.
    return np.ascontiguousarray(x)


def text(name, *args):
    """Text that a function writes into room of the caller's."""
    needed = _N()
    call(name, *args, None, 0, c.byref(needed))
    room = c.create_string_buffer(needed.value)
    call(name, *args, room, needed.value, c.byref(needed))
    return room.value.decode()


def seed_code(seed):
    """A seed as 64 bits."""
    return _U64(int(seed) & (2**64 - 1))
