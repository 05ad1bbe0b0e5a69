"""Functions with derivatives of their own."""

import functools

from . import _tensorloom as _core


def _bound(f, args, kwargs):
    """All arguments in order."""
    if not kwargs:
        return args
    import inspect

    bound = inspect.signature(f).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"{f.__name__} has keyword-only arguments: {', '.join(bound.kwargs)}")
    return bound.args


class _Custom:
    def __init__(self, fun, nondiff_argnums=()):
        functools.update_wrapper(self, fun)
        self.fun, self.nondiff_argnums = fun, tuple(nondiff_argnums)

    def __get__(self, obj, owner=None):
        return self if obj is None else functools.partial(self, obj)

    def _split(self, args):
        fixed = sorted(n % len(args) for n in self.nondiff_argnums)
        return [args[i] for i in fixed], tuple(a for i, a in enumerate(args) if i not in fixed), fixed

    @staticmethod
    def _joined(fixed, places, rest):
        out = list(rest)
        for place, x in zip(places, fixed):
            out.insert(place, x)
        return out


class custom_vjp(_Custom):  # noqa: N801
    """A function with a reverse rule of its own, which `defvjp` gives."""

    fwd = bwd = None

    def defvjp(self, fwd, bwd, symbolic_zeros=False, optimize_remat=False):
        """`fwd(*args)` gives the result and what `bwd(residuals, cotangent)` needs to give a cotangent for each argument."""
        self.fwd, self.bwd = fwd, bwd
        return fwd, bwd

    def __call__(self, *args, **kwargs):
        if self.fwd is None:
            raise AttributeError(f"{self.__name__} has no rule; define it with {self.__name__}.defvjp(fwd, bwd)")
        fixed, rest, places = self._split(_bound(self.fun, args, kwargs))
        run = lambda *xs: self.fun(*self._joined(fixed, places, xs))  # noqa: E731
        fwd = lambda *xs: tuple(self.fwd(*self._joined(fixed, places, xs)))  # noqa: E731
        bwd = lambda res, ct: tuple(self.bwd(*fixed, res, ct))  # noqa: E731
        return _core._custom_vjp(run, fwd, bwd, rest)


class custom_jvp(_Custom):  # noqa: N801
    """A function with a forward rule of its own, which `defjvp` or `defjvps` gives."""

    rule = None

    def defjvp(self, rule, symbolic_zeros=False):
        """`rule(primals, tangents)` gives the result and its tangent."""
        self.rule = rule
        return rule

    def defjvps(self, *rules):
        """A rule for each argument: `rule(tangent, result, *args)`, or None for zero."""

        def rule(primals, tangents):
            y = self(*primals)
            parts = [r(t, y, *primals) for r, t in zip(rules, tangents) if r is not None]
            return y, functools.reduce(lambda a, b: a + b, parts) if parts else y * 0

        self.rule = rule

    def __call__(self, *args, **kwargs):
        if self.rule is None:
            raise AttributeError(f"{self.__name__} has no rule; define it with {self.__name__}.defjvp(rule)")
        fixed, rest, places = self._split(_bound(self.fun, args, kwargs))
        run = lambda *xs: self.fun(*self._joined(fixed, places, xs))  # noqa: E731
        rule = lambda xs, dxs: tuple(self.rule(*fixed, xs, dxs))  # noqa: E731
        return _core._custom_jvp(run, rule, rest)


def custom_gradient(fun):
    """A function with a reverse rule of its own: `fun` gives its result and the function from a cotangent to those of the arguments."""

    @functools.wraps(fun)
    def run(*args):
        @custom_vjp
        def one(*xs):
            return fun(*xs)[0]

        # The rule is made anew of the arguments; what it doesn't need of the function is never computed.
        def back(xs, ct):
            given = fun(*xs)[1](ct)
            return tuple(given) if isinstance(given, (tuple, list)) else (given,)

        one.defvjp(lambda *xs: (fun(*xs)[0], xs), back)
        return one(*args)

    return run
