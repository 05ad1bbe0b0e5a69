// The package: ownership, errors, trees, compiled functions, training.
import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { differs, loom, numbers, packageFolder } from "./support.mjs";

const { numpy: np, lax, nn, random, optim, jit, grad, valueAndGrad, vjp, checkLeaks, tree, LoomError } = loom;

test("errors name the call, the types and the remedy", () => {
  const a = np.ones([2, 3]);
  assert.throws(() => np.matmul(a, np.ones([4, 5])), (e) => e instanceof LoomError && /f32\[2, ?3\]/.test(e.message) && /np\.matmul/.test(e.message));
  assert.throws(() => np.add(a, np.ones([7])), LoomError);
  assert.throws(() => np.reshape(a, [4]), LoomError);
  assert.throws(() => np.zeros([2], { dtype: "float33" }), /there is no dtype "float33"/);
  assert.throws(() => np.sum(a, { axis: 2 }), LoomError);
  assert.throws(() => np.array([[1, 2], [3]]), /different lengths/);
  assert.throws(() => grad((x) => x)(a), LoomError);
  assert.throws(() => lax.scan((c, x) => [c, x], np.array(0), null), LoomError);
  assert.throws(() => np.ones([2]) + 1, /is no number/);
  assert.equal(`${np.ones([2])}`, "Tensor(float32[2])");
});

test("an exception inside of a function comes out as it is", () => {
  const mine = new RangeError("mine");
  const bad = () => {
    throw mine;
  };
  for (const run of [() => jit(bad)(np.ones([1])), () => grad(bad)(np.ones([])), () => lax.scan(bad, np.array(0), np.ones([3])), () => loom.vmap(bad)(np.ones([3])), () => vjp(bad, [np.ones([2])]), () => lax.cond(np.array(true), bad, bad, np.ones([1]))]) {
    assert.throws(run, (e) => e === mine);
  }
  assert.equal(np.sum(np.ones([3])).item(), 3, "and the program goes on");
});

test("a tensor is gone after dispose, and says so", () => {
  const a = np.ones([2, 2]);
  assert.deepEqual(a.shape, [2, 2]);
  a.dispose();
  a.dispose();
  assert.throws(() => a.add(1), /float32\[2,2\] was used after it was disposed of/);
});

test("an empty acceptPath always fails and says which path it is", () => {
  const f = (c, x) => [c.add(x), c];
  assert.throws(() => lax.scan(f, np.array(0), np.ones([4]), { acceptPath: [] }), /compiled|CompiledLoop/i);
  assert.throws(() => lax.scan(f, np.array(0), np.ones([4]), { acceptPath: "fallback" }), LoomError);
});

test("dtypes go there and back", async () => {
  for (const [type, dtype] of [[Float32Array, "float32"], [Float64Array, "float64"], [Int32Array, "int32"], [Uint8Array, "uint8"], [Int16Array, "int16"], [Uint32Array, "uint32"]]) {
    const t = np.array(type.from([1, 2, 3]));
    assert.equal(t.dtype, dtype);
    assert.deepEqual(Array.from(await t.data()), [1, 2, 3]);
    assert.ok((await t.data()) instanceof type);
  }
  assert.deepEqual(Array.from(np.array([1n, -2n]).dataSync()), [1n, -2n]);
  assert.deepEqual(np.array([0.1, 1.5]).astype("bfloat16").astype("float32").js(), [0.10009765625, 1.5]);
});

test("checkLeaks finds what is left, and where it was made", () => {
  checkLeaks.start();
  const kept = np.ones([512, 512]);
  const report = checkLeaks.stop();
  assert.equal(report.leaked, 1);
  assert.match(report.details[0], /float32\[512,512\] created at .*package\.test\.mjs/);
  kept.dispose();

  // What was made before counts neither when it is disposed of nor when it is collected.
  const older = np.ones([3]);
  checkLeaks.start();
  const newer = np.ones([2]);
  older.dispose();
  const beside = checkLeaks.stop();
  assert.equal(beside.leaked, 1, beside.summary);
  newer.dispose();

  const f = jit((x) => np.sum(np.multiply(x, np.array([2]))));
  const x = np.ones([4]);
  f(x).dispose();
  checkLeaks.start();
  f(x).dispose();
  const [y, back] = vjp((x) => np.sin(x).mul(np.array([3])), [x]);
  tree.dispose([y, back(y)]);
  back.dispose();
  const [c, ys] = lax.scan((c, x) => [c.add(x.mul(np.array(2))), c], np.array(0), x);
  tree.dispose([c, ys]);
  const clean = checkLeaks.stop();
  // The first carry is made outside of the loop, and nobody holds it.
  assert.equal(clean.leaked, 1, clean.summary);
});

test("a thousand steps leave memory as it is", () => {
  const step = jit((w, x) => {
    const g = grad((w) => np.mean(np.square(np.matmul(x, w))))(w);
    return w.sub(g.mul(0.01));
  });
  let w = np.ones([16, 4]);
  const x = np.ones([8, 16]);
  const run = (n) => {
    for (let i = 0; i < n; i++) {
      const next = step(w, x);
      w.dispose();
      w = next;
    }
  };
  run(20);
  const [held, bytes] = [loom.getBackend().slotCount(), loom.memoryBytes()];
  run(1000);
  assert.equal(loom.getBackend().slotCount(), held);
  assert.equal(loom.memoryBytes(), bytes);
});

test("compiled functions follow types, structure and static arguments", () => {
  let traces = 0;
  const f = jit(({ a, b }) => {
    traces++;
    return { sum: a.add(b), both: [a, b] };
  });
  const one = f({ a: np.ones([2]), b: np.ones([2]) });
  assert.deepEqual(numbers(one), { sum: [2, 2], both: [[1, 1], [1, 1]] });
  f({ a: np.ones([2]), b: np.zeros([2]) });
  assert.equal(traces, 1);
  f({ a: np.ones([3]), b: np.ones([3]) });
  assert.equal(traces, 2);
  f.dispose();
  assert.throws(() => f({ a: np.ones([2]), b: np.ones([2]) }), /disposed/);
});

test("a small network learns", () => {
  const keys = random.split(random.key(0), 4);
  const key = (i) => keys.slice(i);
  const x = random.normal(key(0), [256, 2]);
  const labels = np.greater(x.slice([], 0).mul(x.slice([], 1)), 0).astype("int32");
  let params = {
    w1: random.normal(key(1), [2, 32]).mul(0.7),
    b1: np.zeros([32]),
    w2: random.normal(key(2), [32, 2]).mul(0.2),
    b2: np.zeros([2]),
  };
  const logits = (p, x) => np.tanh(x.matmul(p.w1).add(p.b1)).matmul(p.w2).add(p.b2);
  const loss = (p, x, y) => nn.crossEntropy(logits(p, x), y);
  const optimizer = optim.chain([optim.clipByGlobalNorm(1.0), optim.adam(0.02)]);
  let state = optimizer.init(params);
  const step = jit((params, state, x, y) => {
    const [value, g] = valueAndGrad(loss)(params, x, y);
    const [updates, next] = optimizer.update(g, state, params);
    return [optim.applyUpdates(params, updates), next, value];
  });
  const losses = [];
  for (let i = 0; i < 150; i++) {
    const [p, s, value] = step(params, state, x, labels);
    tree.dispose([params, state]);
    [params, state] = [p, s];
    losses.push(value.item());
    value.dispose();
  }
  assert.ok(losses[0] > 0.6 && losses.at(-1) < 0.1, `${losses[0]} to ${losses.at(-1)}`);
});

test("types name every function of the namespaces", () => {
  const types = readFileSync(path.join(packageFolder, "index.d.ts"), "utf8");
  for (const [space, interface_] of [["numpy", "Numpy"], ["nn", "Nn"], ["random", "Random"], ["linalg", "Linalg"], ["fft", "Fft"], ["optim", "Optim"]]) {
    const body = types.split(`export interface ${interface_} {`)[1].split("\n}\n")[0];
    const named = (name) => new RegExp(`^  ${name.replace("$", "\\$")}[(:]`, "m").test(body);
    const missing = Object.keys(loom[space]).filter((n) => !n.includes("_") && typeof loom[space][n] === "function" && !named(n));
    const extra = ["max", "matrixTransposeAll", "manualSeed", "markStep", "rand", "randn", "randint", "zeros", "ones", "full"];
    assert.deepEqual(missing.filter((n) => !extra.includes(n)), [], space);
  }
});

test("explain shows graph, kernels and timings", () => {
  const { graph, program, kernels, timings } = loom.explain((x) => np.sum(np.exp(x).mul(x)))(np.ones([100]));
  assert.match(graph, /exp/);
  assert.match(program, /kernel/);
  assert.match(kernels, /vector/);
  assert.match(timings, /µs/);
});

test("numbers are those of a loop by hand", () => {
  const xs = Array.from({ length: 1000 }, (_, i) => Math.fround(Math.sin(i)));
  const [last, all] = lax.scan((c, x) => { const n = c.add(x); return [n, n]; }, np.array(0), np.array(xs));
  let c = 0;
  const want = xs.map((x) => (c = Math.fround(c + x)));
  assert.equal(differs(numbers(all), want, 0), null);
  assert.equal(last.item(), c);
});

test("safetensors go there and back, and bad files are refused", async () => {
  const tensors = { w: np.array([[1, 2], [3, 4]]), half: np.array([0.5, -2]).astype("bfloat16"), n: np.array([7], { dtype: "int64" }) };
  const file = loom.safetensors.serialize(tensors);
  const back = await loom.safetensors.load(new Blob([file]));
  assert.deepEqual(Object.fromEntries(Object.entries(back).map(([k, t]) => [k, [t.dtype, t.shape]])), { w: ["float32", [2, 2]], half: ["bfloat16", [2]], n: ["int64", [1]] });
  assert.deepEqual(back.half.astype("float32").js(), [0.5, -2]);
  assert.deepEqual(back.w.js(), [[1, 2], [3, 4]]);
  for (let n = 0; n < file.length; n += 7) assert.throws(() => loom.safetensors.parse(file.subarray(0, n)), LoomError);
});

test("a call that failed half-way leaves nothing behind", () => {
  const gone = np.ones([2]);
  gone.dispose();
  assert.throws(() => np.add(np.ones([2]), gone), LoomError);
  assert.throws(() => np.concatenate([np.ones([2]), gone]), LoomError);
  assert.deepEqual(np.add([1, 2], [3, 4]).js(), [4, 6]);
});

test("indices may be plain numbers", () => {
  const x = np.array([10, 20, 30, 40]);
  assert.deepEqual(np.take(x, [3, 0]).js(), [40, 10]);
  assert.deepEqual(lax.dynamicSlice(x, [1], [2]).js(), [20, 30]);
  assert.ok(Math.abs(nn.crossEntropy(np.zeros([2, 4]), [1, 3]).item() - Math.log(4)) < 1e-6);
});

test("customVjp: a rule of one's own, alone and inside of other transforms", () => {
  const { customVjp, vmap } = loom;
  const round = customVjp((x) => np.round(x)).defvjp((x) => [np.round(x), []], (_, ct) => [ct]);
  const x = np.array([0.3, 1.7, -2.2]);
  assert.deepEqual(round(x).js(), [0, 2, -2]);
  const g = grad((x) => np.sum(round(x).mul(x)));
  const want = [0 + 0.3, 2 + 1.7, -2 - 2.2];
  for (const f of [g, jit(g)]) f(x).js().forEach((v, i) => assert.ok(Math.abs(v - want[i]) < 1e-6, `${v} ${want[i]}`));
  assert.deepEqual(vmap(grad((x) => round(x).mul(3)))(x).js(), [3, 3, 3]);
  // Trees, what backward keeps, arguments without a cotangent, a loop around it.
  const clip = customVjp(({ w }, most) => w).defvjp(({ w }, most) => [{ y: w }, { most, w }], ({ most }, { y }) => [{ w: np.clip(y, -1, 1).mul(most) }, null]);
  const h = ({ w }) => np.sum(clip({ w }, np.array(2)).y.mul(np.array([5, 0.5])));
  assert.deepEqual(grad(h)({ w: np.array([1, 2]) }).w.js(), [2, 1]);
  assert.deepEqual(grad((m) => np.sum(clip({ w: np.array([1, 2]) }, m).y))(np.array(7)).js(), 0);
  const looped = grad((x) => np.sum(lax.scan((c, _) => [round(c).mul(2), null], x, null, { length: 3 })[0]));
  assert.deepEqual(looped(x).js(), [8, 8, 8]);
  // Errors say what is missing.
  assert.throws(() => customVjp((x) => x)(x), /defvjp/);
  assert.throws(() => customVjp((x) => x).defvjp((x) => x, (_, ct) => [ct])(x), /forward must give/);
  assert.throws(() => grad((x) => np.sum(customVjp((x) => x).defvjp((x) => [x, x], () => [])(x)))(x), /one for each of the 1 arguments/);
  const mine = new RangeError("mine");
  const bad = customVjp((x) => x).defvjp((x) => [x, []], () => {
    throw mine;
  });
  assert.throws(() => grad((x) => np.sum(bad(x)))(x), (e) => e === mine);
});

test("customJvp: a forward rule, and reverse mode by its transpose", () => {
  const { customJvp } = loom;
  const softplus = customJvp((x) => np.log(np.exp(x).add(1))).defjvp(([x], [dx]) => [softplus(x), nn.sigmoid(x).mul(dx)]);
  assert.equal(grad(softplus)(np.array(100)).item(), 1);
  const [y, dy] = loom.jvp(softplus, [np.array(0)], [np.array(2)]);
  assert.ok(Math.abs(y.item() - Math.log(2)) < 1e-6 && dy.item() === 1);
  assert.throws(() => customJvp((x) => x)(np.ones([1])), /defjvp/);
});

test("donated arguments are updated in place, and gone", () => {
  const step = jit(({ w, m }, x) => ({ w: w.sub(m.mul(0.1)), m: m.mul(0.5).add(x) }), { donateArgnums: [0] });
  const x = np.ones([1 << 16]);
  let state = { w: np.zeros([1 << 16]), m: np.zeros([1 << 16]) };
  const first = state;
  let [w, m] = [0, 0];
  let bytes;
  for (let i = 0; i < 60; i++) {
    state = step(state, x);
    [w, m] = [w - 0.1 * m, 0.5 * m + 1];
    if (i === 20) bytes = loom.memoryBytes();
  }
  assert.ok(Math.abs(state.w.slice(77).item() - w) < 1e-4 && Math.abs(state.m.slice(3).item() - m) < 1e-4);
  assert.equal(loom.memoryBytes(), bytes, "memory that grows");
  assert.throws(() => first.w.add(1), /was used after it was disposed of/);
  assert.equal(np.sum(x).item(), 1 << 16, "what was not given away stays");
  // Given twice, or inside of another function: nothing is lost.
  const twice = jit((a, b) => a.mul(2).add(b), { donateArgnums: 0 });
  const t = np.ones([4]);
  assert.deepEqual(twice(t, t).js(), [3, 3, 3, 3]);
  const inner = jit((a) => twice(a, a).add(a));
  const u = np.ones([2]);
  assert.deepEqual(inner(u).js(), [4, 4]);
  assert.deepEqual(inner(u).js(), [4, 4]);
  const slots = loom.getBackend().slotCount();
  let v = np.ones([16]);
  const again = jit((v) => v.add(1), { donateArgnums: [0] });
  for (let i = 0; i < 100; i++) v = again(v);
  assert.equal(loom.getBackend().slotCount(), slots + 1);
  v.dispose();
});
