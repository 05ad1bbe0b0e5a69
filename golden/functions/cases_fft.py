"""Cases of `fft`."""

import jax.numpy as jnp
import numpy as np

from make import signed

F = jnp.fft
NORMS = ["backward", "ortho", "forward"]


def parts(z):
    return z.real, z.imag


def write(w):
    for k, n in enumerate((1, 2, 5, 8, 12)):
        norm = NORMS[k % 3]
        for name in ("fft", "ifft"):
            f = getattr(F, name)
            w.case(f"fft.{name}", lambda a, b: parts(f(a + 1j * b, norm=norm)), signed(n), signed(n, seed=2), axis=-1, norm=norm)
            w.case(f"fft.{name}", lambda a: parts(f(a, axis=0, norm=norm)), signed(n, 2), axis=0, norm=norm)
        w.case("fft.rfft", lambda a: parts(F.rfft(a, norm=norm)), signed(2, n), axis=-1, norm=norm)
        w.case("fft.irfft", lambda a, b: F.irfft(a + 1j * b, n=n, norm=norm), signed(n // 2 + 1), signed(n // 2 + 1, seed=2), axis=-1, n=n, norm=norm)
        w.case("fft.hfft", lambda a, b: F.hfft(a + 1j * b, n=n, norm=norm), signed(n // 2 + 1), signed(n // 2 + 1, seed=2), axis=-1, n=n, norm=norm)
        w.case("fft.ihfft", lambda a: parts(F.ihfft(a, norm=norm)), signed(n), axis=-1, norm=norm)
        w.case("fft.fftfreq", lambda: np.fft.fftfreq(n, 0.5), floats=("f32",), n=n, d=0.5)
        w.case("fft.rfftfreq", lambda: np.fft.rfftfreq(n, 0.5), floats=("f32",), n=n, d=0.5)
    for n in (3, 8):
        for name in ("fft", "ifft"):
            w.case(f"fft.{name}", lambda a, b: parts(getattr(F, name)(a + 1j * b, n=n)), signed(5), signed(5, seed=2), axis=-1, n=n, norm="backward")
        w.case("fft.rfft", lambda a: parts(F.rfft(a, n=n)), signed(5), axis=-1, n=n, norm="backward")
        w.case("fft.irfft", lambda a, b: F.irfft(a + 1j * b, n=n), signed(5), signed(5, seed=2), axis=-1, n=n, norm="backward")
    w.case("fft.irfft", lambda a, b: F.irfft(a + 1j * b), signed(5), signed(5, seed=2), axis=-1, norm="backward")
    for norm in NORMS:
        for name in ("fft2", "ifft2", "fftn", "ifftn"):
            w.case(f"fft.{name}", lambda a, b: parts(getattr(F, name)(a + 1j * b, norm=norm)), signed(2, 3, 4), signed(2, 3, 4, seed=2), norm=norm)
        w.case("fft.rfft2", lambda a: parts(F.rfft2(a, norm=norm)), signed(2, 3, 4), norm=norm)
        w.case("fft.rfftn", lambda a: parts(F.rfftn(a, norm=norm)), signed(2, 3, 4), norm=norm)
        w.case("fft.irfft2", lambda a, b: F.irfft2(a + 1j * b, norm=norm), signed(2, 3), signed(2, 3, seed=2), norm=norm)
        w.case("fft.irfftn", lambda a, b: F.irfftn(a + 1j * b, norm=norm), signed(2, 2, 3), signed(2, 2, 3, seed=2), norm=norm)
    w.case("fft.fftn", lambda a, b: parts(F.fftn(a + 1j * b, s=(4, 2), axes=(0, 2))), signed(2, 3, 4), signed(2, 3, 4, seed=2), norm="backward", sizes="4,2", axes="0,2")
    w.case("fft.rfftn", lambda a: parts(F.rfftn(a, s=(3, 6), axes=(1, 2))), signed(2, 3, 4), norm="backward", sizes="3,6", axes="1,2")
    w.case("fft.irfftn", lambda a, b: F.irfftn(a + 1j * b, s=(3, 5), axes=(0, 1)), signed(3, 3), signed(3, 3, seed=2), norm="backward", sizes="3,5", axes="0,1")
    for name in ("fftshift", "ifftshift"):
        w.case(f"fft.{name}", lambda x: getattr(F, name)(x), signed(5), axes="n")
        w.case(f"fft.{name}", lambda x: getattr(F, name)(x, axes=(1,)), signed(3, 4), axes="1")
