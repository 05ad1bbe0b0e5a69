"""Functions of `fft`, by the names of JAX and SciPy."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def fft(a: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along an axis, of `n` points if given."""

def fft2(a: ComplexLike, s: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along the last two axes."""

def fftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequencies of the points of [`fft`], for samples `d` apart."""

def fftn(a: ComplexLike, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along several axes, or all."""

def fftshift(x: ArrayLike, axes: Axes = None) -> Tensor:
    """Moves frequency 0 to the middle, along axes or all."""

def hfft(a: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The real spectrum of a signal that is its own mirror image, given by its half."""

def ifft(a: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along an axis."""

def ifft2(a: ComplexLike, s: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along the last two axes."""

def ifftn(a: ComplexLike, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along several axes, or all."""

def ifftshift(x: ArrayLike, axes: Axes = None) -> Tensor:
    """The inverse of [`fftshift`]."""

def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse of [`hfft`]."""

def irfft(a: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The real numbers of a half spectrum: `n` of them, an even number by default."""

def irfft2(a: ComplexLike, s: Sequence[int] | None = None, norm: str | None = None) -> Tensor:
    """The inverse of [`rfft2`]."""

def irfftn(a: ComplexLike, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of [`rfftn`]."""

def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform of real numbers: the half of the spectrum that determines the rest."""

def rfft2(a: ArrayLike, s: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """[`rfftn`] along the last two axes."""

def rfftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequencies of the points of [`rfft`], for samples `d` apart."""

def rfftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """[`rfft`] along the last of several axes, [`fft`] along the others."""
