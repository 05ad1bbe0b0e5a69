"""Type stubs and docstrings: every public name has both, and the stubs are those that the package gives today."""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import io
import unittest
from pathlib import Path

import tensorloom as tl

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("stubs", ROOT / "stubs.py")
stubs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stubs)


def names(tree):
    """What a stub declares."""
    out = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            out.add(node.target.id)
        elif isinstance(node, ast.Assign):
            out.update(t.id for t in node.targets)
        elif isinstance(node, ast.ImportFrom):
            out.update(a.asname or a.name for a in node.names)
    return out


class Stubs(unittest.TestCase):
    def test_they_are_up_to_date(self):
        for where in stubs.MODULES:
            kept = stubs.file(ROOT / "python" / "tensorloom", where)
            self.assertTrue(kept.exists(), f"{where}.pyi is missing; run stubs.py")
            self.assertEqual(kept.read_text(), stubs.stub(where), f"{where}.pyi is old; run stubs.py")
        self.assertTrue((ROOT / "python" / "tensorloom" / "py.typed").exists())

    def test_every_public_name_has_one_and_a_docstring(self):
        count = 0
        for where in stubs.MODULES:
            m = tl if where == "__init__" else importlib.import_module(f"tensorloom.{where}")
            found = names(ast.parse(stubs.file(ROOT / "python" / "tensorloom", where).read_text()))
            for name in stubs.public(m):
                count += 1
                self.assertIn(name, found, f"{where}.{name} has no stub")
                x = vars(m)[name]
                if callable(x) and not isinstance(x, tl.DType):
                    self.assertTrue(inspect.getdoc(x), f"{where}.{name} has no docstring")
            self.assertTrue(inspect.getdoc(m), f"{where} has no docstring")
        self.assertGreater(count, 700)

    def test_methods_of_tensors_exist(self):
        tree = ast.parse((ROOT / "python" / "tensorloom" / "__init__.pyi").read_text())
        tensor = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
        t = tl.numpy.ones((2, 2))
        methods = [n.name for n in tensor.body if isinstance(n, ast.FunctionDef)]
        self.assertGreater(len(methods), 200)
        for name in methods:
            # `__buffer__` has a name from Python 3.12 on.
            if name != "__buffer__":
                self.assertTrue(hasattr(t, name), name)


    def test_a_typed_program_passes(self):
        import importlib.util as find
        import os
        import subprocess
        import sys

        import typed

        with contextlib.redirect_stdout(io.StringIO()):
            typed.main()
        if find.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        folder = Path(tl.__file__).parents[1]
        run = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(Path(typed.__file__))],
            env={**os.environ, "MYPYPATH": str(folder)}, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main()
