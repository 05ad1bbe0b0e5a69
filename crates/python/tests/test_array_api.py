"""The array API's namespace: every function is there, and equals NumPy on random arrays of every type."""

import inspect
import unittest

import numpy as np

import tensorloom.array_api as xp

NAMES = (
    "e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu "
    "zeros zeros_like astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type bool int8 int16 int32 int64 "
    "uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 abs acos acosh add asin asinh atan atan2 atanh bitwise_and "
    "bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp "
    "expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 "
    "logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real "
    "reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul "
    "matrix_transpose tensordot vecdot concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile "
    "unstack argmax argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort "
    "sort cumulative_prod cumulative_sum max mean min prod std sum var all any diff __array_namespace_info__ linalg fft"
).split()
LINALG = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr slogdet "
    "solve svd svdvals tensordot trace vecdot vector_norm"
).split()
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()

INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]
NUMBERS = INTS + FLOATS
SHAPES = [(), (1,), (5,), (0,), (3, 4), (2, 1, 3), (2, 0, 3), (17, 33)]


class ArrayApi(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(11)

    def array(self, dtype, shape, low=-4, high=5):
        if dtype == np.bool_:
            return self.rng.integers(0, 2, shape).astype(bool)
        if np.dtype(dtype).kind == "f":
            return self.rng.uniform(low, high, shape).astype(dtype)
        return self.rng.integers(max(0, low) if np.dtype(dtype).kind == "u" else low, high, shape).astype(dtype)

    def same(self, got, want, what, exact=False):
        want = np.asarray(want)
        got_np = np.asarray(got)
        self.assertEqual(got_np.dtype, want.dtype, what)
        self.assertEqual(got_np.shape, want.shape, what)
        if exact or want.dtype.kind in "iub":
            np.testing.assert_array_equal(got_np, want, err_msg=what)
        else:
            tol = 2e-5 if want.dtype == np.float32 else 1e-12
            np.testing.assert_allclose(got_np, want, rtol=tol, atol=tol, err_msg=what)

    def test_masks_with_empty_axes_take_nothing(self):
        x = np.arange(6).reshape(2, 3)
        for shape in ((0,), (2, 0), (0, 3), (0, 0)):
            mask = np.zeros(shape, bool)
            self.assertEqual(xp.asarray(x)[xp.asarray(mask)].shape, x[mask].shape, shape)
        for shape in ((3,), (2, 2), (2, 3, 1)):
            with self.assertRaises(IndexError):
                xp.asarray(x)[xp.asarray(np.zeros(shape, bool))]

    def test_numbers_keep_their_digits_where_they_are_written(self):
        for dtype, value in ((np.float64, 0.1), (np.int64, 2**62 + 1), (np.uint64, 2**64 - 1)):
            want, mask = np.zeros(3, dtype), np.array([True, False, True])
            x = xp.asarray(want)
            for y in (x.at[mask].set(value), x.at[xp.asarray([0, 2])].set(value), x.at[0].add(value)):
                self.assertEqual(y.tolist()[0], value)
            x[xp.asarray(mask)] = value
            want[mask] = value
            self.same(x, want, "by a mask", exact=True)
            x[xp.asarray([1])] = value
            self.assertEqual(x.tolist()[1], value)

    def test_names_are_there(self):
        lacking = [n for n in NAMES if not hasattr(xp, n)]
        lacking += ["linalg." + n for n in LINALG if not hasattr(xp.linalg, n)]
        lacking += ["fft." + n for n in FFT if not hasattr(xp.fft, n)]
        self.assertEqual(lacking, [])
        self.assertEqual(xp.__array_api_version__, "2024.12")

    def test_elementwise_of_one(self):
        for name in "abs negative positive square sign".split():
            for dtype in NUMBERS:
                if name in ("negative",) and np.dtype(dtype).kind == "u":
                    continue
                for shape in SHAPES:
                    x = self.array(dtype, shape)
                    self.same(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x), f"{name} {dtype} {shape}")
        domain = {
            "acos": (-1, 1), "asin": (-1, 1), "atanh": (-0.9, 0.9), "acosh": (1, 5), "log": (0.1, 5), "log1p": (-0.9, 5),
            "log2": (0.1, 5), "log10": (0.1, 5), "sqrt": (0, 5), "reciprocal": (0.5, 5),
        }
        own = {"acos": "arccos", "asin": "arcsin", "atan": "arctan", "acosh": "arccosh", "asinh": "arcsinh", "atanh": "arctanh"}
        names = "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 reciprocal sin sinh sqrt tan tanh"
        for name in names.split():
            for dtype in FLOATS:
                for shape in SHAPES:
                    x = self.array(dtype, shape, *domain.get(name, (-3, 3)))
                    want = getattr(np, own.get(name, name))(x)
                    self.same(getattr(xp, name)(xp.asarray(x)), want, f"{name} {dtype} {shape}")
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 2.5, 0.5])
        for dtype in FLOATS:
            x = special.astype(dtype)
            for name in "isfinite isinf isnan signbit floor ceil trunc sign abs".split():
                self.same(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x), name, exact=True)
            self.same(xp.round(xp.asarray(x)), np.round(x), "round", exact=True)
        for dtype in INTS:
            x = self.array(dtype, (7,))
            for name in "floor ceil trunc round".split():
                self.same(getattr(xp, name)(xp.asarray(x)), x, name)
            self.same(xp.bitwise_invert(xp.asarray(x)), ~x, "bitwise_invert")
        b = self.array(np.bool_, (7,))
        self.same(xp.logical_not(xp.asarray(b)), ~b, "logical_not")

    def test_elementwise_of_two(self):
        shapes = [((), ()), ((3,), (3,)), ((3, 1), (4,)), ((2, 3), ()), ((0, 3), (1, 3))]
        for name in "add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal".split():
            for dtype in NUMBERS:
                for a, b in shapes:
                    x, y = self.array(dtype, a), self.array(dtype, b)
                    self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), getattr(np, name)(x, y), f"{name} {dtype}")
        for name in "floor_divide remainder".split():
            for dtype in NUMBERS:
                x, y = self.array(dtype, (40,), 0, 60), self.array(dtype, (40,), 1, 9)
                if np.dtype(dtype).kind != "u":
                    x, y = x * np.where(self.rng.random(40) < 0.5, -1, 1).astype(dtype), y * np.where(self.rng.random(40) < 0.5, -1, 1).astype(dtype)
                self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), getattr(np, name)(x, y), f"{name} {dtype}")
        own = {"atan2": "arctan2", "pow": "power"}
        for name in "atan2 copysign divide hypot logaddexp pow nextafter".split():
            for dtype in FLOATS:
                x, y = self.array(dtype, (30,), 0.1, 3), self.array(dtype, (30,), -3, 3)
                want = getattr(np, own.get(name, name))(x, y)
                self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), want, f"{name} {dtype}")
        for dtype in INTS:
            x, y = self.array(dtype, (20,), 0, 7), self.array(dtype, (20,), 0, 2)
            self.same(xp.pow(xp.asarray(x), xp.asarray(y)), x**y, f"pow {dtype}")
            for name, own_ in [("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"), ("bitwise_xor", "bitwise_xor"),
                               ("bitwise_left_shift", "left_shift"), ("bitwise_right_shift", "right_shift")]:
                self.same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), getattr(np, own_)(x, y), f"{name} {dtype}")
        a, b = self.array(np.bool_, (9,)), self.array(np.bool_, (9,))
        for name in "logical_and logical_or logical_xor".split():
            self.same(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(np, name)(a, b), name)

    def test_promotion(self):
        for group in (INTS, FLOATS):
            for a in group:
                for b in group:
                    pair = {np.dtype(a), np.dtype(b)}
                    x, y = self.array(a, (3,), 0, 4), self.array(b, (3,), 0, 4)
                    if np.dtype(np.uint64) in pair and any(d.kind == "i" for d in pair):
                        with self.assertRaises(TypeError):
                            xp.result_type(xp.asarray(x), xp.asarray(y))
                        continue
                    self.same(xp.add(xp.asarray(x), xp.asarray(y)), x + y, f"{a} {b}")
                    self.assertEqual(xp.result_type(xp.asarray(x), xp.asarray(y)).name, np.result_type(a, b).name)
        for dtype in NUMBERS:
            x = self.array(dtype, (3,), 0, 4)
            self.same(xp.asarray(x) + 2, x + dtype(2), f"number {dtype}")
            self.same(2 * xp.asarray(x), dtype(2) * x, f"number {dtype}")
        self.assertFalse(xp.can_cast(xp.float64, xp.float32))
        self.assertTrue(xp.can_cast(xp.int8, xp.int16))
        self.assertTrue(xp.isdtype(xp.int8, ("bool", "signed integer")))

    def test_reductions(self):
        cases = [((5,), None), ((3, 4), None), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), (0, 2)), ((17, 33), 0), ((2, 0, 3), 0), ((), None)]
        for shape, axis in cases:
            for keep in (False, True):
                for dtype in NUMBERS:
                    x = self.array(dtype, shape, 0, 3)
                    t = xp.asarray(x)
                    wide = np.dtype(dtype) if np.dtype(dtype).itemsize >= 4 or np.dtype(dtype).kind == "f" else np.dtype(np.int32 if np.dtype(dtype).kind == "i" else np.uint32)
                    for name in ("sum", "prod"):
                        want = getattr(np, name)(x, axis=axis, keepdims=keep, dtype=wide)
                        self.same(getattr(xp, name)(t, axis=axis, keepdims=keep), want, f"{name} {dtype} {shape} {axis}")
                    if 0 not in shape:
                        for name in ("max", "min"):
                            want = getattr(np, name)(x, axis=axis, keepdims=keep)
                            self.same(getattr(xp, name)(t, axis=axis, keepdims=keep), want, f"{name} {dtype} {shape} {axis}")
                    for name in ("any", "all"):
                        want = getattr(np, name)(x, axis=axis, keepdims=keep)
                        self.same(getattr(xp, name)(t, axis=axis, keepdims=keep), want, f"{name} {dtype} {shape} {axis}")
                for dtype in FLOATS:
                    if 0 in shape:
                        continue
                    x = self.array(dtype, shape)
                    t = xp.asarray(x)
                    self.same(xp.mean(t, axis=axis, keepdims=keep), np.mean(x, axis=axis, keepdims=keep), "mean")
                    for c in (0, 1, 0.5):
                        n = np.size(x) if axis is None else np.prod([x.shape[a] for a in np.atleast_1d(axis)])
                        if n - c <= 0:
                            continue
                        self.same(xp.var(t, axis=axis, correction=c, keepdims=keep), np.asarray(np.var(x, axis=axis, ddof=c, keepdims=keep), dtype), "var")
                        self.same(xp.std(t, axis=axis, correction=c, keepdims=keep), np.asarray(np.std(x, axis=axis, ddof=c, keepdims=keep), dtype), "std")
        for dtype in NUMBERS:
            x = self.array(dtype, (4, 6), -2, 3)
            t = xp.asarray(x)
            for axis in (0, 1, -1):
                self.same(xp.cumulative_sum(t, axis=axis, dtype=t.dtype), np.cumsum(x, axis, dtype=dtype), "cumulative_sum")
                self.same(xp.cumulative_prod(t, axis=axis, dtype=t.dtype), np.cumprod(x, axis, dtype=dtype), "cumulative_prod")
                self.same(xp.diff(t, axis=axis), np.diff(x, axis=axis), "diff")
                for keep in (False, True):
                    self.same(xp.astype(xp.argmax(t, axis=axis, keepdims=keep), xp.int64), np.argmax(x, axis, keepdims=keep), "argmax")
                    self.same(xp.astype(xp.argmin(t, axis=axis, keepdims=keep), xp.int64), np.argmin(x, axis, keepdims=keep), "argmin")
            first = xp.cumulative_sum(t, axis=0, include_initial=True)
            self.assertEqual(tuple(first.shape), (5, 6))

    def test_shapes(self):
        for dtype in [np.bool_, *NUMBERS]:
            x = self.array(dtype, (2, 3, 4))
            t = xp.asarray(x)
            self.same(xp.reshape(t, (4, -1)), x.reshape(4, -1), "reshape")
            self.same(xp.permute_dims(t, (2, 0, 1)), x.transpose(2, 0, 1), "permute_dims")
            self.same(xp.flip(t), np.flip(x), "flip")
            self.same(xp.flip(t, axis=(0, 2)), np.flip(x, (0, 2)), "flip")
            self.same(xp.roll(t, 2), np.roll(x, 2), "roll")
            self.same(xp.roll(t, (1, -1), axis=(0, 2)), np.roll(x, (1, -1), (0, 2)), "roll")
            self.same(xp.tile(t, (2, 1)), np.tile(x, (2, 1)), "tile")
            self.same(xp.tile(t, (2, 1, 1, 2)), np.tile(x, (2, 1, 1, 2)), "tile")
            self.same(xp.repeat(t, 2, axis=1), np.repeat(x, 2, 1), "repeat")
            self.same(xp.repeat(t, xp.asarray([1, 0, 2]), axis=1), np.repeat(x, [1, 0, 2], 1), "repeat")
            self.same(xp.concat([t, t], axis=1), np.concatenate([x, x], 1), "concat")
            self.same(xp.concat([t, t], axis=None), np.concatenate([x, x], None), "concat")
            self.same(xp.stack([t, t], axis=-1), np.stack([x, x], -1), "stack")
            self.same(xp.expand_dims(t, axis=1), x[:, None], "expand_dims")
            self.same(xp.squeeze(xp.expand_dims(t, axis=1), 1), x, "squeeze")
            self.same(xp.moveaxis(t, 0, 2), np.moveaxis(x, 0, 2), "moveaxis")
            self.same(xp.broadcast_to(t, (5, 2, 3, 4)), np.broadcast_to(x, (5, 2, 3, 4)), "broadcast_to")
            self.same(xp.take(t, xp.asarray([1, 0, 1]), axis=1), np.take(x, [1, 0, 1], 1), "take")
            self.same(xp.matrix_transpose(t), x.swapaxes(-1, -2), "matrix_transpose")
            for a, b in zip(xp.unstack(t, axis=1), np.moveaxis(x, 1, 0)):
                self.same(a, b, "unstack")
            order = np.argsort(x, axis=1, kind="stable")
            self.same(xp.take_along_axis(t, xp.asarray(order), axis=1), np.take_along_axis(x, order, 1), "take_along_axis")
            if dtype != np.bool_:
                self.same(xp.tril(t, k=-1), np.tril(x, -1), "tril")
                self.same(xp.triu(t, k=1), np.triu(x, 1), "triu")

    def test_indexing(self):
        x = np.arange(60).reshape(3, 4, 5).astype(np.float32)
        t = xp.asarray(x)
        mask = x % 3 == 0
        rows = np.array([2, 0])
        for index in [
            1, -1, (0, 2), (slice(None), 1), (slice(2, 0, -1),), (slice(None, None, 2), slice(-3, None)), (None, 0), (Ellipsis, 1),
            (1, Ellipsis, 2), (0, None, slice(None)), (), Ellipsis, mask, mask[:, :, 0], rows, (slice(None), rows), (rows, rows),
            (rows, slice(None), rows), (0, rows), (rows[:, None], rows), np.zeros((3,), bool), (Ellipsis, rows), slice(5, 9),
        ]:
            got = t[tuple(xp.asarray(i) if isinstance(i, np.ndarray) else i for i in index)] if isinstance(index, tuple) else t[xp.asarray(index) if isinstance(index, np.ndarray) else index]
            self.same(got, x[index], f"{index}")
        for index, value in [
            (1, 0.0), ((0, 2), 5.0), ((slice(None), 1), np.arange(5, dtype=np.float32)), (mask, -1.0), (rows, 2.0),
            ((rows, rows), np.array([7.0, 8.0, 9.0, 1.0, 2.0], np.float32)), ((slice(None, None, -1), 0), 3.0),
        ]:
            y = x.copy()
            y[index] = value
            u = xp.asarray(x.copy())
            at = tuple(xp.asarray(i) if isinstance(i, np.ndarray) else i for i in index) if isinstance(index, tuple) else (xp.asarray(index) if isinstance(index, np.ndarray) else index)
            u[at] = xp.asarray(value) if isinstance(value, np.ndarray) else value
            self.same(u, y, f"set {index}")

    def test_sorting_sets_and_searching(self):
        for dtype in NUMBERS:
            x = self.array(dtype, (6, 9), 0, 4)
            t = xp.asarray(x)
            for axis in (0, 1):
                self.same(xp.sort(t, axis=axis), np.sort(x, axis), "sort")
                self.same(xp.sort(t, axis=axis, descending=True), np.flip(np.sort(x, axis), axis), "sort")
                self.same(xp.astype(xp.argsort(t, axis=axis), xp.int64), np.argsort(x, axis, kind="stable"), "argsort")
                down = np.asarray(xp.astype(xp.argsort(t, axis=axis, descending=True), xp.int64))
                want = np.argsort(-x.astype(np.float64), axis, kind="stable")
                np.testing.assert_array_equal(down, want)
            u = xp.unique_all(t)
            want = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
            self.same(u.values, want[0], "unique")
            self.same(u.inverse_indices, want[2].reshape(x.shape), "inverse")
            for a, b in zip(xp.nonzero(t), np.nonzero(x)):
                np.testing.assert_array_equal(np.asarray(a), b)
            self.assertEqual(int(xp.count_nonzero(t)), np.count_nonzero(x))
            s = np.sort(self.array(dtype, (8,), 0, 9))
            v = self.array(dtype, (5,), 0, 9)
            for side in ("left", "right"):
                np.testing.assert_array_equal(np.asarray(xp.searchsorted(xp.asarray(s), xp.asarray(v), side=side)), np.searchsorted(s, v, side))
            c = self.array(np.bool_, (6, 9))
            self.same(xp.where(xp.asarray(c), t, xp.asarray(x[0])), np.where(c, x, x[0]), "where")
            self.same(xp.clip(t, 1, 2), np.clip(x, dtype(1), dtype(2)), "clip")

    def test_creation(self):
        for dtype in [np.bool_, *NUMBERS]:
            d = getattr(xp, np.dtype(dtype).name)
            self.same(xp.zeros((2, 3), dtype=d), np.zeros((2, 3), dtype), "zeros")
            self.same(xp.ones(4, dtype=d), np.ones(4, dtype), "ones")
            self.same(xp.full((2,), 1, dtype=d), np.full((2,), 1, dtype), "full")
            if dtype != np.bool_:
                self.same(xp.arange(1, 9, 2, dtype=d), np.arange(1, 9, 2, dtype=dtype), "arange")
                self.same(xp.eye(3, 4, k=1, dtype=d), np.eye(3, 4, 1, dtype), "eye")
        self.same(xp.linspace(0, 1, 7, dtype=xp.float64), np.linspace(0, 1, 7), "linspace")
        for a, b in zip(xp.meshgrid(xp.arange(3), xp.arange(2)), np.meshgrid(np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32))):
            self.same(a, b, "meshgrid")
        self.assertEqual(xp.asarray([1, 2]).dtype, xp.int32)
        self.assertEqual(xp.asarray([1.0]).dtype, xp.float32)
        self.assertEqual(xp.asarray([True]).dtype, xp.bool)
        self.assertEqual(xp.iinfo(xp.int16).max, 32767)
        self.assertEqual(xp.finfo(xp.float32).bits, 32)
        for k in (-(2**70), -9, -3, -2, 2, 3, 4, 9, 2**63, 2**70):
            near = max(-9, min(9, k))
            x = np.arange(12).reshape(3, 4)
            self.same(xp.eye(3, 4, k=k), np.eye(3, 4, near, np.float32), "eye")
            self.same(xp.tril(xp.asarray(x), k=k), np.tril(x, near), "tril")
            self.same(xp.triu(xp.asarray(x), k=k), np.triu(x, near), "triu")
        big = 2**63 + 5
        self.assertEqual(int(xp.asarray(big, dtype=xp.uint64)), big)

    def test_linear_algebra(self):
        for dtype in FLOATS:
            tol = 2e-3 if dtype == np.float32 else 1e-9
            x = self.array(dtype, (2, 4, 4)) + 6 * np.eye(4, dtype=dtype)
            s = x @ x.swapaxes(-1, -2)
            t, ts = xp.asarray(x), xp.asarray(s)
            la = xp.linalg

            def close(a, b):
                np.testing.assert_allclose(np.asarray(a), b, rtol=tol, atol=tol * 10)

            close(la.inv(t), np.linalg.inv(x))
            close(la.det(t), np.linalg.det(x))
            close(la.cholesky(ts), np.linalg.cholesky(s))
            close(la.eigvalsh(ts), np.linalg.eigvalsh(s))
            close(la.svdvals(t), np.linalg.svd(x, compute_uv=False))
            u, sv, vh = la.svd(xp.asarray(x[:, :, :3]), full_matrices=True)
            self.assertEqual(tuple(u.shape), (2, 4, 4))
            close(u[..., :3] * sv[..., None, :] @ vh, x[:, :, :3])
            close(u @ xp.matrix_transpose(u), np.broadcast_to(np.eye(4), (2, 4, 4)))
            q, r = la.qr(t)
            close(q @ r, x)
            b = self.array(dtype, (2, 4, 3))
            close(la.solve(t, xp.asarray(b)), np.linalg.solve(x, b))
            close(la.pinv(xp.asarray(x[:, :, :3])), np.linalg.pinv(x[:, :, :3]))
            close(la.matrix_power(t, 3), np.linalg.matrix_power(x, 3))
            close(la.slogdet(t).logabsdet, np.linalg.slogdet(x)[1])
            close(la.matrix_norm(t), np.linalg.norm(x, axis=(-2, -1)))
            for o in (0, 1, 2, 3, np.inf):
                close(la.vector_norm(t, axis=1, ord=o), np.linalg.norm(x, axis=1, ord=o))
            close(la.trace(t), np.trace(x, axis1=-2, axis2=-1))
            a, c = self.array(dtype, (5, 3)), self.array(dtype, (5, 3))
            close(la.cross(xp.asarray(a), xp.asarray(c)), np.cross(a, c))
            close(xp.vecdot(xp.asarray(a), xp.asarray(c), axis=0), (a * c).sum(0))
            close(xp.tensordot(xp.asarray(a), xp.asarray(c), axes=((0,), (0,))), np.tensordot(a, c, ((0,), (0,))))
            self.assertEqual(np.asarray(la.matrix_rank(xp.asarray(np.ones((3, 3), dtype)))).item(), 1)

    def test_signatures_have_the_standards_keywords(self):
        for name, words in {
            "sum": "axis dtype keepdims", "std": "axis correction keepdims", "sort": "axis descending stable", "concat": "axis",
            "arange": "stop step dtype device", "asarray": "dtype device copy", "cumulative_sum": "axis dtype include_initial",
            "astype": "copy device", "searchsorted": "side sorter", "clip": "min max", "diff": "axis n prepend append",
        }.items():
            known = inspect.signature(getattr(xp, name)).parameters
            self.assertEqual([w for w in words.split() if w not in known], [], name)


if __name__ == "__main__":
    unittest.main()
