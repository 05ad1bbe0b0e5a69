// node compare.mjs PACKAGE [FOLDER]: the benchmark's cases under node, beside jax-js where it is installed in FOLDER.
// Rounds of both alternate, so that a busy machine slows both.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";
import { cases } from "../../../web/site/cases.js";
import { llama } from "../../../web/site/llama.js";

const [folder = "target/web/package", peer] = process.argv.slice(2);
const begun = performance.now();
const loom = await import(pathToFileURL(path.resolve(folder, "index.js")));
await loom.init();
const loaded = performance.now();
loom.numpy.add(loom.numpy.ones([3]), 1).dataSync();
console.log(`loaded in ${(loaded - begun).toFixed(0)} ms, first kernel after ${(performance.now() - loaded).toFixed(0)} ms more\n`);

const theirs = new Map();
if (peer) {
  globalThis.navigator ??= {};
  // What jax-js uses and older versions of node lack.
  const iterator = Object.getPrototypeOf(Object.getPrototypeOf([][Symbol.iterator]()));
  for (const name of ["map", "filter"]) iterator[name] ??= function (f) { return [...this][name](f); };
  const jax = await import(pathToFileURL(createRequire(path.resolve(peer, "x.js")).resolve("@jax-js/jax")));
  const api = jax.default ?? jax;
  await api.init("wasm");
  api.defaultDevice("wasm");
  const { numpy: np, nn, random, jit } = api;
  const a = random.normal(random.key(0), [512, 512]);
  const product = jit((a) => np.matmul(a.ref, a));
  theirs.set("matmul 512, f32", async () => (await product(a.ref).blockUntilReady()).dispose());
  const v = random.normal(random.key(1), [1 << 20]);
  const gelu = jit((x) => nn.gelu(x.ref).mul(0.5).add(x));
  theirs.set("gelu chain, 2²⁰", async () => (await gelu(v.ref).blockUntilReady()).dispose());
  const m = random.normal(random.key(2), [1024, 1024]);
  const soft = jit((x) => nn.softmax(x, -1));
  theirs.set("softmax, 1024 × 1024", async () => (await soft(m.ref).blockUntilReady()).dispose());
  const sum = jit((x) => np.sum(x));
  theirs.set("sum, 2²⁰", async () => (await sum(v.ref).blockUntilReady()).dispose());
  const { grad, tree } = api;
  const normal = (seed, shape, by) => random.normal(random.key(seed), shape).mul(by);
  const [x, y] = [normal(3, [64, 784], 1), normal(4, [64, 10], 1)];
  const net = { w1: normal(5, [784, 256], 0.03), b1: np.zeros([256]), w2: normal(6, [256, 10], 0.05), b2: np.zeros([10]) };
  const loss = (p, x, y) => np.mean(np.square(np.matmul(np.tanh(np.matmul(x, p.w1).add(p.b1)), p.w2).add(p.b2).sub(y)));
  const step = jit((p, x, y) => {
    const g = grad(loss)(tree.ref(p), x, y);
    return tree.map((a, b) => a.sub(b.mul(0.01)), p, g);
  });
  theirs.set("training step, 784-256-10", async () => tree.dispose(await api.blockUntilReady(step(tree.ref(net), x.ref, y.ref))));
  const tiny = llama(api, { isCausal: true });
  theirs.set("training step, tiny Llama", async () => tree.dispose(await api.blockUntilReady(tiny.step(tree.ref(tiny.params), tiny.x.ref, tiny.y.ref))));
  const s = np.ones([4]);
  const small = jit((x) => x.mul(2).add(1));
  theirs.set("1000 small jit calls", async () => {
    for (let i = 0; i < 1000; i++) small(s.ref).dispose();
  });
}

console.log("| case | here | rate | jax-js | ratio |\n| --- | --- | --- | --- | --- |");
const show = (t) => (t < 1e-3 ? `${(t * 1e6).toFixed(0)} µs` : `${(t * 1e3).toFixed(2)} ms`);
for (const c of cases(loom)) {
  let [own, other] = [Infinity, Infinity];
  const run = theirs.get(c.name);
  const end = performance.now() + 4000;
  for (let i = 0; i < 300 && (i < 10 || performance.now() < end); i++) {
    let t = performance.now();
    const result = c.run();
    own = Math.min(own, (performance.now() - t) / 1e3);
    loom.tree.dispose(result);
    if (!run) continue;
    t = performance.now();
    try {
      await run();
      other = Math.min(other, (performance.now() - t) / 1e3);
    } catch (e) {
      if (i === 0) console.log(`(jax-js, ${c.name}: ${e.message})`);
    }
  }
  const ratio = Number.isFinite(other) ? [show(other), `${(other / own).toFixed(1)}×`] : ["–", "–"];
  console.log(`| ${c.name} | ${show(own)} | ${c.rate(own)} | ${ratio.join(" | ")} |`);
}
