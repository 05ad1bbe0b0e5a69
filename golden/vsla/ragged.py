"""Golden values of a ragged batch through an encoder: PyTorch, padded and masked.

Weights come from a formula that `crates/vsla/examples/ragged/encoder.rs` repeats. Run with PyTorch installed:
python golden/vsla/ragged.py
"""

import json
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from peers import Ragged

peer = Ragged(False)
peer.lengths = [3, 1, 8, 0, 5, 2, 33]
peer.WIDTH, peer.HEADS, peer.HIDDEN, peer.LAYERS = 16, 2, 24, 2
lengths, d = peer.lengths, peer.WIDTH
torch.backends.mha.set_fastpath_enabled(False)
net = peer.encoder(False).double()
tokens = torch.from_numpy(peer.number(0, (sum(lengths), d))).double()
parts = [p for p in tokens.split(lengths) if len(p)]
padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
absent = torch.arange(max(lengths))[None] >= torch.tensor([len(p) for p in parts])[:, None]
with torch.no_grad():
    out = net(padded, src_key_padding_mask=absent)
rows = torch.cat([out[i, : len(p)] for i, p in enumerate(parts)])
values = [round(float(x), 9) for x in rows.flatten()]
record = {"lengths": lengths, "width": d, "heads": peer.HEADS, "hidden": peer.HIDDEN, "layers": peer.LAYERS, "out": values}
(pathlib.Path(__file__).parent / "ragged.json").write_text(json.dumps(record) + "\n")
