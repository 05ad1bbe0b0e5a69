"""Models of HuggingFace directories, GGUF files and `.module` files: logits, losses, gradients, texts, training."""

# Written by stubs.py; don't change it by hand.
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from . import ArrayLike, Axes, ComplexLike, DType, DTypeLike, Tensor



class Generation:
    """What follows a prompt, piece by piece: ids after ids, text after text."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def close(self) -> None:
        """Stops it; what was asked for is not computed any more."""

    @property
    def ids(self) -> list[int]:
        """The ids that came so far."""

class Model:
    """A model with its parameters, and its tokenizer where there is one."""

    def __repr__(self) -> str: ...

    def apply(self, params: dict[str, Any], ids: ArrayLike) -> Tensor:
        """Logits of ids by given parameters, as a function that transforms take: `ids` has one axis or two."""

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids."""

    @property
    def dtype(self) -> DType:
        """The element type of parameters and computation."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""

    def generate(self, prompt: str | ArrayLike, max_new: int | None = None, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, typical_p: float = 1.0, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0, seed: int = 1, ends: Sequence[int] | None = None) -> Generation:
        """Continues a prompt: an iterator of pieces of text after a text, of ids after ids. Tokens are computed in the background,
        as they are asked for. Without a temperature the most probable token is taken."""

    def graph(self, batch: int, steps: int) -> str:
        """The program from parameters and ids to logits, as text."""

    @property
    def has_tokenizer(self) -> bool:
        """Whether it has a tokenizer."""

    def logits(self, ids: ArrayLike) -> Tensor:
        """Logits of ids: `[T, vocabulary]`, or `[batch, T, vocabulary]`."""

    def loss(self, ids: ArrayLike, labels: ArrayLike | None = None) -> float:
        """The mean loss of predicting each label from the ids before it; the ids themselves are the labels unless given. Labels of
        -100 don't count."""

    @property
    def max_sequence(self) -> int | None:
        """The longest sequence that it takes, if there is a limit."""

    @property
    def name(self) -> str:
        """The kind of model, such as `Llama`."""

    @property
    def parameter_count(self) -> int:
        """Elements of all parameters."""

    def params(self) -> dict[str, Tensor]:
        """The parameters by their paths, as tensors: a tree for `apply` and for transforms."""

    def save(self, dir: str | PathLike[str]) -> None:
        """Writes a HuggingFace directory."""

    def update(self, params: dict[str, Any]) -> None:
        """Gives parameters other values, by their paths; those that are not named stay."""

    def value_and_grad(self, ids: ArrayLike, labels: ArrayLike | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and its gradients by the names that the tensors have in files."""

    @property
    def vocabulary(self) -> int | None:
        """How many ids it knows, if it looks ids up."""

class ModelError(ValueError):
    """A model, its files or its settings are invalid; the message says what to change."""

def cross_entropy(logits: ArrayLike, labels: ArrayLike | None, ignore: int = -100) -> Tensor:
    """The mean loss of predicting each label from the logits before it; labels that are to be ignored don't count.

    `logits` has shape `(.., T, vocabulary)`, `labels` `(.., T)`: position `t` predicts label `t + 1`."""

def fresh(module: str, sizes: dict[str, Any] | None = None, dtype: DTypeLike | None = None, seed: int = 1, model: str | None = None, tokenizer: str | PathLike[str] | None = None) -> Model:
    """A model of a `.module` file, or of the library by its name (`llama`), with random parameters. `sizes` are the model's own."""

def load(path: str | PathLike[str], dtype: DTypeLike | None = None, module: str | None = None) -> Model:
    """The model of a HuggingFace directory, of an adapter's directory (merged into its base), or of a GGUF file. `module` is a `.module`
    file with the model, where the library doesn't have it."""

def settings() -> dict[str, str]:
    """The settings of a run by name, with a line about each."""

def train(*, out: str | PathLike[str], resume: bool = False, callback: Callable[[dict[str, Any]], Any] | None = None, **settings: Any) -> dict[str, Any]:
    """Trains a model as `loom train` does, with its settings as keywords (`model`, `data`, `out`, `steps`, `micro_batch_size`, `seq_len`, `lr`, ..;
    `settings()` lists them). `resume` goes on from the newest checkpoint in `out`.

    `callback` is called with a dict for each `event`: `note`, `reading`, `begin`, `step`, `sample`. If it gives `False`, the run
    saves and stops. Ctrl-C and exceptions of the callback save, stop, and are raised. Python's lock is free meanwhile."""
