"""Trees of tuples, lists, dicts, named tuples and registered classes, by the names of JAX; `None` is a tree without leaves.

`OrderedDict` and `defaultdict` are registered. Other subclasses of dict, list and tuple are leaves unless they are registered too.
"""

import builtins as _builtins
import functools as _functools
from collections import OrderedDict as _OrderedDict
from collections import defaultdict as _defaultdict

from ._keys import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

# What was registered: a class, and the two functions that take an object apart and make it again.
_classes = {}
# Classes that name their children, and the function from an object to the keys.
_named = {}


class _Maker:
    """Makes an object of a registered class from its parts."""

    def __init__(self, kind, aux):
        self.kind, self.aux = kind, aux

    def __call__(self, *children):
        return _classes[self.kind][1](self.aux, children)


def _sorted(d):
    """The keys of a dict in order: their own, or that of their text where they can't be compared."""
    try:
        return sorted(d)
    except TypeError:
        return sorted(d, key=str)


def _parts(x):
    """For the compiled side: the parts of an object, what makes it again, and a number for its class and its static part."""
    from ._static import number

    children, aux = _classes[type(x)][0](x)
    return tuple(children), _Maker(type(x), aux), number((type(x), aux))


class TreeDef:
    """The structure of a tree."""

    def __init__(self, kind, aux, children):
        self.kind, self.aux, self.children = kind, aux, children
        self.num_leaves = 1 if kind is _LEAF else _builtins.sum(c.num_leaves for c in children)
        self.num_nodes = 1 + _builtins.sum(c.num_nodes for c in children)

    def unflatten(self, leaves):
        """The tree of this structure with these leaves."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"{len(leaves)} leaves for a tree of {self.num_leaves}")
        return self._made(iter(leaves))

    def _made(self, leaves):
        if self.kind is _LEAF:
            return next(leaves)
        items = [c._made(leaves) for c in self.children]
        if self.kind is type(None):
            return None
        if self.kind is dict:
            return dict(zip(self.aux, items))
        if self.kind in (tuple, list):
            return self.kind(items)
        if self.kind in _classes:
            return _classes[self.kind][1](self.aux, tuple(items))
        return self.kind(*items)

    def __eq__(self, other):
        if not isinstance(other, TreeDef):
            return NotImplemented
        return self.kind is other.kind and self.aux == other.aux and self.children == other.children

    def __hash__(self):
        return hash((self.kind, tuple(self.children)))

    def __repr__(self):
        return f"TreeDef({self._text()})"

    def _text(self):
        inside = [c._text() for c in self.children]
        if self.kind is _LEAF:
            return "*"
        if self.kind is type(None):
            return "None"
        if self.kind is dict:
            return "{" + ", ".join(f"{k!r}: {t}" for k, t in zip(self.aux, inside)) + "}"
        if self.kind is list:
            return "[" + ", ".join(inside) + "]"
        if self.kind is tuple:
            return "(" + ", ".join(inside) + ("," if len(inside) == 1 else "") + ")"
        return f"{self.kind.__name__}({', '.join(inside)})"


class _LEAF:
    pass


_STAR = TreeDef(_LEAF, None, [])


def _open(x):
    """The kind of a node, its static part and its children; none if it is a leaf."""
    kind = type(x)
    if x is None:
        return kind, None, ()
    if kind in _classes:
        children, aux = _classes[kind][0](x)
        return kind, aux, tuple(children)
    if kind is dict:
        keys = _sorted(x)
        return kind, tuple(keys), tuple(x[k] for k in keys)
    if kind is tuple or kind is list or isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind, None, tuple(x)
    return None


def _flatten(x, is_leaf, into):
    node = None if is_leaf is not None and is_leaf(x) else _open(x)
    if node is None:
        into.append(x)
        return _STAR
    kind, aux, children = node
    return TreeDef(kind, aux, [_flatten(c, is_leaf, into) for c in children])


def flatten(tree, is_leaf=None):
    """The leaves of a tree, and its structure."""
    leaves = []
    return leaves, _flatten(tree, is_leaf, leaves)


def unflatten(treedef, leaves):
    """The tree of a structure with these leaves."""
    return treedef.unflatten(leaves)


def leaves(tree, is_leaf=None):
    """The leaves of a tree, in order."""
    return flatten(tree, is_leaf)[0]


def structure(tree, is_leaf=None):
    """The structure of a tree."""
    return flatten(tree, is_leaf)[1]


def _below(treedef, x, what):
    """What stands in a tree where another has its leaves: trees may go on below those."""
    if treedef.kind is _LEAF:
        return [x]
    node = _open(x)
    if node is None or node[0] is not treedef.kind or node[1] != treedef.aux or len(node[2]) != len(treedef.children):
        raise ValueError(f"{what}: the trees have different structures, {treedef._text()} and {structure(x)._text()}")
    return [y for d, c in zip(treedef.children, node[2]) for y in _below(d, c, what)]


def map(f, tree, *rest, is_leaf=None):  # noqa: A001
    """A tree of the same structure with `f` of what stands at each place of the trees."""
    first, treedef = flatten(tree, is_leaf)
    others = [_below(treedef, t, "tree.map") for t in rest]
    return treedef.unflatten([f(*xs) for xs in zip(first, *others)])


def reduce(function, tree, *initializer, is_leaf=None, **named):
    """Folds the leaves of a tree, from an initial value if one is given."""
    if named:
        initializer = (named.pop("initializer"),) if "initializer" in named else initializer
        if named:
            raise TypeError(f"reduce has no argument {next(iter(named))!r}")
    items = leaves(tree, is_leaf)
    if not items and not initializer:
        raise TypeError("a tree without leaves and no initial value")
    return _functools.reduce(function, items, *initializer)


def broadcast(prefix_tree, full_tree, is_leaf=None):
    """A tree like `full_tree` whose leaves are those of `prefix_tree`, which ends where it may."""
    out = []
    treedef = _prefixed(prefix_tree, full_tree, is_leaf, out)
    return treedef.unflatten(out)


def _prefixed(prefix, full, is_leaf, out):
    node = None if is_leaf is not None and is_leaf(prefix) else _open(prefix)
    if node is None:
        treedef = structure(full)
        out.extend([prefix] * treedef.num_leaves)
        return treedef
    below = _open(full)
    if below is None or below[:2] != node[:2] or len(below[2]) != len(node[2]):
        raise ValueError(f"tree.broadcast: the trees have different structures, {structure(prefix)._text()} and {structure(full)._text()}")
    return TreeDef(node[0], node[1], [_prefixed(p, f, is_leaf, out) for p, f in zip(node[2], below[2])])


def all(tree, is_leaf=None):  # noqa: A001
    """Whether every leaf of a tree is true."""
    return _builtins.all(bool(x) for x in leaves(tree, is_leaf))


def transpose(outer, inner, tree):
    """A tree of trees turned inside out: a tree of structure `inner` whose leaves are trees of structure `outer`."""
    rows = [_below(inner, t, "tree.transpose") for t in _below(outer, tree, "tree.transpose")]
    return inner.unflatten([outer.unflatten(column) for column in zip(*rows)])


def _paths(x, is_leaf, path, into):
    node = None if is_leaf is not None and is_leaf(x) else _open(x)
    if node is None:
        into.append((path, x))
        return
    kind, aux, children = node
    for n, c in zip(_child_keys(x, kind, aux, len(children)), children):
        _paths(c, is_leaf, (*path, n), into)


def _child_keys(x, kind, aux, count):
    """What leads from a node to each of its children."""
    if kind is dict:
        return [DictKey(k) for k in aux]
    if kind in _named:
        return _named[kind](x)
    if kind in _classes:
        return [FlattenedIndexKey(i) for i in range(count)]
    if hasattr(kind, "_fields"):
        return [GetAttrKey(n) for n in kind._fields]
    return [SequenceKey(i) for i in range(count)]


def leaves_with_path(tree, is_leaf=None):
    """The leaves of a tree, each with the keys that lead to it."""
    into = []
    _paths(tree, is_leaf, (), into)
    return into


def flatten_with_path(tree, is_leaf=None):
    """The leaves of a tree with the keys that lead to them, and its structure."""
    return leaves_with_path(tree, is_leaf), structure(tree, is_leaf)


def map_with_path(f, tree, *rest, is_leaf=None):
    """As `map`, with the keys that lead to a place as the first argument."""
    found, treedef = flatten_with_path(tree, is_leaf)
    others = [_below(treedef, t, "tree.map_with_path") for t in rest]
    return treedef.unflatten([f(p, x, *xs) for (p, x), *xs in zip(found, *others)])


def register_node(kind, flatten_func, unflatten_func):
    """Makes objects of a class trees: `flatten_func(x)` gives children and a static part, `unflatten_func(static, children)` an object."""
    if kind in _classes:
        raise ValueError(f"{kind.__name__} is already registered")
    _classes[kind] = (flatten_func, unflatten_func)


def register_node_with_keys(kind, flatten_with_keys, unflatten_func, flatten_func=None):
    """As `register_node`, where `flatten_with_keys(x)` gives pairs of a key and a child, and a static part."""

    def apart(x):
        children, aux = flatten_with_keys(x)
        return tuple(c for _, c in children), aux

    register_node(kind, flatten_func or apart, unflatten_func)
    _named[kind] = lambda x: [k for k, _ in flatten_with_keys(x)[0]]


def register_node_with_keys_class(kind):
    """The same for a class with the methods `tree_flatten_with_keys` and `tree_unflatten`; a decorator."""
    register_node_with_keys(kind, lambda x: x.tree_flatten_with_keys(), kind.tree_unflatten)
    return kind


def register_static(kind):
    """Makes objects of a class trees without leaves: they are part of a structure, and of a program; a decorator."""
    register_node(kind, lambda x: ((), x), lambda x, _: x)
    return kind


def register_node_class(kind):
    """The same for a class with the methods `tree_flatten` and `tree_unflatten`; a decorator."""
    register_node(kind, lambda x: x.tree_flatten(), kind.tree_unflatten)
    return kind


def register_dataclass(kind, data_fields=None, meta_fields=None):
    """The same for a dataclass, whose fields are children unless `meta_fields` names them."""
    import dataclasses

    names = [f.name for f in dataclasses.fields(kind) if f.init]
    meta = [f.name for f in dataclasses.fields(kind) if f.init and f.metadata.get("static")] if meta_fields is None else list(meta_fields)
    data = [n for n in names if n not in meta] if data_fields is None else list(data_fields)

    def made(aux, children):
        return kind(**dict(zip(data, children)), **dict(zip(meta, aux)))

    register_node(kind, lambda x: (tuple(getattr(x, n) for n in data), tuple(getattr(x, n) for n in meta)), made)
    _named[kind] = lambda x: [GetAttrKey(n) for n in data]
    return kind


def _take_defaultdict(x):
    keys = _sorted(x)
    return tuple(x[k] for k in keys), (x.default_factory, tuple(keys))


register_node(_OrderedDict, lambda x: (tuple(x.values()), tuple(x)), lambda keys, values: _OrderedDict(zip(keys, values)))
register_node(_defaultdict, _take_defaultdict, lambda aux, values: _defaultdict(aux[0], zip(aux[1], values)))
_named[_OrderedDict] = lambda x: [DictKey(k) for k in x]
_named[_defaultdict] = lambda x: [DictKey(k) for k in _sorted(x)]
