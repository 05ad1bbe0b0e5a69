"""A compiled function before it runs: `jit(f).lower(*args)`."""


class Lowered:
    """A program for arguments of some shapes."""

    def __init__(self, function, args, kwargs):
        self._function, self._args, self._kwargs = function, args, kwargs

    def as_text(self):
        """The program as text."""
        from . import make_graph

        return make_graph(lambda *args: self._function.__wrapped__(*args, **self._kwargs), *self._args)

    def compile(self):
        """The compiled function. It is compiled when it is called first, and keeps its programs."""
        return self._function
