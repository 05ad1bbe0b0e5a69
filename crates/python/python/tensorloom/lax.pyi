"""Loops, branches and primitives, by the names of JAX."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def associative_scan(f: Callable[..., Any], elems: Any, reverse: bool = False, axis: Axes = 0) -> Any:
    """A running reduction by an associative function of two trees."""

def cond(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike, *operands: Any) -> Any:
    """`on_true(*operands)` or `on_false(*operands)`."""

def dynamic_index_in_dim(x: ArrayLike, index: ArrayLike, axis: int, keep: bool = False) -> Tensor:
    """The slice at an index along an axis, which disappears unless `keep`."""

def dynamic_slice(x: ArrayLike, starts: Sequence[ArrayLike], sizes: int | Sequence[int]) -> Tensor:
    """A slice of `sizes` at start indices: below zero they count from the end, then they are moved inside."""

def dynamic_slice_in_dim(x: ArrayLike, start: ArrayLike, size: int, axis: int) -> Tensor:
    """`size` elements along one axis from an index on, moved inside."""

def dynamic_update_index_in_dim(x: ArrayLike, update: ArrayLike, index: ArrayLike, axis: int) -> Tensor:
    """`x` with the slice at an index along an axis replaced."""

def dynamic_update_slice(x: ArrayLike, update: ArrayLike, starts: Sequence[ArrayLike]) -> Tensor:
    """`x` with the slice at start indices replaced."""

def dynamic_update_slice_in_dim(x: ArrayLike, update: ArrayLike, start: ArrayLike, axis: int) -> Tensor:
    """`x` with the elements along one axis from an index on replaced."""

def fori_loop(lower: int, upper: int, body: Callable[..., Any], init: Any) -> Any:
    """`body(i, carry)` for i from `lower` to `upper`."""

def index_add(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with values added at `x[i, j, ..]`."""

def index_max(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with the larger at `x[i, j, ..]`."""

def index_min(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with the smaller at `x[i, j, ..]`."""

def index_mul(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with `x[i, j, ..]` multiplied."""

def index_set(x: ArrayLike, index: Sequence[ArrayLike], values: ArrayLike) -> Tensor:
    """`x` with `x[i, j, ..]` replaced; the last of several values for one place stays."""

def index_take(x: ArrayLike, index: Sequence[ArrayLike]) -> Tensor:
    """`x[i, j, ..]` for index tensors that broadcast together; outside gives JAX's fill value."""

def map(f: Callable[..., Any], xs: Any) -> Any:
    """`f` for each entry of the first axis, one after the other."""

def scan(f: Callable[..., Any], init: Any, xs: Any = None, length: int | None = None, reverse: bool = False) -> tuple[Any, Any]:
    """A loop with a carry: `f(carry, x) -> (carry, y)` over the first axis of `xs`."""

def sort(x: ArrayLike, axis: int) -> Tensor:
    """Sorts along an axis; equal elements keep their order, NaN comes last."""

def sort_by(xs: Sequence[ArrayLike], axis: int, num_keys: int, descending: bool = False) -> list[Tensor]:
    """Sorts several tensors together by the first `num_keys` of them."""

def stop_gradient(x: ArrayLike) -> Any:
    """The same values; gradients don't pass."""

def switch(index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """The branch of an index, which is moved into their range."""

def top_k(x: ArrayLike, k: int = 0) -> tuple[Tensor, Tensor]:
    """The `k` largest elements along the last axis in descending order, and their places as i32."""

def while_loop(cond: ArrayLike, body: Callable[..., Any], init: Any) -> Any:
    """`body(carry)` while `cond(carry)`."""
