"""What `LOOM_DEBUG` and `set_debug` print."""

import os
import subprocess
import sys
import unittest

import tensorloom as tl

PROGRAM = """
import tensorloom as tl, tensorloom.numpy as tnp
{before}
tl.jit(lambda x: (tnp.exp(x) + tnp.exp(x)).sum())(tnp.ones((64, 3))).block_until_ready()
"""
# A text of each level.
PARTS = ["exp(", "-- pass ", "-- schedule: ", "-- loops of ", "-- code of "]


def printed(before="", level=None):
    env = {k: v for k, v in os.environ.items() if k != "LOOM_DEBUG"}
    if level is not None:
        env["LOOM_DEBUG"] = level
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before)], env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stderr


class Debug(unittest.TestCase):
    def check(self, text, level):
        for i, part in enumerate(PARTS):
            self.assertEqual(part in text, level > i, f"level {level}: {part!r}\n{text}")

    def test_each_level_prints_more(self):
        for level in range(1, 6):
            self.check(printed(level=str(level)), level)

    def test_the_function_takes_the_place_of_the_variable(self):
        self.check(printed("tl.set_debug(3)"), 3)
        self.check(printed("tl.set_debug(1)", level="5"), 1)
        self.assertEqual(printed("tl.set_debug(0)", level="5"), "")

    def test_nothing_else_is_printed(self):
        self.assertEqual(printed(), "")
        self.assertEqual(printed(level="0"), "")
        text = printed(level="loud")
        self.assertEqual(len(text.splitlines()), 1, text)
        self.assertIn("LOOM_DEBUG=loud is not a level", text)

    def test_wrong_levels_are_refused(self):
        for level in (-1, 6, 1 << 40):
            with self.assertRaisesRegex(ValueError, "from 0 to 5"):
                tl.set_debug(level)


if __name__ == "__main__":
    unittest.main()
