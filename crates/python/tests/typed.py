"""A program with types, for `mypy --strict`; it runs too."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorloom as tl
import tensorloom.numpy as tnp
from tensorloom import array_api, lax, nn, optim, random, tree

Params = dict[str, tl.Tensor]


@tl.tree_util.register_dataclass
@dataclass
class Batch:
    x: tl.Tensor
    y: tl.Tensor


def init(key: tl.Tensor, width: int) -> Params:
    a, b = random.split(key)
    return {"w": random.normal(a, (width, 3)) * 0.1, "b": tnp.zeros(3), "v": random.uniform(b, (3, 1))}


def loss(params: Params, batch: Batch) -> tl.Tensor:
    h = nn.gelu(batch.x @ params["w"] + params["b"])
    return ((h @ params["v"] - batch.y) ** 2).mean()


def scale(x: tl.Tensor, k: float) -> tl.Tensor:
    y: tl.Tensor = x * k + x.sum(axis=0, keepdims=True)
    return y.at[0].set(1.0).reshape(-1)


def total(t: Any) -> float:
    return float(sum(float(leaf.sum()) for leaf in tree.leaves(t)))


def main() -> None:
    params = init(random.key(0), 4)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-2, b1=0.9))
    state = optimizer.init(params)
    step = tl.jit(tl.value_and_grad(loss))
    value, grads = step(params, Batch(tnp.ones((2, 4)), tnp.zeros((2, 1))))
    updates, state = optimizer.update(grads, state, params)
    params = optim.apply_updates(params, updates)
    carry, ys = lax.scan(lambda c, x: (c + x, c), tnp.zeros(()), tnp.arange(4, dtype="float32"))
    z = array_api.asarray(np.arange(3.0))
    n: int = z.shape[0]
    shape: tuple[int, ...] = z.shape
    print(value, carry, ys, n, shape, scale(tnp.ones((2, 2)), 2.0), total(params), z.dtype.name)


if __name__ == "__main__":
    main()
