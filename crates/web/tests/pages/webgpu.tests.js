// What `webgpu.mjs` asks of a page that has WebGPU.
import * as loom from "/tensorloom/index.js";
import { gpuImports, openGpu } from "/tensorloom/gpu.js";

const { numpy: np, nn, optim, random, jit, grad, valueAndGrad, lax, linalg, tree, checkLeaks } = loom;
const devices = await loom.init({ device: "webgpu" });

const check = (holds, text) => {
  if (!holds) throw new Error(text);
};
const close = (a, b, tolerance = 1e-4) => Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b));

/** Where two trees differ, or null. */
function differs(got, want, at = "") {
  if (Array.isArray(want) || (want !== null && typeof want === "object")) {
    if (Array.isArray(want) && got?.length !== want.length) return `${at}: ${JSON.stringify(got)} for ${JSON.stringify(want)}`;
    for (const k of Object.keys(want)) {
      const d = differs(got?.[k], want[k], `${at}.${k}`);
      if (d) return d;
    }
    return null;
  }
  if (typeof want === "number") return typeof got === "number" && close(got, want) ? null : `${at}: ${got} for ${want}`;
  const special = { nan: Number.isNaN(got), inf: got === Infinity, "-inf": got === -Infinity };
  if (typeof want === "string" && want in special) return special[want] ? null : `${at}: ${got} for ${want}`;
  return got === want ? null : `${at}: ${got} for ${want}`;
}

async function numbers(x) {
  if (x instanceof loom.Tensor) return x.jsAsync();
  if (Array.isArray(x)) return Promise.all(x.map(numbers));
  if (ArrayBuffer.isView(x)) return Array.from(x, Number);
  if (x !== null && typeof x === "object") return Object.fromEntries(await Promise.all(Object.entries(x).map(async ([k, v]) => [k, await numbers(v)])));
  return x;
}

/** Calls that need an answer at once, or 64 bits: on WebGPU they say so. */
const refusals = /await|does not support|64/;

export const tests = {
  async devices() {
    check(devices.join() === "wasm,webgpu", devices.join());
    const x = np.ones([3]);
    check(x.device === "webgpu", x.device);
    const here = await x.to("wasm");
    check(here.device === "wasm" && here.js().join() === "1,1,1", `${here}`);
    const there = await np.array([1, 2, 3], { device: "wasm" }).to("webgpu");
    check((await there.data()).join() === "1,2,3", "there and back");
    check(loom.withDevice("wasm", () => np.ones([2]).device) === "wasm", "withDevice");
    const moved = jit((a) => a.mul(2), { device: "webgpu" })(here);
    check(moved.device === "webgpu" && (await moved.data())[0] === 2, "jit's device");
    const error = (f) => {
      try {
        f();
      } catch (e) {
        return e.message;
      }
      return "nothing";
    };
    check(/await x\.data\(\)/.test(error(() => x.dataSync())), error(() => x.dataSync()));
    // As JAX does by default: 64-bit types are 32-bit ones here; what comes from elsewhere is refused by name, and the program goes on.
    check(np.ones([2], { dtype: "float64" }).dtype === "float32" && np.argmax(x).dtype === "int32", "wide types");
    const wide = await loom.withDevice("wasm", () => np.ones([2], { dtype: "float64" })).to("webgpu");
    const refused = await wide.add(wide).data().then(() => "nothing", (e) => e.message);
    check(/f64.*does not support.*cast it/.test(refused), refused);
    const mixed = await np.add(here, x).data().then(() => "nothing", (e) => e.message);
    check(/webgpu|nothing/.test(mixed), mixed);
    check((await np.sum(x).data())[0] === 3, "and the program goes on");
    // SwiftShader is a program on the CPU, and says so.
    check(loom.gpuIsSoftware() === /swiftshader/i.test(loom.gpuName()), `${loom.gpuName()}: software is ${loom.gpuIsSoftware()}`);
    return `${loom.gpuName()}; at once: ${error(() => x.dataSync())}`;
  },

  async calls() {
    const calls = await (await fetch("/webgpu.calls.json")).json();
    const given = {
      np,
      x: np.array([0.5, -1.25, 2, 3.5]),
      y: np.array([1.5, 2, -0.5, 4]),
      p: np.array([0.1, 0.2, 0.3, 0.4]),
      A: np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]]),
      B: np.array([[1, 2], [3, 4], [5, 6]]),
      i: np.array([3, 1, 2, 0], { dtype: "int32" }),
      b: np.array([true, false, true, true]),
    };
    const names = [...Object.keys(loom), ...Object.keys(given)];
    const values = [...Object.values(loom), ...Object.values(given)];
    const [wrong, refused] = [[], []];
    for (const [call, want] of calls) {
      try {
        const d = differs(await numbers(await new Function(...names, `"use strict"; return (${call});`)(...values)), want);
        if (d) wrong.push(`${call}${d}`);
      } catch (e) {
        (refusals.test(e.message) ? refused : wrong).push(`${call}: ${e.message}`);
      }
    }
    check(wrong.length === 0, wrong.slice(0, 8).join("\n"));
    check(refused.length <= 12, refused.slice(0, 30).join("\n"));
    return `${calls.length - refused.length} calls; ${refused.length} say why they can't: ${refused.map((r) => r.split(":")[0]).join(", ")}`;
  },

  async training() {
    const keys = random.split(random.key(3), 4);
    const truth = random.normal(keys.slice(0), [16, 4]);
    const x = random.normal(keys.slice(1), [64, 16]);
    const y = np.tanh(x.matmul(truth));
    let params = { w1: random.normal(keys.slice(2), [16, 32]).mul(0.3), w2: random.normal(keys.slice(3), [32, 4]).mul(0.3) };
    const loss = (p) => np.mean(np.square(np.tanh(x.matmul(p.w1)).matmul(p.w2).sub(y)));
    const optimizer = optim.adam(1e-2);
    let state = optimizer.init(params);
    const step = jit((params, state) => {
      const [value, grads] = valueAndGrad(loss)(params);
      const [updates, after] = optimizer.update(grads, state, params);
      return [optim.applyUpdates(params, updates), after, value];
    });
    const losses = [];
    let bytes;
    const tensors = [];
    for (let i = 0; i < 300; i++) {
      const [p, s, value] = step(params, state);
      tree.dispose([params, state]);
      [params, state] = [p, s];
      if (i % 50 === 49) losses.push((await value.data())[0]);
      value.dispose();
      if (i === 20) bytes = loom.memoryBytes("webgpu");
      tensors.push(loom.getBackend().slotCount());
    }
    await loom.blockUntilReady(params);
    check(losses.at(-1) < 0.2 * losses[0], `the loss goes ${losses}`);
    // Tensors of earlier tests may go meanwhile.
    check(tensors.at(-1) <= tensors[20], `${tensors[20]} tensors became ${tensors.at(-1)}`);
    check(loom.memoryBytes("webgpu") <= bytes, `${bytes} bytes became ${loom.memoryBytes("webgpu")}`);
    return `loss ${losses[0].toFixed(4)} to ${losses.at(-1).toFixed(4)}, ${bytes} bytes of the GPU throughout`;
  },

  /** What needs the host on the way: sorts, decompositions, loops whose end is computed, branches; one after the other, and not awaited in between. */
  async splits() {
    const n = random.normal(random.key(5), [50]);
    const sorted = np.sort(n);
    const A = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]]);
    const solved = linalg.solve(A, np.array([1, 2, 3])).add(sorted.slice([0, 3]).mul(0));
    const halved = lax.whileLoop((x) => np.greater(x, 1), (x) => x.mul(0.5), np.array(100));
    const chosen = jit((c, x) => lax.cond(c, (x) => x.add(1), (x) => x.sub(1), x))(np.greater(halved, 0.5), n);
    const back = np.sum(chosen.sub(n));
    const [s, v, h, b] = await Promise.all([sorted, solved, halved, back].map((t) => t.data()));
    check(s.every((x, i) => i === 0 || s[i - 1] <= x), "sorted");
    const host = await n.to("wasm");
    const want = loom.withDevice("wasm", () => np.sort(host)).js();
    check(want.every((x, i) => x === s[i]), "as sorted on wasm");
    [4, 1, 0].forEach((_, r) => check(close([[4, 1, 0], [1, 3, 1], [0, 1, 2]][r].reduce((t, a, c) => t + a * v[c], 0), r + 1), `solve ${v}`));
    check(close(h[0], 0.78125) && close(b[0], 50), `${h} ${b}`);
    const out = jit((x) => np.sum(np.sort(np.exp(x)).mul(2)))(n);
    check(close((await out.data())[0], 2 * want.reduce((t, x) => t + Math.exp(x), 0), 1e-3), "inside of a compiled function");
    return "sorts, solves, loops and branches";
  },

  /** The same programs on both devices. */
  async agrees() {
    const programs = {
      attention: (x) => nn.softmax(x.matmul(x.T).mul(0.1)).matmul(x),
      norm: (x) => x.sub(np.mean(x, [-1]).reshape([48, 1])).mul(0.5),
      scan: (x) => lax.scan((c, r) => { const n = np.tanh(c.mul(0.9).add(r)); return [n, n]; }, np.zeros([40]), x)[1],
      gradient: (x) => grad((w) => np.sum(np.square(np.sin(w.matmul(w.T)))))(x),
      pick: (x) => np.take(x, np.array([3, 1, 2], { dtype: "int32" }), 0).add(np.cumsum(x, 0).slice([0, 3])),
      conv: (x) => lax.convGeneralDilated?.(x.reshape([1, 1, 48, 40]), np.ones([2, 1, 3, 3])) ?? x,
      bits: (x) => random.uniform(random.key(9), [64]).add(np.sum(x)),
      product: (x) => x.T.matmul(x),
      narrow: (x) => x.astype("bfloat16").mul(3).astype("float32").add(x.astype("float16").astype("float32")),
    };
    const there = random.normal(random.key(1), [48, 40]);
    const here = await there.to("wasm");
    const wrong = [];
    for (const [name, f] of Object.entries(programs)) {
      const got = await jit(f)(there).data();
      const want = loom.withDevice("wasm", () => jit(f)(here)).dataSync();
      const off = got.findIndex((x, i) => !close(x, want[i], 2e-3));
      if (got.length !== want.length || off >= 0) wrong.push(`${name}: ${got[off]} for ${want[off]} at ${off}`);
    }
    check(wrong.length === 0, wrong.join("\n"));
    return Object.keys(programs).join(", ");
  },

  async leaks() {
    checkLeaks.start();
    const x = np.ones([8]);
    const y = x.add(1);
    await y.data();
    y.dispose();
    const { leaked, summary } = checkLeaks.stop();
    check(leaked === 1 && /float32\[8\]/.test(summary), summary);
    x.dispose();
    const shown = loom.explain((x) => nn.softmax(x))(np.ones([4, 64]));
    check(/@compute/.test(shown.kernels) && /softmax|exp/.test(shown.graph + shown.kernels), shown.kernels.slice(0, 200));
    return `explain shows ${shown.kernels.length} characters of WGSL`;
  },

  async suite(graphs, every) {
    check(typeof WebAssembly.Suspending === "function", "this browser can't suspend calls");
    let wasm;
    const lines = [];
    let heard = [];
    const told = () => {
      const all = heard;
      heard = [];
      all.forEach((done) => done(1));
    };
    const gpu = gpuImports({ memory: () => wasm.memory, wasm: () => wasm, told });
    const loomImports = {
      ...gpu.imports,
      gpu_wait: new WebAssembly.Suspending(() => new Promise((done) => heard.push(done))),
      now: () => performance.now(),
      print: (at, n) => lines.push(new TextDecoder().decode(new Uint8Array(wasm.memory.buffer, at, n))),
      instantiate(at, n) {
        const module = new WebAssembly.Module(new Uint8Array(wasm.memory.buffer, at, n).slice());
        const { exports } = new WebAssembly.Instance(module, { env: { memory: wasm.memory, table: wasm.__indirect_function_table } });
        const place = wasm.__indirect_function_table.grow(1);
        wasm.__indirect_function_table.set(place, exports.kernel);
        return place;
      },
      forget: () => {},
    };
    const bytes = await (await fetch("/webgpu.suite.wasm")).arrayBuffer();
    wasm = (await WebAssembly.instantiate(bytes, { loom: loomImports })).instance.exports;
    gpu.attach(await openGpu((text) => new Error(text)));
    const failures = await WebAssembly.promising(wasm.run)(1, graphs, every);
    check(failures === 0, lines.join("\n"));
    return lines.join("\n");
  },
};
