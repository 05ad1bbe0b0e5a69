"""A compiled function before it runs: `jit(f).lower(*args)`."""


class Lowered:
    """A program for arguments of some shapes."""

    def __init__(self, function, args, kwargs):
        self._function, self._args, self._kwargs = function, args, kwargs

    def as_text(self):
        """The program as text."""
        from . import ShapeDtypeStruct, _array, _without, make_graph, tree

        f, names = self._function, self._function._static_argnames
        static = {k: v for k, v in self._kwargs.items() if k in names}
        g, rest = _without(lambda *args, **kwargs: f.__wrapped__(*args, **static, **kwargs), self._args, f._static_argnums)
        moving = {k: v for k, v in self._kwargs.items() if k not in names}
        # Arguments may be shapes and types alone.
        shown = tree.map(lambda x: _array(x) if isinstance(x, ShapeDtypeStruct) else x, (rest, moving))
        return make_graph(lambda args, kwargs: g(*args, **kwargs), *shown)

    def compile(self):
        """The compiled function. It is compiled when it is called first, and keeps its programs."""
        return self._function
