"""Models of HuggingFace directories, GGUF files and `.module` files: logits, losses, gradients, texts, training.

>>> from tensorloom import models
>>> model = models.load("my-llama")                                   # doctest: +SKIP
>>> "".join(model.generate("Once upon a time", 64, temperature=0.8))  # doctest: +SKIP

A model is a function, too: `model.apply(params, ids)` gives logits by parameters that are a dict of tensors, so that transforms
take it, and `cross_entropy` makes a loss of them:

>>> def loss(params, ids):
...     return models.cross_entropy(model.apply(params, ids), ids)
>>> step = tl.jit(tl.value_and_grad(loss))                            # doctest: +SKIP
"""

from ._tensorloom import models as _own

Generation, Model, ModelError = _own.Generation, _own.Model, _own.ModelError
fresh, load, settings, train = _own.fresh, _own.load, _own.settings, _own.train

__all__ = ["Generation", "Model", "ModelError", "cross_entropy", "fresh", "load", "settings", "train"]


def cross_entropy(logits, labels, ignore=-100):
    """The mean loss of predicting each label from the logits before it; labels that are to be ignored don't count.

    `logits` has shape `(.., T, vocabulary)`, `labels` `(.., T)`: position `t` predicts label `t + 1`.
    """
    from . import nn, numpy as tnp

    logits, labels = tnp.asarray(logits), tnp.asarray(labels)
    seen = labels[..., 1:]
    counts = seen != ignore
    chosen = tnp.where(counts, seen, 0)
    found = nn.log_softmax(logits[..., :-1, :].astype("float32"), -1)
    picked = tnp.take_along_axis(found, chosen[..., None].astype("int32"), -1)[..., 0]
    weights = counts.astype("float32")
    return -(picked * weights).sum() / tnp.maximum(weights.sum(), 1.0)
