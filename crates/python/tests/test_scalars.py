"""Functions of numbers at special values and where results are representable, as NumPy has them, in every float dtype."""

import math
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 2.5, -3.0, 9.0, 100.0, -1000.0, math.inf, -math.inf, math.nan]
UNARY = "abs acos acosh asin asinh atan atanh cbrt ceil cos cosh deg2rad exp exp2 expm1 fabs floor log log10 log1p log2 negative rad2deg reciprocal " \
    "rint sin sinh sqrt square tan tanh trunc angle signbit isnan isinf isfinite".split()
BINARY = "add subtract multiply divide power arctan2 hypot logaddexp logaddexp2 fmod remainder floor_divide maximum minimum fmax fmin " \
    "copysign heaviside".split()


def differs(got, want, dtype, around=0.0):
    """Where results are not the same: special values and signs of zeros exactly, numbers to some units in the last place."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    unit = np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        near = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= 4 * unit * (np.abs(want) + around))
    zeros = (want == 0) & (np.signbit(got) != np.signbit(want))
    return ~near | zeros


class Scalars(unittest.TestCase):
    def test_special_values(self):
        checked, wrong = 0, []
        for dtype in (np.float64, np.float32, np.float16):
            x = np.array(SPECIAL, dtype)
            a, b = (v.reshape(-1) for v in np.meshgrid(x, x))
            for names, args in ((UNARY, (x,)), (BINARY, (a, b))):
                for name in names:
                    own, theirs = getattr(tnp, name, None), getattr(np, name, None)
                    if own is None or theirs is None:
                        continue
                    with np.errstate(all="ignore"):
                        want = theirs(*args)
                    got = np.asarray(own(*(tl.asarray(v) for v in args)).astype("float64"))
                    skip = np.zeros(len(want), bool)
                    # Sums near a root keep the digits of their parts.
                    around = 1.0 if name in ("logaddexp", "logaddexp2") and dtype is np.float64 else 0.0
                    around = np.where(np.abs(want) > 1e-3, around, 0.0)
                    if name in ("maximum", "minimum", "fmax", "fmin"):
                        # Of two zeros either may come out.
                        skip = (args[0] == 0) & (args[1] == 0)
                    for i in np.flatnonzero(differs(got, want, dtype, around) & ~skip):
                        wrong.append(f"{name} {np.dtype(dtype)} {[float(v[i]) for v in args]} is {got[i]}, not {want[i]}")
                    checked += len(want)
        self.assertEqual(wrong, [])
        self.assertGreater(checked, 14000)

    def test_whole_powers_become_integers(self):
        base, power = (v.reshape(-1).astype(np.float64) for v in np.meshgrid(np.arange(1, 60), np.arange(0, 8)))
        got = np.asarray(tnp.power(tl.asarray(base), tl.asarray(power)).astype("int64"))
        self.assertTrue((got == base.astype(np.int64) ** power.astype(np.int64)).all())
        tens = 10.0 ** np.arange(-300, 301)
        self.assertTrue((np.asarray(tnp.log10(tl.asarray(tens))) == np.log10(tens)).all())

    def test_ldexp(self):
        for dtype in (np.float64, np.float32, np.float16):
            with np.errstate(all="ignore"):
                x = np.array([1.0, -1.3, 0.0, -0.0, math.inf, math.nan, np.finfo(dtype).max, np.finfo(dtype).tiny, np.finfo(dtype).tiny / 3], dtype)
                a, n = (v.reshape(-1) for v in np.meshgrid(x, np.array([0, 1, -1, 30, -30, 150, -150, 1074, -1074, 2098, -2098], np.int32)))
                want = np.ldexp(a, n)
            got = np.asarray(tnp.ldexp(tl.asarray(a), tl.asarray(n)))
            self.assertEqual(got.dtype, want.dtype)
            same = (got == want) | (np.isnan(got) & np.isnan(want))
            self.assertTrue(same.all(), [(x, m, g, w) for x, m, g, w, s in zip(a, n, got, want, same) if not s])

    def test_angle(self):
        x = np.array([1.0, -1.0, 0.0, -0.0, math.inf, -math.inf, math.nan])
        for deg in (False, True):
            np.testing.assert_array_equal(np.asarray(tnp.angle(tl.asarray(x), deg=deg)), np.angle(x, deg=deg))
        np.testing.assert_array_equal(np.asarray(tnp.angle(tl.asarray(np.array([-1, 0, 2])))), np.angle(np.array([-1, 0, 2])).astype(np.float32))


if __name__ == "__main__":
    unittest.main()
