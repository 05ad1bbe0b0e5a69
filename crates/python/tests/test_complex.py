"""Complex arrays of the array API against NumPy: functions, edges, matrices, Fourier transforms, and how types meet."""

import pickle
import unittest
import warnings

import numpy as np

import tensorloom as tl
from tensorloom import array_api as xp

# Names of the standard that NumPy before 2 doesn't have.
NUMPYS = {"pow": "power", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh"}
UNARY = (
    "abs acos acosh asin asinh atan atanh conj cos cosh exp expm1 log log1p log2 log10 negative reciprocal sign sin sinh square sqrt tan tanh "
    "real imag round isfinite isinf isnan positive"
).split()
KINDS = (("complex64", 4e-5), ("complex128", 1e-12))
# On the axes, on cuts, near 0 and 1, and large.
EDGES = [0j, 1e-20 + 1e-20j, 1j, -1j, 1, -1, 2, -2, 2j, -2j, 1e-3j, 100 + 1j, -100 - 2j, 1e-8 + 1j, 0.9999 + 1e-4j, 30j, -0.5 + 0.5j]


class Complex(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        self.random = lambda *s: rng.standard_normal(s) + 1j * rng.standard_normal(s)

    def close(self, got, want, what, tol):
        got = got.numpy()
        self.assertEqual(got.shape, np.shape(want), what)
        self.assertEqual(got.dtype, np.asarray(want).dtype, what)
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol, err_msg=what)

    def test_functions(self):
        for d, tol in KINDS:
            z = (3 * self.random(4, 5)).astype(d)
            for points in (z, np.array(EDGES, d)):
                for n in UNARY:
                    with np.errstate(all="ignore"):
                        # NumPy before 2 takes the sign of the real part.
                        direction = np.where(points == 0, 0, points / np.abs(points)).astype(d)
                        want = direction if n == "sign" else getattr(np, NUMPYS.get(n, n))(points)
                    fits = np.isfinite(want) & (np.abs(want) < 1e30) if want.dtype.kind in "cf" else np.ones(want.shape, bool)
                    got = getattr(xp, n)(xp.asarray(points))
                    self.assertEqual(got.dtype, want.dtype.name, n)
                    np.testing.assert_allclose(got.numpy()[fits], want[fits], rtol=tol * 5, atol=tol, err_msg=f"{n} {d}")

    def test_operators(self):
        for d, tol in KINDS:
            z, w, r = self.random(4, 5).astype(d), self.random(5).astype(d), self.random(5).real.astype(np.dtype(d).type(0).real.dtype)
            x, y, s = xp.asarray(z), xp.asarray(w), xp.asarray(r)
            for n in "add subtract multiply divide equal not_equal pow".split():
                self.close(getattr(xp, n)(x, y), getattr(np, NUMPYS.get(n, n))(z, w), n, tol * 50)
            for f in (
                lambda a, b, c: a + b * 2.5 - 1, lambda a, b, c: c * a / b, lambda a, b, c: c + 1j, lambda a, b, c: 2j * c, lambda a, b, c: 1 - a,
                lambda a, b, c: (1 + 2j) ** b, lambda a, b, c: c - a, lambda a, b, c: -a + +b, lambda a, b, c: a == b, lambda a, b, c: c != 1j,
                lambda a, b, c: a @ b, lambda a, b, c: (3 - 1j) / c, lambda a, b, c: c ** 0.5j,
            ):
                self.close(f(x, y, s), f(z, w, r), "an operator", tol * 50)
            with self.assertRaises(TypeError):
                x < y  # noqa: B015
            with self.assertRaises(TypeError):
                xp.asarray([1, 2]) + 1j
            with self.assertRaises(TypeError):
                float(x[0, 0])

    def test_reductions_and_shapes(self):
        for d, tol in KINDS:
            z = self.random(3, 4).astype(d)
            x = xp.asarray(z)
            for n in "sum prod mean".split():
                for kw in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"axis": (0, 1)}):
                    self.close(getattr(xp, n)(x, **kw), getattr(np, n)(z, **kw), n, tol * 50)
            self.close(xp.cumulative_prod(x, axis=1), np.cumprod(z, 1), "cumulative_prod", tol * 50)
            self.close(xp.cumulative_sum(x, axis=0, include_initial=True), np.cumsum(np.concatenate([0 * z[:1], z]), 0), "cumulative_sum", tol)
            self.close(xp.diff(x, axis=1), np.diff(z, axis=1), "diff", tol)
            self.close(xp.reshape(xp.flip(x, axis=1), (2, 6)), np.flip(z, 1).reshape(2, 6), "reshape", 0)
            self.close(xp.concat([x, xp.real(x)]), np.concatenate([z, z.real.astype(d)]), "concat", 0)
            self.close(xp.stack([x, x], axis=1)[:, 1], z, "stack", 0)
            self.close(xp.permute_dims(x, (1, 0))[1:, ::2], z.T[1:, ::2], "indices", 0)
            self.close(xp.take(x, xp.asarray([2, 0]), axis=0), z[[2, 0]], "take", 0)
            self.close(x[xp.real(x) > 0], z[z.real > 0], "a mask", 0)
            self.close(xp.where(xp.real(x) > 0, x, 1.0), np.where(z.real > 0, z, 1).astype(d), "where", 0)
            self.assertEqual(int(xp.count_nonzero(x)), 12)
            self.assertTrue(bool(xp.all(x)))
            x[0, 1:] = 2 - 1j
            z[0, 1:] = 2 - 1j
            self.close(x, z, "in place", 0)
            self.close(xp.unique_values(x), np.unique(z), "unique", 0)

    def test_matrices(self):
        lin, ref = xp.linalg, np.linalg
        for d, tol in (("complex64", 2e-3), ("complex128", 1e-10)):
            a = self.random(3, 4, 4).astype(d)
            h = (a @ a.conj().swapaxes(-1, -2) + 0.5 * np.eye(4)).astype(d)
            x, y = xp.asarray(a), xp.asarray(h)
            self.close(lin.det(x), ref.det(a), "det", tol)
            self.close(lin.inv(x), ref.inv(a), "inv", tol)
            for got, want in zip(lin.slogdet(x), ref.slogdet(a)):
                self.close(got, want, "slogdet", tol)
            self.close(lin.cholesky(y), ref.cholesky(h), "cholesky", tol)
            self.close(lin.eigvalsh(y), ref.eigvalsh(h), "eigvalsh", tol)
            self.close(lin.solve(x, y), ref.solve(a, h), "solve", tol * 10)
            self.close(lin.matrix_power(x, -2), ref.matrix_power(a, -2), "matrix_power", tol * 50)
            self.close(lin.vecdot(x, y), (a.conj() * h).sum(-1), "vecdot", tol)
            self.close(lin.trace(x), a.trace(0, -2, -1), "trace", tol)
            self.close(lin.vector_norm(x, axis=1), ref.norm(a, axis=1), "vector_norm", tol)
            for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
                self.close(lin.matrix_norm(x, ord=o), ref.norm(a, o, (-2, -1)), f"norm {o}", tol)
            # Eigenvalues that come several times too.
            for m in (h, np.broadcast_to(2 * np.eye(4, dtype=d), h.shape)):
                w, v = (t.numpy() for t in lin.eigh(xp.asarray(m)))
                np.testing.assert_allclose((v * w[:, None, :]) @ v.conj().swapaxes(-1, -2), m, atol=tol * 10)
                np.testing.assert_allclose(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(4), v.shape), atol=tol)
            for m in (a, a[:, :2], a[:, :, :2], a * 0, np.ones_like(a)):
                k = min(m.shape[-2:])
                for full in (False, True):
                    u, s, vh = (t.numpy() for t in lin.svd(xp.asarray(m), full_matrices=full))
                    np.testing.assert_allclose((u[..., :k] * s[:, None, :]) @ vh[..., :k, :], m, atol=tol)
                    np.testing.assert_allclose(u.conj().swapaxes(-1, -2) @ u, np.broadcast_to(np.eye(u.shape[-1]), (3, u.shape[-1], u.shape[-1])), atol=tol)
                for mode in ("reduced", "complete"):
                    q, r = (t.numpy() for t in lin.qr(xp.asarray(m), mode=mode))
                    np.testing.assert_allclose(q @ r, m, atol=tol)
                self.assertEqual(lin.matrix_rank(xp.asarray(m)).tolist(), ref.matrix_rank(m).tolist())
            self.close(lin.pinv(xp.asarray(a[:, :2])), ref.pinv(a[:, :2]), "pinv", tol)

    def test_fourier_transforms(self):
        for d, tol in (("complex64", 1e-4), ("complex128", 1e-11)):
            z = self.random(3, 4).astype(d)
            x = xp.asarray(z)
            real = np.dtype(d).type(0).real.dtype

            def close(got, want, what, tol):
                # NumPy before 2 transforms in double precision, whatever it is given.
                want = np.asarray(want)
                self.close(got, want.astype(d if want.dtype.kind == "c" else real), what, tol)

            for n in "fft ifft fftn ifftn irfft irfftn hfft".split():
                close(getattr(xp.fft, n)(x), getattr(np.fft, n)(z), n, tol)
            for n in "rfft rfftn ihfft".split():
                close(getattr(xp.fft, n)(xp.real(x)), getattr(np.fft, n)(z.real), n, tol)
            close(xp.fft.fft(x, n=6, axis=0, norm="ortho"), np.fft.fft(z, n=6, axis=0, norm="ortho"), "options", tol)
            close(xp.fft.fftshift(x), np.fft.fftshift(z), "fftshift", 0)
        np.testing.assert_allclose(xp.fft.fftfreq(5, d=0.5).numpy(), np.fft.fftfreq(5, 0.5), rtol=1e-6)

    def test_types(self):
        c64, c128 = xp.complex64, xp.complex128
        self.assertEqual(xp.result_type(c64, xp.float32), c64)
        self.assertEqual(xp.result_type(c64, xp.float64), c128)
        self.assertEqual(xp.result_type(xp.float32, 1j), c64)
        self.assertTrue(xp.can_cast(xp.float32, c64))
        self.assertFalse(xp.can_cast(c128, xp.float64))
        self.assertTrue(xp.isdtype(c64, "complex floating") and xp.isdtype(c64, "numeric") and not xp.isdtype(c64, "real floating"))
        self.assertEqual(xp.finfo(c128).dtype, xp.float64)
        with self.assertRaises(TypeError):
            xp.result_type(c64, xp.int32)
        with self.assertRaises(TypeError):
            xp.astype(xp.asarray([1j]), xp.float32)
        x = xp.asarray([[1, 2j], [3.5, 4]])
        self.assertEqual((x.dtype, x.shape, x.nbytes), (c64, (2, 2), 32))
        self.assertEqual(x.tolist(), [[1, 2j], [3.5, 4]])
        self.assertEqual(complex(x[0, 1]), 2j)
        for y in (pickle.loads(pickle.dumps(x)), xp.from_dlpack(np.from_dlpack(x)), xp.asarray(np.asarray(x)), xp.from_dlpack(x)):
            self.assertTrue(bool(xp.all(y == x)))
        self.assertIn("complex64", repr(x))

    def test_transforms_take_them_as_trees(self):
        z = xp.asarray(np.array([1 + 2j, 3 - 1j], np.complex64))
        f = tl.jit(lambda z: xp.exp(z) * 2j)
        self.close(f(z), np.exp(z.numpy()) * np.complex64(2j), "jit", 1e-5)
        g = tl.grad(lambda z: xp.sum(xp.abs(z) ** 2))(z)
        self.close(g, (2 * z.numpy()).astype(np.complex64), "the gradient of both parts", 1e-5)
        batched = tl.vmap(lambda z: xp.sum(z))(xp.asarray(np.ones((3, 2), np.complex64)))
        self.assertEqual(batched.tolist(), [2, 2, 2])


if __name__ == "__main__":
    unittest.main()
