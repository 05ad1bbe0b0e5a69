"""Writes `random.golden`: what JAX draws for many keys, shapes and dtypes.

Run it with the packages of `../requirements.txt`. A line is

    <function> <seed> <shape> <dtype> <parameters> = <type> <hex>

where shape is like 3x4 (`-` is rank 0), parameters are numbers separated by commas (`-` is none), and the result is
little-endian bytes in hex. Values of dtype f64 and 64-bit integers need `jax_enable_x64`, which is on.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import pathlib

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)
import jax.numpy as jnp

NAMES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}
DTYPES = {v: jnp.dtype(k) for k, v in NAMES.items()}
lines = []


def add(name, seed, shape, dtype, params, f, x64=True):
    """With `x64` off where JAX's default dtype decides which bits are drawn: those lines are JAX as it comes."""
    key = jax.random.PRNGKey(seed)
    with jax.enable_x64(x64):
        x = np.asarray(f(key))
    kind = f"{NAMES[str(x.dtype)]}[{','.join(map(str, x.shape))}]"
    text = "x".join(map(str, shape)) or "-"
    numbers = ",".join(repr(p) for p in params) or "-"
    lines.append(f"{name} {seed} {text} {dtype} {numbers} = {kind} {x.tobytes().hex() or '-'}")


R = jax.random
SEEDS = [0, 1, 42, 2**31, 2**32 + 7, 2**63 - 1]
SHAPES = [(), (1,), (2,), (7,), (33,), (3, 4), (0,), (2, 3, 2), (5, 1), (1, 128)]

for i, seed in enumerate(SEEDS):
    for j, shape in enumerate(SHAPES):
        add("bits", seed, shape, "u32", [], lambda k: R.bits(k, shape, "uint32"))
        other = ["u8", "u16", "u64"][(i + j) % 3]
        add("bits", seed, shape, other, [], lambda k: R.bits(k, shape, DTYPES[other]))
        kind = ["f32", "f64", "f16", "bf16"][(i + j) % 4]
        add("uniform", seed, shape, kind, [], lambda k: R.uniform(k, shape, DTYPES[kind]))
        add("uniform", seed, shape, "f32", [-2.5, 4.0], lambda k: R.uniform(k, shape, "float32", -2.5, 4.0))
        kind = ["f32", "f64"][(i + j) % 2]
        add("normal", seed, shape, kind, [], lambda k: R.normal(k, shape, DTYPES[kind]))
        lo, hi = [(0, 10), (-5, 6), (0, 1), (3, 3), (0, 2**31 - 1), (-128, 127)][(i + j) % 6]
        kind = ["i32", "i64", "u32", "i8"][(i * 2 + j) % 4]
        if kind == "i8" and hi > 127 or kind == "u32" and lo < 0:
            kind = "i64"
        add("randint", seed, shape, kind, [lo, hi], lambda k: R.randint(k, shape, lo, hi, DTYPES[kind]))
        p = [0.5, 0.1, 0.999][(i + j) % 3]
        add("bernoulli", seed, shape, "f32", [p], lambda k: R.bernoulli(k, jnp.float32(p), shape))
    for n in [1, 2, 5]:
        add("split", seed, (n,), "u32", [], lambda k: R.split(k, n))
    add("split2", seed, (2,), "u32", [], lambda k: R.split(k))
    for n in [4, 9]:
        table = jnp.arange(2 * n, dtype="float32").reshape(n, 2)
        add("shuffle", seed, (n, 2), "f32", [0], lambda k: R.permutation(k, table))
        add("shuffle", seed, (n, 2), "f32", [1], lambda k: R.permutation(k, table, axis=1))
    for n in [0, 1, 99, 2**32 - 1]:
        add("fold_in", seed, (), "u32", [n], lambda k: R.fold_in(k, np.uint32(n)))
    for n in [1, 2, 10, 1000]:
        add("permutation", seed, (n,), "i32", [], lambda k: R.permutation(k, jnp.arange(n, dtype="int32")))
    for shape in [(), (6,), (2, 3)]:
        for kind in ["f32", "f64"]:
            d = DTYPES[kind]
            add("exponential", seed, shape, kind, [], lambda k: R.exponential(k, shape, d))
            add("gumbel", seed, shape, kind, [], lambda k: R.gumbel(k, shape, d))
            add("cauchy", seed, shape, kind, [], lambda k: R.cauchy(k, shape, d))
            add("laplace", seed, shape, kind, [], lambda k: R.laplace(k, shape, d))
            add("logistic", seed, shape, kind, [], lambda k: R.logistic(k, shape, d))
            add("pareto", seed, shape, kind, [2.5], lambda k: R.pareto(k, 2.5, shape, d))
            add("rayleigh", seed, shape, kind, [1.5], lambda k: R.rayleigh(k, 1.5, shape, d))
            add("weibull_min", seed, shape, kind, [2.0, 1.5], lambda k: R.weibull_min(k, 2.0, 1.5, shape, d))
            add("triangular", seed, shape, kind, [-1.0, 0.5, 2.0], lambda k: R.triangular(k, -1.0, 0.5, 2.0, shape, d))
            add("truncated_normal", seed, shape, kind, [-1.0, 2.0], lambda k: R.truncated_normal(k, -1.0, 2.0, shape, d))
            add("lognormal", seed, shape, kind, [0.5], lambda k: R.lognormal(k, 0.5, shape, d))
            add("maxwell", seed, shape, kind, [], lambda k: R.maxwell(k, shape, d))
            for a in [0.3, 1.0, 4.5]:
                add("gamma", seed, shape, kind, [a], lambda k: R.gamma(k, a, shape, d))
                add("loggamma", seed, shape, kind, [a], lambda k: R.loggamma(k, a, shape, d))
            add("beta", seed, shape, kind, [0.5, 2.0], lambda k: R.beta(k, 0.5, 2.0, shape, d))
            add("chisquare", seed, shape, kind, [3.0], lambda k: R.chisquare(k, 3.0, shape=shape, dtype=d))
            add("f", seed, shape, kind, [3.0, 5.0], lambda k: R.f(k, 3.0, 5.0, shape, d))
            add("wald", seed, shape, kind, [1.5], lambda k: R.wald(k, 1.5, shape, d))
            add("orthogonal", seed, shape, kind, [3], lambda k: R.orthogonal(k, 3, shape, d))
            add("t", seed, shape, kind, [3.0], lambda k: R.t(k, 3.0, shape, d))
            logits = jnp.array([0.1, -0.4, 1.2, 0.7], d)
            add("categorical", seed, shape, kind, [0.1, -0.4, 1.2, 0.7],
                lambda k: R.categorical(k, logits, shape=shape).astype("int32"))
            alpha = jnp.array([0.5, 1.0, 3.0], d)
            add("dirichlet", seed, shape, kind, [0.5, 1.0, 3.0], lambda k: R.dirichlet(k, alpha, shape, d))
            cov = jnp.array([[2.0, 0.5], [0.5, 1.0]], d)
            add("multivariate_normal", seed, shape, kind, [],
                lambda k: R.multivariate_normal(k, jnp.array([1.0, -1.0], d), cov, shape, d))
        for rate in [0.0, 0.5, 7.0, 12.5, 900.0]:
            add("poisson", seed, shape, "i32", [rate], lambda k: R.poisson(k, rate, shape, "int32"), False)
        for kind in ["f32", "f64"]:
            d = DTYPES[kind]
            for n, p in [(5, 0.3), (40, 0.1), (100, 0.3), (1000, 0.9), (20, 0.0), (20, 1.0), (-1, 0.5)]:
                add("binomial", seed, shape, kind, [n, p],
                    lambda k: R.binomial(k, jnp.array(n, d), jnp.array(p, d), shape, d), kind == "f64")
            p = jnp.array([0.13, 0.27, 0.0, 0.22, 0.38], d)
            add("multinomial", seed, shape, kind, [50, 0.13, 0.27, 0.0, 0.22, 0.38],
                lambda k: R.multinomial(k, jnp.array(50, d), p, shape=(*shape, 5), dtype=d), kind == "f64")
        add("geometric", seed, shape, "i32", [0.3], lambda k: R.geometric(k, jnp.float32(0.3), shape, "int32"))
        p = jnp.array([0.1, 0.2, 0.3, 0.4], "float32")
        a = jnp.arange(4, dtype="float32") * 10
        d = jnp.dtype("float32")
        add("choice", seed, shape, "f32", [1, 0], lambda k: R.choice(k, a, shape), False)
        add("choice", seed, shape, "f32", [1, 1], lambda k: R.choice(k, a, shape, p=p), False)
        add("rademacher", seed, shape, "f32", [], lambda k: R.rademacher(k, shape, d), False)
        add("generalized_normal", seed, shape, "f32", [1.5], lambda k: R.generalized_normal(k, 1.5, shape, d), False)
        add("ball", seed, shape, "f32", [3, 1.5], lambda k: R.ball(k, 3, 1.5, shape, d), False)
        if shape:
            add("double_sided_maxwell", seed, shape, "f32", [1.0, 2.0],
                lambda k: R.double_sided_maxwell(k, 1.0, 2.0, shape, d), False)
    add("choice", seed, (3,), "f32", [0, 0], lambda k: R.choice(k, a, (3,), replace=False), False)
    add("choice", seed, (3,), "f32", [0, 1], lambda k: R.choice(k, a, (3,), replace=False, p=p), False)

path = pathlib.Path(__file__).parent / "random.golden"
path.write_text("\n".join(lines) + "\n")
print(len(lines), "lines")
