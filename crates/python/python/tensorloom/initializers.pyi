"""First values of parameters: functions of a key, a shape and a type, by the names of `jax.nn.initializers`."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def constant(value: float, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """One number everywhere."""

def glorot_normal(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Glorot's, normal."""

def glorot_uniform(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Glorot's, uniform."""

def he_normal(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """He's, normal."""

def he_uniform(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """He's, uniform."""

def kaiming_normal(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """He's, normal."""

def kaiming_uniform(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """He's, uniform."""

def lecun_normal(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """LeCun's, normal."""

def lecun_uniform(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """LeCun's, uniform."""

def normal(stddev: ArrayLike = 0.01, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Normal numbers of a standard deviation."""

def ones(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike | None = 'float32') -> Tensor:
    """Ones."""

def truncated_normal(stddev: ArrayLike = 0.01, dtype: DTypeLike | None = 'float32', lower: Any = -2.0, upper: Any = 2.0) -> Callable[..., Tensor]:
    """Normal numbers without those far away."""

def uniform(scale: ArrayLike = 0.01, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Numbers from 0 to a scale."""

def variance_scaling(scale: ArrayLike, mode: str, distribution: ArrayLike, in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Numbers whose variance is a scale over the number of inputs ("fan_in"), of outputs ("fan_out"), or over the mean of both ("fan_avg")."""

def xavier_normal(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Glorot's, normal."""

def xavier_uniform(in_axis: ArrayLike = -2, out_axis: ArrayLike = -1, dtype: DTypeLike | None = 'float32') -> Callable[..., Tensor]:
    """Glorot's, uniform."""

def zeros(key: ArrayLike, shape: int | Sequence[int], dtype: DTypeLike | None = 'float32') -> Tensor:
    """Zeros."""
