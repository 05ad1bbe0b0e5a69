"""Builds the wheel: compiles the library, packs it with the package, and tries it in a fresh environment.

    python crates/python/wheel.py [--out FOLDER] [--library FILE] [--no-try]

One wheel serves every Python from 3.11 on. Nothing but cargo and Python is needed (maturin builds the same from pyproject.toml).
"""

import argparse
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRY = """
import tensorloom as tl, tensorloom.numpy as tnp, numpy as np
from tensorloom import vsla, models, array_api
f = tl.jit(tl.grad(lambda x: (x ** 3).sum()))
assert f(tnp.array([1.0, 2.0])).tolist() == [3.0, 12.0]
assert np.from_dlpack(tnp.ones(3)).tolist() == [1.0, 1.0, 1.0]
assert vsla.add([1.0, 2.0], [3.0]).tolist() == [4.0, 2.0]
assert models.fresh("llama", dict(vocab_size=20, d_model=16, n_layers=1, heads=2, kv_heads=1, d_ff=16)).logits([1, 2]).shape == (2, 20)
print("tensorloom", tl.__version__, "works")
"""


def tag(library):
    """The platform that the library runs on: of Linux, with the newest version of glibc that it asks for."""
    if sys.platform.startswith("linux"):
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
        major, minor = max((int(a), int(b)) for a, b in found)
        return f"manylinux_{major}_{max(minor, 17)}_{platform.machine()}"
    if sys.platform == "darwin":
        return f"macosx_11_0_{'arm64' if platform.machine() == 'arm64' else 'x86_64'}"
    return "win_amd64"


def build():
    """Compiles the library."""
    subprocess.run(["cargo", "build", "--release", "-p", "tensorloom-python"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    names = ["lib_tensorloom.so", "lib_tensorloom.dylib", "_tensorloom.dll"]
    return next(target / "release" / n for n in names if (target / "release" / n).exists())


def pack(library, out):
    """Writes the wheel."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name, kind = f"tensorloom-{version}", f"cp311-abi3-{tag(library)}"
    files = {}
    for f in sorted((HERE / "python").rglob("*")):
        if f.is_file() and f.suffix in (".py", ".pyi", ".typed") and "__pycache__" not in f.parts:
            files[f.relative_to(HERE / "python").as_posix()] = f.read_bytes()
    extension = "pyd" if library.suffix == ".dll" else "abi3.so"
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "library"
        small.write_bytes(library.read_bytes())
        # Names that only debuggers want; where nothing can take them out, they stay.
        try:
            subprocess.run(["strip", "--strip-unneeded", str(small)], check=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            small.write_bytes(library.read_bytes())
        files[f"tensorloom/_tensorloom.{extension}"] = small.read_bytes()
    needs = "".join(f"Requires-Dist: {d}\n" for d in project["dependencies"])
    info = f"{name}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.3\nName: tensorloom\nVersion: {version}\nSummary: {project['description']}\n"
        f"License-Expression: {project['license']}\nRequires-Python: {project['requires-python']}\n{needs}"
        f"Description-Content-Type: text/markdown\n\n{(HERE / 'README.md').read_text()}"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tensorloom\nRoot-Is-Purelib: false\nTag: {kind}\n".encode()
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{info}/licenses/{licence}"] = (ROOT / licence).read_bytes()
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{kind}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            # The same files give the same wheel.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            z.writestr(entry, data)
    return wheel


def attempt(wheel):
    """Installs the wheel in an environment of its own, and uses it."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)], check=True)
        subprocess.run([python, "-c", TRY], check=True, cwd=folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "wheels")
    parser.add_argument("--library", type=Path, help="one that was compiled already")
    parser.add_argument("--no-try", action="store_true")
    options = parser.parse_args()
    wheel = pack(options.library or build(), options.out)
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
    if not options.no_try:
        attempt(wheel)


if __name__ == "__main__":
    main()
