"""Tensors, compiled functions and optimisers as objects among others of Python's: in pickles, copies and indices, beside NumPy's arrays, in
cycles, threads and processes; and what is raised where something doesn't fit."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import unittest
import weakref

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()


@tl.jit
def doubled(x):
    return x * 2


class Box:
    @staticmethod
    @tl.jit
    def halved(x):
        return x / 2


class Pickles(unittest.TestCase):
    def back(self, x):
        return [pickle.loads(pickle.dumps(x, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]

    def test_tensors_of_every_type(self):
        for d in DTYPES:
            for x in [tnp.arange(6).astype(d).reshape(2, 3), tnp.zeros((0, 3), dtype=d), tnp.ones((), dtype=d), tnp.arange(6).astype(d)[::-2]]:
                for y in [*self.back(x), copy.copy(x), copy.deepcopy({"a": [x]})["a"][0]]:
                    self.assertEqual((y.dtype, y.shape), (x.dtype, x.shape))
                    self.assertEqual(y.astype("float64").tolist(), x.astype("float64").tolist())  # NumPy has no bfloat16
        for d in DTYPES:
            self.assertEqual(self.back(tl.dtype(d)), [tl.dtype(d)] * len(self.back(tl.dtype(d))))

    def test_compiled_functions(self):
        for f in [doubled, Box.halved]:
            for g in self.back(f):
                self.assertIs(g, f, "by its name, as functions are")
        made = tl.jit(np.add, static_argnums=1)  # NumPy's functions are found by name
        with self.assertRaises(tl.TracerError):
            self.back(made)[0](tnp.ones(2), 3)
        for g in self.back(tl.jit(_plus, static_argnums=1)):
            self.assertEqual(g(tnp.ones(2), 3).tolist(), [4.0, 4.0])
            self.assertEqual(g.__name__, "_plus")

    def test_optimisers_and_their_states(self):
        params = {"w": tnp.array([1.0, 2.0])}
        for o in [tl.optim.adam(0.1), tl.optim.chain(tl.optim.clip_by_global_norm(1.0), tl.optim.sgd(_rate, momentum=0.9))]:
            state = o.init(params)
            want = o.update(params, state, params)[0]["w"].tolist()
            for o2, state2 in self.back((o, state)):
                self.assertEqual(o2.update(params, state2, params)[0]["w"].tolist(), want)

    def test_exceptions(self):
        try:
            tnp.ones((2, 3)) @ tnp.ones((2, 3))
        except tl.TensorError as e:
            for y in self.back(e):
                self.assertIs(type(y), tl.TensorError)
                self.assertEqual(str(y), str(e))


def _plus(x, n):
    return x + n


def _rate(count):
    return 0.1 / (1 + count)


class Indices(unittest.TestCase):
    def test_what_numpy_gives(self):
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        t = tnp.array(x)
        some = [
            np.s_[::-1], np.s_[:, ::-2, 1::2], np.s_[-1:-3:-1], np.s_[..., ::-3], np.s_[5:1:-1], np.s_[1:2**70], np.s_[-2**70:], np.s_[:, 2:0:-1],
            np.s_[None, ..., None], np.s_[0, ..., -1], (), np.s_[...], np.s_[:, [0, 2]], np.s_[[1, 0], [0, 2]], np.s_[:, range(2)], np.s_[range(1)],
            np.s_[np.int64(1)], np.s_[True], np.s_[False], np.s_[:, np.array([True, False, True])], np.s_[[]], np.s_[1, [0, 2], ::-1],
            np.s_[np.array([[0, 1], [1, 0]])], np.s_[:, None, [2]], np.s_[np.int8(0):np.uint64(2)], np.s_[[[0]], :, [1, 2]],
        ]
        for i in some:
            with self.subTest(index=i):
                np.testing.assert_array_equal(t[i], x[i])
                y, u = x.copy(), tnp.array(x)
                y[i] = 7.0
                u[i] = 7.0
                np.testing.assert_array_equal(u, y)

    def test_what_is_no_index(self):
        t = tnp.ones((2, 3))
        for i in [1.0, "a", 2, -3, 2**70, -2**70, np.s_[..., ...], np.s_[0, 0, 0], [5], np.s_[:, [3]], tnp.array([0.5]), object(), {}, np.s_[:, "b"], [0.5]]:
            with self.subTest(index=i), self.assertRaises(IndexError):
                t[i]
            with self.subTest(index=i), self.assertRaises((IndexError, TypeError)):
                t[i] = 0.0
        with self.assertRaises(ValueError):
            t[::0]
        with self.assertRaises(TypeError):
            t[1.0:]


class BesideNumPy(unittest.TestCase):
    def setUp(self):
        self.n = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)
        self.t = tnp.array(self.n) * 0.5

    def test_operators_are_tensors_wherever_the_tensor_stands(self):
        import operator as op

        both = [op.add, op.sub, op.mul, op.truediv, op.floordiv, op.mod, op.pow, op.lt, op.le, op.eq, op.ne, op.gt, op.ge]
        for f in both:
            for other in [self.n, np.float32(2.0), np.ones(3, np.float32), np.int32(2), np.float64(2.0)]:
                with self.subTest(op=f.__name__, other=repr(other)):
                    for got in [f(other, self.t), tl.jit(lambda t: f(other, t))(self.t), tl.vmap(lambda t: f(np.float32(2.0), t))(self.t)]:
                        self.assertIsInstance(got, tl.Tensor)
                    np.testing.assert_allclose(f(other, self.t), f(np.float32(other) if np.ndim(other) == 0 else other, self.t.numpy()), rtol=1e-6)
        self.assertIsInstance(self.n.T @ self.t, tl.Tensor)
        np.testing.assert_allclose(self.n.T @ self.t, self.n.T @ self.t.numpy(), rtol=1e-6)

    def test_gradients_go_through_them(self):
        g = tl.grad(lambda t: (self.n.T @ t).sum() + (self.n * t).sum() + (np.float32(3.0) - t).sum())(self.t)
        np.testing.assert_allclose(g, self.n.sum(1, keepdims=True) + self.n - 1.0, rtol=1e-6)

    def test_what_would_lose_a_gradient_is_refused(self):
        t = tnp.ones(3)
        lost = [
            lambda x: np.sin(x).sum(), lambda x: tnp.array(np.asarray(x)).sum(), lambda x: tnp.array(x.numpy()).sum(),
            lambda x: tl.from_dlpack(np.from_dlpack(x)).sum(), lambda x: tnp.array(memoryview(x)).sum(),
        ]
        for f in lost:
            for transform in [tl.grad, tl.value_and_grad, lambda f: lambda x: tl.jvp(f, (x,), (x,)), lambda f: lambda x: tl.vjp(f, x), tl.jit, tl.hessian]:
                with self.assertRaises(tl.TracerError):
                    transform(f)(t)
        # What has no gradient, or is only looked at, may leave.
        seen = []
        g = tl.grad(lambda x: (x * np.asarray(tl.lax.stop_gradient(x))).sum() + 0 * (seen.append(repr(x)) or x.sum()) + float(x[0]) * x[1])(t * 2)
        self.assertEqual(g.tolist(), [2.0, 4.0, 2.0])
        self.assertEqual(seen, ["Tensor([2., 2., 2.], dtype=float32)"])
        kept = tl.value_and_grad(lambda x: ((x * x).sum(), x * 3), has_aux=True)(t)
        self.assertEqual(np.asarray(kept[0][1]).tolist(), [3.0, 3.0, 3.0])

    def test_functions_of_numpy_s(self):
        for f in [np.sum, np.mean, np.max, np.min, np.prod, np.std, np.var, np.any, np.all, np.cumsum, np.argmax, np.ravel, np.transpose]:
            np.testing.assert_allclose(f(self.t), f(self.t.numpy()), rtol=1e-6, err_msg=f.__name__)
        np.testing.assert_allclose(np.mean(self.t, axis=0), self.t.numpy().mean(axis=0), rtol=1e-6)
        np.testing.assert_allclose(np.concatenate([self.t, self.n]), np.concatenate([self.t.numpy(), self.n]))
        for d in DTYPES:
            if d != "bfloat16":
                self.assertEqual(np.zeros(2, dtype=tl.dtype(d)).dtype, np.dtype(d))
        self.assertEqual(self.t.real.tolist(), self.t.tolist())
        self.assertEqual(self.t.imag.tolist(), [[0.0] * 3] * 2)
        self.assertEqual(self.t.tobytes(), self.t.numpy().tobytes())
        with self.assertRaises(TypeError):
            np.sum(self.t, out=self.n)

    def test_numbers_are_rounded_as_python_does(self):
        self.assertEqual([round(tnp.array(v)) for v in (0.5, 1.5, -2.5, 2.6)], [0, 2, -2, 3])
        self.assertIs(type(round(tnp.array(1.2))), int)
        self.assertEqual(round(tnp.array([0.123, 4.567]), 1).tolist(), np.array([0.1, 4.6], np.float32).tolist())


class Loops(unittest.TestCase):
    def test_numbers_become_what_the_body_makes_of_them(self):
        self.assertEqual(float(tl.lax.fori_loop(0, 3, lambda i, c: c + 0.5, 0)), 1.5)
        self.assertEqual(float(tl.lax.while_loop(lambda c: c < 3, lambda c: c + 0.5, 0)), 3.0)
        c, _ = tl.lax.scan(lambda c, x: ({"a": c["a"] + x, "b": c["b"] + c["a"]}, None), {"a": 0, "b": 0}, tnp.array([0.5, 1.0]))
        self.assertEqual((float(c["a"]), float(c["b"])), (1.5, 0.5))
        self.assertEqual(c["b"].dtype, "float32")

    def test_tensors_have_decided(self):
        for run in [
            lambda: tl.lax.fori_loop(0, 3, lambda i, c: c + 0.5, tnp.array(0)),
            lambda: tl.lax.while_loop(lambda c: c < 3, lambda c: c + 0.5, tnp.array(0)),
            lambda: tl.lax.scan(lambda c, x: (c + x, None), tnp.array([0, 1]), tnp.ones((3, 2))),
            lambda: tl.lax.scan(lambda c, x: (c + 1, None), tnp.array(True), length=2),
        ]:
            with self.assertRaises(TypeError) as e:
                run()
            self.assertIn("astype", str(e.exception))

    def test_digits_are_cut(self):
        """Sums of integers are int64 here; a carry stays what it was."""
        c, _ = tl.lax.scan(lambda c, x: (c + x.sum(), None), tnp.array(0), tnp.ones((3, 2), dtype="int32"))
        self.assertEqual((int(c), c.dtype), (6, tl.int32))


class Errors(unittest.TestCase):
    def test_messages_speak_of_ops_and_shapes_and_of_no_file_of_ours(self):
        x, y = tnp.ones((3, 4)), tnp.ones(3)
        for f, words in [
            (lambda: x @ x, ["matmul", "[3,4]"]), (lambda: x + y, ["add", "[3, 4]", "[3]"]), (lambda: x.reshape(5, 5), ["reshape", "12", "25"]),
            (lambda: x.sum(axis=5), ["axis 5"]), (lambda: tnp.concatenate([x, y]), ["concat"]), (lambda: tnp.zeros(-1), ["-1"]),
            (lambda: tnp.einsum("ij,jk", x, x), ["einsum", "'j'"]), (lambda: tl.vmap(lambda a, b: a)(x, tnp.ones(5)), ["vmap", "5", "3"]),
            (lambda: tl.grad(lambda a: a)(x), ["[3,4]", "sum"]), (lambda: tnp.linspace(0, 1, -1), ["-1"]),
            (lambda: tl.random.normal(tl.random.key(1), (-2,)), ["-2"]), (lambda: tnp.concatenate([]), ["no array"]), (lambda: tnp.stack([]), ["no array"]),
        ]:
            with self.assertRaises(ValueError) as e:
                f()
            for w in words:
                self.assertIn(w, str(e.exception))
            self.assertNotIn(".rs", str(e.exception))
        with self.assertRaises(OverflowError):
            x + 2**70

    def test_trees_that_hold_themselves(self):
        deep = 1.0
        for _ in range(100_000):
            deep = [deep]
        own = []
        own.append(own)
        circle = {}
        circle["a"] = (circle,)
        for tree in [deep, own, circle]:
            for f in [tl.jit(lambda t: 1.0), tl.grad(lambda t: 1.0), lambda t: tl.vmap(lambda a: a)(t), lambda t: tl.jit(lambda: t)()]:
                with self.assertRaises(RecursionError):
                    f(tree)
        beside = [tnp.ones(2)]
        beside.append(beside)
        for x in [own, beside, [own, own], (beside, 1.0)]:
            with self.assertRaises((RecursionError, ValueError)):
                tnp.array(x)
        while isinstance(deep, list):
            deep = deep[0]


class Lives(unittest.TestCase):
    def gone(self, make):
        class Holder:
            pass

        h = Holder()
        make(h)
        at = weakref.ref(h)
        del h
        gc.collect()
        self.assertIsNone(at())

    def test_cycles_are_found(self):
        def jitted(h):
            h.f = tl.jit(lambda x: x * (1 if h else 2))
            h.f(tnp.ones(3)).numpy()

        def graded(h):
            h.f = tl.grad(lambda x: (x * (1 if h else 2)).sum())
            h.f(tnp.ones(3)).numpy()

        def ruled(h):
            h.f = tl.custom_vjp(lambda x: x * (1 if h else 2))
            h.f.defvjp(lambda x: (h.f(x), None), lambda res, g: (g,))

        def scheduled(h):
            h.o = tl.optim.sgd(lambda count: 0.1 * (1 if h else 2))
            h.s = h.o.init({"w": tnp.ones(2)})

        def pulled(h):
            h.y, h.back = tl.vjp(lambda x: x * (1 if h else 2), tnp.ones(3))

        for make in [jitted, graded, ruled, scheduled, pulled]:
            with self.subTest(make.__name__):
                self.gone(make)

    def run_alone(self, text):
        out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
        return out.stdout

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_process_computes(self):
        self.run_alone(
            "import os, warnings; warnings.simplefilter('ignore')\n"
            "import tensorloom.numpy as tnp\n"
            "x = tnp.ones((300, 300)); assert float((x @ x).sum()) == 300.0**3\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    os._exit(0 if float((x @ x + 1).sum()) == 300.0**3 + 300**2 else 3)\n"
            "assert os.waitpid(pid, 0)[1] == 0\n"
            "assert float((x @ x).sum()) == 300.0**3\n"
        )

    def test_other_interpreters_are_refused(self):
        out = self.run_alone(
            "import sys\n"
            "import tensorloom\n"
            "try:\n"
            "    import _xxsubinterpreters as subs\n"
            "except ImportError:\n"
            "    print('none here'); sys.exit()\n"
            "i = subs.create()\n"
            "try:\n"
            "    subs.run_string(i, 'import tensorloom')\n"
            "    print('imported')\n"
            "except Exception as e:\n"
            "    print('refused:', e)\n"
        )
        self.assertNotIn("imported", out)

    def test_ctrl_c_ends_a_loop(self):
        self.run_alone(
            "import os, signal, threading\n"
            "import tensorloom as tl, tensorloom.numpy as tnp\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs behind them ignore it\n"
            "f = tl.jit(lambda x: tnp.sin(x) * 2)\n"
            "x = f(tnp.ones(1000))\n"
            "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
            "try:\n"
            "    while True:\n"
            "        x = f(x)\n"
            "except KeyboardInterrupt:\n"
            "    pass\n"
            "assert f(tnp.zeros(2)).tolist() == [0.0, 0.0]\n"
        )


if __name__ == "__main__":
    unittest.main()
