import { llama } from "./llama.js";

// Benchmark cases, for the page and for node: { name, run(), rate(seconds) }. `run` gives something to dispose of, computed.
export function cases(loom) {
  const { numpy: np, lax, nn, random, jit, grad, tree } = loom;
  const L = 1000;
  const cumsum = (shape) => {
    const f = jit((c, xs) => lax.scan((c, x) => { const n = np.add(c, x); return [n, n]; }, c, xs));
    const [c, xs] = [np.zeros(shape), np.ones([L, ...shape])];
    return () => f(c, xs);
  };
  const many = (f, times) => () => {
    for (let i = 0; i < times - 1; i++) tree.dispose(f());
    return f();
  };
  const a = random.normal(random.key(0), [512, 512]);
  const product = jit((a) => np.matmul(a, a));
  const v = random.normal(random.key(1), [1 << 20]);
  const gelu = jit((x) => nn.gelu(x).mul(0.5).add(x));
  const soft = jit((x) => nn.softmax(x));
  const m = random.normal(random.key(2), [1024, 1024]);
  const small = jit((x) => np.add(np.multiply(x, 2), 1));
  const s = np.ones([4]);
  const sum = jit((x) => np.sum(x));
  const keys = random.split(random.key(3), 4);
  const [x, y] = [random.normal(keys.slice(0), [64, 784]), random.normal(keys.slice(1), [64, 10])];
  const net = {
    w1: random.normal(keys.slice(2), [784, 256]).mul(0.03),
    b1: np.zeros([256]),
    w2: random.normal(keys.slice(3), [256, 10]).mul(0.05),
    b2: np.zeros([10]),
  };
  const loss = (p, x, y) => np.mean(np.square(np.tanh(x.matmul(p.w1).add(p.b1)).matmul(p.w2).add(p.b2).sub(y)));
  const step = jit((p, x, y) => tree.map((a, b) => a.sub(b.mul(0.01)), p, grad(loss)(p, x, y)));
  const tiny = llama(loom, { causal: true });
  return [
    { name: "20 scans: cumsum, scalar, L = 1000", run: many(cumsum([]), 20), rate: (t) => `${((20 * L) / t / 1e6).toFixed(0)} M/s` },
    { name: "20 scans: cumsum, n = 4, L = 1000", run: many(cumsum([4]), 20), rate: (t) => `${((20 * L) / t / 1e6).toFixed(0)} M/s` },
    { name: "matmul 512, f32", run: () => product(a), rate: (t) => `${((2 * 512 ** 3) / t / 1e9).toFixed(1)} GFLOP/s` },
    { name: "gelu chain, 2²⁰", run: () => gelu(v), rate: (t) => `${((1 << 20) / t / 1e6).toFixed(0)} M/s` },
    { name: "softmax, 1024 × 1024", run: () => soft(m), rate: (t) => `${((1 << 20) / t / 1e6).toFixed(0)} M/s` },
    { name: "sum, 2²⁰", run: () => sum(v), rate: (t) => `${((4 << 20) / t / 1e9).toFixed(1)} GB/s` },
    { name: "training step, 784-256-10", run: () => step(net, x, y), rate: (t) => `${((64 * (4 * 784 * 256 + 6 * 2560)) / t / 1e9).toFixed(1)} GFLOP/s` },
    { name: "training step, tiny Llama", run: () => tiny.step(tiny.params, tiny.x, tiny.y), rate: (t) => `${(512 / t / 1e3).toFixed(1)} k tokens/s` },
    { name: "1000 small jit calls", run: many(() => small(s), 1000), rate: (t) => `${((t / 1000) * 1e6).toFixed(2)} µs a call` },
  ];
}

/** The best of several rounds, in seconds a run. A page's clock is coarse, so a round is as many runs as take 20 ms; `ready` waits for a GPU. */
export async function best(run, dispose, rounds = 10, ready = async () => {}) {
  const round = async (n) => {
    const begun = performance.now();
    for (let i = 0; i < n - 1; i++) dispose(run());
    const last = run();
    await ready(last);
    const took = (performance.now() - begun) / 1e3;
    dispose(last);
    return took;
  };
  let n = 1;
  while ((await round(n)) < 0.02) n *= 2;
  let least = Infinity;
  for (let i = 0; i < rounds; i++) least = Math.min(least, await round(n));
  return least / n;
}
