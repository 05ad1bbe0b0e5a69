"""Statistics of float16 and bfloat16, with every argument that NumPy's have: computed wide and rounded once."""

import unittest
import warnings

import numpy as np

import tensorloom as tl
import tensorloom.array_api as xp
import tensorloom.numpy as tnp
import tensorloom.scipy.stats as stats

N = 100_000
# Half a unit in the last place of 1, and the least number.
TYPES = {"float16": (2.0**-11, 2.0**-24), "bfloat16": (2.0**-8, 2.0**-133)}
# Numbers whose sum, squares, deviations or count don't fit float16.
DATA = {"plain": (0.0, 1.0), "offset": (300.0, 1.0), "large": (0.0, 9000.0), "small": (0.0, 1e-5), "positive": (20000.0, 3000.0)}


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x, b):
    return np.log(np.sum(np.exp(x - x.max()) * b)) + x.max()


# What is computed of numbers x, a condition w and rows, by the package and by NumPy in float64.
CALLS = {
    "mean": (lambda x, w: tnp.mean(x), lambda x, w: np.mean(x)),
    "mean where": (lambda x, w: tnp.mean(x, where=w), lambda x, w: np.mean(x, where=w)),
    "mean of rows where": (lambda x, w: tnp.mean(x.reshape(10, -1), axis=1, where=w.reshape(10, -1)), lambda x, w: np.mean(x.reshape(10, -1), axis=1, where=w.reshape(10, -1))),
    "var": (lambda x, w: tnp.var(x), lambda x, w: np.var(x)),
    "var, ddof": (lambda x, w: tnp.var(x, ddof=2), lambda x, w: np.var(x, ddof=2)),
    "var, correction": (lambda x, w: tnp.var(x, correction=1.5), lambda x, w: np.var(x) * N / (N - 1.5)),
    "var where": (lambda x, w: tnp.var(x, where=w), lambda x, w: np.var(x, where=w)),
    "std": (lambda x, w: tnp.std(x), lambda x, w: np.std(x)),
    "std, ddof": (lambda x, w: tnp.std(x, ddof=1, keepdims=True), lambda x, w: np.std(x, ddof=1, keepdims=True)),
    "std along an axis": (lambda x, w: tnp.std(x.reshape(-1, 4), axis=0), lambda x, w: np.std(x.reshape(-1, 4), axis=0)),
    "std where": (lambda x, w: tnp.std(x, where=w), lambda x, w: np.std(x, where=w)),
    "nanmean where": (lambda x, w: tnp.nanmean(x, where=w), lambda x, w: np.nanmean(x, where=w)),
    "nanvar where": (lambda x, w: tnp.nanvar(x, where=w), lambda x, w: np.nanvar(x, where=w)),
    "nanstd": (lambda x, w: tnp.nanstd(x), lambda x, w: np.nanstd(x)),
    "nanstd where": (lambda x, w: tnp.nanstd(x, ddof=1, where=w), lambda x, w: np.nanstd(x, ddof=1, where=w)),
    "array_api.var": (lambda x, w: xp.var(x, correction=1), lambda x, w: np.var(x, ddof=1)),
    "array_api.std": (lambda x, w: xp.std(x), lambda x, w: np.std(x)),
    "cov": (lambda x, w: tnp.cov(x.reshape(2, -1)), lambda x, w: np.cov(x.reshape(2, -1))),
    "cov, weights": (lambda x, w: tnp.cov(x, fweights=w.astype("int32")), lambda x, w: np.cov(x, fweights=w.astype("int32"))),
    "corrcoef": (lambda x, w: tnp.corrcoef(x.reshape(2, -1)), lambda x, w: np.corrcoef(x.reshape(2, -1))),
    "softmax over axes": (lambda x, w: tl.nn.softmax(x[:60].reshape(3, 4, 5), axis=(0, 2)), lambda x, w: softmax(x[:60].reshape(3, 4, 5), (0, 2))),
    "log_softmax over axes": (lambda x, w: tl.nn.log_softmax(x[:60].reshape(3, 20), axis=(0, 1)), lambda x, w: np.log(softmax(x[:60].reshape(3, 20), (0, 1)))),
    "logsumexp with factors": (lambda x, w: tl.nn.logsumexp(x, b=0.5), lambda x, w: logsumexp(x, 0.5)),
    "sums of weights": (lambda x, w: tnp.histogram(tnp.zeros(N), 1, range=(-1, 1), weights=tnp.abs(x[:1]) + 0 * x)[0], lambda x, w: np.abs(x[:1]) * N),
    "cross": (lambda x, w: tnp.cross(x[:3], x[3:6])[:1], lambda x, w: np.cross(x[:3], x[3:6])[:1]),
    "squareplus": (lambda x, w: tl.nn.squareplus(tnp.abs(x[:99])), lambda x, w: 0.5 * (np.abs(x[:99]) + np.sqrt(x[:99] ** 2 + 4))),
    "sinc": (lambda x, w: tnp.sinc(tnp.minimum(tnp.abs(x[:99]), 0.5) + 0.25), lambda x, w: np.sinc(np.minimum(np.abs(x[:99]), 0.5) + 0.25)),
    "round": (lambda x, w: tnp.round(x[:99], 3), lambda x, w: np.round(x[:99], 3)),
    "ends of ranges": (lambda x, w: tnp.histogram(x, 8)[1][1:8:6], lambda x, w: np.histogram(x, 8)[1][1:8:6]),
    "sums of segments": (lambda x, w: tl.ops.segment_sum(tnp.abs(x), tnp.arange(N) % 3, 3), lambda x, w: np.bincount(np.arange(N) % 3, np.abs(x))),
    "bincount": (lambda x, w: tnp.bincount(tnp.arange(N) % 3, tnp.abs(x)), lambda x, w: np.bincount(np.arange(N) % 3, np.abs(x))),
    "norm.logpdf": (lambda x, w: stats.norm.logpdf(x, loc=300.0, scale=200.0), lambda x, w: -0.5 * ((x - 300.0) / 200.0) ** 2 - np.log(200.0) - 0.5 * np.log(2 * np.pi)),
}


class Narrow(unittest.TestCase):
    def test_statistics_are_rounded_once(self):
        rng, checked = np.random.default_rng(11), 0
        for dtype, (unit, least) in TYPES.items():
            for kind, (offset, scale) in DATA.items():
                x = tnp.asarray(offset + scale * rng.normal(size=N)).astype(dtype)
                exact = np.asarray(x.astype("float64"))
                held = rng.random(N) < 0.7
                for name, (ours, numpys) in CALLS.items():
                    with self.subTest(name=name, dtype=dtype, data=kind), warnings.catch_warnings(), np.errstate(all="ignore"):
                        warnings.simplefilter("ignore")
                        y = ours(x, tl.asarray(held))
                        self.assertEqual(y.dtype, dtype)
                        got, want = np.asarray(y.astype("float64")), numpys(exact, held)
                        # What doesn't fit the type itself is infinite.
                        want = np.asarray(tnp.asarray(np.asarray(want)).astype(dtype).astype("float64"))
                        near = (got == want) | (np.abs(got - want) <= 3 * unit * np.abs(want) + least + 1e-6 * (name == "corrcoef"))
                        self.assertTrue(near.all(), f"{got} for {want}")
                        checked += 1
        self.assertEqual(checked, len(CALLS) * len(TYPES) * len(DATA))

    def test_slopes_of_deviations(self):
        rng = np.random.default_rng(12)
        for dtype, (unit, least) in TYPES.items():
            for kind, (offset, scale) in DATA.items():
                x = tnp.asarray(offset + scale * rng.normal(size=N)).astype(dtype)
                exact = np.asarray(x.astype("float64"))
                want = (exact - exact.mean()) / (exact.std() * N)
                for f in (tnp.std, tnp.nanstd, lambda v: tnp.std(v, where=tnp.ones(N, "bool")), xp.std):
                    with self.subTest(dtype=dtype, data=kind):
                        got = np.asarray(tl.grad(f)(x).astype("float64"))
                        self.assertTrue((np.abs(got - want) <= 3 * unit * np.abs(want) + least + 1e-9).all())

    def test_without_degrees_of_freedom(self):
        x, one = np.array([1.0, 2.0, 4.0]), np.array([True, False, False])
        for ddof in (0, 1, 2, 4):
            with self.subTest(ddof=ddof), warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                for where in (one, ~one, np.ones(3, bool)):
                    np.testing.assert_allclose(np.asarray(tnp.var(tl.asarray(x), ddof=ddof, where=tl.asarray(where))), np.var(x, ddof=ddof, where=where), rtol=1e-14)

    def test_attention_has_wide_scores(self):
        rng = np.random.default_rng(13)
        q, k, v = (rng.normal(size=(2, 5, 3, 8)) * s for s in (200.0, 200.0, 1.0))
        for dtype, (unit, _) in TYPES.items():
            q, k, v = (tnp.asarray(t).astype(dtype) for t in (q, k, v))
            y = tl.nn.dot_product_attention(q, k, v)
            self.assertEqual(y.dtype, dtype)
            wide = [np.asarray(t.astype("float64")) for t in (q, k, v)]
            scores = np.einsum("bqhd,bkhd->bhqk", wide[0], wide[1]) / np.sqrt(8)
            want = np.einsum("bhqk,bkhd->bqhd", softmax(scores, -1), wide[2])
            self.assertTrue((np.abs(np.asarray(y.astype("float64")) - want) <= 0.01 + 8 * unit * np.abs(want)).all())


if __name__ == "__main__":
    unittest.main()
