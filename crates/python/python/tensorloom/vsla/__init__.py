"""Variable-shape tensors for NumPy, through the C interface of tensorloom_vsla.

>>> import numpy as np
>>> from tensorloom import vsla                              # or: import tensorloom_vsla as vsla
>>> vsla.add(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0]))
array([5., 7., 3.])

Functions take arrays and give arrays. A `Graph` describes a program; `Program.plan` compiles it, and a `Plan` is called with
arrays, which it reads and writes where they lie. `Plan.gradients` differentiates. `Ragged` holds rows of different lengths.

The library is looked for in TENSORLOOM_VSLA (a path to the file), in the package `tensorloom`, beside this package, and where the
system looks.
"""

from ._lib import VslaError, version
from .ops import (
    add, attention, clear, conv, dropout, exp, gather, gelu, hadamard, kron, layernorm, log, mask, matmul, mean, mul_scalar,
    relu, repeat, reshape, rmsnorm, scatter, shrink, sigmoid, slice_, softmax, stack, sub, sum_, tanh, transpose,
)
from .files import load, save
from .programs import Graph, Plan, Program
from .ragged import Ragged

__all__ = [
    "Graph", "Plan", "Program", "Ragged", "VslaError", "add", "attention", "clear", "conv", "dropout", "exp", "gather", "gelu",
    "hadamard", "kron", "layernorm", "load", "log", "mask", "matmul", "mean", "mul_scalar", "relu", "repeat", "reshape",
    "rmsnorm", "save", "scatter", "shrink", "sigmoid", "slice_", "softmax", "stack", "sub", "sum_", "tanh", "transpose",
    "version",
]
