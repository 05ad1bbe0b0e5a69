"""Functions take the arguments that NumPy's take, by the same names; tensors have their methods where Python looks for them."""

import inspect
import pydoc
import unittest

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

# Arguments about memory and classes of NumPy's, which tensors don't have, and names that NumPy gives up.
NOT_OURS = {"out", "overwrite_input", "subok", "like", "casting", "device", "order", "kind", "sorted", "mean", "correction", "ndmax", "interpolation", "newshape", "fix_imports"}
# By function: what is not there, or has another name in JAX too.
MISSING = {
    "arange": {"start_or_stop"}, "can_cast": {"from_"}, "clip": {"a"}, "corrcoef": {"dtype", "bias", "ddof"}, "cov": {"dtype"}, "einsum_path": {"einsum_call"},
    "histogram_bin_edges": {"weights"}, "nanpercentile": {"weights"}, "nanquantile": {"weights"}, "percentile": {"weights"}, "quantile": {"weights"},
    "ravel_multi_index": {"mode"}, "trim_zeros": {"axis"}, "vectorize": {"otypes", "doc", "cache"},
}


class Names(unittest.TestCase):
    def parameters(self, f):
        try:
            return inspect.signature(f).parameters
        except (TypeError, ValueError):
            return None

    def test_functions_take_what_numpy_s_take(self):
        wrong, count = [], 0
        for name in sorted(set(dir(np)) & set(dir(tnp))):
            theirs, ours = getattr(np, name), getattr(tnp, name)
            if name.startswith("_") or isinstance(ours, type) or not callable(ours) or isinstance(theirs, np.ufunc):
                continue
            want, have = self.parameters(theirs), self.parameters(ours)
            if want is None or have is None or any(p.kind is p.VAR_KEYWORD for p in have.values()):
                continue
            names = {p.name for p in want.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
            lacking = names - set(have) - NOT_OURS - MISSING.get(name, set())
            count += 1
            if lacking:
                wrong.append(f"{name}: {sorted(lacking)}")
        self.assertGreater(count, 120)
        self.assertEqual(wrong, [])

    def test_methods_are_found(self):
        x = tnp.ones((2, 3))
        for name in "sum mean reshape astype at T std argmax cumsum clip tolist item dot transpose flatten take repeat round sort view".split():
            self.assertIn(name, dir(x))
            self.assertTrue(hasattr(tl.Tensor, name), name)
        self.assertEqual([t.item() for t in map(tl.Tensor.sum, [x, x * 2])], [6.0, 12.0])
        self.assertIn("axis", pydoc.render_doc(tl.Tensor.sum))
        self.assertFalse(hasattr(x, "set_printoptions") or hasattr(x, "arange") or hasattr(x, "nothing"))
        with self.assertRaises(AttributeError):
            x.anything  # noqa: B018

    def test_elements_by_their_places(self):
        x = tnp.arange(6).reshape(2, 3)
        self.assertEqual((x.item(4), x.item(-1), x.item(1, 0), x.item((0, 2))), (4, 5, 3, 2))
        for f in (lambda: x.item(), lambda: x.item(6), lambda: x.item(0, 3)):
            with self.assertRaises((IndexError, TypeError)):
                f()

    def test_bools_add_up_to_bools(self):
        t, f = tnp.array([True, False]), False
        for y, want in [(t + t, [True, False]), (t + f, [True, False]), (True + t, [True, True]), (t * t, [True, False]), (f * t, [False, False]), (tnp.add(t, True), [True, True])]:
            self.assertEqual((y.dtype, y.tolist()), (tl.bool_, want))
        self.assertEqual((t + 1).tolist(), [2, 1])
        self.assertEqual((t.sum().item(), tnp.add(2, 3).dtype, tnp.maximum(2, 3.5).dtype), (1, tl.int32, tl.float32))

    def test_numbers_that_a_type_does_not_hold(self):
        for x, kind in [(-1, "uint8"), (300, "uint8"), ([1, 300], "uint8"), (2**40, "int32"), ([[-129]], "int8"), (2**63, "int64")]:
            with self.assertRaises(OverflowError):
                tnp.asarray(x, dtype=kind)
        self.assertEqual(tnp.asarray([255, 0], dtype="uint8").tolist(), [255, 0])
        self.assertEqual(tnp.array(range(3), dtype="float32").tolist(), [0.0, 1.0, 2.0])

    def test_array_copies(self):
        x = tnp.zeros(2)
        y = tnp.array(x)
        y[0] = 5.0
        self.assertEqual((x.tolist(), y.tolist()), ([0.0, 0.0], [5.0, 0.0]))

    def test_files_and_bytes(self):
        import io

        for x in (tnp.arange(6.0).reshape(2, 3), tnp.zeros((0, 2), "int8"), tnp.array(True)):
            f = io.BytesIO()
            tnp.save(f, x)
            f.seek(0)
            y = tnp.load(f)
            self.assertEqual((y.dtype, y.shape, y.tolist()), (x.dtype, x.shape, x.tolist()))
        f = io.BytesIO()
        tnp.savez(f, tnp.ones(2), b=tnp.zeros(1))
        f.seek(0)
        self.assertEqual(sorted(tnp.load(f).keys()), ["arr_0", "b"])
        self.assertEqual(tnp.frombuffer(b"\x01\x02", dtype=tnp.uint8).tolist(), [1, 2])
        self.assertEqual(tnp.ones(1).view("int32").tolist(), [0x3F800000])

    def test_compiled_functions_can_be_called_as_written(self):
        seen = []

        @tl.jit
        def f(x):
            seen.append(x._traced)
            return x * 2

        with tl.disable_jit():
            self.assertEqual(f(tnp.ones(2)).tolist(), [2.0, 2.0])
        f(tnp.ones(2))
        self.assertEqual(seen, [False, True])
        self.assertIn("mul", f.lower(tnp.ones(2)).as_text())

    def test_paths_of_trees(self):
        t = {"a": [1, (2,)], "b": tl.ShapeDtypeStruct((2,), "float32")}
        paths = [p for p, _ in tl.tree.leaves_with_path(t)]
        self.assertEqual([tl.tree_util.keystr(p) for p in paths], ["['a'][0]", "['a'][1][0]", "['b']"])
        self.assertEqual((paths[0][0].key, paths[0][1].idx), ("a", 0))
        self.assertEqual(paths[1], ("a", 1, 0))
        self.assertEqual(tl.tree_util.keystr(paths[1], simple=True, separator="/"), "a/1/0")

    def test_places_outside(self):
        x = tnp.arange(4.0)
        self.assertEqual(x.at[9].set(1.0, mode="drop").tolist(), x.tolist())
        self.assertEqual(x.at[9].set(7.0, mode="clip").tolist(), [0.0, 1.0, 2.0, 7.0])
        self.assertEqual(x.at[tnp.array([-9, 9])].add(1.0, mode="clip").tolist(), [1.0, 1.0, 2.0, 4.0])
        self.assertEqual(x.at[9].get(mode="fill", fill_value=5.0).item(), 5.0)
        with self.assertRaises(IndexError):
            x.at[9].set(1.0)
        with self.assertRaises(ValueError):
            x.at[0].set(1.0, mode="sideways")


if __name__ == "__main__":
    unittest.main()
