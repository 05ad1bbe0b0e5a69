"""Cases of `special`."""

import jax
import jax.numpy as jnp
import jax.scipy.special as sp
import scipy.special

from make import given, natural, positive, signed, unit


def write(w):
    for name in "erf erfc expit i0 i0e i1 i1e ndtr log_ndtr entr".split():
        f = getattr(sp, name)
        make = positive if name == "entr" else signed
        w.case(f"special.{name}", f, make(2, 3))
        w.case(f"special.{name}", f, make(9, seed=2))
        w.case(f"special.{name}", lambda x: f(x * 4), make(9, seed=3), times=4)
    for name in "gammaln digamma gamma".split():
        w.case(f"special.{name}", getattr(sp, name), positive(2, 3), loose=4)
        w.case(f"special.{name}", getattr(sp, name), given([3.0, 4.5, 7.25, 12.0]), loose=4)
    w.case("special.gamma", lambda x: jnp.asarray(scipy.special.gamma(x)), given([-0.5, -1.5, -2.25, 5.0]), grad=False, loose=4)
    w.case("special.psi", sp.digamma, positive(5), loose=4)
    w.case("special.erfinv", sp.erfinv, given([-0.9, -0.25, 0.1, 0.5, 0.99]), loose=4)
    w.case("special.logit", sp.logit, unit(2, 3))
    w.case("special.logit", sp.logit, unit(6, seed=2))
    w.case("special.ndtri", sp.ndtri, unit(8), loose=8)
    w.case("special.factorial", lambda n: jnp.asarray(scipy.special.factorial(n)), given([0.0, 1.0, 4.0, 7.0]), grad=False, loose=4)
    for far in ([-6.0, -10.0, -30.0], [-4.9, -5.1, 6.0], [-100.0, 3.0, 0.0]):
        w.case("special.log_ndtr", sp.log_ndtr, given(far), loose=4)
    for x in ([15.5, 16.5, -15.5, -16.5], [30.0, -40.0, 0.5, 8.0]):
        for name in ("i0e", "i1e", "i0", "i1"):
            w.case(f"special.{name}", getattr(sp, name), given(x), grad=name.endswith("e"), loose=4)
    for name in "xlogy xlog1py rel_entr kl_div betaln beta".split():
        loose = 8 if name.startswith("beta") else 1
        w.case(f"special.{name}", getattr(sp, name), positive(2, 3), positive(2, 3, seed=2), loose=loose)
        w.case(f"special.{name}", getattr(sp, name), positive(3, 1), positive(4, seed=2), loose=loose)
    for name in ("xlogy", "xlog1py", "rel_entr", "kl_div"):
        w.case(f"special.{name}", getattr(sp, name), given([0.0, 0.0, 1.0]), given([0.0, 2.0, 0.5]), grad=False)
    w.case("special.multigammaln", lambda a: sp.multigammaln(a, 3), given([2.5, 4.0, 9.0]), d=3, loose=4)
    for a in (-1, 0):
        w.case("special.softmax", lambda x: sp.softmax(x, axis=a), signed(3, 4), axis=a)
        w.case("special.log_softmax", lambda x: sp.log_softmax(x, axis=a), signed(3, 4), axis=a)
        w.case("special.logsumexp", lambda x: sp.logsumexp(x, a), signed(3, 4), axes=a, keep=0)
