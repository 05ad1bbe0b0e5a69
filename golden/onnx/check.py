"""Checks what is exported: `onnx.checker` on every model, and `onnx.reference` against what the graph gives.

    ONNX_EXPORT=DIR cargo test -p tensorloom-onnx --test suite export      # writes models, inputs and results
    python golden/onnx/check.py DIR

A case is N.onnx, N.name with its name, and N.in and N.out: tensors as messages, each behind its length in 8 bytes.
Needs `onnx` and `numpy`.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import checker, numpy_helper
from onnx.reference import ReferenceEvaluator

warnings.filterwarnings("ignore")
np.seterr(all="ignore")


def tensors(path):
    out = []
    data = path.read_bytes()
    while data:
        n = int.from_bytes(data[:8], "little")
        t = onnx.TensorProto()
        t.ParseFromString(data[8 : 8 + n])
        out.append(numpy_helper.to_array(t))
        data = data[8 + n :]
    return out


def close(got, want):
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    narrow = want.dtype.itemsize < 4 and want.dtype.kind not in "biu"
    tolerance = 2e-2 if narrow else 1e-5
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= tolerance * (1 + np.abs(b)))
    return None if same.all() else f"{a[~same].ravel()[:3]}, expected {b[~same].ravel()[:3]}"


def main():
    folder = pathlib.Path(sys.argv[1])
    counts = {"checked": 0, "equal": 0, "not run": 0}
    wrong = []
    for path in sorted(folder.glob("*.onnx")):
        model = onnx.load(path)
        name = (folder / f"{path.stem}.name").read_text()
        try:
            checker.check_model(model, full_check=True)
            counts["checked"] += 1
        except Exception as e:
            wrong.append(f"{name}: checker: {str(e).splitlines()[0][:200]}")
            continue
        inputs = dict(zip([i.name for i in model.graph.input], tensors(folder / f"{path.stem}.in")))
        try:
            got = ReferenceEvaluator(model).run(None, inputs)
        except Exception as e:
            counts["not run"] += 1
            if "-v" in sys.argv:
                print(f"{name}: the reference can't: {type(e).__name__} {str(e).splitlines()[:1]}")
            continue
        faults = [f for g, w in zip(got, tensors(folder / f"{path.stem}.out")) if (f := close(g, w))]
        if faults:
            wrong.append(f"{name}: {faults[0]}")
        else:
            counts["equal"] += 1
    print(counts, f"{len(wrong)} wrong")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
