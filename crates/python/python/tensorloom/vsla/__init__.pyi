"""Variable-shape tensors for NumPy, through the C interface of tensorloom_vsla."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from numpy import ndarray
ArrayLike = Any
"""A tensor, a number, nested lists of numbers, or an array of NumPy or of anyone who speaks DLPack or the buffer protocol."""
Axes = int | Sequence[int] | None
DTypeLike = Any
"""A `DType`, its name, or a type of NumPy."""
ComplexLike = Any
"""A tensor, or a pair of real and imaginary part."""

class _At:
    def __getitem__(self, index: Any, /) -> _Place: ...

class _Place:
    def get(self, mode: str | None = None, fill_value: float | None = None, **options: Any) -> ndarray: ...
    def apply(self, f: Callable[..., Any], **options: Any) -> ndarray: ...
    def set(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def add(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def subtract(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def multiply(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def mul(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def divide(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def power(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def min(self, values: ArrayLike, **options: Any) -> ndarray: ...
    def max(self, values: ArrayLike, **options: Any) -> ndarray: ...



class Graph:
    """A program under description. Values are ids."""

    def build(self) -> Any:
        """Validates the description and freezes it."""

    def checkpoint(self, id_: ArrayLike) -> Any:
        """Marks a value to be kept for backward; values without a mark are computed again."""

    def input(self, shape: int | Sequence[int], dtype: DTypeLike | None = ..., name: ArrayLike = '', model: str | None = 'A') -> Any:
        """Declares an input."""

    def op(self, kind: Any, *inputs: Any, outputs: ArrayLike = 1, **attributes: Any) -> Any:
        """Adds an operation by the name of its kind ("matmul", "add", "sum", ..); gives its value, or a list of several.

        Attributes are `axis value size stride list_ list2 form`, as the header says for each kind."""

    def output(self, id_: ArrayLike) -> Any:
        """Marks a value as an output."""

    def param(self, shape: int | Sequence[int], dtype: DTypeLike | None = ..., name: ArrayLike = '', model: str | None = 'A') -> Any:
        """Declares a parameter."""

class Plan:
    """A compiled program. Call it with its inputs in order; it gives its output, or a tuple of several."""

    def __call__(self, *inputs: Any, out: str | PathLike[str] | None = None) -> Any:
        """Runs on arrays where they lie. `out` is a list of arrays for the outputs."""

    def gradients(self, *inputs: Any, cotangents: ArrayLike = None, of_inputs: ArrayLike = False) -> Any:
        """Runs forward and backward: the outputs, and a dict of gradients by id.

        `cotangents` are arrays for the outputs, ones if absent. Gradients are of the parameters and, if asked, the inputs."""

    def seed(self, seed: int) -> Any:
        """Seeds the random operations of the next runs."""

    def set_param(self, id_: ArrayLike, x: ArrayLike) -> Any:
        """Sets a parameter; it stays from run to run."""

class Program:
    """A validated program."""

    def dtype(self, id_: ArrayLike) -> Any:
        """The NumPy dtype of a value."""

    def name(self, id_: ArrayLike) -> Any:
        """The name of a value; may be empty."""

    def plan(self, threads: ArrayLike = 0) -> Any:
        """Compiles the program; 0 threads is one for each core."""

    def shape(self, id_: ArrayLike) -> Any:
        """The shape of a value."""

class Ragged:
    """Rows of different lengths whose entries have one shape.

    >>> r = Ragged([[1.0, 2.0, 3.0], [], [4.0]])
    >>> r.sum().tolist(), r.lengths.tolist()
    ([6.0, 0.0, 4.0], [3, 0, 1])

    `values` are the entries of all rows, one after the other; `lengths` says how many belong to each. Operations on entries run
    over those that there are."""

    def __add__(self, other: ArrayLike) -> Any:
        """Row by row, in their ambient shapes; a number or an array is added to each entry."""

    __array_priority__: Any

    def __getitem__(self, i: ArrayLike) -> Any:
        """A row; of a slice, some of them."""

    def __iter__(self) -> Iterator[Any]:
        """__iter__"""

    def __len__(self) -> int:
        """__len__"""

    def __matmul__(self, w: ArrayLike) -> Any:
        """Each entry, a vector, times a matrix."""

    def __mul__(self, other: ArrayLike) -> Any:
        """Row by row, in their ambient shapes; each entry times a number or an array."""

    def __radd__(self, other: ArrayLike) -> Any:
        """Row by row, in their ambient shapes; a number or an array is added to each entry."""

    def __repr__(self) -> str:
        """__repr__"""

    def __rmul__(self, other: ArrayLike) -> Any:
        """Row by row, in their ambient shapes; each entry times a number or an array."""

    def __sub__(self, other: ArrayLike) -> Any:
        """Row by row, in their ambient shapes; a number or an array is taken off each entry."""

    def attention(self, keys: ArrayLike, values: ArrayLike, heads: ArrayLike) -> Any:
        """Attention of each row's entries to those of its own row; `keys` and `values` have the same rows."""

    from_padded: Any

    def map(self, f: Callable[..., Any]) -> Any:
        """A function of all entries at once, which keeps their number: `r.map(vsla.tanh)`."""

    def matmul(self, w: ArrayLike) -> Any:
        """Each entry, a vector, times a matrix."""

    def max(self) -> Any:
        """The largest of each row's entries; -inf of a row without any."""

    def mean(self) -> Any:
        """The mean of each row's entries; NaN of a row without any."""

    packed: Any

    def padded(self, fill: ArrayLike = 0.0) -> Any:
        """An array of rows of one length, with something behind the shorter ones."""

    def rows(self) -> Any:
        """A list of arrays, one for each row."""

    def stacked(self) -> Any:
        """The rows as one tensor in their ambient shape, zeros behind the shorter ones."""

    def sum(self) -> Any:
        """The sum of each row's entries."""

    def tolist(self) -> Any:
        """Lists of lists."""

class VslaError(Exception):
    """A call failed. `code` is the name of its error."""

def add(a: ArrayLike, b: ArrayLike, model: str | None = 'A') -> ndarray:
    """a + b in the ambient shape."""

def attention(q: ArrayLike, k: int, v: ArrayLike, heads: ArrayLike, lengths: ArrayLike) -> ndarray:
    """Attention inside each of the packed sequences; q, k, v have shape (tokens, width)."""

def clear() -> ndarray:
    """Forgets the programs that are kept for these functions."""

def conv(a: ArrayLike, b: ArrayLike) -> ndarray:
    """Convolution along the last axis (model A)."""

def dropout(x: ArrayLike, rate: ArrayLike, seed: int) -> ndarray:
    """Drops elements at a rate and scales the rest."""

def exp(x: ArrayLike) -> ndarray:
    """exp(x)."""

def gather(x: ArrayLike, indices: ArrayLike) -> ndarray:
    """Entries of the first axis."""

def gelu(x: ArrayLike, approximate: bool = False) -> ndarray:
    """The Gaussian error linear unit; by tanh if approximate."""

def hadamard(a: ArrayLike, b: ArrayLike, model: str | None = 'A') -> ndarray:
    """a * b, elementwise, in the ambient shape."""

def kron(a: ArrayLike, b: ArrayLike) -> ndarray:
    """Kronecker product (model B)."""

def layernorm(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, eps: float = 1e-05) -> ndarray:
    """Normalises rows, then scales and shifts them."""

def load(path: str | PathLike[str]) -> ndarray:
    """Reads a dict of arrays, each in its logical shape."""

def log(x: ArrayLike) -> ndarray:
    """log(x)."""

def mask(x: ArrayLike, m: int | None) -> ndarray:
    """x * m, where m is constant."""

def matmul(a: ArrayLike, b: ArrayLike) -> ndarray:
    """Product over the last two axes."""

def mean(x: ArrayLike, axis: Axes = -1) -> ndarray:
    """Means along an axis."""

def mul_scalar(x: ArrayLike, value: float) -> ndarray:
    """x * value."""

def relu(x: ArrayLike) -> ndarray:
    """max(0, x)."""

def repeat(x: ArrayLike, count: ArrayLike) -> ndarray:
    """x stacked count times."""

def reshape(x: ArrayLike, shape: int | Sequence[int]) -> ndarray:
    """The elements in another shape."""

def rmsnorm(x: ArrayLike, gamma: ArrayLike, eps: float = 1e-06) -> ndarray:
    """Divides rows by their root mean square, then scales them."""

def save(path: str | PathLike[str], arrays: ArrayLike) -> ndarray:
    """Writes a dict of arrays."""

def scatter(x: ArrayLike, indices: ArrayLike, size: int | None) -> ndarray:
    """Adds entries of the first axis into one of another size."""

def shrink(x: ArrayLike) -> ndarray:
    """The minimal representative: without trailing zeros."""

def sigmoid(x: ArrayLike) -> ndarray:
    """1 / (1 + exp(-x))."""

def slice_(x: ArrayLike, start: float, limit: ArrayLike) -> ndarray:
    """Elements from start to limit on each axis; zeros beyond the shape."""

def softmax(x: ArrayLike) -> ndarray:
    """Softmax along the last axis."""

def stack(parts: ArrayLike) -> ndarray:
    """Arrays of one rank along a new first axis, promoted to their ambient shape."""

def sub(a: ArrayLike, b: ArrayLike, model: str | None = 'A') -> ndarray:
    """a - b in the ambient shape."""

def sum_(x: ArrayLike, axis: Axes = -1) -> ndarray:
    """Sums along an axis; the sum of a vector has shape (1,)."""

def tanh(x: ArrayLike) -> ndarray:
    """Hyperbolic tangent."""

def transpose(x: ArrayLike, axes: int | Sequence[int] | Sequence[Sequence[int]]) -> ndarray:
    """The axes in another order."""

def version() -> ndarray:
    """The version of the library."""
