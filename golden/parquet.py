"""Parquet files in every way of packing and encoding that pyarrow has: crates/models/tests/data/parquet/.

    python golden/parquet.py        (needs pyarrow)
"""

import json
import pathlib
import random

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/parquet"


def rows():
    draw = random.Random(5)
    words = ["the", "cat", "sat", "Straße", "雨", "on", "a", "mat"]
    text = lambda n: " ".join(draw.choice(words) for _ in range(n))
    for i in range(60):
        yield dict(
            id=i * 7 - 100, big=(i * 2**40) - 5, half=i / 4, text=text(draw.randrange(0, 30)),
            kind=draw.choice(["a", "b", None]), flag=draw.choice([True, False, None]),
            small=i, ids=None if i % 9 == 4 else [draw.randrange(1000) for _ in range(i % 5)],
            messages=[dict(role=draw.choice(["user", "assistant"]), content=None if i % 11 == 3 else text(j + 1))
                      for j in range(i % 4)],
            about=None if i % 7 == 2 else dict(source=text(1), scores=[x / 2 for x in range(i % 3)]),
            nested=[[draw.randrange(9) for _ in range(j)] for j in range(i % 4)],
        )


def main():
    data = list(rows())
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([
        ("id", pa.int32()), ("big", pa.int64()), ("half", pa.float64()), ("text", pa.string()), ("kind", pa.string()),
        ("flag", pa.bool_()), ("small", pa.uint8()), ("ids", pa.list_(pa.int64())), ("messages", pa.list_(message)),
        ("about", pa.struct([("source", pa.string()), ("scores", pa.list_(pa.float32()))])),
        ("nested", pa.list_(pa.list_(pa.int32()))),
    ])
    table = pa.Table.from_pylist(data, schema)
    FOLDER.mkdir(exist_ok=True)
    small = dict(row_group_size=25, write_statistics=False)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        pq.write_table(table, FOLDER / f"{codec}.parquet", compression=codec, **small)
    pq.write_table(table, FOLDER / "v2.parquet", compression="snappy", data_page_version="2.0", version="2.6",
                   data_page_size=200, row_group_size=40)
    pq.write_table(table, FOLDER / "plain.parquet", compression="none", use_dictionary=False, **small)
    encodings = {"id": "DELTA_BINARY_PACKED", "big": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY",
                 "kind": "DELTA_BYTE_ARRAY"}
    pq.write_table(table, FOLDER / "delta.parquet", compression="zstd", use_dictionary=False, column_encoding=encodings,
                   version="2.6", data_page_version="2.0", **small)
    with open(FOLDER / "expected.jsonl", "w") as out:
        for row in data:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
