"""Operations on arrays, one by one: each is a program of one operation, planned once for its shapes and kept."""

import ctypes as c

import numpy as np

from ._lib import DTYPES, KIND, Handle, array, attrs, call, dtype_code, model_code, seed_code, sizes


def tensor(x, model="A"):
    """A tensor handle of an array's elements."""
    x = array(x)
    shape, rank = sizes(x.shape)
    data = x.ctypes.data if x.size else None
    return Handle("vsla_tensor_create", dtype_code(x.dtype), model_code(model), rank, shape, data, x.nbytes)


def to_array(t):
    """The elements of a tensor handle."""
    rank, dtype, model = c.c_size_t(), c.c_uint32(), c.c_uint32()
    call("vsla_tensor_shape", t.at, c.byref(rank), None, 0)
    shape = (c.c_uint64 * rank.value)()
    call("vsla_tensor_shape", t.at, c.byref(rank), shape, rank.value)
    call("vsla_tensor_kind", t.at, c.byref(dtype), c.byref(model))
    if dtype.value >= len(DTYPES):
        raise TypeError("the tensor is bf16, which NumPy does not support")
    x = np.empty(tuple(shape), DTYPES[dtype.value])
    call("vsla_tensor_read", t.at, x.ctypes.data if x.size else None, x.nbytes)
    return x


def _run(kind, *args, model="A", seed=0, **attributes):
    tensors = [tensor(x, model) for x in args]
    list_ = (c.c_void_p * len(tensors))(*[t.at for t in tensors])
    out = c.c_void_p()
    a = attrs(**attributes)
    call("vsla_tensor_op", KIND[kind], list_, len(tensors), c.byref(a), seed_code(seed), c.byref(out), 1)
    return to_array(Handle.of(out.value))


def add(a, b, model="A"):
    """a + b in the ambient shape."""
    return _run("add", a, b, model=model)


def sub(a, b, model="A"):
    """a - b in the ambient shape."""
    return _run("sub", a, b, model=model)


def hadamard(a, b, model="A"):
    """a * b, elementwise, in the ambient shape."""
    return _run("hadamard", a, b, model=model)


def conv(a, b):
    """Convolution along the last axis (model A)."""
    return _run("conv1d", a, b)


def kron(a, b):
    """Kronecker product (model B)."""
    return _run("kronecker", a, b, model="B")


def matmul(a, b):
    """Product over the last two axes."""
    return _run("matmul", a, b)


def mask(x, m):
    """x * m, where m is constant."""
    return _run("mask", x, m)


def stack(parts):
    """Arrays of one rank along a new first axis, promoted to their ambient shape."""
    return _run("stack", *parts)


def softmax(x):
    """Softmax along the last axis."""
    return _run("softmax", x)


def layernorm(x, gamma, beta, eps=1e-5):
    """Normalises rows, then scales and shifts them."""
    return _run("layernorm", x, gamma, beta, value=eps)


def rmsnorm(x, gamma, eps=1e-6):
    """Divides rows by their root mean square, then scales them."""
    return _run("rmsnorm", x, gamma, value=eps)


def relu(x):
    """max(0, x)."""
    return _run("relu", x)


def gelu(x, approximate=False):
    """The Gaussian error linear unit; by tanh if approximate."""
    return _run("gelu", x, form=int(bool(approximate)))


def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return _run("sigmoid", x)


def tanh(x):
    """Hyperbolic tangent."""
    return _run("tanh", x)


def exp(x):
    """exp(x)."""
    return _run("exp", x)


def log(x):
    """log(x)."""
    return _run("log", x)


def sum_(x, axis=-1):
    """Sums along an axis; the sum of a vector has shape (1,)."""
    return _run("sum", x, axis=axis)


def mean(x, axis=-1):
    """Means along an axis."""
    return _run("mean", x, axis=axis)


def mul_scalar(x, value):
    """x * value."""
    return _run("mul_scalar", x, value=value)


def repeat(x, count):
    """x stacked count times."""
    return _run("repeat", x, size=count)


def reshape(x, shape):
    """The elements in another shape."""
    return _run("reshape", x, list_=shape)


def transpose(x, axes):
    """The axes in another order."""
    return _run("transpose", x, list_=axes)


def slice_(x, start, limit):
    """Elements from start to limit on each axis; zeros beyond the shape."""
    return _run("slice", x, list_=start, list2=limit)


def gather(x, indices):
    """Entries of the first axis."""
    return _run("gather", x, list_=indices)


def scatter(x, indices, size):
    """Adds entries of the first axis into one of another size."""
    return _run("scatter", x, list_=indices, size=size)


def attention(q, k, v, heads, lengths):
    """Attention inside each of the packed sequences; q, k, v have shape (tokens, width)."""
    return _run("attention", q, k, v, size=heads, list_=lengths)


def dropout(x, rate, seed):
    """Drops elements at a rate and scales the rest."""
    return _run("dropout", x, value=rate, seed=seed)


def shrink(x):
    """The minimal representative: without trailing zeros."""
    t = tensor(x)
    return to_array(Handle("vsla_shrink", t.at))


def clear():
    """Forgets the programs that are kept for these functions."""
    call("vsla_ops_clear")
