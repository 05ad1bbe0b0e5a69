// A training step of a tiny Llama (norms, rotated positions, grouped by heads, a gated layer), written once for this package and for jax-js, whose
// operations use up their operands: hence `.ref`, which here is the tensor itself.
export function llama({ numpy: np, nn, random, jit, valueAndGrad, tree }, causal, { layers = 2, width = 64, heads = 4, inner = 128, context = 64, batch = 8, vocabulary = 64 } = {}) {
  const size = width / heads;
  let seed = 10;
  const normal = (shape, by) => random.normal(random.key(seed++), shape).mul(by);
  const matrix = (n, m) => normal([n, m], n ** -0.5);
  const params = {
    embed: normal([vocabulary, width], 0.5),
    blocks: Array.from({ length: layers }, () => ({
      norm1: np.ones([width]), q: matrix(width, width), k: matrix(width, width), v: matrix(width, width), o: matrix(width, width),
      norm2: np.ones([width]), gate: matrix(width, inner), up: matrix(width, inner), down: matrix(inner, width),
    })),
    norm: np.ones([width]),
    head: matrix(width, vocabulary),
  };
  const angle = (f) => {
    const half = size / 2;
    const all = Float32Array.from({ length: context * half }, (_, i) => f(Math.floor(i / half) * 1000 ** (-(i % half) / half)));
    return np.array(all, { shape: [context, 1, half] });
  };
  const [cos, sin] = [angle(Math.cos), angle(Math.sin)];
  const hot = (shift) => {
    const all = new Float32Array(batch * context * vocabulary);
    for (let i = 0; i < batch * context; i++) all[i * vocabulary + ((i + shift) * 7919) % vocabulary] = 1;
    return np.array(all, { shape: [batch, context, vocabulary] });
  };
  const norm = (x, w) => {
    const s = np.mean(np.square(x.ref), -1).reshape([batch, context, 1]);
    return x.mul(np.reciprocal(np.sqrt(s.add(1e-5)))).mul(w);
  };
  const rotate = (x) => {
    const half = size / 2;
    const [a, b] = [x.ref.slice([], [], [], [0, half]), x.slice([], [], [], [half, size])];
    return np.concatenate([a.ref.mul(cos.ref).sub(b.ref.mul(sin.ref)), a.mul(sin.ref).add(b.mul(cos.ref))], -1);
  };
  const split = (x) => x.reshape([batch, context, heads, size]);
  const loss = (p, x, y) => {
    let h = np.matmul(x, p.embed);
    for (const l of p.blocks) {
      const n = norm(h.ref, l.norm1);
      const [q, k, v] = [rotate(split(np.matmul(n.ref, l.q))), rotate(split(np.matmul(n.ref, l.k))), split(np.matmul(n, l.v))];
      const mixed = nn.dotProductAttention(q, k, v, causal).reshape([batch, context, width]);
      h = h.add(np.matmul(mixed, l.o));
      const g = norm(h.ref, l.norm2);
      h = h.add(np.matmul(nn.silu(np.matmul(g.ref, l.gate)).mul(np.matmul(g, l.up)), l.down));
    }
    const scores = np.matmul(norm(h, p.norm), p.head);
    return np.mean(np.sum(nn.logSoftmax(scores, -1).mul(y), -1)).mul(-1);
  };
  const step = jit((p, x, y) => {
    const [value, grads] = valueAndGrad(loss)(tree.ref(p), x, y);
    return [tree.map((a, b) => a.sub(b.mul(0.05)), p, grads), value];
  });
  return { params, step, x: hot(0), y: hot(1) };
}
