"""Functions with derivatives of their own: every rule to the sixth order, inside of every transform, and in eight threads.

Each rule gives another derivative than the function has, so that a rule that isn't used is seen.
"""

import os
import threading
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

ORDERS = 6


def exp_vjp():
    """A rule that calls its own function: each derivative doubles."""
    f = tl.custom_vjp(lambda x: tnp.exp(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2.0 * ct * f(x),))
    return f


def exp_vjp_of_residual():
    f = tl.custom_vjp(lambda x: tnp.exp(x))
    f.defvjp(lambda x: (tnp.exp(x), {"x": x, "n": None}), lambda res, ct: (2.0 * ct * f(res["x"]),))
    return f


def exp_vjp_fixed():
    """With an argument that is no array."""
    f = tl.custom_vjp(lambda name, x: getattr(tnp, name)(x), nondiff_argnums=(0,))
    f.defvjp(lambda name, x: (f(name, x), x), lambda name, x, ct: (2.0 * ct * f(name, x),))
    return lambda x: f("exp", x)


def exp_jvp():
    f = tl.custom_jvp(lambda x: tnp.exp(x))
    f.defjvp(lambda xs, dxs: (f(*xs), 2.0 * f(*xs) * dxs[0]))
    return f


def exp_jvps():
    f = tl.custom_jvp(lambda x: tnp.exp(x))
    f.defjvps(lambda dx, y, x: 2.0 * dx * f(x))
    return f


def exp_jvp_fixed():
    f = tl.custom_jvp(lambda x, name: getattr(tnp, name)(x), nondiff_argnums=(1,))
    f.defjvp(lambda name, xs, dxs: (f(*xs, name), 2.0 * f(*xs, name) * dxs[0]))
    return lambda x: f(x, "exp")


def exp_two():
    """Two functions whose rules call each other."""
    f, g = tl.custom_vjp(lambda x: tnp.exp(x)), tl.custom_jvp(lambda x: tnp.exp(x))
    f.defvjp(lambda x: (g(x), x), lambda x, ct: (2.0 * ct * g(x),))
    g.defjvp(lambda xs, dxs: (g(*xs), 2.0 * f(*xs) * dxs[0]))
    return g


def exp_gradient():
    @tl.custom_gradient
    def f(x):
        return tnp.exp(x), lambda ct: 2.0 * ct * f(x)

    return f


def exp_compiled():
    f = tl.custom_jvp(tl.jit(lambda x: tnp.exp(x)))
    g = tl.jit(f)
    f.defjvp(lambda xs, dxs: (g(*xs), 2.0 * g(*xs) * dxs[0]))
    return g


# Makers of functions that are exp, and whose n-th derivative is 2**n * exp.
RULES = [exp_vjp, exp_vjp_of_residual, exp_vjp_fixed, exp_jvp, exp_jvps, exp_jvp_fixed, exp_two, exp_gradient, exp_compiled]
FORWARD = {exp_jvp, exp_jvps, exp_jvp_fixed, exp_compiled}


def pulled(f):
    return lambda x: tl.vjp(f, x)[1](tnp.ones_like(x))[0]


def pushed(f):
    return lambda x: tl.jvp(f, (x,), (tnp.ones_like(x),))[1]


def linear(f):
    return lambda x: tl.linearize(f, x)[1](tnp.ones_like(x))


# From a function of a number to its derivative.
REVERSE_WAYS = {"grad": tl.grad, "vjp": pulled, "jacrev": tl.jacrev, "jit of grad": lambda f: tl.jit(tl.grad(f)), "grad of jit": lambda f: tl.grad(tl.jit(f))}
FORWARD_WAYS = {"jvp": pushed, "linearize": linear, "jacfwd": tl.jacfwd, "jvp of jit": lambda f: pushed(tl.jit(f))}


def scanned(f):
    return lambda x: tl.lax.scan(lambda c, _: (c, f(c)), x, None, 2)[1][1]


# From a function of a number to the same function.
AROUND = {
    "alone": lambda f: f, "jit": tl.jit, "checkpoint": tl.checkpoint, "vmap": lambda f: lambda x: tl.vmap(f)(tnp.stack([x, x]))[1],
    "cond": lambda f: lambda x: tl.lax.cond(x > -9.0, f, tnp.sin, x), "scan": scanned, "jit of vmap": lambda f: lambda x: tl.jit(tl.vmap(f))(tnp.stack([x, x]))[0],
}


class Rules(unittest.TestCase):
    def close(self, got, want):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)

    def test_every_rule_holds_to_the_sixth_order(self):
        x = tl.asarray(0.3, "float64")
        for rule in RULES:
            ways = REVERSE_WAYS | (FORWARD_WAYS if rule in FORWARD else {})
            for what, derivative in ways.items():
                f = rule()
                for n in range(1, ORDERS + 1):
                    f = derivative(f)
                    # A Jacobian's size is that of its argument, so each order costs what the last did.
                    with self.subTest(rule=rule.__name__, way=what, order=n):
                        self.close(f(x), 2.0**n * np.exp(0.3))

    def test_every_rule_holds_in_mixed_derivatives(self):
        x = tl.asarray(0.3, "float64")
        rng = np.random.default_rng(int(os.environ.get("TENSORLOOM_SEED", "12345")))
        for _ in range(int(os.environ.get("TENSORLOOM_ROUNDS", "60"))):
            rule = RULES[rng.integers(len(RULES))]
            ways = REVERSE_WAYS | (FORWARD_WAYS if rule in FORWARD else {})
            f, done = rule(), []
            for _ in range(rng.integers(1, 5)):
                around, way = rng.choice(list(AROUND)), rng.choice(list(ways))
                f = ways[way](AROUND[around](f))
                done += [around, way]
            with self.subTest(rule=rule.__name__, ways=done):
                self.close(f(x), 2.0 ** (len(done) // 2) * np.exp(0.3))

    def test_every_rule_holds_inside_of_every_transform(self):
        x = tl.asarray(0.3, "float64")
        for rule in RULES:
            for what, around in AROUND.items():
                with self.subTest(rule=rule.__name__, around=what):
                    f = around(rule())
                    self.close(f(x), np.exp(0.3))
                    self.close(tl.grad(f)(x), 2 * np.exp(0.3))
                    self.close(f(x), np.exp(0.3))
                    self.close(tl.grad(tl.grad(f))(x), 4 * np.exp(0.3))
                    self.close(tl.vmap(tl.grad(f))(tnp.stack([x, x])), [2 * np.exp(0.3)] * 2)

    def test_a_compiled_function_holds_its_rule_after_calls_without_derivatives(self):
        for rule in RULES:
            f = tl.jit(rule())
            for n in (0, 1, 0, 2, 1, 3):
                g = f
                for _ in range(n):
                    g = tl.grad(g)
                self.close(g(tl.asarray(0.3, "float64")), 2.0**n * np.exp(0.3))
            hits, misses = f.stats()
            self.assertLessEqual(misses, 4, "one trace for each number of derivatives")

    def test_the_function_itself_runs_where_nothing_is_differentiated(self):
        calls = []
        f = tl.custom_vjp(lambda x: calls.append("function") or tnp.exp(x))
        f.defvjp(lambda x: (calls.append("forward") or tnp.exp(x), x), lambda x, ct: (calls.append("backward") or ct,))
        f(1.0)
        self.assertEqual(calls, ["function"])
        del calls[:]
        tl.grad(f)(1.0)
        self.assertEqual(calls, ["forward", "backward"])

    def test_an_error_in_a_rule_leaves_later_calls_alone(self):
        f = tl.custom_vjp(lambda x: tnp.exp(x))

        def wrong(x, ct):
            raise KeyError("rule")

        f.defvjp(lambda x: (tnp.exp(x), x), wrong)
        g = exp_vjp()
        for _ in range(5):
            with self.assertRaises(KeyError):
                tl.grad(f)(1.0)
            self.close(tl.grad(tl.grad(g))(tl.asarray(0.3, "float64")), 4 * np.exp(0.3))

    def test_every_rule_in_eight_threads(self):
        rounds = int(os.environ.get("TENSORLOOM_ROUNDS", "3"))
        ways = {
            "grad": tl.grad, "jit of grad": lambda f: tl.jit(tl.grad(f)), "grad of jit": lambda f: tl.grad(tl.jit(f)),
            "grad of vmap": lambda f: tl.grad(AROUND["vmap"](f)), "vmap of grad": lambda f: AROUND["vmap"](tl.grad(f)),
            "jit of vmap of grad": lambda f: AROUND["jit of vmap"](tl.grad(f)), "vjp": pulled,
        }
        failures, count = [], [0]
        lock = threading.Lock()
        for rule in RULES:
            f = rule()
            each = list(ways.items()) + (list(FORWARD_WAYS.items()) if rule in FORWARD else [])
            made = [(what, n, g) for what, way in each for n, g in ((1, way(f)), (2, way(way(f))))]
            start = threading.Barrier(8)

            def work(k, made=made, start=start, rule=rule):
                start.wait()
                for i in range(rounds * len(made)):
                    what, n, g = made[(i + 3 * k) % len(made)]
                    x = 0.1 * k
                    try:
                        got = float(g(tl.asarray(x, "float64")))
                    except Exception as e:  # noqa: BLE001
                        got = e
                    with lock:
                        count[0] += 1
                        if isinstance(got, Exception) or abs(got - 2**n * np.exp(x)) > 1e-5 * got:
                            failures.append((rule.__name__, what, n, k, got))

            threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        self.assertEqual(failures, [], f"{len(failures)} of {count[0]}")
        self.assertGreaterEqual(count[0], 8 * rounds * len(RULES) * len(ways))
        if "TENSORLOOM_ROUNDS" in os.environ:
            print(f"{count[0]} derivatives in eight threads")


if __name__ == "__main__":
    unittest.main()
