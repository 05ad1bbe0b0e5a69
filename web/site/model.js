// A small transformer as functions of its parameters: norms without bias, rotary positions, a gated layer.
import { lax, nn, numpy as np, random } from "./tensorloom/index.js";

export const settings = { layers: 2, width: 64, heads: 4, inner: 128, context: 64 };

export function parameters(key, vocabulary, { layers, width, inner } = settings) {
  const keys = random.split(key, 2 + 7 * layers);
  let next = 0;
  const matrix = (n, m) => random.normal(keys.slice(next++), [n, m]).mul(n ** -0.5);
  const embed = random.normal(keys.slice(next++), [vocabulary, width]).mul(0.5);
  const blocks = Array.from({ length: layers }, () => ({
    norm1: np.ones([width]),
    q: matrix(width, width),
    k: matrix(width, width),
    v: matrix(width, width),
    o: matrix(width, width),
    norm2: np.ones([width]),
    gate: matrix(width, inner),
    up: matrix(width, inner),
    down: matrix(inner, width),
  }));
  return { embed, blocks, norm: np.ones([width]), head: matrix(width, vocabulary) };
}

const norm = (x, w) => {
  const s = np.mean(np.square(x), [-1]);
  return x.mul(np.expandDims(np.reciprocal(np.sqrt(s.add(1e-5))), -1)).mul(w);
};

/** Turns pairs of features by their position. */
function rotate(x, cos, sin) {
  const half = x.shape.at(-1) / 2;
  const [a, b] = [x.slice("...", [0, half]), x.slice("...", [half, 2 * half])];
  return np.concatenate([a.mul(cos).sub(b.mul(sin)), a.mul(sin).add(b.mul(cos))], -1);
}

/** Logits [B, T, V] of tokens [B, T]. */
export function logits(p, tokens, { heads, width } = settings) {
  const [b, t] = tokens.shape;
  const size = width / heads;
  const rates = np.arange(size / 2).astype("float32").mul(-Math.log(1000) / (size / 2));
  const angles = np.outer(np.arange(t).astype("float32"), np.exp(rates)).reshape([t, 1, size / 2]);
  const [cos, sin] = [np.cos(angles), np.sin(angles)];
  let x = np.take(p.embed, tokens, 0);
  for (const l of p.blocks) {
    const h = norm(x, l.norm1);
    const split = (w) => h.matmul(w).reshape([b, t, heads, size]);
    const [q, k, v] = [rotate(split(l.q), cos, sin), rotate(split(l.k), cos, sin), split(l.v)];
    const mixed = nn.dotProductAttention(q, k, v, { causal: true }).reshape([b, t, width]);
    x = x.add(mixed.matmul(l.o));
    const g = norm(x, l.norm2);
    x = x.add(nn.silu(g.matmul(l.gate)).mul(g.matmul(l.up)).matmul(l.down));
  }
  return norm(x, p.norm).matmul(p.head);
}

export const loss = (p, tokens, next) => nn.crossEntropy(logits(p, tokens), next);
export { lax };
