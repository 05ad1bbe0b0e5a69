"""Memory shared with NumPy, PyTorch and anyone who speaks DLPack or the buffer protocol; files of tensors."""

import array
import ctypes
import gc
import tempfile
import threading
import unittest
import weakref
from pathlib import Path

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp

try:
    import torch
except ImportError:
    torch = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

# From this version on NumPy has versioned capsules, those of bools and those of what is read-only.
VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
DTYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64]


def at(x):
    """Where an array's elements are."""
    return np.asarray(x).__array_interface__["data"][0]


class Old:
    """A producer of before version 1.0: it knows no keywords."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class New(Old):
    """A producer that is asked for a version."""

    asked = None

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked = (max_version, copy)
        return self.x.__dlpack__(max_version=max_version)


def held(capsule):
    """Where a capsule's elements are, whether it says that they are read-only, and whether it says that they are a copy."""
    pointer, named = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    pointer.restype, pointer.argtypes, named.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p], [ctypes.py_object, ctypes.c_char_p]
    if named(capsule, b"dltensor"):
        return ctypes.c_void_p.from_address(pointer(capsule, b"dltensor")).value, False, False
    # A version, a context, a deleter, flags, then the tensor, which begins with the address.
    base = pointer(capsule, b"dltensor_versioned")
    flags = ctypes.c_uint64.from_address(base + 24).value
    return ctypes.c_void_p.from_address(base + 32).value, bool(flags & 1), bool(flags & 2)


class Array(np.ndarray):
    """An array that can be watched."""


class Sharing(unittest.TestCase):
    def arrays(self):
        rng = np.random.default_rng(3)
        for dtype in DTYPES:
            for shape in [(), (1,), (5,), (3, 4), (2, 3, 4), (2, 1, 3), (0,), (3, 0, 2)]:
                yield (rng.integers(0, 2 if dtype == np.bool_ else 100, shape)).astype(dtype)

    def test_numpy_sees_a_tensors_own_memory(self):
        for x in self.arrays():
            t = tl.asarray(x)
            seen = [np.asarray(t), t.numpy(), np.asarray(memoryview(t))]
            seen += [np.from_dlpack(t)] if VERSIONED else []
            for v in seen:
                self.assertEqual((v.dtype, v.shape), (x.dtype, x.shape))
                np.testing.assert_array_equal(v, x)
                self.assertFalse(v.flags.writeable, "what is shared is read-only")
                if x.size:
                    self.assertEqual(at(v), at(t))
            own = np.array(t)
            self.assertTrue(own.flags.writeable)
            own = t.numpy(copy=True)
            self.assertTrue(own.flags.writeable)
            if x.size:
                self.assertNotEqual(at(own), at(t))

    def test_what_was_shared_stays_what_it_was(self):
        t = tnp.arange(6.0)
        seen = [np.asarray(t), np.from_dlpack(t), memoryview(t)]
        t[2] = 50.0
        t[...] = t * 2.0
        for v in seen:
            np.testing.assert_array_equal(np.asarray(v), np.arange(6.0, dtype=np.float32))
        self.assertEqual(t.tolist(), [0.0, 2.0, 100.0, 6.0, 8.0, 10.0])
        v = np.asarray(tnp.ones(100) * 3.0)
        gc.collect()
        # Memory that somebody sees is not used for something else.
        others = [np.asarray(tnp.ones(100) * float(i)) for i in range(50)]
        self.assertTrue((v == 3.0).all() and (others[7] == 7.0).all())
        views = tnp.arange(12.0).reshape(3, 4).T
        np.testing.assert_array_equal(np.from_dlpack(views), np.arange(12.0, dtype=np.float32).reshape(3, 4).T)

    def test_a_tensor_is_an_arrays_own_memory(self):
        for x in self.arrays():
            takes = [tl.from_dlpack, lambda x: tl.asarray(x, copy=False)]
            takes += [lambda x: tl.from_dlpack(Old(x))] if VERSIONED or x.dtype != np.bool_ else []
            takes += [lambda x: tl.from_dlpack(New(x))] if VERSIONED else []
            for take in takes:
                t = take(x)
                self.assertEqual((t.dtype, tuple(t.shape)), (x.dtype.name, x.shape))
                np.testing.assert_array_equal(np.asarray(t), x)
                if x.size:
                    self.assertEqual(at(t), at(x))
            if x.size:
                self.assertNotEqual(at(tl.asarray(x)), at(x), "what may be written to is copied unless asked otherwise")
                self.assertNotEqual(at(tl.from_dlpack(x, copy=True)), at(x))
                fixed = x.copy()
                fixed.flags.writeable = False
                self.assertEqual(at(tl.asarray(fixed)), at(fixed))
                self.assertEqual(at(tl.from_dlpack(fixed)), at(fixed))

    def test_axes_in_another_order_are_shared_other_strides_copied(self):
        x = np.arange(24.0).reshape(2, 3, 4)
        for y in (x.T, x.transpose(1, 0, 2), x.transpose(0, 2, 1), x[:1], x[1], x[:, None], np.asfortranarray(x[0])):
            t = tl.from_dlpack(y, copy=False)
            np.testing.assert_array_equal(np.asarray(t), y)
            np.testing.assert_array_equal(np.asarray(tl.jit(lambda a: a + 1)(t)), y + 1)
        record = np.zeros(4, dtype=[("a", np.int8), ("b", np.float32)])
        record["b"] = 3
        for y in (x[:, :, ::2], x[::-1], x[:, 1:, 1:], np.broadcast_to(np.arange(3.0), (2, 3)), record["b"]):
            np.testing.assert_array_equal(np.asarray(tl.asarray(y)), y)
            with self.assertRaises((ValueError, BufferError)):
                tl.asarray(y, copy=False)
        for y in (x[:, :, ::2], x[::-1]):
            np.testing.assert_array_equal(np.asarray(tl.from_dlpack(y)), y)
            with self.assertRaises((ValueError, BufferError)):
                tl.from_dlpack(y, copy=False)
        odd = np.frombuffer(b"x" + np.arange(4, dtype=np.float32).tobytes(), np.float32, offset=1)
        np.testing.assert_array_equal(np.asarray(tl.asarray(odd)), odd)
        with self.assertRaises(ValueError):
            tl.asarray(odd, copy=False)
        for bad in (3.0, [1.0, 2.0], (1, 2)):
            with self.assertRaises(ValueError):
                tl.asarray(bad, copy=False)
        with self.assertRaises(ValueError):
            tl.asarray(np.ones(3), "float32", copy=False)

    def test_lives_end_in_any_order(self):
        def settle():
            gc.collect()
            # What was let go without Python's lock is let go of when it is held next.
            tnp.ones(1).block_until_ready()
            gc.collect()

        for take in (tl.from_dlpack, lambda x: tl.asarray(x, copy=False)):
            x = np.arange(1000.0).view(Array)
            watched = weakref.ref(x)
            t = take(x)
            y = t * 2.0
            del x
            settle()
            self.assertIsNotNone(watched(), "the tensor keeps it")
            del t
            settle()
            self.assertEqual(float(y.sum()), 999000.0)
            del y
            settle()
            self.assertIsNone(watched(), "nobody needs it any more")
        t = tnp.arange(1000.0) + 1.0
        v, c = np.from_dlpack(t), t.__dlpack__()
        m = memoryview(t)
        del t, c
        settle()
        self.assertEqual(v[999], 1000.0)
        self.assertEqual(m[0], 1.0)
        # A capsule is taken once.
        once = Old(tnp.ones(3))
        held = once.x.__dlpack__()
        once.x = type("Held", (), {"__dlpack__": lambda self: held})()
        self.assertEqual(tl.from_dlpack(once).tolist(), [1.0] * 3)
        with self.assertRaises(TypeError):
            tl.from_dlpack(once)

    def test_versions_flags_and_devices(self):
        t = tnp.arange(4.0)
        n = New(tnp.arange(3.0))
        tl.from_dlpack(n)
        self.assertEqual(n.asked[0], (1, 0))
        self.assertIn('"dltensor"', repr(t.__dlpack__()))
        self.assertIn("dltensor_versioned", repr(t.__dlpack__(max_version=(1, 1))))
        self.assertEqual(t.__dlpack_device__(), (1, 0))
        own = tl.from_dlpack(t, copy=True)
        self.assertNotEqual(at(own), at(t))
        with self.assertRaises(BufferError):
            t.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(BufferError):
            t.__dlpack__(copy=False)
        with self.assertRaises(BufferError):
            tl.from_dlpack(type("Gpu", (), {"__dlpack__": None, "__dlpack_device__": lambda s: (2, 0)})())
        with self.assertRaises(TypeError):
            tl.from_dlpack(3)
        with self.assertRaises(TypeError):
            tl.from_dlpack(np.ones(2, np.complex64))
        with self.assertRaises(ValueError):
            tl.from_dlpack(t, device="cuda")
        with self.assertRaises(tl.TracerError):
            tl.jit(lambda x: np.from_dlpack(x))(t)

    def test_what_a_capsule_may_be_written_to(self):
        for x in self.arrays():
            if not x.size:
                continue
            t = tl.asarray(x)
            ways = [({}, True), ({"copy": True}, True), ({"max_version": (0, 8)}, True), ({"max_version": (1, 0), "copy": True}, True)]
            ways += [({"max_version": (1, 0)}, False), ({"max_version": (1, 1), "copy": False}, False)]
            for words, own in ways:
                capsule = t.__dlpack__(**words)
                at_, read_only, copied = held(capsule)
                self.assertEqual((at_ != at(t), read_only), (own, not own), words)
                if words.get("max_version", (0, 0)) >= (1, 0):
                    self.assertEqual(copied, own)
                if own:
                    # What a consumer writes that knows of no flag stays its own.
                    ctypes.memset(at_, 1, x.nbytes)
                np.testing.assert_array_equal(np.asarray(t), x)
        for take in (lambda t: np.from_dlpack(Old(t)), lambda t: np.from_dlpack(t)):
            t = tnp.ones(3)
            v = take(t)
            if v.flags.writeable:
                v[0] = 5.0
            self.assertEqual(t.tolist(), [1.0] * 3)

    @unittest.skipUnless(torch, "PyTorch is not here")
    def test_what_pytorch_may_write_to(self):
        for take in (lambda t: torch.from_dlpack(t, copy=True), lambda t: torch.utils.dlpack.from_dlpack(t.__dlpack__()), lambda t: torch.from_dlpack(Old(t))):
            t = tnp.ones(3)
            take(t)[0] = 5.0
            self.assertEqual(t.tolist(), [1.0] * 3)

    def test_buffers(self):
        t = tnp.arange(6, dtype="int16").reshape(2, 3)
        m = memoryview(t)
        self.assertEqual((m.format, m.shape, m.strides, m.readonly, m.nbytes), ("h", (2, 3), (6, 2), True, 12))
        self.assertEqual(m.tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(bytes(t), np.arange(6, dtype=np.int16).tobytes())
        with self.assertRaises(BufferError):
            memoryview(tnp.ones(2).astype("bfloat16"))
        for x, want in [
            (array.array("d", [1, 2]), [1.0, 2.0]), (b"ab", [97, 98]), (bytearray(b"ab"), [97, 98]),
            (memoryview(np.ones((2, 2), np.int32)), [[1, 1], [1, 1]]), (np.float32(2.5), 2.5), (np.int8(3), 3),
        ]:
            self.assertEqual(tl.asarray(x).tolist(), want)
        self.assertEqual(tl.asarray(memoryview(np.arange(3.0)), copy=False).tolist(), [0.0, 1.0, 2.0])

    def test_bfloat16(self):
        t = tnp.array([1.0, -2.5, 3.0]).astype("bfloat16")
        self.assertEqual(tl.from_dlpack(t).dtype, "bfloat16")
        self.assertEqual(tl.from_dlpack(t).astype("float32").tolist(), [1.0, -2.5, 3.0])
        if ml_dtypes:
            v = t.numpy()
            self.assertEqual(v.dtype, np.dtype(ml_dtypes.bfloat16))
            self.assertEqual(at(v), at(np.asarray(t)))
            x = np.array([4, 5], ml_dtypes.bfloat16)
            self.assertEqual(tl.asarray(x).astype("float32").tolist(), [4.0, 5.0])
            self.assertEqual(tl.asarray(x, copy=False).dtype, "bfloat16")

    @unittest.skipUnless(torch, "PyTorch is not here")
    def test_torch(self):
        kinds = "bool int8 int16 int32 int64 uint8 float16 bfloat16 float32 float64 float8_e5m2 float8_e4m3fn".split()
        for kind in kinds:
            for shape in [(), (3,), (2, 3), (0,)]:
                x = torch.arange(max(1, int(np.prod(shape)))).remainder(2).to(getattr(torch, kind))[:int(np.prod(shape))].reshape(shape)
                t = tl.from_dlpack(x)
                self.assertEqual(t.dtype.name, kind)
                back = torch.from_dlpack(t)
                self.assertEqual(back.dtype, x.dtype)
                self.assertTrue(torch.equal(back.float(), x.float()))
                if x.numel():
                    self.assertEqual(back.data_ptr(), x.data_ptr())
        x = torch.arange(6.0).reshape(2, 3).T
        self.assertEqual(tl.from_dlpack(x).tolist(), x.tolist())
        y = (tnp.arange(6.0) * 2.0).reshape(2, 3)
        self.assertEqual(torch.from_dlpack(y).tolist(), y.tolist())
        self.assertEqual((torch.from_dlpack(y) + 1).tolist(), (y + 1).tolist())

    def test_threads(self):
        failures = []

        def work(k):
            for i in range(60):
                x = np.full(50, float(k * 1000 + i))
                t = tl.from_dlpack(x)
                del x
                y = np.from_dlpack(t + 1.0)
                if not (y == k * 1000 + i + 1).all():
                    failures.append((k, i))

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(failures, [])

    def test_shared_memory_is_never_written(self):
        x = np.ones(64, np.float32)
        t = tl.from_dlpack(x)
        t[3] = 9.0
        t[...] = t + 1.0
        step = tl.jit(lambda a: a * 2.0)
        for _ in range(3):
            t = step(t)
        self.assertTrue((x == 1.0).all())
        self.assertEqual(t[3].item(), 80.0)


class Files(unittest.TestCase):
    def test_tensors_come_back(self):
        rng = np.random.default_rng(5)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "all.safetensors"
            arrays = {f"{np.dtype(d).name}.{i}": rng.integers(0, 2, s).astype(d) for d in DTYPES for i, s in enumerate([(), (3, 5), (0, 2)])}
            tensors = {k: tl.asarray(v) for k, v in arrays.items()}
            tensors["half"] = tnp.array([1.5, 2.5]).astype("bfloat16")
            tl.safetensors.save_file(tensors, path, metadata={"format": "pt"})
            for found in (tl.safetensors.load_file(path), tl.safetensors.load(path.read_bytes()), tl.safetensors.load(tl.safetensors.save(tensors))):
                self.assertEqual(set(found), set(tensors))
                for k, v in arrays.items():
                    self.assertEqual(found[k].dtype, v.dtype.name)
                    np.testing.assert_array_equal(np.asarray(found[k]), v)
                self.assertEqual(found["half"].astype("float32").tolist(), [1.5, 2.5])
            self.assertEqual(tl.safetensors.metadata(path), {"format": "pt"})
            gc.collect()
            self.assertEqual(float((found["float32.1"] + 1).sum()), float((arrays["float32.1"] + 1).sum()))
            try:
                from safetensors.numpy import load_file, save_file
            except ImportError:
                pass
            else:
                for k, v in load_file(path).items():
                    if k in arrays:
                        np.testing.assert_array_equal(v, arrays[k])
                save_file(arrays, path)
                for k, v in tl.safetensors.load_file(path).items():
                    np.testing.assert_array_equal(np.asarray(v), arrays[k])
            whole = path.read_bytes()
            for cut in (0, 4, 9, len(whole) // 2, len(whole) - 1):
                path.write_bytes(whole[:cut])
                with self.assertRaises(ValueError):
                    tl.safetensors.load_file(path)
            with self.assertRaises(FileNotFoundError):
                tl.safetensors.load_file(Path(folder) / "nothing")
            with self.assertRaises(OSError):
                tl.safetensors.save_file(tensors, Path(folder) / "no" / "folder")
            with self.assertRaises(TypeError):
                tl.safetensors.save_file({3: tnp.ones(1)}, path)


if __name__ == "__main__":
    unittest.main()
