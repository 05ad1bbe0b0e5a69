"""Variable shapes in the package: its own library, and rows of different lengths."""

import unittest

import numpy as np

from tensorloom import _tensorloom, vsla


class Inside(unittest.TestCase):
    def test_the_library_is_the_packages_own(self):
        self.assertEqual(vsla.version(), _tensorloom._vsla_version)
        np.testing.assert_array_equal(vsla.add([1.0, 2.0, 3.0], [4.0, 5.0]), [5.0, 7.0, 3.0])
        g = vsla.Graph()
        x, w = g.input((6, 4), np.float64), g.param((4, 3), np.float64)
        g.output(g.op("tanh", g.op("matmul", x, w)))
        plan = g.build().plan(1)
        weights, data = np.random.default_rng(0).normal(size=(4, 3)), np.ones((6, 4))
        plan.set_param(w, weights)
        np.testing.assert_allclose(plan(data), np.tanh(data @ weights))


class Rows(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(1)
        self.rows = [rng.normal(size=(n, 4)) for n in (3, 0, 5, 1)]
        self.r = vsla.Ragged(self.rows)

    def same(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)

    def test_both_ways(self):
        self.same(self.r.rows(), self.rows)
        self.assertEqual(vsla.Ragged(self.r.tolist()[0:1]).tolist(), [self.rows[0].tolist()])
        self.assertEqual(vsla.Ragged([[1, 2], [3]]).tolist(), [[1.0, 2.0], [3.0]])
        p = self.r.padded()
        self.assertEqual(p.shape, (4, 5, 4))
        self.same(vsla.Ragged.from_padded(p, [3, 0, 5, 1]).rows(), self.rows)
        np.testing.assert_array_equal(self.r.stacked(), p)
        self.same(vsla.Ragged.packed(np.concatenate(self.rows), [3, 0, 5, 1]).rows(), self.rows)
        self.same(self.r[1:].rows(), self.rows[1:])
        np.testing.assert_array_equal(self.r[-1], self.rows[-1])
        self.assertEqual(len(vsla.Ragged([])), 0)
        self.assertEqual(vsla.Ragged([[], []]).tolist(), [[], []])

    def test_map_matmul_reduce(self):
        self.same(self.r.map(vsla.tanh).rows(), [np.tanh(x) for x in self.rows])
        w = np.random.default_rng(2).normal(size=(4, 2))
        self.same((self.r @ w).rows(), [x @ w for x in self.rows])
        self.same(self.r.sum(), [x.sum(0) for x in self.rows])
        mean = self.r.mean()
        self.same(mean[[0, 2, 3]], [self.rows[i].mean(0) for i in (0, 2, 3)])
        self.assertTrue(np.isnan(mean[1]).all())
        self.same(self.r.max()[[0, 2, 3]], [self.rows[i].max(0) for i in (0, 2, 3)])

    def test_rows_meet_in_their_ambient_shape(self):
        self.same((self.r + self.r).rows(), [2 * x for x in self.rows])
        self.same((2.0 * self.r - 1.0).rows(), [2 * x - 1 for x in self.rows])
        a, b = vsla.Ragged([[1.0, 2.0, 3.0], [], [1.0]]), vsla.Ragged([[4.0, 5.0], [6.0], []])
        self.assertEqual((a + b).tolist(), [[5.0, 7.0, 3.0], [6.0], [1.0]])
        self.assertEqual((a - b).tolist(), [[-3.0, -3.0, 3.0], [-6.0], [1.0]])
        self.assertEqual((a * b).tolist(), [[4.0, 10.0, 0.0], [0.0], [0.0]])

    def test_attention_stays_in_its_row(self):
        out = self.r.attention(self.r, self.r, 2)
        for i in (0, 2, 3):
            alone = vsla.Ragged([self.rows[i]])
            np.testing.assert_allclose(out[i], alone.attention(alone, alone, 2)[0], rtol=1e-10)

    def test_misfits(self):
        for bad in [
            lambda: vsla.Ragged([[[1.0]], [[1.0, 2.0]]]), lambda: vsla.Ragged([1.0]), lambda: vsla.Ragged.packed(np.ones(3), [1, 1]),
            lambda: vsla.Ragged.from_padded(np.ones((2, 2)), [3, 1]), lambda: self.r @ np.ones((3, 3)), lambda: self.r + vsla.Ragged([[1.0]]),
            lambda: self.r.map(lambda v: v[:2]),
        ]:
            self.assertRaises(ValueError, bad)


if __name__ == "__main__":
    unittest.main()
