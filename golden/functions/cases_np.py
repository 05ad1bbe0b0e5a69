"""Cases of `np`."""

import jax
import jax.numpy as jnp
import numpy as np

from make import boolean, given, integer, natural, positive, signed, unit

EDGES = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"), 0.5]


def write(w):
    unary(w)
    binary(w)
    logic(w)
    create(w)
    reduce(w)
    shape(w)
    join(w)
    index(w)
    order(w)
    matrix(w)
    signal(w)
    poly(w)
    choose(w)
    edges(w)


def unary(w):
    anywhere = (
        "abs absolute negative sign positive square exp exp2 expm1 sin cos tan atan arctan sinh cosh tanh asinh arcsinh "
        "cbrt sinc deg2rad radians rad2deg degrees reciprocal floor ceil trunc rint nan_to_num"
    ).split()
    above_zero = "log log2 log1p log10 sqrt".split()
    inside = "asin arcsin acos arccos atanh arctanh".split()
    for name in anywhere + above_zero + inside + ["acosh", "arccosh"]:
        f = getattr(jnp, name)
        make = signed
        if name in above_zero:
            make = positive
        if name in inside:
            make = unit
        if name in ("acosh", "arccosh"):
            w.case(f"np.{name}", f, given([1.25, 2.0, 7.5, 300.0]))
        else:
            w.case(f"np.{name}", f, make(2, 3))
            w.case(f"np.{name}", f, make(3, 1, 4, seed=2))
        if name not in ("reciprocal", "negative", "abs", "absolute", "sign", "positive", "square"):
            w.case(f"np.{name}", f, given(EDGES), grad=False)
        if name in ("abs", "sign", "exp", "log1p", "floor", "sqrt"):
            w.case(f"np.{name}", f, natural(5), grad=False, floats=("f32",))
    for name in "abs negative sign square".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(6))
    for name in "invert bitwise_not bitwise_invert".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(6))
        w.case(f"np.{name}", getattr(jnp, name), boolean(6))
    w.case("np.bitwise_count", jnp.bitwise_count, integer(9))
    w.case("np.bitwise_count", jnp.bitwise_count, given([0, 1, 255, 2**63 - 1, -5], "i64"))
    for name in ("round", "around"):
        for d in (0, 1, -1, 2):
            w.case(f"np.{name}", lambda x, n=name: getattr(jnp, n)(x * 7, d), signed(6), grad=False, decimals=d)
    w.case("np.modf", jnp.modf, given([1.75, -2.5, 0.0, 3.0]), grad=False)
    w.case("np.modf", jnp.modf, given(EDGES), grad=False)
    w.case("np.frexp", jnp.frexp, given([1.75, -2.5, 0.0, 3.0, 1024.0, 1e-30, 0.1]), grad=False)
    w.case("np.frexp", np.frexp, given([0.5, 0.25, -8.0, 6.0e20]), grad=False)
    w.case("np.signbit", jnp.signbit, given(EDGES), grad=False)
    w.case("np.signbit", jnp.signbit, integer(5))
    w.case("np.spacing", lambda x: np.spacing(np.asarray(x, "float64")), given([1.0, -2.0, 0.75, 100.0]), grad=False, floats=("f64",))
    w.case("np.spacing", lambda x: np.spacing(np.asarray(x, "float32")).astype("float64"), given([1.0, -2.0, 0.75, 100.0]), grad=False, floats=("f32",))


def binary(w):
    for name in "add subtract multiply maximum minimum fmax fmin arctan2 atan2 hypot logaddexp logaddexp2 copysign".split():
        f = getattr(jnp, name)
        w.case(f"np.{name}", f, signed(2, 3), signed(2, 3, seed=2))
        w.case(f"np.{name}", f, signed(3, 1), signed(4, seed=2))
        if name not in ("add", "subtract", "multiply"):
            w.case(f"np.{name}", f, given(EDGES), given(EDGES[::-1]), grad=False)
    for name in "add subtract multiply maximum minimum".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(2, 3), integer(3, seed=2))
        w.case(f"np.{name}", getattr(jnp, name), integer(4), integer(4, seed=2, dtype="i64"))
        w.case(f"np.{name}", getattr(jnp, name), integer(4), signed(4, seed=2), grad=False)
    for name in ("divide", "true_divide"):
        f = getattr(jnp, name)
        w.case(f"np.{name}", f, signed(2, 3), signed(2, 3, seed=2))
        w.case(f"np.{name}", f, signed(3, 1), signed(4, seed=2))
        w.case(f"np.{name}", f, integer(6), natural(6, seed=4), grad=False, floats=("f32",))
    for name in ("power", "pow", "float_power"):
        f = getattr(jnp, name)
        w.case(f"np.{name}", f, positive(2, 3), signed(2, 3, seed=2))
        w.case(f"np.{name}", f, positive(3, 1), signed(4, seed=2))
    w.case("np.power", jnp.power, integer(6), natural(6, seed=2))
    w.case("np.power", jnp.power, given([-2.0, -1.5, 3.0, 0.0]), given([2.0, 3.0, -1.0, 2.0]), grad=False)
    for name in ("fmod", "remainder", "floor_divide", "divmod"):
        f = getattr(jnp, name)
        w.case(f"np.{name}", f, signed(2, 3), signed(2, 3, seed=2), grad=name != "floor_divide")
        w.case(f"np.{name}", f, signed(3, 1), signed(4, seed=2), grad=False)
        w.case(f"np.{name}", f, integer(8), given([3, -3, 2, -2, 5, -5, 1, 7], "i32"))
        w.case(f"np.{name}", f, natural(6, dtype="u32"), given([3, 2, 5, 1, 4, 7], "u32"))
    for name in "bitwise_and bitwise_or bitwise_xor".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(2, 3), integer(3, seed=2))
        w.case(f"np.{name}", getattr(jnp, name), boolean(5), boolean(5, seed=2))
    for name in "left_shift bitwise_left_shift right_shift bitwise_right_shift".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(6), natural(6, seed=2))
        w.case(f"np.{name}", getattr(jnp, name), natural(6, dtype="u32"), natural(6, seed=2, dtype="u32"))
    for name in "equal not_equal less less_equal greater greater_equal".split():
        w.case(f"np.{name}", getattr(jnp, name), integer(3, 1), integer(4, seed=2), grad=False)
        w.case(f"np.{name}", getattr(jnp, name), given(EDGES), given(EDGES[::-1]), grad=False)
    w.case("np.heaviside", jnp.heaviside, given(EDGES), given([0.5]), grad=False)
    w.case("np.ldexp", jnp.ldexp, signed(5), integer(5), grad=False)
    w.case("np.nextafter", lambda x, y: np.nextafter(np.asarray(x, "f8"), np.asarray(y, "f8")), given([1.0, -1.0, 2.0, 0.5]),
           given([2.0, 0.0, 1.0, 0.5]), grad=False, floats=("f64",))
    w.case("np.nextafter", lambda x, y: np.nextafter(np.asarray(x, "f4"), np.asarray(y, "f4")).astype("f8"), given([1.0, -1.0, 2.0, 0.5]),
           given([2.0, 0.0, 1.0, 0.5]), grad=False, floats=("f32",))
    for lo, hi in ((-0.5, 0.75), (None, 0.5), (0.25, None)):
        w.case("np.clip", lambda x: jnp.clip(x, lo, hi), signed(2, 5), low=lo, high=hi)
    for name in ("gcd", "lcm"):
        w.case(f"np.{name}", getattr(jnp, name), given([12, 18, -7, 0, 100], "i32"), given([8, 27, 21, 5, 75], "i32"))
        w.case(f"np.{name}", getattr(jnp, name), integer(3, 1), given([4, 6], "i32"))


def logic(w):
    for name in "logical_and logical_or logical_xor".split():
        w.case(f"np.{name}", getattr(jnp, name), boolean(2, 4), boolean(4, seed=3))
        w.case(f"np.{name}", getattr(jnp, name), integer(6), integer(6, seed=2))
    w.case("np.logical_not", jnp.logical_not, boolean(5))
    w.case("np.logical_not", jnp.logical_not, integer(5))
    for name in "isfinite isnan isinf isposinf isneginf".split():
        w.case(f"np.{name}", getattr(jnp, name), given(EDGES), grad=False)
        w.case(f"np.{name}", getattr(np, name) if name in ("isposinf", "isneginf") else getattr(jnp, name), integer(3))
    near = given([1.0, 1.000001, 2.0, float("inf"), float("nan")]), given([1.0, 1.0, 2.1, float("inf"), float("nan")])
    for name in ("isclose", "allclose"):
        w.case(f"np.{name}", lambda x, y, n=name: getattr(jnp, n)(x, y, 1e-5, 1e-8), *near, grad=False)
        w.case(f"np.{name}", lambda x, y, n=name: getattr(jnp, n)(x, y, 1e-5, 1e-8), signed(3), signed(3), grad=False)
    for name in ("array_equal", "array_equiv"):
        f = getattr(jnp, name)
        w.case(f"np.{name}", f, integer(2, 3), integer(2, 3))
        w.case(f"np.{name}", f, integer(2, 3), integer(2, 3, seed=2))
        w.case(f"np.{name}", f, given([[1, 2], [1, 2]], "i32"), given([1, 2], "i32"))
    w.case("np.isin", jnp.isin, integer(2, 5), given([0, 3, 6], "i32"))
    w.case("np.where_", jnp.where, boolean(2, 3), signed(2, 3), signed(3, seed=2))
    w.case("np.where_", jnp.where, boolean(3, 1), signed(4), signed(3, 4, seed=2))
    w.case("np.select", lambda a, b, x, y: jnp.select([a, b], [x, y], 7.0), boolean(5), boolean(5, seed=3), signed(5), signed(5, seed=2), default=7.0)
    w.case("np.piecewise", lambda x: jnp.piecewise(x, [x < -1, x > 1], [lambda x: -x, lambda x: x * x, 0.5]), signed(9))


def create(w):
    for name in ("zeros", "ones"):
        w.case(f"np.{name}", lambda n=name: getattr(jnp, n)((2, 3), "float64"), shape="2,3", dtype="f")
        w.case(f"np.{name}", lambda n=name: getattr(jnp, n)((4,), "int32"), shape="4", dtype="i32")
        w.case(f"np.{name}_like", getattr(jnp, name + "_like"), signed(2, 2), grad=False)
        w.case(f"np.{name}_like", getattr(jnp, name + "_like"), integer(3))
    w.case("np.full", lambda: jnp.full((2, 2), 1.5), shape="2,2", value=1.5, dtype="f")
    w.case("np.full", lambda: jnp.full((3,), 7, "int64"), shape="3", value=7, dtype="i64")
    w.case("np.full_like", lambda x: jnp.full_like(x, 2.5), signed(3), grad=False, value=2.5)
    w.case("np.array", lambda x: x, given([1.0, 2.0, 3.0]), grad=False)
    w.case("np.asarray", lambda x: x, integer(4))
    for a, b, c in ((0, 5, 1), (1, 2, 0.25), (5, 0, -2), (0, 1, 0.3)):
        w.case("np.arange", lambda: np.arange(a, b, c, dtype="float64"), floats=("f32",), start=a, stop=b, step=c)
    for end in (True, False):
        w.case("np.linspace", lambda: jnp.linspace(-1, 2, 7, end), start=-1, stop=2, n=7, end=int(end), dtype="f")
        w.case("np.logspace", lambda: jnp.logspace(-1, 2, 7, end), start=-1, stop=2, n=7, end=int(end), base=10.0, dtype="f")
        w.case("np.geomspace", lambda: np.geomspace(1, 256, 5, end), start=1, stop=256, n=5, end=int(end), dtype="f")
    w.case("np.geomspace", lambda: np.geomspace(-8, -1, 4), start=-8, stop=-1, n=4, end=1, dtype="f")
    w.case("np.linspace", lambda: jnp.linspace(3, 4, 1), start=3, stop=4, n=1, end=1, dtype="f")
    for n, m, k in ((3, 3, 0), (2, 4, 1), (4, 2, -1)):
        w.case("np.eye", lambda: jnp.eye(n, m, k), n=n, m=m, k=k, dtype="f")
        w.case("np.tri", lambda: jnp.tri(n, m, k, dtype="float64"), n=n, m=m, k=k, dtype="f")
        for name in ("tril", "triu"):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, k), signed(2, n, m), k=k)
            w.case(f"np.{name}_indices", lambda: getattr(jnp, name + "_indices")(n, k, m), n=n, m=m, k=k)
            w.case(f"np.{name}_indices_from", lambda x: getattr(jnp, name + "_indices_from")(x, k), signed(n, m), grad=False, k=k)
    w.case("np.identity", lambda: jnp.identity(3), n=3, dtype="f")
    w.case("np.fromfunction", lambda: jnp.fromfunction(lambda i, j: i * 10 + j, (2, 3), dtype="float64"), shape="2,3", dtype="f")
    w.case("np.indices", lambda: jnp.indices((2, 3), "int64"), shape="2,3", dtype="i64")
    for kind in ("xy", "ij"):
        w.case("np.meshgrid", lambda *x: jnp.meshgrid(*x, indexing=kind), signed(2), signed(3, seed=2), indexing=kind)
        w.case("np.meshgrid", lambda *x: jnp.meshgrid(*x, indexing=kind), signed(2), signed(3, seed=2), signed(2, seed=3), indexing=kind)
    w.case("np.vander", lambda x: jnp.vander(x, 3), signed(4), n=3, increasing=0)
    w.case("np.vander", lambda x: jnp.vander(x, 4, True), signed(2), n=4, increasing=1)
    for name in "bartlett blackman hamming hanning".split():
        for n in (1, 5, 8):
            w.case(f"np.{name}", lambda: getattr(np, name)(n).astype("f8"), floats=("f32",), n=n)
    for n in (1, 6, 9):
        w.case("np.kaiser", lambda: np.kaiser(n, 14.0).astype("f8"), floats=("f32",), n=n, beta=14.0)
    w.case("np.astype", lambda x: x.astype("int32"), given([1.9, -1.9, 0.0]), grad=False, dtype="i32")
    w.case("np.astype", lambda x: x.astype("float64"), integer(4), dtype="f")
    w.case("np.frombuffer", lambda x: x.view("int32"), given([0, 0, 128, 63, 1, 0, 0, 0], "u8"), dtype="i32")


def reduce(w):
    axes = [(None, 0), (0, 0), (1, 1), (-1, 0), ((0, 2), 1)]
    text = lambda a: "n" if a is None else ",".join(map(str, a if isinstance(a, tuple) else (a,)))
    for name in "sum prod max min mean ptp".split():
        for a, keep in axes:
            f = getattr(jnp, name)
            w.case(f"np.{name}", lambda x: f(x, axis=a, keepdims=bool(keep)), signed(2, 3, 2), axes=text(a), keep=keep)
        if name not in ("mean",):
            w.case(f"np.{name}", lambda x: f(x, axis=1), integer(2, 3), axes=1, keep=0)
    w.case("np.mean", lambda x: jnp.mean(x, axis=0), integer(2, 3), floats=("f32",), axes=0, keep=0)
    for name in ("var", "std"):
        for a, keep in axes:
            for ddof in (0, 1):
                f = getattr(jnp, name)
                w.case(f"np.{name}", lambda x: f(x, axis=a, keepdims=bool(keep), ddof=ddof), signed(2, 3, 2), axes=text(a), keep=keep, ddof=ddof)
    for name in ("all", "any", "count_nonzero"):
        for a, keep in axes[:4]:
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=a, keepdims=bool(keep)), boolean(2, 3, 2), axes=text(a), keep=keep)
        w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=0), integer(4, 3), axes=0, keep=0)
    w.case("np.average", lambda x, v: jnp.average(x, weights=v), signed(3, 2), positive(3, 2, seed=2), axes="n", keep=0)
    w.case("np.average", lambda x, v: jnp.average(x, axis=1, weights=v), signed(3, 2), positive(2, seed=2), axes=1, keep=0)
    w.case("np.average", lambda x: jnp.average(x, axis=0), signed(3, 2), axes=0, keep=0)
    for name in "cumsum cumprod cumulative_sum cumulative_prod".split():
        f = {"cumulative_sum": jnp.cumsum, "cumulative_prod": jnp.cumprod}.get(name) or getattr(jnp, name)
        for a in (None, 0, -1):
            w.case(f"np.{name}", lambda x: f(x, axis=a), signed(3, 4), axis=text(a))
        # NumPy counts in int64, as sums do everywhere.
        w.case(f"np.{name}", lambda x: f(x.astype("int64"), axis=0), integer(4), axis=0)
    for name in ("argmax", "argmin"):
        for a in (None, 0, -1):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=a), signed(3, 4), grad=False, axis=text(a))
        w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=0), given([1.0, float("nan"), 3.0]), grad=False, axis=0)
    w.case("np.trapezoid", lambda y: jnp.trapezoid(y, dx=0.5), signed(2, 5), dx=0.5, axis=-1)
    w.case("np.trapezoid", lambda y, x: jnp.trapezoid(y, x, axis=0), signed(4, 2), positive(4, seed=2), dx=1.0, axis=0)
    nan = float("nan")
    holes = given([[1.0, nan, 3.0], [-2.0, 0.5, nan]])
    for name in "nansum nanprod nanmean nanmax nanmin".split():
        for a in (None, 0, 1):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=a), holes, grad=False, axes=text(a), keep=0)
        w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=1), signed(2, 3), axes=1, keep=0)
    for name in ("nanvar", "nanstd"):
        for a in (None, 1):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=a), holes, grad=False, axes=text(a), keep=0, ddof=0)
        w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=0, ddof=1), signed(3, 2), axes=0, keep=0, ddof=1)
    for name in ("nanargmax", "nanargmin", "nancumsum", "nancumprod", "nanmedian"):
        for a in (None, 0, 1):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, axis=a), holes, grad=False, axis=text(a))
    for name, q in (("nanquantile", 0.3), ("nanpercentile", 30.0)):
        for a in (None, 0, 1):
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, q, axis=a), holes, grad=False, axis=text(a), q=q)
        w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, q, axis=1), signed(2, 5), axis=1, q=q)
    w.case("np.cov", jnp.cov, signed(3, 5), ddof=1)
    w.case("np.cov", lambda x: jnp.cov(x, ddof=0), signed(5), ddof=0)
    w.case("np.corrcoef", jnp.corrcoef, signed(3, 5))


def shape(w):
    w.case("np.shape", lambda x: np.array(x.shape), signed(2, 3), grad=False)
    w.case("np.ndim", lambda x: np.array(x.ndim), signed(2, 3), grad=False)
    w.case("np.size", lambda x: np.array(x.size), signed(2, 3), grad=False)
    w.case("np.isscalar", lambda x: np.array(x.ndim == 0), signed(), grad=False)
    w.case("np.isscalar", lambda x: np.array(x.ndim == 0), signed(2), grad=False)
    w.case("np.reshape", lambda x: x.reshape(3, -1), signed(2, 6), shape="3,-1")
    w.case("np.ravel", jnp.ravel, signed(2, 3))
    w.case("np.transpose", jnp.transpose, signed(2, 3, 4), axes="n")
    w.case("np.transpose", lambda x: jnp.transpose(x, (1, 2, 0)), signed(2, 3, 2), axes="1,2,0")
    w.case("np.permute_dims", lambda x: jnp.permute_dims(x, (2, 0, 1)), signed(2, 3, 2), axes="2,0,1")
    w.case("np.swapaxes", lambda x: jnp.swapaxes(x, 0, -1), signed(2, 3, 2), a=0, b=-1)
    w.case("np.matrix_transpose", jnp.matrix_transpose, signed(2, 3, 2))
    w.case("np.moveaxis", lambda x: jnp.moveaxis(x, 0, -1), signed(2, 3, 2), src=0, to=-1)
    w.case("np.moveaxis", lambda x: jnp.moveaxis(x, (0, 1), (2, 0)), signed(2, 3, 2), src="0,1", to="2,0")
    w.case("np.expand_dims", lambda x: jnp.expand_dims(x, (0, -1)), signed(2, 3), axes="0,-1")
    w.case("np.squeeze", jnp.squeeze, signed(1, 3, 1), axes="n")
    w.case("np.squeeze", lambda x: jnp.squeeze(x, -1), signed(1, 3, 1), axes="-1")
    w.case("np.broadcast_to", lambda x: jnp.broadcast_to(x, (2, 3)), signed(3), shape="2,3")
    w.case("np.broadcast_arrays", jnp.broadcast_arrays, signed(3, 1), signed(2, seed=2))
    w.case("np.broadcast_shapes", lambda x, y: np.array(jnp.broadcast_shapes(x.shape, y.shape)), signed(3, 1), signed(2), grad=False)
    w.case("np.flip", jnp.flip, signed(2, 3), axes="n")
    w.case("np.flip", lambda x: jnp.flip(x, 1), signed(2, 3), axes=1)
    w.case("np.fliplr", jnp.fliplr, signed(2, 3))
    w.case("np.flipud", jnp.flipud, signed(2, 3))
    for k in (0, 1, 2, 3, -1):
        w.case("np.rot90", lambda x: jnp.rot90(x, k), signed(2, 3), k=k, a=0, b=1)
    for by, a in ((1, "n"), (-2, 0), (5, 1)):
        w.case("np.roll", lambda x: jnp.roll(x, by, None if a == "n" else a), signed(3, 4), by=by, axis=a)
    for mode in "constant edge reflect symmetric wrap".split():
        w.case("np.pad", lambda x: jnp.pad(x, ((1, 2), (0, 1)), mode), signed(3, 4), mode=mode, widths="1,2,0,1")


def join(w):
    for name in "concatenate stack".split():
        for a in (0, 1, -1):
            w.case(f"np.{name}", lambda x, y: getattr(jnp, name)([x, y], a), signed(2, 3), signed(2, 3, seed=2), axis=a)
        w.case(f"np.{name}", lambda x, y: getattr(jnp, name)([x, y]), signed(3), integer(3), grad=False, axis=0)
    for name in "vstack hstack dstack column_stack".split():
        for s in ((3,), (2, 3)):
            w.case(f"np.{name}", lambda x, y: getattr(jnp, name)([x, y]), signed(*s), signed(*s, seed=2))
    w.case("np.append", jnp.append, signed(2, 2), signed(3, seed=2), axis="n")
    w.case("np.append", lambda x, y: jnp.append(x, y, 1), signed(2, 2), signed(2, 1, seed=2), axis=1)
    w.case("np.unstack", lambda x: list(jnp.unstack(x, axis=1)), signed(2, 3), axis=1)
    w.case("np.split", lambda x: jnp.split(x, 3, 1), signed(2, 6), parts=3, axis=1)
    w.case("np.split_at", lambda x: jnp.split(x, [1, 4], 1), signed(2, 6), at="1,4", axis=1)
    w.case("np.array_split", lambda x: jnp.array_split(x, 3, 0), signed(5, 2), parts=3, axis=0)
    w.case("np.vsplit", lambda x: jnp.vsplit(x, 2), signed(4, 2), parts=2)
    w.case("np.hsplit", lambda x: jnp.hsplit(x, 2), signed(2, 4), parts=2)
    w.case("np.hsplit", lambda x: jnp.hsplit(x, 2), signed(4), parts=2)
    w.case("np.dsplit", lambda x: jnp.dsplit(x, 2), signed(2, 1, 4), parts=2)
    w.case("np.tile", lambda x: jnp.tile(x, (2, 3)), signed(2, 2), reps="2,3")
    w.case("np.tile", lambda x: jnp.tile(x, (2, 1, 2)), signed(3), reps="2,1,2")
    w.case("np.repeat", lambda x: jnp.repeat(x, 2), signed(2, 2), n=2, axis="n")
    w.case("np.repeat", lambda x: jnp.repeat(x, 3, 1), signed(2, 2), n=3, axis=1)
    w.case("np.block", lambda a, b, c, d: jnp.block([[a, b], [c, d]]), signed(2, 2), signed(2, 1, seed=2), signed(1, 2, seed=3), signed(1, 1, seed=4))


def index(w):
    at = given([2, 0, -1], "i32")
    w.case("np.take", lambda x, i: jnp.take(x, i), signed(2, 3), at, axis="n")
    w.case("np.take", lambda x, i: jnp.take(x, i, 1), signed(2, 3), at, axis=1)
    w.case("np.take", lambda x, i: jnp.take(x, i, 0), signed(3, 2), given([[0, 1], [2, 2]], "i32"), axis=0)
    w.case("np.take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 1), signed(2, 3), given([[2, 0], [1, 1]], "i32"), axis=1)
    w.case("np.take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 0), signed(2, 3), given([[1, 0, 1]], "i32"), axis=0)
    for k in (0, 1, -1):
        w.case("np.diagonal", lambda x: jnp.diagonal(x, k), signed(3, 4), k=k, a=0, b=1)
        w.case("np.diag", lambda x: jnp.diag(x, k), signed(3), k=k)
        w.case("np.diag", lambda x: jnp.diag(x, k), signed(3, 4), k=k)
        w.case("np.diagflat", lambda x: jnp.diagflat(x, k), signed(2, 2), k=k)
        w.case("np.trace", lambda x: jnp.trace(x, k), signed(3, 4), k=k)
    w.case("np.diagonal", lambda x: jnp.diagonal(x, 0, -2, -1), signed(2, 3, 3), k=0, a=-2, b=-1)
    w.case("np.diag_indices", lambda: jnp.diag_indices(3, 2), n=3, ndim=2)
    w.case("np.diag_indices_from", lambda x: jnp.diag_indices_from(x), signed(3, 3), grad=False)
    for a in (0, 1):
        w.case("np.apply_along_axis", lambda x: jnp.apply_along_axis(lambda v: v * v[0], a, x), signed(3, 4), axis=a)
    w.case("np.apply_over_axes", lambda x: jnp.apply_over_axes(lambda x, a: jnp.sum(x, axis=a, keepdims=True), x, [0, 2]), signed(2, 3, 2), axes="0,2")
    for at, a in (([1], 0), ([0, -1], 1), ([3], None)):
        w.case("np.delete", lambda x: jnp.delete(x, np.array(at), a), signed(3, 4), at=",".join(map(str, at)), axis="n" if a is None else a)
    w.case("np.insert", lambda x, v: jnp.insert(x, 1, v, 0), signed(3, 2), signed(2, seed=2), at=1, axis=0)
    w.case("np.insert", lambda x, v: jnp.insert(x, 2, v), signed(2, 2), signed(1, seed=2), at=2, axis="n")
    w.case("np.put", lambda x, i, v: jnp.put(x, i, v, inplace=False), signed(2, 3), given([0, 4, 2], "i32"), signed(2, seed=2))
    w.case("np.put_along_axis", lambda x, i, v: jnp.put_along_axis(x, i, v, 1, inplace=False), signed(2, 3), given([[2], [0]], "i32"), signed(2, 1, seed=2), axis=1)
    w.case("np.fill_diagonal", lambda x: jnp.fill_diagonal(x, 5.0, inplace=False), signed(3, 4), value=5.0)
    w.case("np.resize", lambda x: jnp.resize(x, (2, 4)), signed(3), shape="2,4")
    w.case("np.resize", lambda x: jnp.resize(x, (2,)), signed(3), shape="2")
    w.case("np.unravel_index", lambda i: jnp.unravel_index(i, (2, 3, 4)), given([0, 5, 23], "i64"), shape="2,3,4")
    w.case("np.ravel_multi_index", lambda i, j: jnp.ravel_multi_index((i, j), (3, 4), mode="clip").astype("int64"), given([0, 2], "i64"), given([3, 1], "i64"), shape="3,4")
    w.case("np.bincount", lambda x: jnp.bincount(x, length=8), natural(20), n=8)
    for right in (0, 1):
        w.case("np.searchsorted", lambda a, v: jnp.searchsorted(a, v, "right" if right else "left").astype("int64"), given([-1.0, 0.0, 0.5, 0.5, 1.0]),
               given([0.5, -2.0, 3.0, 0.25]), grad=False, right=right)
        w.case("np.digitize", lambda x, b: jnp.digitize(x, b, bool(right)).astype("int64"), given([0.5, -2.0, 3.0, 0.0]), given([-1.0, 0.0, 0.5]), grad=False, right=right)
    for r in (None, (-1.0, 1.0)):
        args = dict(bins=4, range="n" if r is None else "-1.0,1.0")
        w.case("np.histogram", lambda x: np.histogram(np.asarray(x), 4, r), signed(20), grad=False, **args)
        w.case("np.histogram_bin_edges", lambda x: np.histogram_bin_edges(np.asarray(x), 4, r), signed(20), grad=False, **args)

    def two(x, y):
        h, a, b = np.histogram2d(np.asarray(x), np.asarray(y), [2, 3])
        return h.astype("i8"), a, b

    w.case("np.histogram2d", two, signed(12), signed(12, seed=2), grad=False)

    def many(p):
        h, e = np.histogramdd(np.asarray(p), [2, 3])
        return (h.astype("i8"), *e)

    w.case("np.histogramdd", many, signed(12, 2), grad=False, bins="2,3")


def order(w):
    for a in (None, 0, -1):
        t = "n" if a is None else a
        w.case("np.sort", lambda x: jnp.sort(x, axis=a), signed(3, 5), axis=t)
        w.case("np.argsort", lambda x: jnp.argsort(x, axis=a), signed(3, 5), grad=False, axis=t)
        w.case("np.median", lambda x: jnp.median(x, axis=a), signed(3, 4), axis=t)
        for q in (0.0, 0.25, 0.6, 1.0):
            w.case("np.quantile", lambda x: jnp.quantile(x, q, axis=a), signed(3, 4), axis=t, q=q)
            w.case("np.percentile", lambda x: jnp.percentile(x, 100 * q, axis=a), signed(3, 4), axis=t, q=100 * q)
    w.case("np.sort", jnp.sort, integer(9), axis=-1)
    w.case("np.argsort", jnp.argsort, integer(9), axis=-1)
    w.case("np.sort", jnp.sort, given([1.0, float("nan"), -1.0, float("inf")]), grad=False, axis=0)
    w.case("np.lexsort", lambda a, b: jnp.lexsort((a, b)), integer(9), natural(9, seed=2), axis=-1)


def matrix(w):
    pairs = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((2, 1, 3), (3, 2))]
    for a, b in pairs:
        w.case("np.matmul", jnp.matmul, signed(*a), signed(*b, seed=2))
        w.case("np.dot", jnp.dot, signed(*a), signed(*b, seed=2))
    w.case("np.matmul", jnp.matmul, signed(2, 2, 3), signed(2, 3, 2, seed=2))
    w.case("np.matmul", jnp.matmul, integer(2, 3), integer(3, 2, seed=2))
    w.case("np.dot", jnp.dot, signed(), signed(2, seed=2))
    w.case("np.dot", jnp.dot, signed(2, 3), signed(2, 3, 2, seed=2))
    for a, b in (((3,), (3,)), ((2, 3), (4, 3)), ((), (2,))):
        w.case("np.inner", jnp.inner, signed(*a), signed(*b, seed=2))
    w.case("np.outer", jnp.outer, signed(2), signed(3, seed=2))
    w.case("np.outer", jnp.outer, signed(2, 2), signed(3, seed=2))
    w.case("np.vdot", jnp.vdot, signed(2, 3), signed(2, 3, seed=2))
    w.case("np.vecdot", jnp.vecdot, signed(2, 3), signed(3, seed=2), axis=-1)
    w.case("np.vecdot", lambda x, y: jnp.vecdot(x, y, axis=0), signed(2, 3), signed(2, 3, seed=2), axis=0)
    w.case("np.matvec", jnp.matvec, signed(2, 2, 3), signed(2, 3, seed=2))
    w.case("np.vecmat", jnp.vecmat, signed(2, 2), signed(2, 2, 3, seed=2))
    w.case("np.cross", jnp.cross, signed(2, 3), signed(3, seed=2))
    w.case("np.kron", jnp.kron, signed(2, 2), signed(1, 3, seed=2))
    w.case("np.kron", jnp.kron, signed(2), signed(3, seed=2))
    for spec, *shapes in (
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ii", (3, 3)), ("ii->i", (3, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)),
        ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)), ("...ij,...jk->...ik", (2, 2, 3), (3, 2)), ("i,j->ij", (2,), (3,)), ("i,i", (3,), (3,)),
        ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)), ("bhqd,bhkd->bhqk", (1, 2, 2, 3), (1, 2, 2, 3)), ("ijk,k->ij", (2, 2, 3), (3,)),
        ("ab,ab->a", (2, 3), (2, 3)), ("i...->...", (3, 2)), ("ij,ij->ij", (1, 3), (2, 3)), ("aab->b", (2, 2, 3)),
    ):
        inputs = [signed(*s, seed=k + 1) for k, s in enumerate(shapes)]
        f = lambda *x: jnp.einsum(spec, *x)
        if spec == "ij,ij->ij":
            f = lambda x, y: x * y
        w.case("np.einsum", f, *inputs, spec=spec.replace("->", ">"))
    w.case("np.tensordot", lambda a, b: jnp.tensordot(a, b, ((1,), (0,))), signed(2, 3), signed(3, 2, seed=2), a=1, b=0)
    w.case("np.tensordot", lambda a, b: jnp.tensordot(a, b, ((1, 0), (0, 2))), signed(2, 3, 2), signed(3, 2, 2, seed=2), a="1,0", b="0,2")


def signal(w):
    for mode in "full same valid".split():
        for a, b in ((5, 3), (3, 5), (4, 2)):
            w.case("np.convolve", lambda x, y: jnp.convolve(x, y, mode), signed(a), signed(b, seed=2), mode=mode)
            w.case("np.correlate", lambda x, y: jnp.correlate(x, y, mode), signed(a), signed(b, seed=2), mode=mode)
    for n, a in ((1, -1), (2, 0), (0, 0)):
        w.case("np.diff", lambda x: jnp.diff(x, n, a), signed(3, 4), n=n, axis=a)
    w.case("np.ediff1d", jnp.ediff1d, signed(2, 3))
    w.case("np.unwrap", jnp.unwrap, given([0.0, 3.0, 6.5, -1.0, 2.5, 9.0]), axis=-1)
    w.case("np.unwrap", lambda x: jnp.unwrap(x * 4, axis=0), signed(5, 2), axis=0)
    w.case("np.interp", jnp.interp, given([0.3, -1.0, 2.25, 5.0, 1.75]), given([0.0, 1.0, 2.0, 4.0]), signed(4, seed=2), grad=False)
    w.case("np.interp", jnp.interp, given([0.3, 2.25, 1.75]), given([0.0, 1.0, 2.0, 4.0]), signed(4, seed=2))
    w.case("np.gradient", lambda x: jnp.gradient(x, 0.5, axis=-1), signed(2, 5), step=0.5, axis=-1)
    w.case("np.gradient", lambda x: jnp.gradient(x, 1.0, axis=0), signed(4, 2), step=1.0, axis=0)


def poly(w):
    for name in ("polyadd", "polysub", "polymul"):
        w.case(f"np.{name}", getattr(jnp, name), signed(4), signed(2, seed=2))
        w.case(f"np.{name}", getattr(jnp, name), signed(2), signed(3, seed=2))
    w.case("np.polyval", jnp.polyval, signed(4), signed(2, 3, seed=2))
    w.case("np.polyder", lambda p: jnp.polyder(p, 1), signed(4), m=1)
    w.case("np.polyder", lambda p: jnp.polyder(p, 2), signed(4), m=2)
    w.case("np.polyint", lambda p: jnp.polyint(p, 1), signed(4), m=1)
    w.case("np.polyint", lambda p: jnp.polyint(p, 2), signed(3), m=2)
    w.case("np.poly", jnp.poly, signed(3))
    w.case("np.polydiv", jnp.polydiv, signed(5), signed(3, seed=2))
    w.case("np.polydiv", jnp.polydiv, signed(3), signed(3, seed=2))
    w.case("np.polyfit", lambda x, y: jnp.polyfit(x, y, 2), given([0.0, 1.0, 2.0, 3.0, 4.0]), signed(5, seed=2), grad=False, degree=2)
    w.case("np.polyfit", lambda x, y: jnp.polyfit(x, y, 1), given([-1.0, 0.5, 2.0, 3.0]), signed(4, 2, seed=2), grad=False, degree=1)


def choose(w):
    sparse = given([[0, 3, 0], [1, 0, 7]], "i32")
    for size in (3, 5, 2):
        w.case("np.nonzero", lambda x: jnp.nonzero(x, size=size), sparse, size=size)
        w.case("np.flatnonzero", lambda x: jnp.flatnonzero(x, size=size), sparse, size=size)
        w.case("np.argwhere", lambda x: jnp.argwhere(x, size=size), sparse, size=size)
        w.case("np.extract", lambda c, x: jnp.extract(c, x, size=size), given([[False, True, False], [True, False, True]], "bool"), signed(2, 3), size=size)
    w.case("np.compress", lambda x: jnp.compress(np.array([True, False, True]), x, axis=1), signed(2, 3), flags="1,0,1", axis=1)
    w.case("np.compress", lambda x: jnp.compress(np.array([False, True]), x), signed(2, 3), flags="0,1", axis="n")
    w.case("np.place", lambda x, m, v: jnp.place(x, m, v, inplace=False), signed(2, 3), given([[True, True, False], [False, True, True]], "bool"), signed(2, seed=2))
    many = given([[3, 1, 3], [2, 1, 5]], "i32")
    for size in (4, 6):
        w.case("np.unique", lambda x: jnp.unique(x, size=size), many, size=size)
        w.case("np.unique_values", lambda x: jnp.unique(x, size=size), many, size=size)
        w.case("np.unique_counts", lambda x: list(jnp.unique_counts(x, size=size)), many, size=size)
        w.case("np.unique_inverse", lambda x: list(jnp.unique_inverse(x, size=size)), many, size=size)
    w.case("np.unique_all", lambda x: list(jnp.unique_all(x, size=4)), many, size=4)
    w.case("np.unique", lambda x: jnp.unique(x, size=5), given([0.5, -1.0, 0.5, 2.0, -1.0]), grad=False, size=5)
    w.case("np.union1d", lambda x, y: jnp.union1d(x, y, size=5), given([3, 1, 2], "i32"), given([2, 7, 9], "i32"), size=5)


def edges(w):
    """Quantiles by every method, several axes, bins in either order and NaN among them, no degrees of freedom, zeros as divisors."""
    nan, inf = float("nan"), float("inf")
    methods = (
        "linear lower higher nearest midpoint inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull "
        "median_unbiased normal_unbiased"
    ).split()
    holes = given([[0.5, nan, 3.0, -1.0, 2.0], [nan, 4.0, nan, nan, 1.5], [1.0, 0.25, -2.0, 6.0, nan]])
    for m in methods:
        for q in (0.0, 0.1, 0.25, 0.5, 0.61, 1.0):
            w.case("np.quantile_by", lambda x: np.quantile(np.asarray(x), q, axis=1, method=m), signed(3, 8), grad=False, q=q, axis=1, method=m)
            w.case("np.nanquantile_by", lambda x: np.nanquantile(np.asarray(x), q, axis=1, method=m), holes, grad=False, q=q, axis=1, method=m)
    w.case("np.quantile_by", lambda x: jnp.quantile(x, 0.3, axis=0, method="midpoint"), signed(5, 3), q=0.3, axis=0, method="midpoint")
    for name, q in (("median", ()), ("quantile", (0.3,)), ("percentile", (61.0,))):
        for a, t in (((0, 1), "0,1"), ((2, 0), "2,0"), ((-1, 1), "-1,1")):
            params = {"q": q[0]} if q else {}
            w.case(f"np.{name}", lambda x: getattr(jnp, name)(x, *q, axis=a, keepdims=True), signed(2, 3, 4), axis=t, keep=1, **params)
            w.case(f"np.nan{name}", lambda x: getattr(jnp, "nan" + name)(x, *q, axis=a), signed(2, 3, 4), axis=t, **params)
    w.case("np.median", np.median, given([inf, inf, 1.0]), grad=False, axis="n")
    values = given([0.5, -2.0, nan, 3.0, inf, -inf, 0.0, 1.0])
    for right in (0, 1):
        side = "right" if right else "left"
        for edge in ([-1.0, 0.0, 0.5, 0.5, nan, nan], [nan], [0.5], [-inf, 0.0, inf]):
            w.case("np.searchsorted", lambda a, v: np.searchsorted(np.asarray(a), np.asarray(v), side), given(edge), values, grad=False, right=right)
        for edge in ([1.0, 0.5, 0.0, -1.0], [0.5, 0.5, -1.0], [-1.0, 0.0, 1.0], [2.0, 2.0]):
            w.case("np.digitize", lambda x, b: np.digitize(np.asarray(x), np.asarray(b), bool(right)), values, given(edge), grad=False, right=right)
    for name in ("var", "std"):
        for ddof in (3, 4):
            w.case(f"np.{name}", lambda x: getattr(np, name)(np.asarray(x), axis=0, ddof=ddof), given([[1.0, 2.0], [4.0, 2.0], [0.5, 2.0]]), grad=False, axes=0, keep=0, ddof=ddof)
            w.case(f"np.nan{name}", lambda x: getattr(np, "nan" + name)(np.asarray(x), axis=0, ddof=ddof), given([[1.0, 2.0], [4.0, 2.0], [0.5, nan]]), grad=False, axes=0, keep=0, ddof=ddof)
    for mode in "linear_ramp maximum mean median minimum".split():
        w.case("np.pad", lambda x: jnp.pad(x, ((1, 2), (0, 3)), mode), signed(3, 4), mode=mode, widths="1,2,0,3")
        w.case("np.pad", lambda x: np.pad(np.asarray(x), ((1, 2), (2, 3)), mode), integer(3, 4), mode=mode, widths="1,2,2,3")
    for d in ("i8", "i32", "u8"):
        w.case("np.lcm", lambda x, y: np.lcm(np.asarray(x), np.asarray(y)), given([0, 0, 4, 6, 12, 1], d), given([0, 5, 6, 4, 8, 7], d))
        w.case("np.gcd", lambda x, y: np.gcd(np.asarray(x), np.asarray(y)), given([0, 0, 4, 6, 12, 1], d), given([0, 5, 6, 4, 8, 7], d))
    w.case("np.lcm", lambda x, y: np.lcm(np.asarray(x), np.asarray(y)), given([-4, 0, -128, 100], "i8"), given([6, -5, 3, 300], "i16"))
    w.case("np.gcd", lambda x, y: np.gcd(np.asarray(x), np.asarray(y)), given([-4, 0, -128, 100], "i8"), given([6, -5, 32, 300], "i16"))
