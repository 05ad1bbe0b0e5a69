"""Cases of `lax`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from make import boolean, given, integer, natural, positive, signed


def write(w):
    for v in (True, False):
        p = given(v, "bool", ())
        w.case("lax.cond", lambda p, x: lax.cond(p, lambda x: x * x, lambda x: jnp.sin(x), x), p, signed(3))
    for k in (0, 1, 2, 5, -1):
        f = lambda i, x: lax.switch(i, [jnp.exp, lambda x: x * 2, lambda x: -x], x)
        w.case("lax.switch", f, given(k, "i32", ()), signed(3))
    at = lambda *i: [given(k, "i32", ()) for k in i]
    for i, j in ((0, 0), (1, 2), (5, -1), (-7, 9)):
        w.case("lax.dynamic_slice", lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)), signed(3, 4), *at(i, j), sizes="2,2")
        w.case("lax.dynamic_update_slice", lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)), signed(3, 4), signed(2, 2, seed=2), *at(i, j))
    for i in (0, 2, 9):
        w.case("lax.dynamic_slice_in_dim", lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, 1), signed(2, 4), *at(i), size=2, axis=1)
        w.case("lax.dynamic_index_in_dim", lambda x, i: lax.dynamic_index_in_dim(x, i, 0, False), signed(3, 2), *at(i), axis=0, keep=0)
        w.case("lax.dynamic_index_in_dim", lambda x, i: lax.dynamic_index_in_dim(x, i, 1, True), signed(3, 2), *at(i), axis=1, keep=1)
        w.case("lax.dynamic_update_slice_in_dim", lambda x, u, i: lax.dynamic_update_slice_in_dim(x, u, i, 1), signed(2, 4), signed(2, 2, seed=2), *at(i), axis=1)
        w.case("lax.dynamic_update_index_in_dim", lambda x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 0), signed(3, 2), signed(2, seed=2), *at(i), axis=0)
    rows, columns = given([0, 2, 2, -1], "i32"), given([1, 0, 0, 3], "i32")
    w.case("lax.index_take", lambda x, i: x[i], signed(3, 4), rows)
    w.case("lax.index_take", lambda x, i, j: x[i, j], signed(3, 4), rows, columns)
    for name in ("set", "add", "mul", "min", "max"):
        lone = given([0, 2, -3], "i32")
        if name == "set":
            lone = given([0, 2, -2], "i32")
        w.case(f"lax.index_{name}", lambda x, i, v: getattr(x.at[i], name)(v), signed(3, 2), lone, signed(3, 2, seed=2), grad=name != "mul")
        w.case(f"lax.index_{name}", lambda x, i, j, v: getattr(x.at[i, j], name)(v), signed(3, 4), given([0, 1], "i32"), given([3, 2], "i32"), signed(2, seed=2), grad=name != "mul")
    w.case("lax.gather", lambda x, i: jnp.take(x, i, 0), signed(4, 2), given([3, 0, 1], "i32"))
    w.case("lax.scatter", lambda x, i, u: x.at[i].add(u), signed(4, 2), given([3, 0, 3], "i32"), signed(3, 2, seed=2))
    for lo, hi in ((0, 5), (2, 4), (3, 3), (4, 2)):
        w.case("lax.fori_loop", lambda x: lax.fori_loop(lo, hi, lambda i, c: c * 0.5 + jnp.sin(c) * i, x), signed(3), grad=hi > lo, lo=lo, hi=hi)
    w.case("lax.map", lambda x: lax.map(lambda r: r * jnp.sum(r), x), signed(3, 4))
    w.case("lax.while_loop", lambda x: lax.while_loop(lambda c: jnp.sum(c) < 100, lambda c: c * 2 + 1, x), positive(3), grad=False)
    for name, f in (
        ("sum", lambda c, x: (c + x, c)),
        ("decay", lambda c, x: (c * 0.5 + jnp.tanh(x), c * x)),
    ):
        for reverse in (0, 1):
            for n in (1, 5):
                w.case("lax.scan", lambda c, x: lax.scan(f, c, x, reverse=bool(reverse)), signed(2), signed(n, 2, seed=2), body=name, reverse=reverse)
    for a in (0, 1):
        w.case("lax.sort", lambda x: lax.sort(x, dimension=a), signed(3, 4), axis=a)
    w.case("lax.sort_by", lambda k, v: lax.sort((k, v), dimension=0, num_keys=1), natural(7), signed(7, seed=2), keys=1, axis=0)
    w.case("lax.sort_by", lambda k, l, v: lax.sort((k, l, v), dimension=0, num_keys=2), natural(7), natural(7, seed=2), signed(7, seed=3), keys=2, axis=0)
    for k in (1, 3):
        w.case("lax.top_k", lambda x: lax.top_k(x, k), signed(2, 5), k=k)
    for reverse in (0, 1):
        for n in (1, 2, 5, 8):
            w.case("lax.associative_scan", lambda x: lax.associative_scan(jnp.multiply, x, reverse=bool(reverse)), signed(n, 2), reverse=reverse, axis=0)
    w.case("lax.dot_general", lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))), signed(2, 3, 4), signed(2, 4, 2, seed=2), contract="2;1".replace(";", "/"), batch="0/0")
    w.case("lax.dot_general", lambda a, b: lax.dot_general(a, b, (((0, 1), (1, 0)), ((), ()))), signed(2, 3), signed(3, 2, seed=2), contract="0,1/1,0", batch="/")
    for stride in (1, 2):
        for pad in ("VALID", "SAME"):
            f = lambda x, k: lax.conv_general_dilated(x, k, (stride, stride), pad)
            w.case("lax.conv_general_dilated", f, signed(1, 2, 5, 5), signed(3, 2, 3, 3, seed=2), stride=stride, padding=pad)
            f = lambda x, k: lax.conv_general_dilated(x, k, (stride, stride), pad, feature_group_count=2)
            w.case("lax.conv_general_dilated", f, signed(1, 4, 4, 4), signed(2, 2, 2, 2, seed=2), stride=stride, padding=pad, groups=2)
    f = lambda x, k: lax.conv_general_dilated(x, k, (1,), [(2, 1)], lhs_dilation=(2,), rhs_dilation=(2,))
    w.case("lax.conv_general_dilated", f, signed(1, 2, 5), signed(2, 2, 2, seed=2), stride=1, padding="2,1", lhs=2, rhs=2)
    f = lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    w.case("lax.conv_general_dilated", f, signed(1, 4, 4, 2), signed(3, 3, 2, 3, seed=2), stride=1, padding="SAME", layout="nhwc")
    ops = {"Sum": (0.0, lax.add), "Max": (-np.inf, lax.max), "Min": (np.inf, lax.min), "Prod": (1.0, lax.mul)}
    for kind, (zero, op) in ops.items():
        for pad in ("VALID", "SAME"):
            f = lambda x: lax.reduce_window(x, zero, op, (2, 3), (2, 1), pad)
            w.case("lax.reduce_window", f, signed(4, 5), grad=kind != "Prod", kind=kind, padding=pad)
