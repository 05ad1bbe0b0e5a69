"""Unary, binary and comparison ops, select, clamp and fma."""

import jax
import jax.numpy as jnp
import jax.scipy.special as js
import numpy as np
import torch
from jax import lax
from graph import FLOATS, INTS, NAMES, Graph

inf, nan = float("inf"), float("nan")
SPECIAL = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.25, 3.0, 100.0, -100.0]

# name: (reference, PyTorch's function, smooth range)
UNARY = {
    "neg": (lax.neg, torch.neg, (-2, 2)),
    "abs": (lax.abs, torch.abs, (-2, 2)),
    "sign": (lax.sign, torch.sign, (-2, 2)),
    "floor": (lax.floor, torch.floor, (-3, 3)),
    "ceil": (lax.ceil, torch.ceil, (-3, 3)),
    "round": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), torch.round, (-3, 3)),
    "trunc": (jnp.trunc, torch.trunc, (-3, 3)),
    "exp": (lax.exp, torch.exp, (-3, 3)),
    "exp2": (lax.exp2, torch.exp2, (-3, 3)),
    "expm1": (lax.expm1, torch.expm1, (-3, 3)),
    "log": (lax.log, torch.log, (0.1, 5)),
    "log2": (jnp.log2, torch.log2, (0.1, 5)),
    "log1p": (lax.log1p, torch.log1p, (-0.9, 5)),
    "sqrt": (lax.sqrt, torch.sqrt, (0.1, 5)),
    "rsqrt": (lax.rsqrt, torch.rsqrt, (0.1, 5)),
    "reciprocal": (lambda x: lax.div(jnp.ones_like(x), x), torch.reciprocal, (0.2, 4)),
    "sin": (lax.sin, torch.sin, (-4, 4)),
    "cos": (lax.cos, torch.cos, (-4, 4)),
    "tan": (lax.tan, torch.tan, (-1.3, 1.3)),
    "asin": (lax.asin, torch.asin, (-0.95, 0.95)),
    "acos": (lax.acos, torch.acos, (-0.95, 0.95)),
    "atan": (lax.atan, torch.atan, (-4, 4)),
    "sinh": (lax.sinh, torch.sinh, (-3, 3)),
    "cosh": (lax.cosh, torch.cosh, (-3, 3)),
    "tanh": (lax.tanh, torch.tanh, (-3, 3)),
    "asinh": (lax.asinh, torch.asinh, (-4, 4)),
    "acosh": (lax.acosh, torch.acosh, (1.1, 5)),
    "atanh": (lax.atanh, torch.atanh, (-0.95, 0.95)),
    "erf": (lax.erf, torch.erf, (-2, 2)),
    "erfc": (lax.erfc, torch.erfc, (-2, 2)),
    "erf_inv": (lax.erf_inv, torch.erfinv, (-0.95, 0.95)),
    "lgamma": (lax.lgamma, torch.lgamma, (0.2, 6)),
    "digamma": (lax.digamma, torch.digamma, (0.2, 6)),
    "logistic": (lax.logistic, torch.sigmoid, (-5, 5)),
}

F32 = {
    # XLA's f32 approximations, measured against f64; ours is computed in f64 and rounded once.
    "lgamma": (3e-5, 3e-6, "XLA's f32 lgamma is off by some 20 ulp near its zeros"),
    "digamma": (3e-5, 3e-6, "XLA's f32 digamma is off by some 20 ulp near its zero"),
    "erf_inv": (3e-5, 3e-6, "XLA's f32 erf_inv is a polynomial good to some 10 ulp"),
    "tan": (3e-5, 3e-6, "XLA's f32 tan is sin / cos"),
}
# Where a framework's own special value is an accident of its formula, the input is left out.
NOT_SPECIAL = {
    "lgamma": [-2.5, -0.5, -100.0, -inf, -1.0],
    "digamma": [0.0, -0.0, -1.0, -100.0, -inf],
    "sin": [100.0, -100.0],
    "cos": [100.0, -100.0],
    "tan": [100.0, -100.0],
}


def uniform(rng, shape, lo, hi, dtype):
    return rng.uniform(lo, hi, shape).astype(NAMES[dtype])


def unary(w):
    rng = np.random.default_rng(1)
    for op, (fn, tfn, (lo, hi)) in UNARY.items():
        tol = F32.get(op)
        w.op(f"{op}/f32", op, [uniform(rng, (3, 4), lo, hi, "f32")], fn, tol=tol)
        w.op(f"{op}/f64", op, [uniform(rng, (2, 3), lo, hi, "f64")], fn)
        w.op(f"{op}/rank0", op, [uniform(rng, (), lo, hi, "f32")], fn, tol=tol)
        w.op(f"{op}/empty", op, [uniform(rng, (0, 3), lo, hi, "f32")], fn)
        for d in ["f16", "bf16"]:
            w.op(f"{op}/{d}", op, [uniform(rng, (5,), lo, hi, d)], fn, grad=False)
        special = [x for x in SPECIAL if x not in NOT_SPECIAL.get(op, [])]
        w.op(f"{op}/special", op, [np.array(special, np.float32)], fn, grad=False, tol=tol)
        w.op(f"{op}/special_f64", op, [np.array(special, np.float64)], fn, grad=False)
        w.torch_op(f"{op}/torch", op, [uniform(rng, (3, 4), lo, hi, "f32")], tfn, fn, tol=tol)
        if op in ["abs", "sign", "floor", "round", "relu"]:
            # At 0 the gradient of abs is 0, as in PyTorch; JAX has 1.
            w.torch_op(f"{op}/kink_torch", op, [np.array([0.0, -0.0, 1.0, 0.5, -0.5], np.float32)], tfn, fn)
        if op in ["sqrt", "log", "asin", "rsqrt", "acosh", "atanh", "log1p"]:
            edge = {"sqrt": 0.0, "log": 0.0, "rsqrt": 0.0, "log1p": -1.0}.get(op, 1.0)
            w.torch_op(f"{op}/edge_torch", op, [np.array([edge, 2.0], np.float32)], tfn, fn)
    for d in INTS:
        info = np.iinfo(NAMES[d])
        x = np.array([info.min, info.max, 0, 1, 5, info.max // 3], NAMES[d])
        w.op(f"neg/{d}", "neg", [x], lax.neg)
        w.op(f"sign/{d}", "sign", [x], lax.sign)
        w.op(f"abs/{d}", "abs", [x], lax.abs if d[0] == "i" else (lambda x: x))
        w.op(f"not/{d}", "not", [x], lax.bitwise_not)
        w.op(f"population_count/{d}", "population_count", [x], lax.population_count)
    w.op("not/bool", "not", [np.array([True, False])], lax.bitwise_not)
    for d in ["f32", "f64", "f16", "bf16"]:
        w.op(f"is_finite/{d}", "is_finite", [np.array(SPECIAL, NAMES[d])], lax.is_finite)


BINARY = {
    "add": (lax.add, torch.add),
    "sub": (lax.sub, torch.sub),
    "mul": (lax.mul, torch.mul),
    "div": (lax.div, torch.div),
    "rem": (lax.rem, torch.fmod),
    "pow": (lax.pow, torch.pow),
    "max": (lax.max, torch.maximum),
    "min": (lax.min, torch.minimum),
    "atan2": (lax.atan2, torch.atan2),
}
INT_BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}


def binary(w):
    rng = np.random.default_rng(2)
    for op, (fn, tfn) in BINARY.items():
        lo, hi = {"pow": (0.2, 3), "rem": (0.3, 4), "div": (0.3, 4)}.get(op, (-3, 3))
        pair = lambda shape, d: [uniform(rng, shape, lo, hi, d), uniform(rng, shape, lo, hi, d)]
        w.op(f"{op}/f32", op, pair((3, 4), "f32"), fn)
        w.op(f"{op}/f64", op, pair((2, 3), "f64"), fn)
        w.op(f"{op}/rank0", op, pair((), "f32"), fn)
        w.op(f"{op}/empty", op, pair((3, 0), "f32"), fn)
        for d in ["f16", "bf16"]:
            w.op(f"{op}/{d}", op, pair((6,), d), fn, grad=False)
        w.torch_op(f"{op}/torch", op, pair((3, 4), "f32"), tfn, fn)
        values = np.array([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 2.0, -2.5, 0.5], np.float32)
        a, b = [x.ravel() for x in np.meshgrid(values, values)]
        w.op(f"{op}/special", op, [a, b], fn, grad=False)
        w.op(f"{op}/special_f64", op, [a.astype(np.float64), b.astype(np.float64)], fn, grad=False)
        ties = lambda: rng.integers(-1, 2, 12).astype(np.float32)
        if op in ["max", "min", "add", "sub", "mul"]:
            w.op(f"{op}/ties", op, [ties(), ties()], fn)
            w.torch_op(f"{op}/ties_torch", op, [ties(), ties()], tfn, fn)
        # Broadcasting is a view of its own.
        for k, (sa, sb, out) in enumerate([((3,), (2, 3), (2, 3)), ((2, 1), (1, 3), (2, 3)), ((), (4,), (4,))]):
            g = Graph(uniform(rng, sa, lo, hi, "f32"), uniform(rng, sb, lo, hi, "f32"))
            wide = [
                g.op(
                    "broadcast",
                    [v],
                    lambda x, out=out: jnp.broadcast_to(x, out),
                    shape=out,
                    dims=list(range(len(out) - len(v.shape), len(out))),
                )
                for v in g.inputs
            ]
            w.graph(f"{op}/broadcast{k}", g, [g.op(op, wide, fn)])
        # Both operands the same value.
        g = Graph(uniform(rng, (4,), lo, hi, "f32"))
        w.graph(f"{op}/same", g, [g.op(op, [g.inputs[0]] * 2, fn)])
    edge = lambda *x: np.array(x, np.float32)
    # Gradients of x^y at 0: JAX and PyTorch agree that d/dy is 0 there, and d/dx of x^0 is 0.
    w.torch_op(
        "pow/zero_base_torch", "pow", [edge(0, 0, 0, 2), edge(2, 1, 3, 0)], torch.pow, lax.pow,
    )
    w.op("pow/zero_base", "pow", [edge(0, 0, 0, 2), edge(2, 1, 3, 0)], lax.pow)
    g = Graph(uniform(rng, (2, 3), 0.5, 4, "f64"))
    s = g.op("const", [], lambda: jnp.asarray(2.5, jnp.float64), value="f64[] [2.5]")
    s = g.op("broadcast", [s], lambda x: jnp.broadcast_to(x, (2, 3)), shape=[2, 3], dims=[])
    w.graph("zeta/f64", g, [g.op("zeta", [s, g.inputs[0]], lax.zeta)], grad=False)
    w.op(
        "zeta/values",
        "zeta",
        [np.array([2, 2, 3, 1.5, 4, 2, 1], np.float64), np.array([1, 2.5, 0.25, 7, 30, 1e4, 2], np.float64)],
        lax.zeta,
        grad=False,
    )
    for d in INTS:
        info = np.iinfo(NAMES[d])
        values = np.array([info.min, info.max, 0, 1, 2, 3, 7, info.max // 3] + ([-1, -2, -7] if info.min < 0 else []), NAMES[d])
        a, b = [x.ravel() for x in np.meshgrid(values, values)]
        for op, fn in INT_BINARY.items():
            w.op(f"{op}/{d}", op, [a, b], fn)
        shifts = np.array([0, 1, info.bits - 1, info.bits, info.bits + 1] + ([-1] if info.min < 0 else []), NAMES[d])
        x, s = [v.ravel() for v in np.meshgrid(values, shifts)]
        w.op(f"shl/{d}", "shl", [x, s], lax.shift_left)
        w.op(f"shr/{d}", "shr", [x, s], lax.shift_right_arithmetic if d[0] == "i" else lax.shift_right_logical)
        base, exponent = [v.ravel() for v in np.meshgrid(values, np.array([0, 1, 2, 3, 5, 8], NAMES[d]))]
        with np.errstate(all="ignore"):
            power = np.power(base, exponent)
        w.put(f"pow/{d}", "numpy", power_text(base, exponent, power), [base, exponent], [power])
    for op, fn in [("and", lax.bitwise_and), ("or", lax.bitwise_or), ("xor", lax.bitwise_xor), ("max", lax.max), ("min", lax.min)]:
        w.op(f"{op}/bool", op, [np.array([True, True, False, False]), np.array([True, False, True, False])], fn)


def power_text(base, exponent, power):
    g = Graph(base, exponent)
    out = g.op("pow", g.inputs, lambda a, b: power)
    return g.text([out])


COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}


def compare(w):
    for op, fn in COMPARE.items():
        for d in ["f32", "f64", "f16", "bf16"]:
            values = np.array([0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 2.0], NAMES[d])
            a, b = [x.ravel() for x in np.meshgrid(values, values)]
            w.op(f"{op}/{d}", op, [a, b], fn)
        for d in ["fp8_e4m3", "fp8_e5m2"]:
            values = np.array([0.0, -0.0, nan, 1.0, -1.0, 2.0], np.float32).astype(NAMES[d])
            a, b = [x.ravel() for x in np.meshgrid(values, values)]
            w.op(f"{op}/{d}", op, [a, b], lambda a, b, fn=fn: fn(a.astype(jnp.float32), b.astype(jnp.float32)))
        for d in INTS:
            info = np.iinfo(NAMES[d])
            values = np.array([info.min, info.max, 0, 1, 2], NAMES[d])
            a, b = [x.ravel() for x in np.meshgrid(values, values)]
            w.op(f"{op}/{d}", op, [a, b], fn)
        w.op(f"{op}/bool", op, [np.array([True, True, False, False]), np.array([True, False, True, False])], fn)


def ternary(w):
    rng = np.random.default_rng(3)
    for k, shape in enumerate([(3, 4), (), (0, 2)]):
        c = np.asarray(rng.integers(0, 2, shape) > 0)
        a, b = uniform(rng, shape, -1, 1, "f32"), uniform(rng, shape, -1, 1, "f32")
        w.op(f"select/f32_{k}", "select", [c, a, b], lax.select)
    for d in INTS + ["bool", "f16", "bf16", "f64"]:
        c = rng.integers(0, 2, 6) > 0
        a, b = rng.integers(0, 2, 6).astype(NAMES[d]), rng.integers(0, 2, 6).astype(NAMES[d])
        w.op(f"select/{d}", "select", [c, a, b], lax.select)
    # The gradient at the bounds follows PyTorch, with numbers for bounds: x has none there.
    x = np.array([-2, -1, -0.5, 0, 0.5, 1, 2, nan, inf], np.float32)
    g = Graph(x)
    bounds = []
    for c in [-1.0, 1.0]:
        v = g.op("const", [], lambda: jnp.float32(c), value=f"f32[] [{c}]")
        bounds.append(g.op("broadcast", [v], lambda x: jnp.broadcast_to(x, (9,)), shape=[9], dims=[]))
    out = g.op("clamp", g.inputs + bounds, lambda x, lo, hi: lax.clamp(lo, x, hi))
    w.torch("clamp/bounds_torch", g.text([out]), [x], lambda x: [torch.clamp(x, -1, 1)])
    # Crossed bounds: the upper one wins.
    x = uniform(rng, (6,), -2, 2, "f32")
    w.torch_op(
        "clamp/crossed_torch", "clamp", [x, np.full_like(x, 1), np.full_like(x, -1)], torch.clamp,
        lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi),
    )
    x, lo, hi = uniform(rng, (12,), -2, 2, "f64"), uniform(rng, (12,), -1, 0, "f64"), uniform(rng, (12,), 0.1, 1, "f64")
    w.op("clamp/f64", "clamp", [x, lo, hi], lambda x, lo, hi: lax.clamp(lo, x, hi))
    for d in INTS:
        a = rng.integers(0, 100, (3, 8)).astype(NAMES[d])
        w.op(f"clamp/{d}", "clamp", list(a), lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi))
        w.op(f"fma/{d}", "fma", list(a), lambda x, y, z: x * y + z)
    # JAX has no fused multiply-add; products of few bits are exact, so both round once.
    a = (rng.integers(-64, 64, (3, 8)) / 16).astype(np.float32)
    w.op("fma/f32", "fma", list(a), lambda x, y, z: x * y + z)
    w.op("fma/f64", "fma", list(a.astype(np.float64)), lambda x, y, z: x * y + z)
    w.op("stop_gradient/f32", "stop_gradient", [x.astype(np.float32)], lax.stop_gradient)
    g = Graph(x)
    s = g.op("stop_gradient", g.inputs, lax.stop_gradient)
    w.graph("stop_gradient/product", g, [g.op("mul", [s, g.inputs[0]], lax.mul)])


def write(w):
    unary(w)
    binary(w)
    compare(w)
    ternary(w)
