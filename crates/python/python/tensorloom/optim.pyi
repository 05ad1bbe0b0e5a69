"""Optimisers as chains of gradient transforms, by the names of optax."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



class GradientTransformation:
    """A chain of gradient transforms. Made by the functions of `tensorloom.optim`."""

    def init(self, params: dict[str, Any]) -> Any:
        """The state before the first step."""

    def update(self, updates: Any, state: ArrayLike, params: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Updates for gradients, and the state after this step."""

def adabelief(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16) -> GradientTransformation:
    """AdaBelief."""

def adadelta(learning_rate: Any = 1.0, rho: float = 0.9, eps: float = 1e-06) -> GradientTransformation:
    """Adadelta."""

def adafactor(learning_rate: Any) -> GradientTransformation:
    """Adafactor, with the numbers that optax gives it."""

def adagrad(learning_rate: Any, initial_accumulator_value: float = 0.1, eps: float = 1e-07) -> GradientTransformation:
    """Adagrad."""

def adam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08, eps_root: float = 0.0, nesterov: bool = False) -> GradientTransformation:
    """Adam."""

def adamax(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08) -> GradientTransformation:
    """Adamax."""

def adamw(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08, eps_root: float = 0.0, weight_decay: float = 0.0001, nesterov: bool = False) -> GradientTransformation:
    """Adam with decoupled weight decay."""

def add_decayed_weights(weight_decay: float = 0.0) -> GradientTransformation:
    """Updates with a part of the parameters added."""

def amsgrad(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08, eps_root: float = 0.0) -> GradientTransformation:
    """AMSGrad."""

def apply_updates(params: dict[str, Any], updates: Any) -> Any:
    """Parameters with their updates added."""

def chain(*transforms: GradientTransformation) -> GradientTransformation:
    """One transform after another."""

def clip(max_delta: float) -> GradientTransformation:
    """Updates moved into a range."""

def clip_by_global_norm(max_norm: float) -> GradientTransformation:
    """Updates scaled down to a norm of all of them."""

def constant_schedule(value: float) -> Callable[[Any], Tensor]:
    """The same number always."""

def cosine_decay_schedule(init_value: float, decay_steps: int, alpha: Any = 0.0, exponent: float = 1.0) -> Callable[[Any], Tensor]:
    """From a number to a part of it, along half a wave."""

def ema(decay: float, debias: bool = True) -> GradientTransformation:
    """The running mean of updates."""

def exponential_decay(init_value: float, transition_steps: int, decay_rate: float, transition_begin: int = 0, staircase: bool = False, end_value: float | None = None) -> Callable[[Any], Tensor]:
    """A number times a power of the rate."""

def global_norm(tree: Any) -> Tensor:
    """The root of the sum of all squares."""

def identity() -> GradientTransformation:
    """Updates as they are."""

def join_schedules(schedules: Sequence[Callable[[Any], Any]], boundaries: Sequence[int]) -> Callable[[Any], Tensor]:
    """One schedule after another, each counted from its own begin."""

def lamb(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-06, eps_root: float = 0.0, weight_decay: float = 0.0) -> GradientTransformation:
    """LAMB."""

def linear_schedule(init_value: float, end_value: float | None, transition_steps: int, transition_begin: int = 0) -> Callable[[Any], Tensor]:
    """From one number to another along a line."""

def lion(learning_rate: Any, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 0.001) -> GradientTransformation:
    """Lion."""

def muon(learning_rate: Any) -> GradientTransformation:
    """Muon."""

def nadam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08, eps_root: float = 0.0) -> GradientTransformation:
    """Adam with Nesterov's momentum."""

def piecewise_constant_schedule(init_value: float, boundaries_and_scales: dict[int, float] | None = None) -> Callable[[Any], Tensor]:
    """A number that is multiplied at some steps."""

def polynomial_schedule(init_value: float, end_value: float | None, power: float, transition_steps: int, transition_begin: int = 0) -> Callable[[Any], Tensor]:
    """From one number to another along a power of the distance."""

def radam(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-08, eps_root: float = 0.0, threshold: float = 5.0) -> GradientTransformation:
    """Rectified Adam."""

def rmsprop(learning_rate: Any, decay: float = 0.9, eps: float = 1e-08, centered: bool = False, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """RMSProp."""

def scale(step_size: float) -> GradientTransformation:
    """Updates times a number."""

def scale_by_learning_rate(learning_rate: Any) -> GradientTransformation:
    """Updates times a learning rate, downhill."""

def scale_by_schedule(step_size_fn: Any) -> GradientTransformation:
    """Updates times what a schedule gives."""

def sgd(learning_rate: Any, momentum: float | None = None, nesterov: bool = False) -> GradientTransformation:
    """Gradient descent, with momentum if given."""

def sign_sgd(learning_rate: Any) -> GradientTransformation:
    """Descent along the signs of gradients."""

def trace(decay: float, nesterov: bool = False) -> GradientTransformation:
    """Momentum."""

def warmup_constant_schedule(init_value: float, peak_value: float, warmup_steps: int) -> Callable[[Any], Tensor]:
    """A line up, and on."""

def warmup_cosine_decay_schedule(init_value: float, peak_value: float, warmup_steps: int, decay_steps: int, end_value: float | None = 0.0, exponent: float = 1.0) -> Callable[[Any], Tensor]:
    """A line up, then half a wave down; `decay_steps` counts both."""

def yogi(learning_rate: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 0.001) -> GradientTransformation:
    """Yogi."""

def zero_nans() -> GradientTransformation:
    """Zeros in place of NaN."""
