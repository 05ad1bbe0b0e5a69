"""Models against what transformers computed, as functions under transforms, generating, and trained."""

import gc
import json
import os
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp
from tensorloom import models

DATA = Path(__file__).parents[2] / "models" / "tests" / "data"
SIZES = dict(d_model=32, n_layers=2, heads=4, kv_heads=2, d_ff=48, max_seq=64, tied=True)
RUN = dict(stories=60000, vocab=300, batch=4, seq=32, warmup=4, eval_every=40, eval_batches=2, sample_every=1000, threads=1)


class Loaded(unittest.TestCase):
    def setUp(self):
        self.dir = DATA / "llama"
        self.model = models.load(self.dir)
        self.want = tl.safetensors.load_file(self.dir / "expected.safetensors")
        self.json = json.loads((self.dir / "expected.json").read_text())
        self.ids = np.array(self.json["ids"])

    def near(self, a, b, tol):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        self.assertEqual(a.size, b.size)
        worst = np.abs(a.reshape(-1) - b.reshape(-1)).max() / max(1e-6, np.abs(b).max())
        self.assertLess(worst, tol)

    def test_logits_loss_and_gradients(self):
        self.near(self.model.logits(self.ids), self.want["logits"], 1e-4)
        self.near(self.model.logits(self.json["ids"][0]), self.want["logits"][0], 1e-4)
        self.assertAlmostEqual(self.model.loss(self.ids), float(self.want["loss"].reshape(())), places=4)
        self.assertAlmostEqual(self.model.loss(self.ids, self.ids), float(self.want["loss"].reshape(())), places=4)
        loss, grads = self.model.value_and_grad(self.ids)
        self.assertEqual({f"grad.{k}" for k in grads}, {k for k in self.want if k.startswith("grad.")})
        for k, g in grads.items():
            self.near(g, self.want[f"grad.{k}"], 1e-3)
        for other in ("gpt2", "qwen3", "mamba"):
            m = models.load(DATA / other)
            want = tl.safetensors.load_file(DATA / other / "expected.safetensors")["logits"]
            ids = json.loads((DATA / other / "expected.json").read_text())["ids"]
            self.near(m.logits(ids), want, 1e-4)

    def test_a_model_is_a_function(self):
        params = self.model.params()
        ids = tnp.array(self.ids, "int32")
        self.near(self.model.apply(params, ids), self.want["logits"], 1e-4)
        self.near(tl.jit(self.model.apply)(params, ids), self.want["logits"], 1e-4)
        loss = lambda p: models.cross_entropy(self.model.apply(p, ids), ids)  # noqa: E731
        value, grads = tl.jit(tl.value_and_grad(loss))(params)
        self.near(value, self.want["loss"], 1e-4)
        self.assertEqual(set(grads), set(params))
        head = next(k for k in grads if tuple(grads[k].shape) in ((64, 32), (32, 64)) and "head" in k)
        got = np.asarray(grads[head])
        want = np.asarray(self.want["grad.lm_head.weight"])
        self.near(got if got.shape == want.shape else got.T, want, 1e-3)
        # A step of descent, by tree.
        better = tl.tree.map(lambda p, g: p - 0.5 * g, params, grads)
        self.assertLess(float(loss(better)), float(value))
        before = self.model.loss(self.ids)
        self.model.update(better)
        self.assertLess(self.model.loss(self.ids), before)
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "m")
            again = models.load(Path(folder) / "m")
            self.near(again.logits(self.ids), self.model.logits(self.ids), 1e-5)
        batched = tl.vmap(lambda i: self.model.apply(params, i))(ids)
        self.near(batched, self.want["logits"], 1e-4)

    def test_generation(self):
        tokens = self.json["tokens"]
        self.assertEqual(list(self.model.generate(self.json["prompt"], len(tokens))), tokens)
        some = self.model.generate(self.json["prompt"], len(tokens))
        first = [next(some) for _ in range(5)]
        some.close()
        self.assertEqual((first, some.ids), (tokens[:5], tokens[:5]))
        self.assertEqual(list(some), [])
        draws = [list(self.model.generate([1, 5], 12, temperature=1.0, seed=s)) for s in (1, 1, 2)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])
        self.assertEqual(list(self.model.generate([1, 5, 7], 32, ends=[tokens[1]])), tokens[:1])
        with self.assertRaises(models.ModelError):
            list(self.model.generate([1000], 3))

    def test_errors(self):
        for bad, kind in [
            (lambda: models.load("/nowhere"), FileNotFoundError), (lambda: models.load(DATA), (models.ModelError, OSError)),
            (lambda: self.model.logits([1.5]), TypeError), (lambda: self.model.logits([[1], [2]][:0]), (TypeError, ValueError)),
            (lambda: self.model.logits([99]), ValueError), (lambda: self.model.generate("text"), models.ModelError),
            (lambda: self.model.update({"nothing": tnp.ones(1)}), ValueError), (lambda: self.model.apply({}, [1]), ValueError),
            (lambda: models.fresh("llama", {"d_mdel": 3}), ValueError), (lambda: models.fresh("nothing"), (ValueError, OSError)),
            (lambda: models.train(out="x", stepz=3), ValueError), (lambda: models.train(), TypeError),
        ]:
            with self.assertRaises(kind):
                bad()

    def test_modules(self):
        m = models.fresh("llama", {**SIZES, "vocab_size": 50}, seed=3)
        self.assertEqual((m.name, m.vocabulary, m.max_sequence), ("Llama", 50, 64))
        self.assertEqual(tuple(m.logits([1, 2, 3]).shape), (3, 50))
        self.assertEqual(sum(int(p.size) for p in m.params().values()), m.parameter_count)
        self.assertIn("dot", m.graph(1, 4))
        self.assertEqual(m.apply(m.params(), [1, 2, 3]).tolist(), m.logits([1, 2, 3]).tolist())
        half = models.fresh("llama", {**SIZES, "vocab_size": 50}, dtype="bfloat16", seed=3)
        self.near(half.logits([1, 2, 3]).astype("float32"), m.logits([1, 2, 3]), 5e-2)


class Trained(unittest.TestCase):
    def test_a_run_its_events_and_what_follows(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            events = []
            done = models.train(out=out, steps=12, set=SIZES, checkpoint_every=6, callback=events.append, **RUN)
            self.assertEqual((done["step"], done["complete"]), (12, True))
            steps = [e for e in events if e["event"] == "step"]
            self.assertEqual([e["step"] for e in steps], list(range(1, 13)))
            self.assertLess(steps[-1]["loss"], steps[0]["loss"])
            model = models.load(out)
            text = "".join(model.generate("Once upon a time", 12, temperature=0.8))
            self.assertIsInstance(text, str)
            self.assertEqual(model.decode(model.encode("Once upon")), "Once upon")
            with self.assertRaises(models.ModelError):
                models.train(out=out, steps=12, set=SIZES, **RUN)

    def test_stopping_and_going_on(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = models.train(out=Path(folder) / "whole", steps=9, set=SIZES, checkpoint_every=100, **RUN)
            out = Path(folder) / "parts"
            done = models.train(
                out=out, steps=9, set=SIZES, checkpoint_every=100, callback=lambda e: e.get("step") != 4 or e["event"] != "step", **RUN
            )
            self.assertEqual((done["step"], done["complete"]), (4, False))

            class Own(Exception):
                pass

            def raises(e):
                if e["event"] == "step" and e["step"] == 6:
                    raise Own

            with self.assertRaises(Own):
                models.train(out=out, resume=True, callback=raises)
            done = models.train(out=out, resume=True)
            self.assertEqual((done["step"], done["complete"]), (9, True))
            a, b = (models.load(Path(folder) / n).params() for n in ("whole", "parts"))
            for k in a:
                self.assertTrue(np.array_equal(np.asarray(a[k]), np.asarray(b[k])), k)
            self.assertEqual(whole["complete"], True)

    def test_ctrl_c_saves_and_stops_while_others_run(self):
        # Whoever runs the tests in the background has told Python to ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        with tempfile.TemporaryDirectory() as folder:
            out, ticks, stop = Path(folder) / "run", [], threading.Event()

            def tick():
                while not stop.is_set():
                    ticks.append(time.monotonic())
                    time.sleep(0.001)

            other = threading.Thread(target=tick)

            def interrupt(e):
                if e["event"] == "step" and e["step"] == 5:
                    os.kill(os.getpid(), signal.SIGINT)

            other.start()
            try:
                with self.assertRaises(KeyboardInterrupt):
                    models.train(out=out, steps=10000, set=SIZES, checkpoint_every=100000, callback=interrupt, **RUN)
            finally:
                stop.set()
                other.join()
            self.assertGreater(len(ticks), 20, "another thread ran meanwhile")
            done = models.train(out=out, resume=True, steps=7)
            self.assertEqual(done["step"], 7)
            gc.collect()


if __name__ == "__main__":
    unittest.main()
