"""Transforms of Python functions against JAX: values, gradients, batches, compiled; and what Python expects of them."""

import copy
import gc
import json
import pickle
import threading
import unittest
from collections import namedtuple
from pathlib import Path

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp
from functions import FUNCTIONS

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


class Transforms(unittest.TestCase):
    def setUp(self):
        shapes = [(3, 4), (4,), (2, 3, 4)]
        self.x, self.y, self.xs = (
            tnp.array(np.array(v, np.float32).reshape(s)) for v, s in zip(GOLDEN["inputs"], shapes)
        )

    def close(self, got, want, name, tol=2e-4):
        got = np.asarray(got, np.float64).reshape(-1)
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol, err_msg=name)

    def test_functions_give_what_jax_gives(self):
        self.assertEqual(set(FUNCTIONS), set(GOLDEN["functions"]))
        self.assertGreaterEqual(len(FUNCTIONS), 100)
        for name, f in FUNCTIONS.items():
            want = GOLDEN["functions"][name]
            with self.subTest(name):
                g = lambda a, b, f=f: f(tnp, tl, a, b)  # noqa: E731
                out = g(self.x, self.y)
                self.assertEqual(list(out.shape), want["shape"])
                self.close(out, want["value"], name)
                self.close(tl.jit(g)(self.x, self.y), want["value"], name)
                loss = lambda a, b, g=g: tnp.sum(g(a, b) ** 2)  # noqa: E731
                for d in (tl.grad(loss, argnums=(0, 1)), tl.jit(tl.grad(loss, argnums=(0, 1)))):
                    for got, w in zip(d(self.x, self.y), want["grad"]):
                        self.close(got, w, name + ", gradient", 2e-3)
                batched = tl.vmap(g, in_axes=(0, None))
                self.close(batched(self.xs, self.y), want["vmap"], name + ", vmap")
                self.close(tl.jit(batched)(self.xs, self.y), want["vmap"], name + ", jit of vmap")

    def test_options(self):
        f = lambda x, y: (x * y).sum()  # noqa: E731
        v, (gx, gy) = tl.value_and_grad(f, argnums=(0, 1))(self.x, self.y)
        self.close(gx, np.broadcast_to(self.y.numpy(), (3, 4)).reshape(-1), "gx")
        (v, aux), g = tl.value_and_grad(lambda x: ((x * x).sum(), {"twice": 2 * x}), has_aux=True)(self.y)
        self.close(aux["twice"], 2 * self.y.numpy(), "aux")
        self.close(g, 2 * self.y.numpy(), "g")
        params = {"w": self.x, "b": [self.y, 1.0]}
        g = tl.grad(lambda p: (p["w"] * p["b"][0] * p["b"][1]).sum())(params)
        self.assertEqual(set(g), {"w", "b"})
        self.close(g["b"][1], [(self.x * self.y).sum().item()], "a number of a tree")
        out = tl.vmap(lambda a, b: a + b, in_axes=(1, None), out_axes=1)(self.x, tnp.ones(3))
        self.assertEqual(tuple(out.shape), (3, 4))
        h = tl.hessian(lambda x: (x**3).sum())(self.y)
        self.close(h, np.diag(6 * self.y.numpy()).reshape(-1), "hessian")
        np.testing.assert_allclose(tl.jacfwd(tnp.sin)(self.y).numpy(), tl.jacrev(tnp.sin)(self.y).numpy(), rtol=1e-5)
        y, push = tl.linearize(tnp.sin, self.y)
        self.close(push(self.y), np.cos(self.y.numpy()) * self.y.numpy(), "linearize")

    def test_aux_of_every_transform(self):
        x, dx = self.y, tnp.ones_like(self.y)
        value, vector = lambda a: (a * a).sum(), lambda a: a * a  # noqa: E731
        twice, ones = 2 * x.numpy(), np.ones(x.size)
        kinds = {
            "tensor": lambda a: a + 1, "tree": lambda a: {"more": [a.sum(), a.astype("int32")], "w": a}, "bools": lambda a: a > 1,
            "nothing": lambda a: (), "None": lambda a: None, "text": lambda a: "text",
        }
        total, wide = (lambda k, a: (value(a), k(a))), (lambda k, a: (vector(a), k(a)))

        def pulled(k, a):
            y, back, aux = tl.vjp(lambda b: wide(k, b), a, has_aux=True)
            return back(dx)[0], aux

        def pushed(k, a):
            y, push, aux = tl.linearize(lambda b: wide(k, b), a, has_aux=True)
            return push(dx) + 0 * y, aux

        ways = {
            "grad": (lambda k, a: tl.grad(lambda b: total(k, b), has_aux=True)(a), twice),
            "value_and_grad": (lambda k, a: (lambda v, g: (g, v[1]))(*tl.value_and_grad(lambda b: total(k, b), has_aux=True)(a)), twice),
            "vjp": (pulled, twice),
            "jvp": (lambda k, a: tl.jvp(lambda b: wide(k, b), (a,), (dx,), has_aux=True)[1:], twice),
            "linearize": (pushed, twice),
            "jacfwd": (lambda k, a: tl.jacfwd(lambda b: wide(k, b), has_aux=True)(a), np.diag(twice)),
            "jacrev": (lambda k, a: tl.jacrev(lambda b: wide(k, b), has_aux=True)(a), np.diag(twice)),
            "hessian": (lambda k, a: tl.hessian(lambda b: total(k, b), has_aux=True)(a), np.diag(2 * ones)),
        }
        for way, (run, want) in ways.items():
            for kind, k in kinds.items():
                with self.subTest(way, aux=kind):
                    got, aux = run(k, x)
                    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
                    self.assertEqual(str(aux), str(k(x)))
            within, aux = tl.jit(lambda a, run=run: run(kinds["tree"], a))(x)
            np.testing.assert_allclose(within.numpy(), want, rtol=1e-6)
            np.testing.assert_array_equal(aux["w"].numpy(), x.numpy())

    def test_static_arguments_names_and_methods(self):
        calls = []

        @tl.jit
        def f(x, *, scale=1.0):
            calls.append(1)
            return x * scale

        self.close(f(self.y, scale=2.0), 2 * self.y.numpy(), "by name")
        f(self.y, scale=3.0)
        self.assertEqual(len(calls), 1, "numbers are tensors, and trace once")
        self.assertEqual(f.__name__, "f")

        @__import__("functools").partial(tl.jit, static_argnums=1, static_argnames="kind")
        def g(x, n, kind="a"):
            calls.append(1)
            return x * n if kind == "a" else x + n

        del calls[:]
        self.close(g(self.y, 3), 3 * self.y.numpy(), "static")
        self.close(g(self.y, 4), 4 * self.y.numpy(), "static")
        self.close(g(self.y, 4, kind="b"), 4 + self.y.numpy(), "static name")
        g(self.y, 4)
        self.assertEqual(len(calls), 3)

        class Model:
            w = 2.0

            @__import__("functools").partial(tl.jit, static_argnums=0)
            def run(self, x):
                return x * self.w

        self.close(Model().run(self.y), 2 * self.y.numpy(), "method")

    def test_static_arguments_are_told_apart_by_more_than_a_hash(self):
        f = tl.jit(lambda x, n: x * (n if isinstance(n, (int, float)) else n[0]), static_argnums=1)
        # hash(-1) == hash(-2), and True, 1 and 1.0 are equal.
        for n in [-1, -2, 2**61 - 1, 0, (-1,), (-2,), -2.5]:
            self.close(f(self.y, n), (n if not isinstance(n, tuple) else n[0]) * self.y.numpy(), f"{n}")
        kinds = []
        g = tl.jit(lambda x, n: kinds.append(repr(n)) or x, static_argnums=1)
        for n in [True, 1, 1.0, 0.0, -0.0, float("nan"), float("nan"), 1, True, None, "1", b"1"]:
            g(self.y, n)
        self.assertEqual(kinds, ["True", "1", "1.0", "0.0", "-0.0", "nan", "None", "'1'", "b'1'"])

        class Same:  # every two have the same hash
            def __init__(self, n):
                self.n = n

            def __hash__(self):
                return 7

            def __eq__(self, other):
                return self.n == other.n

            def times(self, x):
                return x * self.n

        h = tl.jit(lambda s, x: x * s.n, static_argnums=0)
        for n in [3, 4, 3, 5]:
            self.close(h(Same(n), self.y), n * self.y.numpy(), "equal hashes")
        # An address comes back when its object is gone.
        for n in range(20):
            self.close(h(type("Fleeting", (), {"n": n})(), self.y), n * self.y.numpy(), "addresses")
        kept, calls = Same(3), []
        k = tl.jit(lambda f, x: calls.append(1) or f(x), static_argnums=0)
        for _ in range(3):
            self.close(k(kept.times, self.y), 3 * self.y.numpy(), "a bound method")
        self.assertEqual(len(calls), 1)
        keys = tl.jit(lambda d: sum(k * v for k, v in d.items()))
        self.close(keys({-1: self.y}), -self.y.numpy(), "keys")
        self.close(keys({-2: self.y}), -2 * self.y.numpy(), "keys")

    def test_static_arguments_by_place_and_by_name(self):
        def power(x, n=2, *, by="times"):
            assert isinstance(n, int) and isinstance(by, str)
            return x * n if by == "times" else x**n

        for made in [
            tl.jit(power, static_argnums=1, static_argnames="by"),
            tl.jit(power, static_argnums=-1, static_argnames=("by",)),
            tl.jit(power, static_argnames=["n", "by"]),
        ]:
            self.close(made(self.y, 3), 3 * self.y.numpy(), "by place")
            self.close(made(self.y, n=3), 3 * self.y.numpy(), "by name")
            self.close(made(self.y, n=3, by="power"), self.y.numpy() ** 3, "by name")
        for wrong in [{"static_argnums": 2}, {"static_argnums": -3}, {"static_argnames": "m"}]:
            with self.assertRaises(ValueError):
                tl.jit(power, **wrong)
        with self.assertRaises(ValueError) as e:
            tl.jit(power, static_argnums=1)(self.y, [3])
        self.assertIn("list", str(e.exception))

    def test_exceptions_pass_through(self):
        class Own(Exception):
            pass

        def bad(x):
            raise Own("here")

        for f in [tl.jit(bad), tl.grad(bad), tl.vmap(bad), lambda x: tl.lax.scan(lambda c, x: bad(c), x, x)]:
            with self.assertRaises(Own):
                f(self.y)
        self.close(tl.jit(tnp.sin)(self.y), np.sin(self.y.numpy()), "what comes after is fine")
        with self.assertRaises(tl.TensorError) as e:
            self.x @ self.x
        self.assertIn("matmul", str(e.exception))
        with self.assertRaises(tl.TracerError):
            tl.jit(lambda x: x if x.sum() > 0 else -x)(self.y)
        with self.assertRaises(TypeError):
            tl.grad(lambda x: {"a": x})(self.y)
        with self.assertRaises(TypeError):
            tl.jit(3)
        with self.assertRaises(ValueError):
            tl.grad(lambda x: x.sum(), argnums=2)(self.y)

    def test_trees(self):
        Point = namedtuple("Point", "x y")
        p = tl.jit(lambda p: Point(p.y, p.x))(Point(self.x, self.y))
        self.assertIsInstance(p, Point)
        self.assertEqual(tuple(p.x.shape), (4,))
        t = tl.tree.map(lambda a, b: a + b, {"u": self.x, "v": (self.y,)}, {"u": self.x, "v": (self.y,)})
        self.close(t["v"][0], 2 * self.y.numpy(), "map")
        self.assertEqual(len(tl.tree.leaves(t)), 2)
        self.assertIsNone(tl.jit(lambda x: None)(self.y))

    def test_objects(self):
        x = tnp.array([[1.0, 2.0], [3.0, 4.0]])
        self.assertEqual(len(x), 2)
        self.assertEqual([r.tolist() for r in x], [[1.0, 2.0], [3.0, 4.0]])
        self.assertTrue(bool((x > 0).all()))
        self.assertEqual(float(x[0, 1]), 2.0)
        self.assertEqual([10, 20, 30][tnp.array(2)], 30)
        self.assertEqual(pickle.loads(pickle.dumps(x)).tolist(), x.tolist())
        self.assertEqual(copy.deepcopy(x).tolist(), x.tolist())
        self.assertIn("float32", repr(x))
        y = copy.copy(x)
        y[0] = 7.0
        y[:, 1] = tnp.array([5.0, 6.0])
        y[y > 6.5] = 0.0
        self.assertEqual(y.tolist(), [[0.0, 5.0], [3.0, 6.0]])
        self.assertEqual(x.tolist(), [[1.0, 2.0], [3.0, 4.0]])
        for bad in [lambda: x[2], lambda: x[0, 0, 0], lambda: x[tnp.array([5])]]:
            with self.assertRaises(IndexError):
                bad()
        with self.assertRaises(AttributeError):
            x.nothing
        with self.assertRaises(TypeError):
            bool(x)
        np.testing.assert_array_equal(np.from_dlpack(x), x.numpy())
        np.testing.assert_array_equal(tl.from_dlpack(np.arange(6.0).reshape(2, 3).T).numpy(), np.arange(6.0).reshape(2, 3).T)
        self.assertEqual(np.add(x, 1.0).sum(), 14.0)

    def test_threads_run_while_others_compute(self):
        f = tl.jit(lambda x: tnp.tanh(x @ x))
        x = tnp.array(np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32))
        want = f(x).numpy()
        failures = []

        def work():
            for _ in range(5):
                if not np.array_equal(f(x).numpy(), want):
                    failures.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(failures, [])
        gc.collect()


if __name__ == "__main__":
    unittest.main()
