"""Python's numbers beside arrays: they take the arrays' type, so that float64 keeps its digits and narrow types stay narrow."""

import math
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp
import tensorloom.scipy.stats as stats

# Calls with a number n beside an array x of numbers in order, between 0.05 and 0.95, and m NumPy or the package.
CALLS = {
    "append": lambda m, x, n: m.append(x, n),
    "column_stack": lambda m, x, n: m.column_stack([x[0], n]),
    "concatenate": lambda m, x, n: m.concatenate([x, x[:1] * 0 + n]),
    "diff": lambda m, x, n: m.diff(x, prepend=n, append=n),
    "digitize": lambda m, x, n: m.digitize(n, x),
    "dot": lambda m, x, n: m.dot(x, n),
    "dstack": lambda m, x, n: m.dstack([x[0], n]),
    "ediff1d": lambda m, x, n: m.ediff1d(x, to_end=n, to_begin=n),
    "einsum": lambda m, x, n: m.einsum("i,->i", x, n),
    "geomspace": lambda m, x, n: m.geomspace(x[1], n, 4),
    "hstack": lambda m, x, n: m.hstack([x[0], n]),
    "inner": lambda m, x, n: m.inner(n, x),
    "insert": lambda m, x, n: m.insert(x, 2, n),
    "interp": lambda m, x, n: m.interp(n, x, m.flip(x)),
    "isclose": lambda m, x, n: m.isclose(x, n, rtol=0, atol=1e-14),
    "isin": lambda m, x, n: m.isin(x, n),
    "kron": lambda m, x, n: m.kron(n, x),
    "linspace": lambda m, x, n: m.linspace(x[0], n, 5),
    "linspace of arrays": lambda m, x, n: m.linspace(n, x, 3),
    "logspace": lambda m, x, n: m.logspace(n, x[0], 4),
    "outer": lambda m, x, n: m.outer(x, n),
    "polyval": lambda m, x, n: m.polyval(x, n),
    "searchsorted": lambda m, x, n: m.searchsorted(x, n),
    "searchsorted to the right": lambda m, x, n: m.searchsorted(x, n, side="right"),
    "setdiff1d": lambda m, x, n: m.setdiff1d(x, n),
    "stack": lambda m, x, n: m.stack([x[0], n, x[1]]),
    "tensordot": lambda m, x, n: m.tensordot(x, n, 0),
    "union1d": lambda m, x, n: m.union1d(x, n),
    "vstack": lambda m, x, n: m.vstack([x[0], n]),
    "where": lambda m, x, n: m.where(x > n, x, n),
}
# Calls with a list of numbers beside the array.
LISTS = {
    "add": lambda m, x, n: m.add(x, n),
    "sum": lambda m, x, n: x + n,
    "equal": lambda m, x, n: x == n,
    "array_equal": lambda m, x, n: m.array_equal(x, n),
    "average": lambda m, x, n: m.average(x, weights=n),
    "concatenate": lambda m, x, n: m.concatenate([x, n]),
    "digitize": lambda m, x, n: m.digitize(x, n),
    "dot": lambda m, x, n: m.dot(n, x),
    "histogram": lambda m, x, n: m.histogram(x, bins=n)[0],
    "interp": lambda m, x, n: m.interp(x, n, n[::-1]),
    "isin": lambda m, x, n: m.isin(x, n),
    "polyval": lambda m, x, n: m.polyval(n, x),
    "searchsorted": lambda m, x, n: m.searchsorted(x, n),
    "stack": lambda m, x, n: m.stack([x, n]),
    "an array of both": lambda m, x, n: m.array([x, n]),
}
# Calls that NumPy doesn't have, or has with another result.
OWN = {
    "place": (lambda x, n: tnp.place(x, x > 0.5, n), lambda x, n: np.where(x > 0.5, n, x)),
    "put": (lambda x, n: tnp.put(x, 1, n), lambda x, n: np.concatenate([x[:1], [n], x[2:]])),
    "norm.logpdf": (lambda x, n: stats.norm.logpdf(x, loc=n, scale=0.7), lambda x, n: -0.5 * ((x - n) / 0.7) ** 2 - math.log(0.7) - 0.5 * math.log(2 * math.pi)),
    "laplace.cdf": (lambda x, n: stats.laplace.cdf(x + n, n, 0.3), lambda x, n: 1 - 0.5 * np.exp(-x / 0.3)),
    "uniform.pdf": (lambda x, n: stats.uniform.pdf(x, 0.05, n), lambda x, n: np.where((x >= 0.05) & (x <= 0.05 + n), 1 / n, 0)),
    "t.logpdf": (lambda x, n: stats.t.logpdf(x, 3.0, 0.0, n), lambda x, n: math.log(2 / (math.pi * math.sqrt(3) * n)) - 2 * np.log1p((x / n) ** 2 / 3)),
    "cauchy.cdf": (lambda x, n: stats.cauchy.cdf(-x * 1e9, 0.0, n), lambda x, n: np.arctan2(n, x * 1e9) / np.pi),
    "logistic.logpdf": (lambda x, n: stats.logistic.logpdf(x, 0.0, n), lambda x, n: -x / n - 2 * np.log1p(np.exp(-x / n)) - math.log(n)),
    "logsumexp": (lambda x, n: tl.nn.logsumexp(x, b=n), lambda x, n: np.log(np.sum(n * np.exp(x)))),
    "cross entropy of numbers": (lambda x, n: tl.nn.binary_cross_entropy(x, n), lambda x, n: np.mean(-(n * np.log(x) + (1 - n) * np.log(1 - x)))),
    "uniform numbers": (lambda x, n: tl.random.uniform(tl.random.key(1), (3,), x.dtype, n, 0.7),
                        lambda x, n: np.asarray(tl.random.uniform(tl.random.key(1), (3,), "float64")) * (0.7 - n) + n),
}


def arrays(y):
    return [np.asarray(v) for v in (y if isinstance(y, (tuple, list)) else (y,))]


class Numbers(unittest.TestCase):
    def test_float64_keeps_its_digits(self):
        rng = np.random.default_rng(21)
        for name, call in CALLS.items():
            for n in (0.1, 0.3, 1 / 3, 0.7):
                with self.subTest(call=name, n=n):
                    x = np.sort(np.append(rng.uniform(0.05, 0.95, 4), n))
                    for got, want in zip(arrays(call(tnp, tl.asarray(x), n)), arrays(call(np, x, n)), strict=True):
                        self.assertEqual(got.shape, want.shape)
                        if want.dtype.kind == "f":
                            self.assertEqual(got.dtype, want.dtype)
                        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-15)
        for name, call in LISTS.items():
            with self.subTest(call=name):
                n = [0.1, 0.3, 1 / 3, 0.7, 0.9]
                x = np.where([True, True, False, True, False], n, rng.uniform(0.05, 0.95, 5))
                x.sort()
                np.testing.assert_allclose(np.asarray(call(tnp, tl.asarray(x), n)), call(np, x, n), rtol=1e-14)
        x = tl.asarray(np.zeros(3))
        x[:2] = [0.1, 0.7]
        self.assertEqual(x.tolist(), [0.1, 0.7, 0.0])
        self.assertEqual(x.at[1:].set([0.3, 1 / 3]).tolist(), [0.1, 0.3, 1 / 3])
        for name, (ours, expected) in OWN.items():
            for n in (0.1, 0.3, 0.7):
                with self.subTest(call=name, n=n):
                    x = np.sort(np.append(rng.uniform(0.05, 0.95, 4), n))
                    got = np.asarray(ours(tl.asarray(x), n))
                    self.assertEqual(got.dtype, np.float64)
                    np.testing.assert_allclose(got, expected(x, n), rtol=2e-14, atol=1e-15)

    def test_narrow_floats_stay_narrow(self):
        for dtype in ("float16", "bfloat16", "float32"):
            x = tnp.asarray([0.1, 0.2, 0.4, 0.5, 0.9]).astype(dtype)
            for name, y in [*((k, f(tnp, x, 0.3)) for k, f in CALLS.items() if k != "setdiff1d"), *((k, f(x, 0.3)) for k, (f, _) in OWN.items())]:
                with self.subTest(call=name, dtype=dtype):
                    for t in y if isinstance(y, (tuple, list)) else (y,):
                        self.assertTrue(t.dtype == dtype or t.dtype.kind != "f", f"{t.dtype}")

    def test_bfloat16_needs_no_further_package(self):
        x, y = (tnp.asarray(values).astype("bfloat16") for values in ([0.5, 0.25, 0.5, 4.0], [0.5, 3.0]))
        self.assertTrue(repr(x).startswith("Tensor([0.5") and repr(x).endswith("dtype=bfloat16)"), repr(x))
        for got, want in (
            (tnp.unique(x), [0.25, 0.5, 4.0]),
            (tnp.union1d(x, y), [0.25, 0.5, 3.0, 4.0]),
            (tnp.intersect1d(x, y), [0.5]),
            (tnp.setdiff1d(x, y), [0.25, 4.0]),
            (tnp.setxor1d(x, y), [0.25, 3.0, 4.0]),
        ):
            self.assertEqual(got.dtype, "bfloat16")
            self.assertEqual(got.astype("float32").tolist(), want)
        self.assertEqual([t.tolist() for t in tnp.unique(x, return_index=True, return_counts=True)[1:]], [[1, 0, 3], [1, 2, 1]])
        self.assertEqual([t.tolist() for t in tnp.intersect1d(x, y, return_indices=True)[1:]], [[0], [0]])
        self.assertEqual(tnp.union1d(x, y.astype("float32")).dtype, "float32")

    def test_integers_stay_what_they_are(self):
        for dtype in ("int8", "uint8", "int16", "uint32", "int64", "uint64"):
            x = tnp.asarray([1, 2, 3]).astype(dtype)
            calls = {
                "append": tnp.append(x, 7), "kron": tnp.kron(x, 2), "outer": tnp.outer(x, 2), "dot": tnp.dot(x, 2), "insert": tnp.insert(x, 0, 5),
                "stack": tnp.stack([x[0], 5]), "diff": tnp.diff(x, prepend=0), "union1d": tnp.union1d(x, 9),
            }
            for name, y in calls.items():
                with self.subTest(call=name, dtype=dtype):
                    self.assertEqual(y.dtype, dtype)

    def test_numbers_alone(self):
        self.assertEqual(tnp.append(1.5, 2).dtype, "float32")
        self.assertEqual(tnp.stack([1, 2]).dtype, "int32")
        self.assertEqual(tnp.linspace(0, 1, 3).dtype, "float32")
        # NumPy's numbers have their own type.
        self.assertEqual(tnp.linspace(np.float64(0.1), 1, 3).dtype, "float64")

    def test_arrays_that_can_not_be_read_are_not_compared_as_objects(self):
        x = tl.asarray(np.arange(3))
        for other in (np.arange(3).astype(">i4"), np.arange(3) * 1j, np.array([None] * 3)):
            for f in (lambda: x == other, lambda: x != other, lambda: x + other, lambda: other == x):
                with self.assertRaises(TypeError):
                    f()
        self.assertFalse(x is None or isinstance(x == "text", tl.Tensor))


if __name__ == "__main__":
    unittest.main()
