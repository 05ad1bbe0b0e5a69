"""Functions of `fft`, by the names of JAX and SciPy."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



def fft(x: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along an axis, of `n` points if given."""

def fft2(x: ComplexLike, sizes: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along the last two axes."""

def fftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequencies of the points of [`fft`], for samples `d` apart."""

def fftn(x: ComplexLike, sizes: Sequence[int] | None = None, axis: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform along several axes, or all."""

def fftshift(x: ArrayLike, axis: Axes = None) -> Tensor:
    """Moves frequency 0 to the middle, along axes or all."""

def hfft(x: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The real spectrum of a signal that is its own mirror image, given by its half."""

def ifft(x: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along an axis."""

def ifft2(x: ComplexLike, sizes: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along the last two axes."""

def ifftn(x: ComplexLike, sizes: Sequence[int] | None = None, axis: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse transform along several axes, or all."""

def ifftshift(x: ArrayLike, axis: Axes = None) -> Tensor:
    """The inverse of [`fftshift`]."""

def ihfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The inverse of [`hfft`]."""

def irfft(x: ComplexLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """The real numbers of a half spectrum: `n` of them, an even number by default."""

def irfft2(x: ComplexLike, sizes: Sequence[int] | None = None, norm: str | None = None) -> Tensor:
    """The inverse of [`rfft2`]."""

def irfftn(x: ComplexLike, sizes: Sequence[int] | None = None, axis: Axes = None, norm: str | None = None) -> Tensor:
    """The inverse of [`rfftn`]."""

def rfft(x: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """The transform of real numbers: the half of the spectrum that determines the rest."""

def rfft2(x: ArrayLike, sizes: Sequence[int] | None = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """[`rfftn`] along the last two axes."""

def rfftfreq(n: int, d: float = 1.0) -> Tensor:
    """The frequencies of the points of [`rfft`], for samples `d` apart."""

def rfftn(x: ArrayLike, sizes: Sequence[int] | None = None, axis: Axes = None, norm: str | None = None) -> tuple[Tensor, Tensor]:
    """[`rfft`] along the last of several axes, [`fft`] along the others."""
