"""Writes ONNX's own node tests as one file that `crates/onnx` reads.

    python golden/onnx/nodes.py OUT.bin.zz [--sample]

The file is a zlib stream of a protobuf message:

    message Cases { repeated Case case = 1; }
    message Case {
      string name = 1;
      bytes model = 2;              // ModelProto
      repeated bytes inputs = 3;    // TensorProto, SequenceProto or OptionalProto, as the model's input says
      repeated bytes outputs = 4;
      double rtol = 5;
      double atol = 6;
    }

With --sample only a small part is written, of every op the smallest cases: what the suite runs.
Needs `onnx` from PyPI.
"""

import argparse
import collections
import struct
import warnings
import zlib

from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

warnings.filterwarnings("ignore")


def varint(n):
    out = bytearray()
    while True:
        out.append(n & 0x7F | (0x80 if n > 0x7F else 0))
        n >>= 7
        if not n:
            return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number, x):
    return varint(number << 3 | 1) + struct.pack("<d", x)


def serialized(value, info):
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    if isinstance(value, TensorProto):
        return value.SerializeToString()
    return numpy_helper.from_array(value, info.name).SerializeToString()


def packed(case):
    inputs, outputs = case.data_sets[0]
    graph = case.model.graph
    out = field(1, case.name.encode()) + field(2, case.model.SerializeToString())
    for value, info in zip(inputs, graph.input):
        out += field(3, serialized(value, info))
    for value, info in zip(outputs, graph.output):
        out += field(4, serialized(value, info))
    return out + double(5, case.rtol) + double(6, case.atol)


def in_default_domain(case):
    return all(o.domain in ("", "ai.onnx") for o in case.model.opset_import)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--sample", action="store_true")
    args = parser.parse_args()
    cases = []
    for case in collect_testcases(None):
        if not in_default_domain(case):
            continue
        try:
            cases.append((case, packed(case)))
        except Exception as e:
            print(f"{case.name} can't be written: {e}")
    if args.sample:
        by_op = collections.defaultdict(list)
        for case, data in cases:
            ops = [n.op_type for n in case.model.graph.node]
            if len(ops) == 1 and len(data) < 6000:
                by_op[ops[0]].append((len(data), case.name, data))
        kept = [item for op in sorted(by_op) for item in sorted(by_op[op])[:4]]
        datas = [data for _, _, data in sorted(kept, key=lambda item: item[1])]
    else:
        datas = [data for _, data in cases]
    message = b"".join(field(1, data) for data in datas)
    with open(args.out, "wb") as f:
        f.write(zlib.compress(message, 9))
    print(f"{len(datas)} cases, {len(message)} bytes")


if __name__ == "__main__":
    main()
