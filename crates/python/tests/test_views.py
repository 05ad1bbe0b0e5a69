"""Assignments through views: what was broadcast is read-only, as in NumPy."""

import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp


def write(x, index, value):
    x[index] = value


# Views of what broadcast_to made, for both libraries.
BROADCAST = {
    "itself": lambda m, x: m.broadcast_to(x, (4, 3)),
    "a row": lambda m, x: m.broadcast_to(x, (4, 3))[2],
    "a slice": lambda m, x: m.broadcast_to(x, (4, 3))[1:3, 1:],
    "a column": lambda m, x: m.broadcast_to(x[:1], (3, 1))[:, 0],
    "one element": lambda m, x: m.broadcast_to(x[:1], (3,))[2:],
    "transposed": lambda m, x: m.broadcast_to(x, (4, 3)).T,
    "a new axis": lambda m, x: m.broadcast_to(x, (4, 3))[0][:, None],
    "reshaped": lambda m, x: m.broadcast_to(x[:1], (6,)).reshape(2, 3),
}
# An index for any number of axes, and what is written there.
INDICES = {"all": ..., "an element": 0, "a slice": slice(0, 1), "backwards": slice(None, None, -1), "places": [0]}


class Views(unittest.TestCase):
    def test_what_was_broadcast_is_read_only(self):
        for name, view in BROADCAST.items():
            for what, index in INDICES.items():
                with self.subTest(view=name, index=what):
                    a, t = np.arange(3.0), tnp.arange(3.0)
                    with self.assertRaisesRegex(ValueError, "read-only"):
                        write(view(np, a), index, 7.0)
                    with self.assertRaisesRegex(ValueError, "assignment destination is read-only.*copy"):
                        write(view(tnp, t), index, 7.0)
                    with self.assertRaisesRegex(ValueError, "read-only"):
                        tl.jit(lambda x, view=view, index=index: write(view(tnp, x), index, 7.0) or x)(t)
                    np.testing.assert_array_equal(np.asarray(t), a)
                    copy = view(tnp, t).copy()
                    copy[0] = 7.0
                    np.testing.assert_array_equal(np.asarray(t), a)

    def test_what_numpy_copies_can_be_written(self):
        functions = {
            "tile": lambda m, x: m.tile(x, 3),
            "tile once": lambda m, x: m.tile(x, 1),
            "repeat": lambda m, x: m.repeat(x, 3),
            "repeat once": lambda m, x: m.repeat(x, 1),
            "meshgrid": lambda m, x: m.meshgrid(x, x)[0],
            "full": lambda m, x: m.full((2, 3), x[0]),
            "matrix_power": lambda m, x: m.linalg.matrix_power(m.eye(2), 0),
        }
        for n in (1, 3):
            for name, f in functions.items():
                with self.subTest(function=name, n=n):
                    a, t = np.arange(float(n)), tnp.arange(float(n))
                    b, y = f(np, a), f(tnp, t)
                    b[0], y[0] = 7.0, 7.0
                    np.testing.assert_array_equal(np.asarray(y), b)
                    np.testing.assert_array_equal(np.asarray(t), a)


if __name__ == "__main__":
    unittest.main()
