"""Writes what ONNX Runtime and float64 say where ONNX's own node tests are silent, in the form of `nodes.py`.

    python golden/onnx/runtime.py golden/onnx/data/runtime.bin.zz

GridSample is compared with ONNX Runtime at places inside and outside, in every mode with every padding. Reductions, norms
and losses of float16 whose sums are beyond float16 are compared with NumPy in float64.
Needs the Python packages `onnx` and `onnxruntime`.
"""

import sys
import zlib

import numpy as np
import onnxruntime
from nodes import double, field
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, INT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
TYPES = {"float32": FLOAT, "float16": HALF, "int64": INT}


def model(op, inputs, out, opset=20, **attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attributes)
    info = [helper.make_tensor_value_info(n, TYPES[str(x.dtype)], x.shape) for n, x in zip(names, inputs)]
    graph = helper.make_graph([node], op, info, [helper.make_tensor_value_info("y", out, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def case(name, m, inputs, y, rtol, atol):
    out = field(1, name.encode()) + field(2, m.SerializeToString())
    for x in inputs:
        out += field(3, numpy_helper.from_array(x).SerializeToString())
    out += field(4, numpy_helper.from_array(y).SerializeToString())
    return field(1, out + double(5, rtol) + double(6, atol))


def samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 2, 4, 5)).astype("float32")
    grid = rng.uniform(-1.7, 1.7, (1, 8, 8, 2)).astype("float32")
    grid[0, 0] = np.array([[-1, -1], [1, 1], [-1.3, 0], [1.3, 0], [0, -1.4], [0, 1.4], [30, -30], [-1e6, 1e6]])
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                far = grid[:, :, :6] if padding == "reflection" else grid
                m = model("GridSample", [x, far], FLOAT, mode=mode, padding_mode=padding, align_corners=corners)
                session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
                y = session.run(None, {"x0": x, "x1": far})[0]
                yield case(f"grid_sample_{mode}_{padding}_{corners}", m, [x, far], y, 1e-4, 1e-5)


def half(f, *inputs):
    with np.errstate(over="ignore"):
        return np.asarray(f(*[x.astype("float64") for x in inputs])).astype("float16")


def reductions():
    """Of 70,000 elements, few of them different so that the file is small, whose squares and sums are beyond float16."""
    pattern = np.random.default_rng(1).uniform(300.0, 30000.0, 50).astype("float16")
    x = np.resize(pattern, (1, 2, 350, 100))
    signed = (x * np.resize([1, -1, 1], x.shape)).astype("float16")
    axes = np.array([2, 3], "int64")
    keep = {"axis": (2, 3), "keepdims": True}
    reduced = {
        "ReduceMean": lambda x: x.mean(**keep),
        "ReduceL1": lambda x: abs(x).sum(**keep),
        "ReduceL2": lambda x: np.sqrt((x * x).sum(**keep)),
        "ReduceLogSum": lambda x: np.log(x.sum(**keep)),
        "ReduceLogSumExp": lambda x: x.max(**keep) + np.log(np.exp(x - x.max(**keep)).sum(**keep)),
        "ReduceSumSquare": lambda x: (x * x).sum(**keep),
    }
    for op, f in reduced.items():
        yield case(f"half_{op}", model(op, [x, axes], HALF), [x, axes], half(f, x), 2e-3, 1e-3)
    for op, f in {"GlobalAveragePool": reduced["ReduceMean"], "GlobalLpPool": reduced["ReduceL2"]}.items():
        yield case(f"half_{op}", model(op, [x], HALF), [x], half(f, x), 2e-3, 1e-3)
    blocks = lambda x: x.reshape(1, 2, 7, 50, 10, 10)  # noqa: E731
    window = {"kernel_shape": [50, 10], "strides": [50, 10]}
    yield case("half_AveragePool", model("AveragePool", [x], HALF, **window), [x], half(lambda x: blocks(x).mean(axis=(3, 5)), x), 2e-3, 1e-3)
    p3 = lambda x: (abs(blocks(x)) ** 3).sum(axis=(3, 5)) ** (1 / 3)  # noqa: E731
    yield case("half_LpPool", model("LpPool", [x], HALF, p=3, **window), [x], half(p3, x), 2e-3, 1e-3)
    unit = lambda x: x / np.sqrt((x * x).sum(axis=2, keepdims=True))  # noqa: E731
    yield case("half_LpNormalization", model("LpNormalization", [signed], HALF, axis=2), [signed], half(unit, signed), 2e-3, 1e-3)
    standard = lambda x: (x - x.mean(axis=(0, 2, 3), keepdims=True)) / x.std(axis=(0, 2, 3), keepdims=True)  # noqa: E731
    yield case("half_MeanVarianceNormalization", model("MeanVarianceNormalization", [signed], HALF), [signed], half(standard, signed), 4e-3, 2e-3)
    ones, zeros = np.ones(2, "float16"), np.zeros(2, "float16")
    m = model("InstanceNormalization", [signed, ones, zeros], HALF)
    yield case("half_InstanceNormalization", m, [signed, ones, zeros], half(lambda x, *_: standard(x), signed, ones, zeros), 4e-3, 2e-3)
    pair = [x[:, :, :3], x[:, :, 3:6]]
    yield case("half_Mean", model("Mean", pair, HALF), pair, half(lambda a, b: (a + b) / 2, *pair), 2e-3, 1e-3)
    scores, labels = x[0, 0].copy(), np.resize(np.arange(100), 350).astype("int64")
    log = np.negative(scores)
    m = model("NegativeLogLikelihoodLoss", [log, labels], HALF)
    yield case("half_NegativeLogLikelihoodLoss", m, [log, labels], half(lambda x: -x[np.arange(350), labels].mean(), log), 2e-3, 1e-3)


def main():
    sys.path.insert(0, ".")
    data = b"".join([*samples(), *reductions()])
    with open(sys.argv[1], "wb") as f:
        f.write(zlib.compress(data, 9))
    print(len(zlib.compress(data, 9)) // 1024, "KiB")


if __name__ == "__main__":
    main()
