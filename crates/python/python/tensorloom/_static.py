"""Numbers for objects that are part of a program, and compiled functions in pickles.

Equal objects of one type have one number, and no number is given twice: a hash alone would mix up -1 and -2, and an address
comes back when its object is gone. Tuples and frozen sets are told apart by the numbers of their elements, since (1,) equals
(1.0,) and (True,).
"""

import itertools
import sys
import types
import weakref

_next = itertools.count(1).__next__
# By type, then by object: what is gone is forgotten.
_weak = weakref.WeakKeyDictionary()
# What can't be referred to weakly: numbers, tuples. Forgetting costs another trace, no more.
_kept = {}
_MOST = 10_000
# For what has no hash.
_UNHASHED = 2**64 - 1


def number(x):
    """The number of an object."""
    kind = type(x)
    if kind is float:
        key = (kind, x.hex())  # tells zeros apart, and NaN equals itself
    elif kind is types.MethodType:
        # Made anew at each look: its function and its object last.
        key = (kind, number(x.__self__), number(x.__func__))
    else:
        try:
            hash(x)
        except TypeError:
            return _UNHASHED
        if kind in (tuple, frozenset):
            key = (kind, kind(map(number, x)))
        elif kind.__weakrefoffset__:
            table = _weak.get(kind)
            if table is None:
                table = _weak[kind] = weakref.WeakKeyDictionary()
            found = table.get(x)
            if found is None:
                found = table[x] = _next()
            return found
        else:
            key = (kind, x)
    found = _kept.get(key)
    if found is None:
        if len(_kept) >= _MOST:
            _kept.clear()
        found = _kept[key] = _next()
    return found


def pickled(made, f, numbers, names):
    """What a pickle keeps of a compiled function: its name if a module has it there, else the function it was made of."""
    found = sys.modules.get(getattr(made, "__module__", None))
    for part in getattr(made, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return made.__qualname__ if found is made else (_jitted, (f, numbers, names))


def _jitted(f, numbers, names):
    from . import jit

    return jit(f, static_argnums=numbers, static_argnames=names)
