"""Programs written for JAX give here what JAX gives; optimisers what optax gives."""

import dataclasses
import json
import unittest
from pathlib import Path

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp
import first_programs  # noqa: F401
from first_week import WEEK
from programs import OPTIMIZERS, PROGRAMS, SCHEDULES, trained

GOLDEN = json.loads((Path(__file__).parent / "golden_programs.json").read_text())


def leaves(x, at=""):
    if x is None:
        return []
    if isinstance(x, dict):
        return [y for k in sorted(x) for y in leaves(x[k], f"{at}.{k}")]
    if isinstance(x, (list, tuple)):
        return [y for i, v in enumerate(x) for y in leaves(v, f"{at}[{i}]")]
    return [(at, x)]


class Programs(unittest.TestCase):
    def equal(self, got, want):
        got = leaves(got)
        self.assertEqual([a for a, _ in got], [w[0] for w in want])
        for (at, g), w in zip(got, want):
            if len(w) == 2:
                self.assertEqual(g, w[1], at)
                continue
            g = np.asarray(g)
            self.assertEqual(list(g.shape), w[1], at)
            np.testing.assert_allclose(g.astype(np.float64).reshape(-1), np.array(w[2], np.float64), rtol=3e-4, atol=3e-5, err_msg=at)

    def test_programs_give_what_jax_gives(self):
        self.assertEqual(set(PROGRAMS), set(GOLDEN["programs"]))
        self.assertGreaterEqual(len(PROGRAMS), 40)
        for name, f in PROGRAMS.items():
            with self.subTest(name):
                self.equal(f(tl, tnp), GOLDEN["programs"][name])

    def test_a_first_week_gives_what_jax_gives(self):
        self.assertEqual(set(WEEK), set(GOLDEN["week"]))
        self.assertGreaterEqual(sum(len(f(tl, tnp)) for f in WEEK.values()), 700)
        for name, f in WEEK.items():
            with self.subTest(name):
                self.equal(f(tl, tnp), GOLDEN["week"][name])

    def test_optimisers_give_what_optax_gives(self):
        self.assertEqual(set(OPTIMIZERS), set(GOLDEN["optimizers"]))
        for name, make in OPTIMIZERS.items():
            with self.subTest(name):
                self.equal(trained(tl, tnp, tl.optim, make), GOLDEN["optimizers"][name])

    def test_schedules_give_what_optax_gives(self):
        for name, make in SCHEDULES.items():
            with self.subTest(name):
                self.equal([make(tl.optim)(i) for i in (0, 3, 10, 25, 60)], GOLDEN["schedules"][name])

    def test_optimisers_refuse_what_does_not_fit(self):
        o = tl.optim.adam(0.1)
        state = o.init({"w": tnp.ones(3)})
        with self.assertRaises(ValueError):
            o.update({"w": tnp.ones(3)}, [], {"w": tnp.ones(3)})
        with self.assertRaises(ValueError):
            o.update({"w": tnp.ones(2)}, state, {"w": tnp.ones(3)})
        with self.assertRaises(ValueError):
            o.update({"w": tnp.ones(3), "b": tnp.ones(3)}, state, {"w": tnp.ones(3)})
        with self.assertRaises(TypeError):
            tl.optim.sgd("fast")

    def test_rules_that_do_not_fit_are_errors(self):
        f = tl.custom_vjp(lambda x, y: x * y)
        with self.assertRaises(AttributeError):
            f(1.0, 2.0)
        f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, g: (g,))
        with self.assertRaisesRegex(ValueError, "1 cotangents, but the function has 2 arguments"):
            tl.grad(f)(1.0, 2.0)
        f.defvjp(lambda x, y: x * y, lambda res, g: (g, g))
        with self.assertRaises((TypeError, ValueError)):
            tl.grad(f)(1.0, 2.0)
        f.defvjp(lambda x, y: (x * y, (x, y)), lambda res, g: (g * tnp.ones(3), None))
        with self.assertRaises(ValueError):
            tl.grad(f)(1.0, 2.0)

        def bad(res, g):
            raise KeyError("mine")

        f.defvjp(lambda x, y: (x * y, (x, y)), bad)
        with self.assertRaises(KeyError):
            tl.grad(f)(1.0, 2.0)

    def test_a_rule_may_call_its_own_function(self):
        @tl.custom_jvp
        def f(x):
            return tnp.sin(x)

        calls = []

        @f.defjvp
        def rule(primals, tangents):
            calls.append(1)
            return f(*primals), 2.0 * f(primals[0] + np.pi / 2) * tangents[0]

        # Twice the cosine, and twice the sine of that.
        self.assertAlmostEqual(tl.grad(f)(0.3).item(), 2 * np.cos(0.3), places=5)
        self.assertAlmostEqual(tl.grad(tl.grad(f))(0.3).item(), -4 * np.sin(0.3), places=4)
        self.assertLess(len(calls), 40)

    def test_trees(self):
        tree = tl.tree
        t = {"b": [1.0, (2.0, None)], "a": tnp.ones(2)}
        self.assertEqual(tree.map(lambda x, y: (x, y), [1, 2], [3, (4, 5)]), [(1, 3), (2, (4, 5))])
        self.assertEqual(tree.leaves(t, is_leaf=lambda x: isinstance(x, tuple))[-1], (2.0, None))
        self.assertEqual([p for p, _ in tree.leaves_with_path(t)], [("a",), ("b", 0), ("b", 1, 0)])
        self.assertEqual(repr(tree.structure(t)), "TreeDef({'a': *, 'b': [*, (*, None)]})")
        self.assertEqual(hash(tree.structure([1, 2])), hash(tree.structure([3, 4])))
        turned = tree.transpose(tree.structure([0, 0]), tree.structure({"x": 0, "y": 0}), [{"x": 1, "y": 2}, {"x": 3, "y": 4}])
        self.assertEqual(turned, {"x": [1, 3], "y": [2, 4]})
        with self.assertRaises(ValueError):
            tree.unflatten(tree.structure(t), [1, 2])
        with self.assertRaises(ValueError):
            tree.map(lambda a, b: a, {"a": 1}, {"a": 1, "b": 2})

    def test_registered_dataclasses_pass_transforms(self):
        @tl.tree_util.register_dataclass
        @dataclasses.dataclass
        class Model:
            w: object
            b: object
            name: str = dataclasses.field(default="m", metadata={"static": True})

        traced = []

        @tl.jit
        def f(m, x):
            traced.append(m.name)
            return Model(m.w * 2, m.b, m.name), (x @ m.w + m.b).sum()

        m, y = f(Model(tnp.ones((3, 2)), tnp.zeros(2)), tnp.ones((4, 3)))
        self.assertEqual((type(m), m.name, y.item()), (Model, "m", 24.0))
        f(Model(tnp.ones((3, 2)), tnp.zeros(2)), tnp.ones((4, 3)))
        self.assertEqual(traced, ["m"], "an equal object is traced once")
        f(Model(tnp.ones((3, 2)), tnp.zeros(2), "other"), tnp.ones((4, 3)))
        self.assertEqual(traced, ["m", "other"])
        g = tl.vmap(tl.grad(lambda m, x: (x @ m.w + m.b).sum()), in_axes=(None, 0))(m, tnp.ones((5, 3)))
        self.assertEqual(tuple(g.w.shape), (5, 3, 2))
        with self.assertRaises(ValueError):
            tl.tree_util.register_dataclass(Model)

    def test_keys_from_numbers_of_a_trace(self):
        key = tl.random.key(5)
        f = tl.jit(lambda i: tl.random.fold_in(key, i))
        for i in (0, 3, 2**31):
            self.assertEqual(f(tnp.asarray(i, "uint32")).tolist(), tl.random.fold_in(key, i).tolist())


if __name__ == "__main__":
    unittest.main()
