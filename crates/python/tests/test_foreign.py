"""Arrays of other libraries as arguments of every transform, by each of Python's protocols; and what is no array."""

import array
import collections
import ctypes
import decimal
import fractions
import functools
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

try:
    import torch
except ImportError:
    torch = None
try:
    import jax

    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None


class WithArray:
    """`__array__`, as PyTorch, pandas and h5py have it."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        return self.x if dtype is None else self.x.astype(dtype)


class WithInterface:
    """`__array_interface__`, as PIL has it."""

    def __init__(self, x):
        self.x = x
        self.dtype, self.shape = x.dtype, x.shape

    @property
    def __array_interface__(self):
        return self.x.__array_interface__


class WithDlpack:
    """`__dlpack__`, as PyTorch, JAX and CuPy have it."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class WithOldDlpack(WithDlpack):
    """The same before version 1.0."""

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()


def ctypes_array(x):
    kind = {"f": ctypes.c_float, "d": ctypes.c_double, "i": ctypes.c_int32}[x.dtype.char]
    made = kind
    for n in reversed(x.shape):
        made = made * n
    out = made()
    ctypes.memmove(out, np.ascontiguousarray(x).ctypes.data, x.nbytes)
    return out


def python_array(x):
    return array.array(x.dtype.char, x.tolist()) if x.ndim == 1 else memoryview(array.array(x.dtype.char, x.reshape(-1).tolist())).cast("B").cast(x.dtype.char, x.shape)


PROTOCOLS = {
    "numpy": np.array, "array.array": python_array, "memoryview": lambda x: memoryview(x.copy()), "ctypes": ctypes_array,
    "__array__": WithArray, "__array_interface__": WithInterface, "__dlpack__": WithDlpack, "__dlpack__ before 1.0": WithOldDlpack,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2], "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
}
if torch:
    PROTOCOLS["torch"] = lambda x: torch.from_numpy(x.copy())
if jax:
    PROTOCOLS["jax"] = lambda x: jax.numpy.asarray(x)


def f(a):
    return tnp.sin(a) * a


def loss(a):
    return tnp.sum(f(a) * a)


def vjp_rule():
    g = tl.custom_vjp(f)
    g.defvjp(lambda a: (f(a), a), lambda a, ct: (2.0 * ct * a,))
    return g


def jvp_rule():
    g = tl.custom_jvp(f)
    g.defjvp(lambda xs, dxs: (f(*xs), 3.0 * xs[0] * dxs[0]))
    return g


def pulled(x, ct):
    y, back = tl.vjp(f, x)
    return y, back(ct)


def pushed(x, dx):
    y, push = tl.linearize(f, x)
    return y, push(dx)


def step(x):
    opt = tl.optim.sgd(0.1)
    return opt.update(x, opt.init(x), x)[0]


# Each is a function of one array of shape (3, 3), wherever an array can be given.
TRANSFORMS = {
    "jit": lambda x: tl.jit(f)(x),
    "jit by name": lambda x: tl.jit(lambda a, *, b: a * b)(x, b=x),
    "jit of a tree": lambda x: tl.jit(lambda t: {"y": t["a"][0] * t["b"]})({"a": [x], "b": x}),
    "jit of a result": lambda x: tl.jit(lambda: (x, f(x)))(),
    "disable_jit": lambda x: plainly(x),
    "grad": lambda x: tl.grad(loss)(x),
    "grad of a tree": lambda x: tl.grad(lambda t: loss(t["a"]) + loss(t["b"][0]))({"a": x, "b": (x,)}),
    "grad, other argument": lambda x: tl.grad(lambda w, a: tnp.sum(w * w * a))(2.0, x),
    "grad, argument by name": lambda x: tl.grad(lambda w, a: tnp.sum(w * w * a))(2.0, a=x),
    "grad of both": lambda x: tl.grad(lambda w, a: tnp.sum(w * w * a), argnums=(0, 1))(x, x),
    "value_and_grad": lambda x: tl.value_and_grad(loss)(x),
    "value_and_grad with aux": lambda x: tl.value_and_grad(lambda a: (loss(a), x), has_aux=True)(x),
    "grad of jit": lambda x: tl.grad(tl.jit(loss))(x),
    "jit of grad": lambda x: tl.jit(tl.grad(loss))(x),
    "vmap": lambda x: tl.vmap(loss)(x),
    "vmap, axis 1": lambda x: tl.vmap(f, in_axes=1, out_axes=1)(x),
    "vmap, shared": lambda x: tl.vmap(lambda a, b: a @ b, in_axes=(0, None))(x, x),
    "vmap by name": lambda x: tl.vmap(lambda a, b: a * b)(x, b=x),
    "vmap of grad": lambda x: tl.vmap(tl.grad(loss))(x),
    "jvp": lambda x: tl.jvp(f, (x,), (x,)),
    "vjp": lambda x: pulled(x, x),
    "linearize": lambda x: pushed(x, x),
    "jacfwd": lambda x: tl.jacfwd(f)(x),
    "jacrev": lambda x: tl.jacrev(f)(x),
    "jacrev of a tree": lambda x: tl.jacrev(lambda t: t["a"] * t["b"])({"a": x, "b": x}),
    "jacfwd of a tree": lambda x: tl.jacfwd(lambda t: t["a"] * t["b"])({"a": x, "b": x}),
    "jacfwd, other argument": lambda x: tl.jacfwd(lambda a, b: a * b)(x, x),
    "hessian": lambda x: tl.hessian(loss)(x),
    "checkpoint": lambda x: tl.grad(tl.checkpoint(loss))(x),
    "checkpoint alone": lambda x: tl.checkpoint(f)(x),
    "custom_vjp": lambda x: vjp_rule()(x),
    "custom_jvp": lambda x: jvp_rule()(x),
    "custom_vjp in grad": lambda x: tl.grad(lambda w: tnp.sum(w * vjp_rule()(x)))(x),
    "custom_vjp's rule": lambda x: tl.grad(lambda a: tnp.sum(vjp_rule()(a)))(x),
    "custom_jvp's rule": lambda x: tl.grad(lambda a: tnp.sum(jvp_rule()(a)))(x),
    "scan": lambda x: tl.lax.scan(lambda c, r: (c * 0.5 + r, c), x[0] if isinstance(x, tl.Tensor) else tl.asarray(x)[0], x),
    "scan's carry": lambda x: tl.lax.scan(lambda c, _: (c * 0.5, c), x, None, 3),
    "scan's body": lambda x: tl.lax.scan(lambda c, _: (c * 0.5, x), 1.0, None, 2),
    "fori_loop": lambda x: tl.lax.fori_loop(0, 3, lambda i, c: c * 2, x),
    "while_loop": lambda x: tl.lax.while_loop(lambda c: tnp.max(c) < 100, lambda c: c * 2, x),
    "cond": lambda x: tl.lax.cond(True, f, lambda a: a, x),
    "switch": lambda x: tl.lax.switch(1, [lambda a: a, f], x),
    "map": lambda x: tl.lax.map(loss, x),
    "associative_scan": lambda x: tl.lax.associative_scan(lambda a, b: a + b, x),
    "stop_gradient": lambda x: tl.lax.stop_gradient(x),
    "eval_shape": lambda x: tl.eval_shape(f, x),
    "make_jaxpr": lambda x: tl.make_jaxpr(f)(x),
    "lower": lambda x: tl.jit(f).lower(x).as_text(),
    "linear_transpose": lambda x: tl.linear_transpose(lambda a: 2.0 * a, x)(x),
    "device_put": lambda x: tl.device_put({"a": x})["a"],
    "ravel_pytree": lambda x: tl.flatten_util.ravel_pytree([x, x])[0],
    "optim": step,
    "operators": lambda x: tnp.ones((3, 3)) * x + x,
    "indices": lambda x: tnp.arange(90)[tl.asarray(x).astype("int32") if not isinstance(x, np.ndarray) else x.astype(np.int32)],
}


def plainly(x):
    with tl.disable_jit():
        return tl.jit(f)(x)


def plain(tree):
    return [x.numpy() if isinstance(x, tl.Tensor) else x for x in tl.tree.leaves(tree)]


class Foreign(unittest.TestCase):
    def arrays(self):
        rng = np.random.default_rng(7)
        for kind in (np.float32, np.float64):
            yield rng.uniform(0.5, 2.0, (3, 3)).astype(kind)

    def test_arrays_of_every_protocol_in_every_transform(self):
        for x in self.arrays():
            for what, run in TRANSFORMS.items():
                want = plain(run(tl.asarray(x)))
                for protocol, make in PROTOCOLS.items():
                    with self.subTest(transform=what, protocol=protocol, dtype=x.dtype):
                        given = make(x)
                        got = plain(run(given))
                        self.assertEqual(len(got), len(want))
                        for g, w in zip(got, want):
                            self.assertEqual(getattr(g, "dtype", None), getattr(w, "dtype", None))
                            np.testing.assert_array_equal(g, w)

    def test_arrays_are_read_at_each_call_and_traced_once(self):
        for protocol, make in PROTOCOLS.items():
            with self.subTest(protocol):
                traces = []

                @tl.jit
                def run(a, t):
                    traces.append(1)
                    return a * 2.0 + t["b"]

                for k in range(4):
                    x = np.full((2, 2), k, np.float32)
                    np.testing.assert_array_equal(run(make(x), {"b": make(x)}).numpy(), x * 3)
                self.assertEqual(len(traces), 1)
        for x in (np.ones(3, np.float32), array.array("f", [1.0, 1.0, 1.0]), (ctypes.c_float * 3)(1, 1, 1)):
            y = tl.jit(lambda a: a + 0.0)(x)
            x[1] = 5.0
            self.assertEqual(tl.jit(lambda a: a + 0.0)(x).tolist(), [1.0, 5.0, 1.0])
            self.assertEqual(y.tolist(), [1.0, 1.0, 1.0])

    def test_arrays_of_every_protocol_as_indices(self):
        x = tnp.arange(12).reshape(3, 4)
        i = np.array([2, 0], np.int32)
        for protocol, make in PROTOCOLS.items():
            with self.subTest(protocol):
                self.assertEqual(x[make(i)].tolist(), [[8, 9, 10, 11], [0, 1, 2, 3]])
                self.assertEqual(x[1:, make(i)].tolist(), [[6, 4], [10, 8]])
                self.assertEqual(x.at[make(i)].set(0)[:, 0].tolist(), [0, 4, 0])
                self.assertEqual(x.at[make(i), 1].add(make(i)).tolist()[2], [8, 11, 10, 11])
                y = x.__copy__()
                y[make(i), 0] = make(i)
                self.assertEqual(y[:, 0].tolist(), [0, 4, 2])
        for protocol in ("numpy", "__array__", "__dlpack__ before 1.0", *(["torch", "jax"] if torch and jax else [])):
            if protocol.startswith("__dlpack") and np.lib.NumpyVersion(np.__version__) < "2.1.0":
                continue  # no capsules of bools
            mask = PROTOCOLS[protocol](np.array([True, False, True]))
            self.assertEqual(x[mask].shape, (2, 4))
            self.assertEqual(x.at[mask].set(0)[:, 1].tolist(), [0, 5, 0])

    def test_scalars_of_numpy_keep_their_types(self):
        kinds = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64]
        for kind in kinds:
            x = kind(1)
            ways = {
                "asarray": tl.asarray, "array": tnp.array, "jit": tl.jit(lambda a: a), "vmap": lambda x: tl.vmap(lambda a: a, in_axes=None, axis_size=2)(x)[0],
                "tree": lambda x: tl.jit(lambda t: t["a"])({"a": x}), "stack": lambda x: tnp.stack([x, x])[0], "list": lambda x: tl.asarray([x, x])[1],
                "full": lambda x: tnp.full((2,), x)[0], "full_like": lambda x: tnp.full_like(tl.asarray(x), x), "where": lambda x: tnp.where(True, x, x),
                "scan": lambda x: tl.lax.scan(lambda c, _: (c, c), x, None, 1)[0], "negative": lambda x: tnp.abs(x) if kind is not np.bool_ else tl.asarray(x),
            }
            for way, run in ways.items():
                with self.subTest(way=way, kind=kind):
                    got = run(x)
                    self.assertEqual((got.dtype, got.item()), (np.dtype(kind).name, x.item()))
        big = np.float64(1e300)
        self.assertEqual(tl.asarray(big).item(), 1e300)
        self.assertEqual(tl.asarray([big, 0.1]).tolist(), [1e300, 0.1])
        self.assertEqual(tl.asarray([[0.1], [big]]).tolist(), [[0.1], [1e300]])
        self.assertEqual((tnp.ones(1) * big).tolist(), [1e300])
        self.assertEqual((big * tnp.ones(1)).tolist(), [1e300])
        self.assertEqual(tl.jit(lambda a, b: a * b)(tnp.ones(1), big).tolist(), [1e300])
        self.assertEqual(tl.asarray(np.float64(0.1), "float32").item(), np.float32(0.1).item())
        self.assertEqual(tnp.add(big, 1.0).item(), 1e300)
        self.assertEqual(tnp.full((2,), big).tolist(), [1e300, 1e300])
        self.assertEqual(tl.grad(lambda a: a * a)(np.float64(1e200)).item(), 2e200)


class Mapping(dict):
    pass


class Sequence(list):
    pass


class Pair(tuple):
    pass


class Shape:
    def __init__(self):
        self.w = np.ones(3)


OTHERS = {
    "text": "mode", "bytes": b"mode", "object": object(), "class instance": Shape(), "function": len, "lambda": lambda a: a, "class": float,
    "array class": np.ndarray, "decimal": decimal.Decimal(1), "fraction": fractions.Fraction(1, 2), "set": {1, 2}, "frozenset": frozenset([1]),
    "complex": 1j, "slice": slice(1), "range": range(3), "Ellipsis": Ellipsis, "Counter": collections.Counter(a=1), "deque": collections.deque([1.0]),
    "subclass of dict": Mapping(a=1.0), "subclass of list": Sequence([1.0]), "subclass of tuple": Pair([1.0]), "dtype": np.dtype("f4"),
    "numpy text": np.str_("mode"), "partial": functools.partial(f), "strings": np.array(["a", "b"]), "objects": np.array([object()]),
}
X = np.ones(3, np.float32)
REFUSE = {
    "jit": lambda o: tl.jit(lambda a, b: a)(X, o),
    "jit by name": lambda o: tl.jit(lambda a, b: a)(X, b=o),
    "jit of a tree": lambda o: tl.jit(lambda a, b: a)(X, {"k": [1.0, (o,)]}),
    "result of jit": lambda o: tl.jit(lambda a: (a, o))(X),
    "grad": lambda o: tl.grad(lambda a: 1.0)(o),
    "grad of a tree": lambda o: tl.grad(lambda t: tnp.sum(t["a"]))({"a": X, "b": o}),
    "vmap": lambda o: tl.vmap(lambda a, b: a)(X, o),
    "vmap by name": lambda o: tl.vmap(lambda a, b: a)(X, b=o),
    "result of vmap": lambda o: tl.vmap(lambda a: o)(X),
    "jvp": lambda o: tl.jvp(lambda a, b: a, (X, o), (X, o)),
    "vjp": lambda o: tl.vjp(lambda a, b: a, X, o),
    "result of vjp": lambda o: tl.vjp(lambda a: o, X),
    "cotangent": lambda o: tl.vjp(lambda a: a * 2.0, X)[1](o),
    "linearize": lambda o: tl.linearize(lambda a, b: a, X, o),
    "tangent": lambda o: tl.linearize(lambda a: a * 2.0, X)[1](o),
    "jacfwd": lambda o: tl.jacfwd(lambda a: a)(o),
    "jacrev": lambda o: tl.jacrev(lambda a: a)(o),
    "hessian": lambda o: tl.hessian(lambda a: 1.0)(o),
    "checkpoint": lambda o: tl.checkpoint(lambda a, b: a)(X, o),
    "custom_vjp": lambda o: vjp_of_two()(X, o),
    "custom_jvp": lambda o: jvp_of_two()(X, o),
    "custom_vjp in grad": lambda o: tl.grad(lambda a: tnp.sum(vjp_of_two()(a, o)))(X),
    "custom_jvp in grad": lambda o: tl.grad(lambda a: tnp.sum(jvp_of_two()(a, o)))(X),
    "scan's carry": lambda o: tl.lax.scan(lambda c, x: (c, x), o, X),
    "scan's result": lambda o: tl.lax.scan(lambda c, x: (c, o), X, X),
    "scan over": lambda o: tl.lax.scan(lambda c, x: (c, c), X, {"a": X, "b": o}),
    "fori_loop": lambda o: tl.lax.fori_loop(0, 2, lambda i, c: c, (X, o)),
    "while_loop": lambda o: tl.lax.while_loop(lambda c: False, lambda c: c, (X, o)),
    "cond": lambda o: tl.lax.cond(True, lambda a, b: a, lambda a, b: a, X, o),
    "result of cond": lambda o: tl.lax.cond(True, lambda a: o, lambda a: o, X),
    "map": lambda o: tl.lax.map(lambda a: a, (X, o)),
    "associative_scan": lambda o: tl.lax.associative_scan(lambda a, b: a, (X, o)),
    "eval_shape": lambda o: tl.eval_shape(lambda a, b: a, X, o),
    "make_jaxpr": lambda o: tl.make_jaxpr(lambda a, b: a)(X, o),
    "optim": lambda o: tl.optim.sgd(0.1).init({"a": X, "b": o}),
}


def vjp_of_two():
    g = tl.custom_vjp(lambda a, b: a)
    g.defvjp(lambda a, b: (a, None), lambda _, ct: (ct, None))
    return g


def jvp_of_two():
    g = tl.custom_jvp(lambda a, b: a)
    g.defjvp(lambda xs, dxs: (xs[0], dxs[0]))
    return g


class Others(unittest.TestCase):
    def test_what_is_no_array_is_an_error_with_a_remedy(self):
        for what, run in REFUSE.items():
            for kind, o in OTHERS.items():
                with self.subTest(transform=what, kind=kind):
                    with self.assertRaises(TypeError) as e:
                        run(o)
                    if not isinstance(o, np.ndarray):
                        self.assertIn(type(o).__name__, str(e.exception))
                        self.assertIn("register", str(e.exception))
        with self.assertRaisesRegex(TypeError, r"argument 1\['k'\]\[1\]\[0\] .* str,.*static_argnums"):
            tl.jit(lambda a, b: a)(X, {"k": [1.0, ("s",)]})
        with self.assertRaisesRegex(TypeError, r"argument mode of .* str,.*static_argnames"):
            tl.jit(lambda a, mode: a)(X, mode="s")
        with self.assertRaisesRegex(TypeError, r"\[1\]\['p'\] is of type Mapping.*convert it to a dict"):
            tl.vjp(lambda a, b: a, X, {"p": Mapping(a=1.0)})

    def test_what_a_transform_only_passes_on_may_be_anything(self):
        for kind, o in OTHERS.items():
            if isinstance(o, np.ndarray):
                continue
            with self.subTest(kind):
                seen = []
                see = lambda *a: seen.append(a) or 0.0  # noqa: E731
                np.testing.assert_array_equal(tl.grad(lambda a, b: tnp.sum(a * a) + see(b))(X, o).numpy(), 2 * X)
                np.testing.assert_array_equal(tl.grad(lambda a, b: tnp.sum(a * a) + see(b))(X, b=o).numpy(), 2 * X)
                np.testing.assert_array_equal(tl.vmap(lambda a, b: a * 2.0 + see(b), in_axes=(0, None))(X, o).numpy(), 2 * X)
                for jacobian in (tl.jacfwd, tl.jacrev):
                    np.testing.assert_array_equal(jacobian(lambda a, b: a * 2.0 + see(b))(X, o).numpy(), 2 * np.eye(3))
                np.testing.assert_array_equal(tl.hessian(lambda a, b: tnp.sum(a * a) + see(b))(X, o).numpy(), 2 * np.eye(3))
                self.assertTrue(all(a is o for (a,) in seen) and len(seen) >= 6)
                self.assertIs(tl.grad(lambda a: (tnp.sum(a), o), has_aux=True)(X)[1], o)
                self.assertIs(tl.vjp(lambda a: (a, {"k": o}), X, has_aux=True)[2]["k"], o)
                self.assertIs(tl.jvp(lambda a: (a, {"k": o}), (X,), (X,), has_aux=True)[2]["k"], o)
                self.assertIs(tl.linearize(lambda a: (a, {"k": o}), X, has_aux=True)[2]["k"], o)
                for static in (
                    tl.jit(lambda a, b: a + see(b), static_argnums=1), tl.checkpoint(lambda a, b: a + see(b), static_argnums=(1,)),
                ):
                    try:
                        hash(o)
                    except TypeError:
                        continue
                    static(X, o)
                    self.assertIs(seen[-1][0], o)

    def test_static_arguments_are_hashable(self):
        run = tl.jit(lambda a, b: a, static_argnums=1)
        for bad in ([1], {"a": 1}, {1}, np.ones(2), tnp.ones(2)):
            with self.assertRaises(ValueError):
                run(X, bad)
        kinds = []
        g = tl.jit(lambda x, n: kinds.append(repr(n)) or x, static_argnums=1)
        for n in [(1,), (1.0,), (True,), (0.0,), (-0.0,), ((1, 2), "a"), ((1, 2.0), "a"), (1,), frozenset([1]), frozenset([True])]:
            g(X, n)
        self.assertEqual(len(kinds), 9, kinds)

        @tl.tree_util.register_pytree_node_class
        class Layer:
            def __init__(self, w, sizes):
                self.w, self.sizes = w, sizes

            def tree_flatten(self):
                return (self.w,), self.sizes

            @classmethod
            def tree_unflatten(cls, sizes, children):
                return cls(*children, sizes)

        run = tl.jit(lambda l: l.w * l.sizes[0])
        self.assertEqual(run(Layer(X, (2,))).tolist(), [2.0] * 3)
        with self.assertRaisesRegex(TypeError, "the static part of a Layer is not hashable"):
            run(Layer(X, [2]))
        self.assertEqual(tl.grad(lambda l: tnp.sum(l.w * l.sizes[0]))(Layer(X, [2])).w.tolist(), [2.0] * 3)

    def test_programs_are_shown_with_static_arguments(self):
        run = tl.jit(lambda a, n, *, mode="x", b=1.0: a * b * len(n) if mode == "x" else a, static_argnums=1, static_argnames="mode")
        self.assertIn("mul", run.lower(X, "name").as_text())
        self.assertNotIn("mul", run.lower(X, n="name", mode="y", b=2.0).as_text())
        self.assertEqual(run.lower(tl.ShapeDtypeStruct((3,), "float32"), "name", b=X).as_text(), run.lower(X, "name", b=X).as_text())
        with self.assertRaisesRegex(TypeError, "str"):
            run.lower("text", "name").as_text()

    def test_vmap_gives_no_row_for_the_batch(self):
        with self.assertRaisesRegex(ValueError, "depends on the batch"):
            tl.vmap(lambda a: a * 2.0, out_axes=None)(X)
        with self.assertRaisesRegex(ValueError, "depends on the batch"):
            tl.vmap(lambda a: {"a": a, "b": 1.0}, out_axes={"a": None, "b": 0})(X)
        shared = tl.vmap(lambda a, w: {"a": a * w, "b": w * 2.0, "c": 3.0}, in_axes=(0, None), out_axes={"a": 0, "b": None, "c": None})(X, 2.0)
        self.assertEqual({k: v.tolist() for k, v in shared.items()}, {"a": [2.0] * 3, "b": 4.0, "c": 3.0})
        both = tl.vmap(lambda a: (a, tnp.ones(2)), out_axes=(0, None))(X)
        self.assertEqual([x.shape for x in both], [(3,), (2,)])
        m = np.arange(6.0).reshape(2, 3)
        out = tl.vmap(lambda a, b: (a, b, a), in_axes=(0, None), out_axes=(-1, None, 1))(m, m)
        for got, want in zip(out, (m.T, m, m.T)):
            np.testing.assert_array_equal(got.numpy(), want)


if __name__ == "__main__":
    unittest.main()
