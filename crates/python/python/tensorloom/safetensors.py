"""Files of tensors, by the names of the package `safetensors`: `save_file load_file save load metadata`.

>>> import tensorloom as tl
>>> tl.safetensors.save_file({"w": tl.numpy.ones((2, 3))}, "weights.safetensors")
>>> tl.safetensors.load_file("weights.safetensors")["w"].shape
(2, 3)
"""

from ._tensorloom import safetensors as _own

load, load_file, metadata, save, save_file = _own.load, _own.load_file, _own.metadata, _own.save, _own.save_file

__all__ = ["load", "load_file", "metadata", "save", "save_file"]
