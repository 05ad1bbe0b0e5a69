import { breathe, jit, nn, now, numpy as np, optim, random, say, tasks, tree, valueAndGrad } from "./task.js";
import { logits, loss, parameters, settings } from "./model.js";
import { book, generator } from "./tales.js";

const text = book(4000);
const letters = [...new Set(text)].sort();
const codes = new Map(letters.map((c, i) => [c, i]));
const data = Int32Array.from(text, (c) => codes.get(c));
const batch = 16;
const chance = generator(7);
let params, state, optimizer, step, next, home, running = false, steps = 0;

function sample() {
  const { context } = settings;
  const [x, y] = [new Int32Array(batch * context), new Int32Array(batch * context)];
  for (let b = 0; b < batch; b++) {
    const at = Math.floor(chance() * (data.length - context - 1));
    x.set(data.subarray(at, at + context), b * context);
    y.set(data.subarray(at + 1, at + 1 + context), b * context);
  }
  const shape = [batch, context];
  return [np.array(x, { shape }), np.array(y, { shape })];
}

async function tell() {
  const { context } = settings;
  let tokens = Array.from("once there was ", (c) => codes.get(c));
  let out = "once there was ";
  for (let i = 0; i < 220; i++) {
    const window = tokens.slice(-context);
    const row = new Int32Array(context);
    row.set(window);
    const x = np.array(row, { shape: [1, context], device: home });
    const scores = next(params, x);
    const all = await scores.data();
    const flat = all.subarray((window.length - 1) * letters.length, window.length * letters.length);
    tree.dispose([x, scores]);
    const weights = Array.from(flat, (s) => Math.exp((s - Math.max(...flat)) / 0.7));
    let r = chance() * weights.reduce((a, b) => a + b);
    const token = Math.max(0, weights.findIndex((w) => (r -= w) <= 0));
    tokens = [...window, token];
    out += letters[token];
    if (letters[token] === "\n") break;
  }
  say("story", { text: out });
}

tasks({
  make({ device = "wasm" }) {
    if (params) tree.dispose([params, state]);
    [home, steps] = [device, 0];
    params = parameters(random.key(1), letters.length);
    optimizer = optim.chain([optim.clipByGlobalNorm(1), optim.adam(3e-3)]);
    state = optimizer.init(params);
    step = jit((params, state, x, y) => {
      const [value, grads] = valueAndGrad(loss)(params, x, y);
      const [updates, after] = optimizer.update(grads, state, params);
      return [optim.applyUpdates(params, updates), after, value];
    });
    next = jit((params, x) => logits(params, x));
    const size = tree.leaves(params).reduce((n, t) => n + t.size, 0);
    say("made", { parameters: size, example: text.split("\n").slice(0, 3).join("\n\n") });
  },
  async train() {
    running = true;
    while (running) {
      const begun = performance.now();
      const [x, y] = sample();
      const [p, s, value] = step(params, state, x, y);
      tree.dispose([params, state, x, y]);
      [params, state] = [p, s];
      const [loss] = await value.data();
      value.dispose();
      steps++;
      say("step", { step: steps, loss, ms: performance.now() - begun });
      if (steps % 100 === 0) await tell();
      await breathe();
    }
  },
  pause: now(() => {
    running = false;
  }),
  tell: now(() => tell()),
});
