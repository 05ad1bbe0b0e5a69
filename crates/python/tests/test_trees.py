"""Trees of every kind of container: they come back from every transform with their types, keys and order, as in JAX."""

import collections
import dataclasses
import os
import pickle
import unittest
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

try:
    import jax
except ImportError:
    jax = None

Point = namedtuple("Point", "y x")


class Labelled(namedtuple("Labelled", "b a")):
    """A subclass of a named tuple."""


@tl.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    w: object
    b: object = 0.0
    name: str = dataclasses.field(default="d", metadata={"static": True})


class Wrapped(dict):
    """A registered subclass of dict, in the order of its items."""


class Stack(list):
    """A registered subclass of list."""


class Unregistered(dict):
    pass


@tl.tree_util.register_pytree_node_class
class Node:
    def __init__(self, left, right, tag):
        self.left, self.right, self.tag = left, right, tag

    def tree_flatten(self):
        return (self.left, self.right), self.tag

    @classmethod
    def tree_unflatten(cls, tag, children):
        return cls(*children, tag)


tl.tree_util.register_pytree_node(Wrapped, lambda w: (list(w.values()), tuple(w)), lambda keys, values: Wrapped(zip(keys, values)))
tl.tree_util.register_pytree_node(Stack, lambda s: (list(s), None), lambda _, items: Stack(items))

# From three children to a container; each with the order of its leaves.
CONTAINERS = {
    "tuple": (lambda a, b, c: (a, b, c), "abc"),
    "list": (lambda a, b, c: [a, b, c], "abc"),
    "dict": (lambda a, b, c: {"z": a, "y": b, "x": c}, "cba"),
    "dict of numbers": (lambda a, b, c: {10: a, 9: b, -1: c}, "cba"),
    "dict of tuples": (lambda a, b, c: {(1, 2): a, (0, 5): b, (0, 1): c}, "cba"),
    "dict of both": (lambda a, b, c: {"b": a, 1: b, "a": c}, "bca"),
    "OrderedDict": (lambda a, b, c: OrderedDict([("z", a), ("x", b), ("y", c)]), "abc"),
    "OrderedDict of numbers": (lambda a, b, c: OrderedDict([(3, a), (1, b), (2, c)]), "abc"),
    "defaultdict": (lambda a, b, c: defaultdict(list, {"z": a, "y": b, "x": c}), "cba"),
    "defaultdict of None": (lambda a, b, c: defaultdict(None, {2: a, 10: b, 1: c}), "cab"),
    "named tuple": (lambda a, b, c: Point(a, (b, c)), "abc"),
    "subclass of a named tuple": (lambda a, b, c: Labelled([a, b], c), "abc"),
    "dataclass": (lambda a, b, c: Data(a, {"k": b, "j": c}, "name"), "acb"),
    "registered class": (lambda a, b, c: Node(a, [b, c], "tag"), "abc"),
    "registered dict": (lambda a, b, c: Wrapped(z=a, x=b, y=c), "abc"),
    "registered list": (lambda a, b, c: Stack([a, b, c]), "abc"),
    "Partial": (lambda a, b, c: tl.tree_util.Partial(max, a, k=b, j=c), "acb"),
    "with None": (lambda a, b, c: [None, a, {"n": None, "b": b}, (), c], "abc"),
}


def described(x):
    """Types, keys in their order and leaves, without what trees themselves know."""
    kind = type(x)
    if isinstance(x, defaultdict):
        return kind, x.default_factory, [(k, described(v)) for k, v in x.items()]
    if isinstance(x, dict):
        return kind, [(k, described(v)) for k, v in x.items()]
    if isinstance(x, (tuple, list)):
        return kind, [described(v) for v in x]
    if isinstance(x, (Data, Node)):
        return kind, [(k, described(v)) for k, v in vars(x).items()]
    if isinstance(x, tl.tree_util.Partial):
        return kind, x.func, described(x.args), described(x.keywords)
    return float(x) if isinstance(x, (tl.Tensor, np.ndarray, float)) else x


def in_order(x):
    """The same with plain dicts and defaultdicts in the order of their keys, as a rebuilt tree has them."""
    if type(x) in (dict, defaultdict):
        try:
            keys = sorted(x)
        except TypeError:
            keys = sorted(x, key=str)
        made = {k: in_order(x[k]) for k in keys}
        return defaultdict(x.default_factory, made) if type(x) is defaultdict else made
    if isinstance(x, tl.tree_util.Partial):
        return tl.tree_util.Partial(x.func, *map(in_order, x.args), **in_order(x.keywords))
    if isinstance(x, dict):
        return type(x)((k, in_order(v)) for k, v in x.items())
    if hasattr(x, "_fields"):
        return type(x)(*map(in_order, x))
    if isinstance(x, (tuple, list)):
        return type(x)(map(in_order, x))
    if isinstance(x, Data):
        return Data(in_order(x.w), in_order(x.b), x.name)
    if isinstance(x, Node):
        return Node(in_order(x.left), in_order(x.right), x.tag)
    return x


def total(t):
    return sum((tnp.sum(x * x) for x in tl.tree.leaves(t)), tnp.zeros(()))


def cotangents(t):
    y, back = tl.vjp(lambda a: a, t)
    return back(y)[0]


# Each gives the tree itself back.
IDENTITIES = {
    "flatten": lambda t: tl.tree.structure(t).unflatten(tl.tree.leaves(t)),
    "map": lambda t: tl.tree.map(lambda x: x, t),
    "map of two": lambda t: tl.tree.map(lambda x, y: y, t, t),
    "map_with_path": lambda t: tl.tree.map_with_path(lambda p, x: x, t),
    "broadcast": lambda t: tl.tree.broadcast(t, t),
    "jit": lambda t: tl.jit(lambda a: a)(t),
    "jit by name": lambda t: tl.jit(lambda *, a: a)(a=t),
    "jit of tree.map": lambda t: tl.jit(lambda a: tl.tree.map(lambda x: x * 1.0, a))(t),
    "grad": lambda t: tl.tree.map(lambda g: g / 2, tl.grad(total)(t)),
    "value_and_grad with aux": lambda t: tl.value_and_grad(lambda a: (total(a), a), has_aux=True)(t)[0][1],
    "grad's other argument": lambda t: tl.grad(lambda x, a: (x, a), has_aux=True)(1.0, t)[1],
    "vmap": lambda t: tl.tree.map(lambda x: x[0], tl.vmap(lambda a: a)(tl.tree.map(lambda x: tnp.stack([x, x]), t))),
    "vmap over trees of axes": lambda t: tl.tree.map(
        lambda x: x[1], tl.vmap(lambda a: a, in_axes=(tl.tree.map(lambda _: 0, t),), out_axes=tl.tree.map(lambda _: 0, t))(tl.tree.map(lambda x: tnp.stack([x, x]), t))
    ),
    "jvp": lambda t: tl.jvp(lambda a: a, (t,), (t,))[1],
    "vjp": cotangents,
    "linearize": lambda t: tl.linearize(lambda a: a, t)[1](t),
    "checkpoint": lambda t: tl.checkpoint(lambda a: a)(t),
    "scan's carry": lambda t: tl.lax.scan(lambda c, _: (c, None), t, None, 2)[0],
    "scan over": lambda t: tl.tree.map(lambda x: x[0], tl.lax.scan(lambda c, x: (c, x), 0.0, tl.tree.map(lambda x: tnp.stack([x, x]), t))[1]),
    "fori_loop": lambda t: tl.lax.fori_loop(0, 2, lambda i, a: a, t),
    "while_loop": lambda t: tl.lax.while_loop(lambda a: False, lambda a: a, t),
    "cond": lambda t: tl.lax.cond(True, lambda a: a, lambda a: tl.tree.map(lambda x: x * 2.0, a), t),
    "map over": lambda t: tl.tree.map(lambda x: x[0], tl.lax.map(lambda a: a, tl.tree.map(lambda x: tnp.stack([x, x]), t))),
    "custom_vjp": lambda t: with_rule(t),
    "device_put": tl.device_put,
    "device_get": lambda t: tl.device_get(tl.device_put(t)),
    "stop_gradient": lambda t: tl.lax.stop_gradient(tl.device_put(t)),
    "ravel": lambda t: (lambda v, back: back(v))(*tl.flatten_util.ravel_pytree(t)),
    "eval_shape": lambda t: tl.tree.map(lambda s, x: x, tl.eval_shape(lambda a: a, t), t),
    "optim": lambda t: tl.optim.apply_updates(t, tl.tree.map(lambda x: x * 0.0, tl.device_put(t))),
}


def with_rule(t):
    f = tl.custom_vjp(lambda a: a)
    f.defvjp(lambda a: (a, a), lambda a, ct: (a,))
    return tl.grad(lambda a: total(f(a)))(t)


class Trees(unittest.TestCase):
    def trees(self):
        for name, (make, order) in CONTAINERS.items():
            yield name, make(1.0, 2.0, 3.0), [dict(a=1.0, b=2.0, c=3.0)[n] for n in order]

    def test_every_container_comes_back_from_every_transform(self):
        for name, tree, leaves in self.trees():
            want = described(in_order(tree))
            for what, run in IDENTITIES.items():
                with self.subTest(container=name, transform=what):
                    self.assertEqual(described(run(tree)), want)
            self.assertEqual(tl.tree.leaves(tree), leaves, name)
            self.assertEqual([float(x) for x in tl.tree.leaves(tl.jit(lambda a: a)(tree))], leaves, name)
            # What a loop begins with, leaf by leaf: floats of the body make floats of numbers.
            ints = tl.tree.map(int, tree)
            halves = tl.lax.fori_loop(0, 1, lambda i, c: tl.tree.map(lambda x: x / 2, c), ints)
            self.assertEqual([float(x) for x in tl.tree.leaves(halves)], [x / 2 for x in leaves], name)

    def test_containers_inside_of_containers(self):
        rng = np.random.default_rng(int(os.environ.get("TENSORLOOM_SEED", "12345")))
        makers = [make for make, _ in CONTAINERS.values()]
        count = 0

        def grown(depth):
            nonlocal count
            if depth == 0 or rng.random() < 0.2:
                count += 1
                return float(count)
            return makers[rng.integers(len(makers))](*(grown(depth - 1) for _ in range(3)))

        names = list(IDENTITIES)
        for _ in range(int(os.environ.get("TENSORLOOM_ROUNDS", "40"))):
            count, tree = 0, grown(2)
            what = names[rng.integers(len(names))]
            with self.subTest(tree=described(tree), transform=what):
                self.assertEqual(described(IDENTITIES[what](tree)), described(in_order(tree)))

    def test_the_factory_of_a_defaultdict_works_inside_and_after(self):
        d = defaultdict(lambda: 5.0, b=1.0, a=2.0)
        out = tl.jit(lambda d: (d, d["b"] + d["missing"]))(d)
        self.assertEqual(float(out[1]), 6.0)
        self.assertEqual(out[0]["other"], 5.0)

    def test_structures_are_told_apart(self):
        trees = [
            {"a": 1.0, "b": 2.0}, OrderedDict(a=1.0, b=2.0), OrderedDict(b=1.0, a=2.0), defaultdict(list, a=1.0, b=2.0), defaultdict(int, a=1.0, b=2.0),
            Wrapped(a=1.0, b=2.0), (1.0, 2.0), [1.0, 2.0], Stack([1.0, 2.0]), Point(1.0, 2.0), Labelled(1.0, 2.0), Data(1.0, 2.0), Data(1.0, 2.0, "other"),
            {1: 1.0, 2: 2.0}, {True: 1.0, 2: 2.0}, {"1": 1.0, "2": 2.0},
        ]
        kinds = []
        f = tl.jit(lambda t: kinds.append(1) or t)
        for _ in range(2):
            for t in trees:
                out = f(t)
                self.assertIs(type(out), type(t))
                self.assertEqual(described(out), described(in_order(t)))
        self.assertEqual(len(kinds), len(trees), "each structure is traced once")
        for i, a in enumerate(trees):
            for j, b in enumerate(trees):
                if {i, j} != {13, 14}:  # 1 equals True
                    self.assertEqual(tl.tree.structure(a) == tl.tree.structure(b), i == j, (a, b))
        for t in trees:
            with self.assertRaises(ValueError):
                tl.tree.map(lambda x, y: x, t, [t])

    def test_paths_and_unregistered_subclasses(self):
        keys = lambda t: [tl.tree_util.keystr(p) for p, _ in tl.tree.leaves_with_path(t)]  # noqa: E731
        self.assertEqual(keys(OrderedDict(b=1.0, a=2.0)), ["['b']", "['a']"])
        self.assertEqual(keys(defaultdict(list, b=1.0, a=2.0)), ["['a']", "['b']"])
        for leaf in (Unregistered(a=1.0), collections.Counter(a=1), collections.deque([1.0])):
            self.assertEqual(tl.tree.leaves([leaf]), [leaf])
            self.assertIs(tl.tree.map(lambda x: x, leaf), leaf)
        d = OrderedDict(b=1.0, a=2.0)
        self.assertEqual(pickle.loads(pickle.dumps(d)), d)

    @unittest.skipUnless(jax, "JAX is not here")
    def test_leaves_are_in_the_order_of_jax(self):
        jax.tree_util.register_dataclass(Data, data_fields=["w", "b"], meta_fields=["name"])
        jax.tree_util.register_pytree_node_class(Node)
        jax.tree_util.register_pytree_node(Wrapped, lambda w: (list(w.values()), tuple(w)), lambda keys, values: Wrapped(zip(keys, values)))
        jax.tree_util.register_pytree_node(Stack, lambda s: (list(s), None), lambda _, items: Stack(items))
        for name, tree, leaves in self.trees():
            if name in ("dict of both", "Partial"):  # JAX refuses the keys, and has a Partial of its own
                continue
            with self.subTest(name):
                self.assertEqual(jax.tree.leaves(tree), leaves)
                self.assertEqual(described(jax.tree.map(lambda x: x, tree)), described(tl.tree.map(lambda x: x, tree)))


if __name__ == "__main__":
    unittest.main()
