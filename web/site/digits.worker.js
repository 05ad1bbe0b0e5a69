import { breathe, grad, jit, lax, nn, now, numpy as np, optim, random, say, tasks, tree, valueAndGrad } from "./task.js";
import { generator } from "./tales.js";

const side = 20;
const batch = 64;
const chance = generator(3);
const fonts = ["sans-serif", "serif", "monospace", "cursive", "system-ui"];
const paper = new OffscreenCanvas(side * 2, side * 2).getContext("2d", { willReadFrequently: true });
let params, state, optimizer, step, read, home, running = false, steps = 0;

/** A digit in one of the browser's fonts, turned, shifted, sheared and thick or thin. */
function picture(digit) {
  const n = side * 2;
  paper.setTransform(1, 0, 0, 1, 0, 0);
  paper.fillStyle = "#000";
  paper.fillRect(0, 0, n, n);
  const turn = (chance() - 0.5) * 0.5;
  const size = 0.85 + chance() * 0.5;
  paper.setTransform(size * Math.cos(turn), Math.sin(turn), (chance() - 0.5) * 0.4 - Math.sin(turn), size * Math.cos(turn), n / 2 + (chance() - 0.5) * 7, n / 2 + (chance() - 0.5) * 7);
  paper.font = `${chance() < 0.6 ? "bold " : ""}${n * 0.72}px ${fonts[Math.floor(chance() * fonts.length)]}`;
  paper.textAlign = "center";
  paper.textBaseline = "middle";
  paper.fillStyle = paper.strokeStyle = "#fff";
  paper.lineWidth = chance() * 4;
  paper.fillText(digit, 0, 0);
  paper.strokeText(digit, 0, 0);
  const { data } = paper.getImageData(0, 0, n, n);
  return shrink((i) => data[4 * i] / 255, n);
}

/** Means over squares, down to the network's size. */
function shrink(at, n) {
  const by = n / side;
  const out = new Float32Array(side * side);
  for (let y = 0; y < n; y++) for (let x = 0; x < n; x++) out[Math.floor(y / by) * side + Math.floor(x / by)] += at(y * n + x) / (by * by);
  return out;
}

function sample() {
  const x = new Float32Array(batch * side * side);
  const y = new Int32Array(batch);
  for (let b = 0; b < batch; b++) {
    y[b] = Math.floor(chance() * 10);
    x.set(picture(String(y[b])), b * side * side);
  }
  return [np.array(x, { shape: [batch, 1, side, side] }), np.array(y)];
}

function network(p, x) {
  let h = nn.relu(nn.conv2d(x, p.c1, p.b1, { padding: 1 }));
  h = nn.maxPool2d(h, 2);
  h = nn.relu(nn.conv2d(h, p.c2, p.b2, { padding: 1 }));
  h = nn.maxPool2d(h, 2);
  h = h.reshape([x.shape[0], 16 * 25]);
  h = nn.relu(h.matmul(p.w1).add(p.d1));
  return h.matmul(p.w2).add(p.d2);
}

tasks({
  make({ device = "wasm" }) {
    if (params) tree.dispose([params, state]);
    [home, steps] = [device, 0];
    const keys = random.split(random.key(5), 4);
    const weights = (i, shape, inputs) => random.normal(keys.slice(i), shape).mul((2 / inputs) ** 0.5);
    params = {
      c1: weights(0, [8, 1, 3, 3], 9),
      b1: np.zeros([8]),
      c2: weights(1, [16, 8, 3, 3], 72),
      b2: np.zeros([16]),
      w1: weights(2, [400, 64], 400),
      d1: np.zeros([64]),
      w2: weights(3, [64, 10], 64),
      d2: np.zeros([10]),
    };
    optimizer = optim.adam(2e-3);
    state = optimizer.init(params);
    const loss = (p, x, y) => {
      const scores = network(p, x);
      return [nn.crossEntropy(scores, y), np.mean(np.equal(np.argmax(scores, -1).astype("int32"), y).astype("float32"))];
    };
    step = jit((params, state, x, y) => {
      const [[value, right], grads] = valueAndGrad(loss, { hasAux: true })(params, x, y);
      const [updates, after] = optimizer.update(grads, state, params);
      return [optim.applyUpdates(params, updates), after, value, right];
    });
    read = jit((p, x) => nn.softmax(network(p, x)));
    const pictures = Array.from({ length: 70 }, (_, i) => picture(String(i % 10)));
    say("made", { parameters: tree.leaves(params).reduce((n, t) => n + t.size, 0), pictures, side });
  },
  async train() {
    running = true;
    while (running) {
      const begun = performance.now();
      const [x, y] = sample();
      const [p, s, value, right] = step(params, state, x, y);
      tree.dispose([params, state, x, y]);
      [params, state] = [p, s];
      const figures = { loss: (await value.data())[0], right: (await right.data())[0] };
      tree.dispose([value, right]);
      steps++;
      say("step", { step: steps, ...figures, ms: performance.now() - begun });
      await breathe();
    }
  },
  pause: now(() => {
    running = false;
  }),
  see: now(async ({ pixels }) => {
    // Brought to the middle and to the size of the lessons.
    const n = 280;
    let [x0, y0, x1, y1] = [n, n, 0, 0];
    pixels.forEach((v, i) => {
      if (v < 0.3) return;
      [x0, y0, x1, y1] = [Math.min(x0, i % n), Math.min(y0, Math.floor(i / n)), Math.max(x1, i % n), Math.max(y1, Math.floor(i / n))];
    });
    const scale = Math.max(x1 - x0, y1 - y0, 60) / (n * 0.66);
    const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2];
    const image = shrink((i) => {
      const x = Math.round(cx + ((i % n) - n / 2) * scale);
      const y = Math.round(cy + (Math.floor(i / n) - n / 2) * scale);
      return x >= 0 && y >= 0 && x < n && y < n ? pixels[y * n + x] : 0;
    }, n);
    const input = np.array(image, { shape: [1, 1, side, side], device: home });
    const out = read(params, input);
    say("seen", { probabilities: Array.from(await out.data()) });
    tree.dispose([input, out]);
  }),
});
