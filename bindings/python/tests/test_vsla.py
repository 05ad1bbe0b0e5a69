"""The NumPy wrapper against NumPy."""

import gc
import math
import os
import tempfile
import threading
import unittest

import numpy as np

import tensorloom_vsla as vsla
from tensorloom_vsla import _lib

DTYPES = [np.float32, np.float64, np.float16]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12, np.float16: 4e-3}


def promoted(x, shape):
    out = np.zeros(shape, x.dtype)
    out[tuple(slice(0, n) for n in x.shape)] = x
    return out


class Ops(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(7)

    def random(self, shape, dtype):
        return self.rng.normal(size=shape).astype(dtype)

    def close(self, got, want, dtype):
        self.assertEqual(got.dtype, np.dtype(dtype))
        np.testing.assert_allclose(got, want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])

    def test_ambient_arithmetic(self):
        for dtype in DTYPES:
            for _ in range(20):
                rank = int(self.rng.integers(1, 4))
                a, b = (self.random(self.rng.integers(0, 6, rank), dtype) for _ in range(2))
                shape = np.maximum(a.shape, b.shape)
                x, y = promoted(a, shape), promoted(b, shape)
                self.close(vsla.add(a, b), x + y, dtype)
                self.close(vsla.sub(a, b), x - y, dtype)
                self.close(vsla.hadamard(a, b), x * y, dtype)

    def test_products(self):
        for dtype in (np.float32, np.float64):
            for _ in range(10):
                m, k, n = self.rng.integers(1, 40, 3)
                a, b = self.random((m, k), dtype), self.random((k, n), dtype)
                self.close(vsla.matmul(a, b), (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype), dtype)
                u, v = self.random(m, dtype), self.random(n, dtype)
                self.close(vsla.conv(u, v), np.convolve(u.astype(float), v.astype(float)), dtype)
                self.close(vsla.kron(u, v), np.kron(u, v), dtype)

    def test_functions_and_shapes(self):
        x = self.random((3, 5), np.float64)
        e = np.exp(x - x.max(-1, keepdims=True))
        self.close(vsla.softmax(x), e / e.sum(-1, keepdims=True), np.float64)
        self.close(vsla.tanh(x), np.tanh(x), np.float64)
        self.close(vsla.exp(x), np.exp(x), np.float64)
        self.close(vsla.log(np.abs(x)), np.log(np.abs(x)), np.float64)
        self.close(vsla.relu(x), np.maximum(x, 0), np.float64)
        self.close(vsla.sigmoid(x), 1 / (1 + np.exp(-x)), np.float64)
        erf = np.vectorize(math.erf)
        self.close(vsla.gelu(x), x * 0.5 * (1 + erf(x / np.sqrt(2))), np.float64)
        self.close(vsla.sum_(x, 0), x.sum(0), np.float64)
        self.close(vsla.mean(x, -1), x.mean(-1), np.float64)
        self.close(vsla.transpose(x, (1, 0)), x.T, np.float64)
        self.close(vsla.reshape(x, (5, 3)), x.reshape(5, 3), np.float64)
        self.close(vsla.gather(x, [2, 0, 0]), x[[2, 0, 0]], np.float64)
        self.close(vsla.slice_(x, (1, 0), (3, 7)), promoted(x[1:3], (2, 7)), np.float64)
        self.close(vsla.stack([x[0], x[1, :2]]), np.stack([x[0], promoted(x[1, :2], (5,))]), np.float64)
        self.close(vsla.mul_scalar(x, 3), 3 * x, np.float64)
        self.close(vsla.repeat(x[0], 4), np.stack([x[0]] * 4), np.float64)
        g = np.ones(5)
        self.close(vsla.rmsnorm(x, g, 0.0), x / np.sqrt((x * x).mean(-1, keepdims=True)), np.float64)
        self.assertEqual(vsla.shrink(np.array([1.0, 0.0, 0.0])).shape, (1,))
        kept = vsla.dropout(np.ones(1000), 0.25, 1)
        self.assertTrue(0.65 < (kept != 0).mean() < 0.85)
        np.testing.assert_array_equal(kept, vsla.dropout(np.ones(1000), 0.25, 1))

    def test_awkward_arrays(self):
        x = np.arange(24.0).reshape(4, 6)
        # Strided, reversed, of the other byte order, of integers, a scalar.
        self.close(vsla.add(x[::2, ::-3], x[::2, ::-3]), 2 * x[::2, ::-3], np.float64)
        self.close(vsla.add(x.astype(">f8"), x), 2 * x, np.float64)
        self.close(vsla.add([1, 2, 3], [4, 5]), [5, 7, 3], np.float64)
        self.close(vsla.add(1.0, 2.0), [3.0], np.float64)
        self.close(vsla.add(np.zeros((0,)), [1.0]), [1.0], np.float64)

    def test_errors(self):
        with self.assertRaises(vsla.VslaError) as e:
            vsla.matmul(np.ones(3), np.ones(3))
        self.assertEqual(e.exception.code, "INVALID_SHAPE")
        self.assertGreater(len(str(e.exception)), 10)
        with self.assertRaises(TypeError):
            vsla.add(np.ones(2, np.complex64), 1.0)
        with self.assertRaises(ValueError):
            vsla.reshape(np.ones(2), (-1,))
        with self.assertRaises(vsla.VslaError):
            vsla.add(np.ones(2, np.float32), np.ones(2, np.float64))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.safetensors")
            data = {"a": np.array([1.0, 0.0]), "b": self.random((2, 3), np.float32)}
            vsla.save(path, data)
            back = vsla.load(path)
            self.assertEqual(set(back), set(data))
            for k, x in data.items():
                np.testing.assert_array_equal(back[k], x)
            with self.assertRaises(vsla.VslaError):
                vsla.load(os.path.join(folder, "none"))


class Programs(unittest.TestCase):
    def model(self, rows=6, width=4):
        g = vsla.Graph()
        x = g.input((rows, width), np.float64, name="x")
        w = g.param((width, 3), np.float64, name="w")
        y = g.op("tanh", g.op("matmul", x, w))
        g.output(y)
        return g.build(), x, w, y

    def test_runs_where_arrays_lie(self):
        program, x, w, y = self.model()
        self.assertEqual((program.inputs, program.params, program.outputs), ([x], [w], [y]))
        self.assertEqual((program.name(x), program.shape(w), program.dtype(y)), ("x", (4, 3), np.dtype(np.float64)))
        plan = program.plan(1)
        rng = np.random.default_rng(1)
        weights = rng.normal(size=(4, 3))
        plan.set_param(w, weights)
        for _ in range(3):
            data = rng.normal(size=(6, 4))
            out = np.full((6, 3), np.nan)
            got = plan(data, out=[out])
            self.assertIs(got, out)
            np.testing.assert_allclose(out, np.tanh(data @ weights), rtol=1e-12)
            np.testing.assert_allclose(plan(data), np.tanh(data @ weights), rtol=1e-12)
        self.assertIn("ACTIVATIONS", str(plan))

    def test_gradients(self):
        program, x, w, y = self.model()
        plan = program.plan(1)
        rng = np.random.default_rng(2)
        data, weights, seed = rng.normal(size=(6, 4)), rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
        plan.set_param(w, weights)
        value, grads = plan.gradients(data, cotangents=[seed], of_inputs=True)
        t = np.tanh(data @ weights)
        np.testing.assert_allclose(value, t, rtol=1e-12)
        np.testing.assert_allclose(grads[w], data.T @ (seed * (1 - t * t)), rtol=1e-10)
        np.testing.assert_allclose(grads[x], (seed * (1 - t * t)) @ weights.T, rtol=1e-10)

    def test_misuse(self):
        program, x, w, y = self.model()
        plan = program.plan(1)
        for bad in [lambda: plan(), lambda: plan(np.ones((6, 4)), out=[])]:
            self.assertRaises(TypeError, bad)
        for bad in [
            lambda: plan(np.ones((6, 5))), lambda: plan.set_param(x, np.ones((6, 4))),
            lambda: plan(np.ones((6, 4)), out=[np.ones((3, 6)).T]), lambda: vsla.Graph().op("nothing"),
        ]:
            self.assertRaises(ValueError, bad)
        g = vsla.Graph()
        with self.assertRaises(vsla.VslaError):
            g.build()

    def test_threads_and_leaks(self):
        program, x, w, y = self.model()

        def work():
            plan = program.plan(1)
            plan.set_param(w, np.ones((4, 3)))
            for _ in range(20):
                np.testing.assert_allclose(plan(np.ones((6, 4))), np.tanh(4.0))

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        del program, work, threads
        gc.collect()
        before = _lib._lib.vsla_live_handles()
        for _ in range(50):
            vsla.add([1.0], [2.0])
        gc.collect()
        self.assertEqual(_lib._lib.vsla_live_handles(), before)


if __name__ == "__main__":
    unittest.main()
