"""First values of parameters: functions of a key, a shape and a type, by the names of `jax.nn.initializers`."""

import math as _math

from . import numpy as _n

# The standard deviation of a normal number that is between -2 and 2.
_LEFT = 0.87962566103423978


def zeros(key, shape, dtype="float32"):
    """Zeros."""
    return _n.zeros(shape, dtype)


def ones(key, shape, dtype="float32"):
    """Ones."""
    return _n.ones(shape, dtype)


def constant(value, dtype="float32"):
    """One number everywhere."""
    return lambda key, shape, dtype=dtype: _n.full(shape, value, dtype)


def normal(stddev=1e-2, dtype="float32"):
    """Normal numbers of a standard deviation."""
    from . import random

    return lambda key, shape, dtype=dtype: random.normal(key, shape, dtype) * stddev


def uniform(scale=1e-2, dtype="float32"):
    """Numbers from 0 to a scale."""
    from . import random

    return lambda key, shape, dtype=dtype: random.uniform(key, shape, dtype) * scale


def truncated_normal(stddev=1e-2, dtype="float32", lower=-2.0, upper=2.0):
    """Normal numbers without those far away."""
    from . import random

    return lambda key, shape, dtype=dtype: random.truncated_normal(key, lower, upper, shape, dtype) * stddev


def variance_scaling(scale, mode, distribution, in_axis=-2, out_axis=-1, dtype="float32"):
    """Numbers whose variance is a scale over the number of inputs ("fan_in"), of outputs ("fan_out"), or over the mean of both ("fan_avg")."""
    from . import random

    def run(key, shape, dtype=dtype):
        if len(shape) < 2:
            raise ValueError(f"shape {tuple(shape)} has no inputs and outputs; it needs two axes")
        field = _math.prod(n for i, n in enumerate(shape) if i not in (in_axis % len(shape), out_axis % len(shape)))
        fan_in, fan_out = shape[in_axis] * field, shape[out_axis] * field
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}.get(mode)
        if fan is None:
            raise ValueError(f"mode {mode!r}; use \"fan_in\", \"fan_out\" or \"fan_avg\"")
        variance = scale / max(fan, 1)
        if distribution == "normal":
            return random.normal(key, shape, dtype) * _math.sqrt(variance)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -1.0, 1.0) * _math.sqrt(3 * variance)
        if distribution == "truncated_normal":
            return random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (_math.sqrt(variance) / _LEFT)
        raise ValueError(f"distribution {distribution!r}; use \"normal\", \"uniform\" or \"truncated_normal\"")

    return run


def glorot_uniform(in_axis=-2, out_axis=-1, dtype="float32"):
    """Glorot's, uniform."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, dtype)


def glorot_normal(in_axis=-2, out_axis=-1, dtype="float32"):
    """Glorot's, normal."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, dtype)


def he_uniform(in_axis=-2, out_axis=-1, dtype="float32"):
    """He's, uniform."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, dtype)


def he_normal(in_axis=-2, out_axis=-1, dtype="float32"):
    """He's, normal."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, dtype)


def lecun_uniform(in_axis=-2, out_axis=-1, dtype="float32"):
    """LeCun's, uniform."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, dtype)


def lecun_normal(in_axis=-2, out_axis=-1, dtype="float32"):
    """LeCun's, normal."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, dtype)


xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal = glorot_uniform, glorot_normal, he_uniform, he_normal
