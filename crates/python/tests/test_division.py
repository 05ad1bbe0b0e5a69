"""`//` and `%` at infinities, NaN and zeros of both signs: functions as NumPy has them, operators as the array API's standard does."""

import math
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.array_api as xp
import tensorloom.numpy as tnp

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.0, -3.0, 7.5, -7.5, 1e-30, -1e-30, 1e30, -1e30, math.inf, -math.inf, math.nan]


def standard(a, b, dtype=np.float64):
    """The quotient rounded down, by the standard's table."""
    with np.errstate(all="ignore"):
        q = np.divide(dtype(a), dtype(b))
        if math.isinf(a) or math.isinf(b) or math.isnan(q) or a == 0 or b == 0:
            return float(q)
        return float(np.floor_divide(dtype(a), dtype(b)))


def bits(x):
    """Numbers that differ where zeros differ in sign."""
    return [("nan" if math.isnan(v) else math.copysign(1.0, v), v if not math.isnan(v) else 0) for v in np.asarray(x, np.float64).reshape(-1)]


class Division(unittest.TestCase):
    def test_special_numbers(self):
        for dtype in (np.float32, np.float64):
            a, b = (v.reshape(-1).astype(dtype) for v in np.meshgrid(SPECIAL, SPECIAL))
            ta, tb = tl.asarray(a), tl.asarray(b)
            with np.errstate(all="ignore"):
                quotient, rest = np.floor_divide(a, b), np.remainder(a, b)
            wanted = [standard(float(x), float(y), dtype) for x, y in zip(a, b)]
            for name, got, want in [
                ("tnp.floor_divide", tnp.floor_divide(ta, tb), quotient), ("tnp.remainder", tnp.remainder(ta, tb), rest),
                ("tnp.divmod", tnp.divmod(ta, tb)[0], quotient), ("tnp.divmod", tnp.divmod(ta, tb)[1], rest),
                ("//", ta // tb, wanted), ("%", ta % tb, rest), ("xp.floor_divide", xp.floor_divide(ta, tb), wanted),
                ("xp.remainder", xp.remainder(ta, tb), rest), ("divmod", divmod(ta, tb)[0], wanted), ("divmod", divmod(ta, tb)[1], rest),
                ("jit //", tl.jit(lambda x, y: x // y)(ta, tb), wanted), ("jit %", tl.jit(lambda x, y: x % y)(ta, tb), rest),
            ]:
                for i, (g, w) in enumerate(zip(bits(got), bits(want))):
                    self.assertEqual(g, w, f"{name} of {a[i]} and {b[i]} as {dtype.__name__}")

    def test_numbers_beside_tensors(self):
        for v in SPECIAL:
            t = tl.asarray(np.array(SPECIAL))
            for got, want in [
                (t // v, [standard(s, v) for s in SPECIAL]), (v // t, [standard(v, s) for s in SPECIAL]),
                (divmod(t, v)[0], [standard(s, v) for s in SPECIAL]), (divmod(v, t)[0], [standard(v, s) for s in SPECIAL]),
            ]:
                self.assertEqual(bits(got), bits(want), f"{v}")
            with np.errstate(all="ignore"):
                self.assertEqual(bits(t % v), bits(np.remainder(np.array(SPECIAL), v)), f"% {v}")
                self.assertEqual(bits(v % t), bits(np.remainder(v, np.array(SPECIAL))), f"{v} %")

    def test_integers(self):
        for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32):
            low = 0 if dtype in (np.uint8, np.uint32) else -7
            a, b = (v.reshape(-1).astype(dtype) for v in np.meshgrid(np.arange(low, 8), [n for n in range(low, 8) if n]))
            ta, tb = tl.asarray(a), tl.asarray(b)
            np.testing.assert_array_equal(np.asarray(ta // tb), a // b)
            np.testing.assert_array_equal(np.asarray(ta % tb), a % b)
            self.assertEqual((ta // tb).dtype, np.dtype(dtype).name)

    def test_gradients_between_the_jumps(self):
        g = tl.grad(lambda x, y: (x % y).sum(), argnums=(0, 1))(tnp.array([5.5, -5.5, 7.0]), tnp.array([2.0, 3.0, -4.0]))
        np.testing.assert_allclose(np.asarray(g[0]), [1, 1, 1])
        np.testing.assert_allclose(np.asarray(g[1]), [-2, 2, 2])


if __name__ == "__main__":
    unittest.main()
