"""The array API's extension for Fourier transforms."""

import numpy as _np

from . import _tensorloom as _core
from . import fft as _fft
from ._complex import ComplexTensor
from ._tensorloom import float32


def _device(device):
    if device not in (None, "cpu"):
        raise ValueError(f"device {device!r}; arrays are on \"cpu\"")


class fft:  # noqa: N801
    """The extension for Fourier transforms."""

    @staticmethod
    def _one(f, x, n, axis, norm):
        return _made(f(_parts(x), n, axis, norm))

    @staticmethod
    def _several(f, x, s, axes, norm):
        return _made(f(_parts(x), None if s is None else list(s), None if axes is None else list(axes), norm))

    @staticmethod
    def fft(x, /, *, n=None, axis=-1, norm="backward"):
        """The transform along an axis."""
        return fft._one(_fft.fft, x, n, axis, norm)

    @staticmethod
    def ifft(x, /, *, n=None, axis=-1, norm="backward"):
        """The inverse transform along an axis."""
        return fft._one(_fft.ifft, x, n, axis, norm)

    @staticmethod
    def fftn(x, /, *, s=None, axes=None, norm="backward"):
        """The transform along several axes."""
        return fft._several(_fft.fftn, x, s, axes, norm)

    @staticmethod
    def ifftn(x, /, *, s=None, axes=None, norm="backward"):
        """The inverse transform along several axes."""
        return fft._several(_fft.ifftn, x, s, axes, norm)

    @staticmethod
    def rfft(x, /, *, n=None, axis=-1, norm="backward"):
        """The transform of real numbers."""
        return fft._one(_fft.rfft, x, n, axis, norm)

    @staticmethod
    def irfft(x, /, *, n=None, axis=-1, norm="backward"):
        """The real numbers of half a spectrum."""
        return fft._one(_fft.irfft, x, n, axis, norm)

    @staticmethod
    def rfftn(x, /, *, s=None, axes=None, norm="backward"):
        """The transform of real numbers along several axes."""
        return fft._several(_fft.rfftn, x, s, axes, norm)

    @staticmethod
    def irfftn(x, /, *, s=None, axes=None, norm="backward"):
        """The real numbers of half a spectrum along several axes."""
        return fft._several(_fft.irfftn, x, s, axes, norm)

    @staticmethod
    def hfft(x, /, *, n=None, axis=-1, norm="backward"):
        """The real spectrum of a signal that is its own mirror image."""
        return fft._one(_fft.hfft, x, n, axis, norm)

    @staticmethod
    def ihfft(x, /, *, n=None, axis=-1, norm="backward"):
        """The inverse of `hfft`."""
        return fft._one(_fft.ihfft, x, n, axis, norm)

    @staticmethod
    def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
        """The frequencies of `fft`."""
        _device(device)
        return _core.asarray(_np.fft.fftfreq(n, d)).astype(dtype or float32)

    @staticmethod
    def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
        """The frequencies of `rfft`."""
        _device(device)
        return _core.asarray(_np.fft.rfftfreq(n, d)).astype(dtype or float32)

    @staticmethod
    def fftshift(x, /, *, axes=None):
        """Frequency 0 in the middle."""
        return _shifted(_fft.fftshift, x, axes)

    @staticmethod
    def ifftshift(x, /, *, axes=None):
        """The inverse of `fftshift`."""
        return _shifted(_fft.ifftshift, x, axes)


def _parts(x):
    return (x.real, x.imag) if isinstance(x, ComplexTensor) else x


def _made(y):
    return ComplexTensor(*y) if isinstance(y, tuple) else y


def _shifted(f, x, axes):
    return ComplexTensor(f(x.real, axes), f(x.imag, axes)) if isinstance(x, ComplexTensor) else f(x, axes)
