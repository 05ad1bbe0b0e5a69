"""Ctrl-C, and other signals, while one program runs: heard between two of its steps."""

import subprocess
import sys
import textwrap
import unittest

# Loops of several steps for hours (`fori_loop` has an array of its numbers, so for seconds), and what all programs here begin with. Shells let what runs behind them ignore Ctrl-C.
BEGIN = """
import os, signal, sys, threading, time
import tensorloom as tl, tensorloom.numpy as tnp
from tensorloom import lax

signal.signal(signal.SIGINT, signal.default_int_handler)
HOURS = 2**30
step = lambda x: tnp.tanh(x @ x)
start = (tnp.ones((8, 8)) / 16).block_until_ready()
LOOPS = {
    "fori": tl.jit(lambda x: lax.fori_loop(0, 2**25, lambda i, x: step(x), x)),
    "scan": tl.jit(lambda x: lax.scan(lambda x, _: (step(x), None), x, None, length=HOURS)[0]),
    "while": tl.jit(lambda x: lax.while_loop(lambda x: (x < 2).all(), step, x)),
    "nested": tl.jit(lambda x: lax.fori_loop(0, 10**6, lambda i, x: lax.fori_loop(0, 10**6, lambda j, x: step(x), x), x)),
    "lazy": lambda x: lax.while_loop(lambda x: (x < 2).all(), step, x).tolist(),
    "ready": lambda x: lax.while_loop(lambda x: (x < 2).all(), step, x).block_until_ready(),
}

def later(seconds, what=signal.SIGINT):
    threading.Timer(seconds, os.kill, (os.getpid(), what)).start()
    return time.monotonic() + seconds

def works():
    assert start.tolist() == [[1 / 16] * 8] * 8
    f = tl.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: x @ x, x))
    assert f(start).tolist() == [[0.5**11] * 8] * 8
"""


class Interrupted(unittest.TestCase):
    def alone(self, text):
        text = BEGIN + textwrap.dedent(text)
        out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
        return out.stdout

    def test_ctrl_c_ends_one_long_program(self):
        self.alone(
            """
            for name, f in LOOPS.items():
                came = later(0.5)
                try:
                    f(start)
                    raise AssertionError(name)
                except KeyboardInterrupt:
                    took = time.monotonic() - came
                assert 0 <= took < 2, (name, took)
                works()
            """
        )

    def test_what_was_pending_can_be_read_later(self):
        self.alone(
            """
            n = tnp.asarray(1)
            y = lax.while_loop(lambda c: c[0] < 10**9 * n, lambda c: (c[0] + n, step(c[1])), (tnp.asarray(0), start))
            for _ in range(2):
                later(0.3)
                try:
                    y[1].tolist()
                    raise AssertionError
                except KeyboardInterrupt:
                    works()
            """
        )

    def test_a_handler_that_raises_nothing_lets_it_go_on(self):
        self.alone(
            """
            heard = []
            signal.signal(signal.SIGINT, lambda *_: heard.append(1))
            count = tl.jit(lambda x: lax.while_loop(lambda c: c[0] < 2_000_000, lambda c: (c[0] + 1, step(c[1])), (0, x)))
            later(0.2)
            i, x = count(start)
            assert int(i) == 2_000_000 and heard == [1], (int(i), heard)
            works()
            """
        )

    def test_what_a_handler_raises_is_what_ends_it(self):
        self.alone(
            """
            class Late(Exception):
                pass

            def late(*_):
                raise Late("enough")

            signal.signal(signal.SIGALRM, late)
            for f in LOOPS.values():
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                try:
                    f(start)
                    raise AssertionError
                except Late as e:
                    assert str(e) == "enough"
                works()
            """
        )

    def test_other_threads_are_left_alone(self):
        # One waits for the engine inside of a function of tensors, another counts; the signal is the main thread's.
        self.alone(
            """
            done = []
            begun = threading.Event()
            x = tnp.arange(1000.0)

            def compare():
                begun.wait()
                time.sleep(0.2)
                done.append(bool(tnp.array_equal(x + 1, x + 1)))

            def count():
                n = 0
                while len(done) < 1:
                    n += 1
                done.append(n)

            threads = [threading.Thread(target=t) for t in (compare, count)]
            [t.start() for t in threads]
            begun.set()
            came = later(1.0)
            try:
                LOOPS["scan"](start)
                raise AssertionError
            except KeyboardInterrupt:
                took = time.monotonic() - came
            assert 0 <= took < 2, took
            [t.join() for t in threads]
            assert done[0] is True and done[1] > 1000, done
            works()
            """
        )


if __name__ == "__main__":
    unittest.main()
