// Benchmark cases, for the page and for node: { name, run(), rate(seconds) }. `run` gives something to dispose of, computed.
export function cases({ numpy: np, lax, nn, random, jit, grad, valueAndGrad, tree, optim }) {
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
  return [
    { name: "scan cumsum, scalar, L = 1000", run: many(cumsum([]), 20), rate: (t) => `${((20 * L) / t / 1e6).toFixed(0)} M/s` },
    { name: "scan cumsum, n = 4, L = 1000", run: many(cumsum([4]), 20), rate: (t) => `${((20 * L) / t / 1e6).toFixed(0)} M/s` },
    { name: "matmul 512, f32", run: () => product(a), rate: (t) => `${((2 * 512 ** 3) / t / 1e9).toFixed(1)} GFLOP/s` },
    { name: "gelu chain, 2²⁰", run: () => gelu(v), rate: (t) => `${((1 << 20) / t / 1e6).toFixed(0)} M/s` },
    { name: "softmax, 1024 × 1024", run: () => soft(m), rate: (t) => `${((1 << 20) / t / 1e6).toFixed(0)} M/s` },
    { name: "sum, 2²⁰", run: () => sum(v), rate: (t) => `${((4 << 20) / t / 1e9).toFixed(1)} GB/s` },
    { name: "small jit call", run: many(() => small(s), 1000), rate: (t) => `${((t / 1000) * 1e6).toFixed(2)} µs a call` },
  ];
}

/** The best of several rounds, in seconds a run. A page's clock is coarse, so a round is as many runs as take 20 ms. */
export function best(run, dispose, rounds = 10) {
  const round = (n) => {
    const begun = performance.now();
    for (let i = 0; i < n; i++) dispose(run());
    return (performance.now() - begun) / 1e3;
  };
  let n = 1;
  while (round(n) < 0.02) n *= 2;
  return Math.min(...Array.from({ length: rounds }, () => round(n))) / n;
}
