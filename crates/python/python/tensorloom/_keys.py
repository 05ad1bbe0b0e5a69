"""What leads from a node of a tree to a child: as in JAX, and equal to the plain key, name or number, too."""


class _Key:
    """Compared with another key of its kind, or with what it holds."""

    field = ""

    def __init__(self, value):
        object.__setattr__(self, self.field, value)

    @property
    def _value(self):
        return getattr(self, self.field)

    def __eq__(self, other):
        return type(other) is type(self) and self._value == other._value if isinstance(other, _Key) else self._value == other

    def __hash__(self):
        return hash(self._value)

    def __repr__(self):
        return f"{type(self).__name__}({self.field}={self._value!r})"

    def __str__(self):
        return f"[{self._value!r}]"


class DictKey(_Key):
    """A key of a dict."""

    field = "key"


class SequenceKey(_Key):
    """A place in a list or tuple."""

    field = "idx"


class FlattenedIndexKey(_Key):
    """A place among the children of an object that doesn't name them."""

    field = "key"

    def __str__(self):
        return f"[<flat index {self._value!r}>]"


class GetAttrKey(_Key):
    """An attribute of an object."""

    field = "name"

    def __str__(self):
        return f".{self._value}"


def keystr(keys, *, simple=False, separator=""):
    """A path as text: `['a'][0].w`; or its parts alone with something between them."""
    return separator.join(str(k._value if isinstance(k, _Key) else k) if simple else str(k) for k in keys)
