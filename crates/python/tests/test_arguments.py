"""Arguments of functions that Python reads: axes, types, modes of padding, methods of quantiles, shapes of random numbers, against NumPy."""

import unittest
import warnings

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

# NumPy's own reflections wider than an axis, and repetitions of one, are right from here on.
WIDE = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
REDUCTIONS = (
    "sum prod max min amax amin mean var std any all median nanmedian ptp count_nonzero average nansum nanprod nanmax nanmin nanmean nanvar nanstd "
    "argmax argmin nanargmax nanargmin").split()
AXES = [None, 0, -1, 2, (0, 1), (1, 0), (0, 2), (-1, 0), (2, 1, 0), (1,), (0, 0), 3, (0, 3)]
METHODS = (
    "linear lower higher nearest midpoint inverted_cdf averaged_inverted_cdf interpolated_inverted_cdf hazen weibull median_unbiased normal_unbiased").split()


def tried(f):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f()
    except (TypeError, ValueError, IndexError) as e:
        return e


class Arguments(unittest.TestCase):
    def same(self, ours, numpys, typed=False, **what):
        """Both give the same, or both refuse."""
        with self.subTest(**what):
            want, got = tried(numpys), tried(ours)
            if isinstance(want, Exception):
                self.assertIsInstance(got, Exception, f"NumPy says {want!r}")
                return
            if isinstance(got, Exception):
                raise got
            want, got = ([np.asarray(x) for x in (y if isinstance(y, tuple) else (y,))] for y in (want, got))
            for w, g in zip(want, got, strict=True):
                self.assertEqual(g.shape, w.shape)
                if typed:
                    self.assertEqual(g.dtype, w.dtype)
                np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=1e-5, atol=1e-5)

    def test_axes_of_every_reduction(self):
        x = np.random.default_rng(1).normal(size=(2, 3, 4))
        missing = x.copy()
        missing[0, 1, 2] = np.nan
        for name in REDUCTIONS:
            for axis in AXES:
                if name.removeprefix("nan").startswith("arg") and axis == (1,):  # one axis in a tuple is taken here
                    continue
                for keepdims in (False, True):
                    for y in (x, missing):
                        ours, numpys = getattr(tnp, name), getattr(np, name)
                        self.same(lambda: ours(tl.asarray(y), axis=axis, keepdims=keepdims), lambda: numpys(y, axis=axis, keepdims=keepdims), name=name, axis=axis)

    def test_methods_and_axes_of_quantiles(self):
        rng = np.random.default_rng(2)
        x = rng.normal(size=(2, 5, 4))
        missing = np.where(rng.random(x.shape) < 0.2, np.nan, x)
        for name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
            for method in METHODS:
                for q in (0.3, 0.0, 0.5, [0.1, 1.0], [[0.25]]):
                    if name.startswith("nan") and np.ndim(q) > 1:  # NumPy puts the axes of q elsewhere
                        continue
                    for axis in (None, 0, -1, (0, 1), (1, 0), (0, 2), (1,)):
                        for y in (x, missing) if q == 0.3 else (x,):
                            for keepdims in (False, True) if q == 0.3 else (False,):
                                p = np.multiply(q, 100) if "percent" in name else q
                                self.same(
                                    lambda: getattr(tnp, name)(tl.asarray(y), p, axis=axis, method=method, keepdims=keepdims),
                                    lambda: getattr(np, name)(y, p, axis=axis, method=method, keepdims=keepdims), name=name, method=method, q=q, axis=axis)
        with self.assertRaisesRegex(ValueError, "use linear, lower"):
            tnp.quantile(tl.asarray(x), 0.5, method="none")

    def test_types_of_results(self):
        rng = np.random.default_rng(3)
        x = (rng.normal(size=(3, 4)) * 3).astype(np.float32)
        missing = np.where(rng.random(x.shape) < 0.2, np.float32(np.nan), x)
        arrays = [x, missing, rng.integers(-9, 9, (3, 4)).astype(np.int32), x > 0, rng.integers(0, 9, (3, 4)).astype(np.uint8)]
        for name in "sum mean var std cumsum nansum nanmean nanvar nanstd nancumsum trace prod cumprod nanprod nancumprod".split():
            for dtype in (np.float64, np.float32, np.int64, np.int32, np.int8, np.bool_, np.uint16):
                for y in arrays:
                    loses = y.dtype.kind == "f" and (np.dtype(dtype).kind == "u" or not name.startswith("nan") and np.isnan(y).any())
                    wraps = name.removeprefix("nan").endswith(("prod", "cumprod")) and np.dtype(dtype).itemsize < 8 and dtype != np.bool_
                    tiny = np.dtype(dtype).kind in "ub" and name.removeprefix("nan") in ("mean", "var", "std")
                    if loses and np.dtype(dtype).kind != "f" or wraps or tiny or name.removeprefix("nan") in ("var", "std") and dtype == np.int8:
                        continue  # what floats become that no such integer is
                    ours, numpys = getattr(tnp, name), getattr(np, name)
                    self.same(lambda: ours(tl.asarray(y), dtype=dtype), lambda: numpys(y, dtype=dtype), True, name=name, dtype=dtype, of=y.dtype)
                    if name != "trace" and not ("std" in name and np.dtype(dtype).kind in "iu"):  # NumPy has no root of such arrays
                        self.same(lambda: ours(tl.asarray(y), 1, dtype=dtype), lambda: numpys(y, 1, dtype=dtype), True, name=name, dtype=dtype, of=y.dtype)
        for kind in (np.float32, np.float64):
            z = np.array([0.0, -0.0, 1, -1, np.nan, np.inf, -np.inf], kind)
            for deg in (False, True):
                self.same(lambda: tnp.angle(tl.asarray(z), deg), lambda: np.angle(z, deg), True, name="angle")

    def test_axes_of_norms_averages_and_rolls(self):
        x = np.random.default_rng(4).normal(size=(2, 3, 4))
        for axis in ((0, 1), (1, 0), (-1, 0), (0, 2), (1, 2), (0, 0), (1, -2)):
            for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
                for keepdims in (False, True):
                    self.same(
                        lambda: tnp.linalg.norm(tl.asarray(x), order, axis, keepdims), lambda: np.linalg.norm(x, order, axis, keepdims), order=order, axis=axis)
        weights = np.random.default_rng(5).random((2, 3, 4))
        for axis in (None, 0, 1, 2, -1, (0, 1), (2, 0)):
            for w in (None, weights, weights[0, 0], weights[:, 0, 0]):
                if isinstance(axis, tuple) and w is not None and w.ndim == 1:
                    continue
                for returned in (False, True):
                    self.same(
                        lambda: tnp.average(tl.asarray(x), axis, None if w is None else tl.asarray(w), returned), lambda: np.average(x, axis, w, returned),
                        axis=axis, weights=None if w is None else w.shape)
        for shift, axis in ((1, None), ((1, 2), None), ((1, 2), (0, 2)), (1, (0, 1)), ((1, 2), 1), (-5, -1)):
            self.same(lambda: tnp.roll(tl.asarray(x), shift, axis), lambda: np.roll(x, shift, axis), shift=shift, axis=axis)

    def test_modes_of_padding(self):
        rng = np.random.default_rng(6)
        for shape in ((4,), (1,), (2, 3), (3, 1), (2, 3, 2), (0, 3)):
            n = len(shape)
            modes = [
                ("constant", {}), ("constant", {"constant_values": 3}), ("constant", {"constant_values": (1, 2)}), ("constant", {"constant_values": 1.5}),
                ("constant", {"constant_values": [(k, k + 1) for k in range(n)]}), ("edge", {}), ("reflect", {}), ("symmetric", {}), ("wrap", {}),
                ("reflect", {"reflect_type": "odd"}), ("symmetric", {"reflect_type": "odd"}), ("maximum", {}), ("minimum", {}), ("mean", {}), ("median", {}),
                ("maximum", {"stat_length": 2}), ("mean", {"stat_length": (1, 2)}), ("median", {"stat_length": 2}), ("minimum", {"stat_length": [(1, 3)] * n}),
                ("linear_ramp", {}), ("linear_ramp", {"end_values": (3, -4)}), ("linear_ramp", {"end_values": [(k, 2) for k in range(n)]}), ("none", {}),
            ]
            for kind in (np.float64, np.int32, np.uint8, np.bool_):
                x = (rng.integers(0, 100, shape) if np.dtype(kind).kind != "f" else rng.normal(size=shape)).astype(kind)
                for widths in (0, 1, (1, 2), ((2, 0),), [(k, 3 - k) for k in range(n)], [(9, 7)] * n, -1, ((1, 2), (3, 4), (5, 6), (7, 8))):
                    for mode, words in modes:
                        computed = mode in ("mean", "median", "linear_ramp") or "reflect_type" in words
                        wide = mode in ("reflect", "symmetric", "wrap") and np.max(widths) > min(shape) - 1
                        if computed and kind in (np.bool_, np.uint8) or wide and not WIDE or 0 in shape and mode != "constant":
                            continue
                        self.same(lambda: tnp.pad(tl.asarray(x), widths, mode, **words), lambda: np.pad(x, widths, mode, **words), True, mode=mode, shape=shape, widths=widths)
        big = tl.asarray(np.array([1], np.int64))
        self.assertEqual(tnp.pad(big, 1, constant_values=2**60 + 1).tolist(), [2**60 + 1, 1, 2**60 + 1])
        self.assertEqual(tnp.pad(tnp.ones((2, 2)), {-1: (1, 2)}).shape, (2, 5))
        self.assertEqual(tnp.pad(tnp.ones(1), 1, 2.0).tolist(), [2.0, 1.0, 2.0])
        self.assertEqual(tnp.pad(tnp.ones(1), 1, "constant", 2.0).tolist(), [2.0, 1.0, 2.0])
        for mode in ("edge", "reflect", "symmetric", "wrap", "mean", "maximum"):
            with self.assertRaises(ValueError):
                tnp.pad(tnp.ones((0, 2)), 1, mode)
        g = tl.grad(lambda x: tnp.sum(tnp.pad(x, 2, "reflect", reflect_type="odd") ** 2))(tl.asarray(np.array([1.0, 3.0, 4.0])))
        h = 1e-6
        at = lambda x: np.sum(np.pad(x, 2, "reflect", reflect_type="odd") ** 2)  # noqa: E731
        want = [(at(np.array([1.0, 3.0, 4.0]) + h * e) - at(np.array([1.0, 3.0, 4.0]) - h * e)) / (2 * h) for e in np.eye(3)]
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-6)

    def test_counts_of_nothing(self):
        for dtype in ("float64", "float32", "int32", "uint16"):
            x = np.zeros(0, dtype)
            for ends in (None, (-2, 3)):
                for bins in (1, 5):
                    more = {"bins": bins, "range": ends}
                    self.same(lambda: tnp.histogram(tl.asarray(x), **more), lambda: np.histogram(x, **more), **more)
                    self.same(lambda: tnp.histogram_bin_edges(tl.asarray(x), **more), lambda: np.histogram_bin_edges(x, **more), **more)

    def test_periodic_points_of_narrow_floats(self):
        rng = np.random.default_rng(6)
        x, xp, fp = rng.normal(size=40) * 9, rng.normal(size=7) * 3, rng.normal(size=7)
        x, xp = (tnp.asarray(v.astype("float32")).astype("bfloat16") for v in (x, xp))
        got = tnp.interp(x, xp, tnp.asarray(fp.astype("float32")), period=2.5)
        self.assertEqual(got.dtype, "float32")
        x, xp = (np.asarray(v.astype("float32").tolist()) for v in (x, xp))
        np.testing.assert_allclose(got.numpy(), np.interp(x, xp, fp.astype("float32"), period=2.5), rtol=1e-4, atol=1e-5)

    def test_counts_beside_their_ranges(self):
        rng = np.random.default_rng(5)
        for dtype in ("float64", "int32"):
            x, y = ((rng.normal(size=60) * 4).astype(dtype) for _ in "xy")
            for density in (False, True):
                for weights in (None, rng.uniform(0.5, 2, 60)):
                    # Some numbers are in none of the ranges.
                    for bins, ends in ((4, (-2, 3)), (np.array([-2.0, 0.0, 1.0, 2.5]), None), (5, None)):
                        more = {"bins": bins, "range": ends, "density": density, "weights": weights}
                        own = {k: tl.asarray(v) if isinstance(v, np.ndarray) else v for k, v in more.items()}
                        self.same(lambda: tnp.histogram(tl.asarray(x), **own), lambda: np.histogram(x, **more), bins=bins, density=density)
                        more["range"] = own["range"] = None if ends is None else (ends, ends)
                        more["bins"] = own["bins"] = bins if isinstance(bins, int) else [bins, bins]
                        self.same(lambda: tnp.histogram2d(tl.asarray(x), tl.asarray(y), **own), lambda: np.histogram2d(x, y, **more), bins=bins, density=density)

    def test_insertions(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        for axis in (None, 0, 1, 2, -1, -2, -3):
            for at in (0, 1, 2):
                for values in (5.0, np.array(7.0), np.arange(4.0), np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(2, 4), np.arange(6.0).reshape(2, 3)):
                    own = values if isinstance(values, float) else tl.asarray(values)
                    if axis is None and np.ndim(values) or axis is not None and np.ndim(values) not in (0, 2):
                        continue
                    self.same(lambda: tnp.insert(tl.asarray(x), at, own, axis=axis), lambda: np.insert(x, at, values, axis=axis), axis=axis, at=at, values=np.shape(values))

    def test_derivatives_of_polynomials(self):
        for dtype in ("bool", "int8", "uint8", "int16", "int64", "float64"):
            for n in (1, 4, 7, 300):
                p = (np.random.default_rng(n).integers(-3, 4, n)).astype(dtype)
                for m in (0, 1, 2, 3) if n < 300 else (1,):
                    self.same(lambda: tnp.polyder(tl.asarray(p), m), lambda: np.polyder(p, m), typed=True, dtype=dtype, n=n, m=m)

    def test_points_of_several_types(self):
        rng = np.random.default_rng(6)
        for types in (("float16", "float16", "float32"), ("float32", "float16", "float64"), ("int32", "float16", "float64"), ("float16",) * 3):
            xp = np.unique(rng.normal(size=7).astype(types[1]))
            x, fp = (rng.normal(size=50) * 2).astype(types[0]), rng.normal(size=len(xp)).astype(types[2])
            got = np.asarray(tnp.interp(*(tl.asarray(v) for v in (x, xp, fp))))
            self.assertEqual(got.dtype, np.result_type(*(t for t in types if t[0] == "f")))
            unit = np.finfo(got.dtype).eps if got.dtype != np.float64 else 1e-15
            np.testing.assert_allclose(got.astype("float64"), np.interp(*(v.astype("float64") for v in (x, xp, fp))), rtol=4 * unit, atol=4 * unit)

    def test_points_at_one_place(self):
        xp, fp = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 3.0]), np.array([1.0, 5.0, -2.0, 4.0, 7.0, 8.0])
        x = np.array([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, np.nan])
        np.testing.assert_allclose(np.asarray(tnp.interp(*(tl.asarray(v) for v in (x, xp, fp)))), np.interp(x, xp, fp), rtol=1e-15)

    def test_rounding_to_tens(self):
        x = np.array([5, 15, 25, 35, 45, 125, 1250, -35, 149.99, 250.0])
        for dtype in ("float32", "float64"):
            for decimals in (-2, -1, 0, 1, 3):
                self.same(lambda: tnp.round(tl.asarray(x.astype(dtype)), decimals), lambda: np.round(x.astype(dtype), decimals), typed=True, decimals=decimals)

    def test_no_quantiles(self):
        x = tl.asarray(np.arange(12.0).reshape(3, 4))
        for q in (np.zeros(0), np.zeros((0, 2)), np.zeros((2, 0))):
            for axis, left in ((None, ()), (0, (4,)), (-1, (3,)), ((0, 1), ())):
                for name in ("quantile", "nanpercentile"):
                    y = getattr(tnp, name)(x, q, axis=axis)
                    self.assertEqual((y.shape, y.dtype), ((*q.shape, *left), "float64"))

    def test_means_of_integers_where(self):
        x = np.array([[2**63, 2**63 + 2**40, 5], [2**62, 1, 2**63]], np.uint64)
        for axis in (None, 0, 1):
            self.same(lambda: tnp.mean(tl.asarray(x), axis=axis, where=x > 3), lambda: np.mean(x, axis=axis, where=x > 3), axis=axis)
            self.same(lambda: tnp.ptp(tl.asarray(x[:0]), axis=axis), lambda: np.ptp(x[:0], axis=axis), axis=axis)
            self.same(lambda: tnp.diff(tl.asarray(x), n=0, prepend=1, append=2), lambda: np.diff(x, n=0, prepend=1, append=2), axis=axis)

    def test_softmax_of_some(self):
        x, held = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 1.0, -1.0]]), np.array([[True, False, True], [False] * 3, [True] * 3])
        got = np.asarray(tl.nn.softmax(tl.asarray(x), where=tl.asarray(held)))
        e = np.where(held, np.exp(x), 0)
        # A row of nothing is zeros, as in JAX.
        np.testing.assert_allclose(got, np.divide(e, e.sum(1, keepdims=True), where=held, out=np.zeros((3, 3))), rtol=1e-14)

    def test_places_outside_that_are_filled(self):
        for dtype, missing in (("bool", True), ("int8", -128), ("uint16", 65535), ("int64", -(2**63)), ("float32", np.nan)):
            x = tnp.asarray([1, 0, 1]).astype(dtype)
            got = np.asarray(x.at[tl.asarray([0, 5, -9])].get(mode="fill"))
            np.testing.assert_array_equal(got, np.array([1, missing, missing], dtype))

    def test_bits(self):
        lax = tl.lax
        for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint64"):
            info = np.iinfo(dtype)
            x = np.array([info.min, info.max, 0, 1, 5, info.max // 3, info.min + 1], dtype)
            want = [bin(int(v) & (2**info.bits - 1)).count("1") for v in x]
            self.assertEqual(lax.population_count(tl.asarray(x)).tolist(), want)
            self.assertEqual(lax.population_count(tl.asarray(x)).dtype, dtype)
            for new in ("uint8", "int16", "uint32", "float64", dtype):
                y, size = lax.bitcast_convert_type, np.dtype(new).itemsize
                if size <= x.itemsize:
                    shape = x.shape if size == x.itemsize else (*x.shape, x.itemsize // size)
                    got = np.asarray(y(tl.asarray(x), new))
                    self.assertEqual((got.shape, got.tobytes()), (shape, x.tobytes()))
                    np.testing.assert_array_equal(np.asarray(y(tl.asarray(got), dtype)), x)
        self.assertEqual(lax.bitcast_convert_type(tl.asarray(1.0), "int32").tolist(), 0x3F800000)
        with self.assertRaises(ValueError):
            lax.bitcast_convert_type(tnp.zeros(3, "uint8"), "int32")

    def test_functions_of_integers_alone_or_floats_alone(self):
        for dtype in ("bool", "int8", "uint64"):
            self.assertEqual(tnp.fabs(tnp.asarray([1, 0]).astype(dtype)).dtype, "float32")
        with self.assertRaises(TypeError):
            tnp.bincount(tnp.asarray([1.0, 2.5]))

    def test_shapes_of_multinomial(self):
        key = tl.random.key(0)
        p = np.array([[0.2, 0.8], [0.5, 0.5], [0.1, 0.9]], np.float32)
        # What JAX gives.
        self.assertEqual(tl.random.multinomial(key, 5.0, p).tolist(), MULTINOMIAL["rows"])
        self.assertEqual(tl.random.multinomial(key, np.array([5.0, 6.0, 7.0], np.float32), p).tolist(), MULTINOMIAL["counts"])
        self.assertEqual(tl.random.multinomial(key, 5.0, p[0], shape=(3, 2)).tolist(), MULTINOMIAL["shape"])
        for shape in ((), (2,), (3, 2), (4, 3, 2)):
            if shape[-1:] == (2,):
                self.assertEqual(tl.random.multinomial(key, 5.0, p[0], shape=shape).shape, shape)
        for shape in ((), (3,), (4, 3)):
            with self.assertRaises(ValueError):
                tl.random.multinomial(key, 5.0, p, shape=shape)

    def test_names_of_types_are_those_of_numpy(self):
        for code in "b1 ? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 bool int8 int64 uint16 float16 float64".split():
            self.assertEqual(tnp.zeros(1, code).dtype.name, np.dtype(code).name)
            self.assertEqual(tl.dtype(np.dtype(code)), np.dtype(code).name)

    def test_common_types_of_numbers(self):
        x = tnp.ones(2)
        for other, want in ((1.0, "float32"), (np.float64(1), "float64"), (np.float32(1), "float32"), (np.int8(1), "float32"), (True, "float32")):
            self.assertEqual(tnp.result_type(x, other), want)
            self.assertEqual((x + other).dtype if other is not True else tl.asarray(x).dtype, want)
            self.assertEqual(tl.jit(lambda a, b: a + b)(x, other).dtype, want)
            self.assertEqual(tnp.concatenate([x, tl.asarray([other])]).dtype, want)


MULTINOMIAL = {
    "rows": [[0.0, 5.0], [1.0, 4.0], [0.0, 5.0]],
    "counts": [[0.0, 5.0], [1.0, 5.0], [0.0, 7.0]],
    "shape": [[0.0, 5.0], [2.0, 3.0], [1.0, 4.0]],
}


if __name__ == "__main__":
    unittest.main()
