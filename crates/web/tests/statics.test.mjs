// Compiled functions by what they are given: static arguments of every type, numbers, what is refused; transforms with aux; devices.
import test from "node:test";
import assert from "node:assert/strict";
import { differs, loom, numbers } from "./support.mjs";

const { numpy: np, nn, jit, grad, valueAndGrad, vjp, jvp, linearize, vmap, jacrev, jacfwd, hessian, checkpoint, tree, LoomError } = loom;

/** Compiled functions that say by a number which of their calls was traced, and what they were traced with. */
function recorder(options = { staticArgnums: 1 }) {
  const seen = [];
  const f = jit((x, s) => {
    seen.push(s);
    return x.add(seen.length);
  }, options);
  return { seen, call: (s) => f(np.array(0), s).item() };
}

class Point {
  #hidden;
  constructor(x, hidden) {
    this.x = x;
    this.#hidden = hidden;
  }
  hidden() {
    return this.#hidden;
  }
}

class Table extends Map {}
class Row extends Array {}

const around = (x) => {
  const a = { x };
  a.self = a;
  return a;
};
const symbol = Symbol("a");
const f = () => 1;
const here = new Point(1, 2);

// Values that a function can tell apart, each made anew where it is given by value.
const apart = [
  () => undefined, () => null, () => true, () => false, () => 0, () => -0, () => 1, () => 1.5, () => NaN, () => Infinity, () => -Infinity, () => 1n, () => 2n, () => -1n,
  () => "", () => "1", () => "true", () => "null", () => "NaN", () => "1n", () => "*", () => "#", () => "[]", () => "{}", () => '"', () => "a,b",
  () => symbol, () => f, () => Math.sin, () => Math.cos, () => [], () => [1], () => ["1"], () => [[1]], () => [1, 2], () => [[1], 2], () => [1, [2]], () => [undefined], () => [null],
  () => ["a", "b"], () => ["a,b"], () => ({}), () => ({ a: 1 }), () => ({ a: "1" }), () => ({ b: 1 }), () => ({ a: undefined }), () => ({ a: null }), () => ({ a: { b: 1 } }),
  () => new Map(), () => new Map([["a", 1]]), () => new Map([["a", 2]]), () => new Map([[1, "a"]]), () => new Map([[{ a: 1 }, new Map([[1, 2]])]]),
  () => new Set(), () => new Set([1]), () => new Set(["a", 1]), () => new Date(0), () => new Date(1), () => /a/, () => /a/g, () => /b/,
  () => new Float32Array([1, 2]), () => new Float32Array([1, 3]), () => new Float64Array([1]), () => new Uint8Array([1]), () => new Int8Array([1]), () => new Uint8Array([1]).buffer,
  () => new DataView(new ArrayBuffer(1)), () => around(1), () => around(2), () => here, () => Point, () => globalThis.structuredClone,
];

test("static arguments of every type are told apart, and equal ones are one program", () => {
  const { seen, call } = recorder();
  const first = apart.map((make) => call(make()));
  assert.deepEqual(first, apart.map((_, i) => i + 1), "each is traced");
  seen.forEach((s, i) => assert.deepEqual(s, apart[i](), "with what was given"));
  assert.deepEqual(apart.map((make) => call(make())), first, "and not again");
  assert.equal(seen.length, apart.length);
});

test("static functions, symbols and objects of classes are equal only to themselves", () => {
  const { call } = recorder();
  const made = [() => 1, () => 1, Symbol("a"), Symbol("a"), new Point(1, 2), new Point(1, 3), Promise.resolve(1), Promise.resolve(1), new WeakMap(), new Error("a"), new Error("a"), new Table([[1, 2]]), new Table([[1, 2]]), Row.of(1), Row.of(1)];
  assert.deepEqual(made.map(call), made.map((_, i) => i + 1));
  assert.deepEqual(made.map(call), made.map((_, i) => i + 1));
  // What is visible of an object may change.
  const p = new Point(1, 2);
  const n = call(p);
  p.x = 2;
  assert.equal(call(p), n + 1);
});

test("a static argument that changed is what the function is traced with again", () => {
  const g = jit((x, s) => x.mul(s.get("k")), { staticArgnums: 1 });
  const s = new Map([["k", 2]]);
  assert.equal(g(np.array(3), s).item(), 6);
  s.set("k", 5);
  assert.equal(g(np.array(3), s).item(), 15);
  // The first program for another type: by its own value, though its first object has changed.
  assert.deepEqual(g(np.array([3]), new Map([["k", 2]])).js(), [6]);
});

test("each of many random static trees has its own program", () => {
  let state = Number(process.env.TENSORLOOM_SEED ?? 12345);
  const below = (n) => (state = (state * 1103515245 + 12345) % 2 ** 31) % n;
  const leaf = [() => below(3), () => `${below(3)}`, () => BigInt(below(3)), () => below(2) === 0, () => null, () => NaN, () => -0];
  const draw = (depth) => {
    const some = () => Array.from({ length: below(3) }, () => draw(depth - 1));
    const kinds = [() => some(), () => new Set(some()), () => new Map(some().map((v, i) => [i, v])), () => Object.fromEntries(some().map((v, i) => ["ab"[i], v]))];
    return depth === 0 || below(3) === 0 ? leaf[below(leaf.length)]() : kinds[below(4)]();
  };
  const { call } = recorder();
  const known = [];
  const rounds = Number(process.env.TENSORLOOM_ROUNDS ?? 1);
  for (let i = 0; i < 300 * rounds; i++) {
    const value = draw(3);
    // Equal as node's own comparison says, where -0 is not 0; sets that were filled in another order may be others.
    const before = known.find(([v]) => deepEqual(v, value));
    const got = call(value);
    if (!before) known.push([value, got]);
    else if (!ordered(value)) assert.equal(got, before[1]);
    known.forEach(([v, n]) => assert.ok(n !== got || deepEqual(v, value)));
  }
});

const deepEqual = (a, b) => {
  try {
    assert.deepStrictEqual(a, b);
    return true;
  } catch {
    return false;
  }
};
const ordered = (v) => v instanceof Set || v instanceof Map || (v !== null && typeof v === "object" && Object.values(v).some(ordered));

test("arguments that are no tensors are refused unless they are static", () => {
  const refused = [true, false, null, "a", "", 1n, symbol, f, new Map(), new Set(), new Date(0), /a/, nn.relu, optimiser()];
  for (const s of refused) {
    const g = jit((x, s) => x.add(s ? 1 : 2));
    assert.throws(() => g(np.array(0), s), (e) => e instanceof LoomError && /^jit: argument 1 is .*name 1 in staticArgnums/.test(e.message), String(s));
    if (s !== null) assert.throws(() => g(np.array(0), { deep: [s] }), /jit: argument 1 holds .*staticArgnums/);
    assert.equal(jit((x, s) => x.add(s ? 1 : 2), { staticArgnums: [1] })(np.array(0), s).item(), s ? 1 : 2);
  }
  assert.throws(() => jit((x, y) => x.add(y), { staticArgnums: 1 })(np.array(0), np.array(1)), /a tensor can't be static/);
  assert.throws(() => jit((x, y) => x.add(y.t), { staticArgnums: 1 })(np.array(0), { t: np.array(1) }), /a tensor can't be static/);
  assert.throws(() => jit((x) => new Map([["y", x]]))(np.array(0)), /no plain object: a tensor can't be static/);
  // What is left out, and nothing inside of trees, are structure.
  const g = jit((x, { w, b } = {}, more = 3) => x.add(more).add(b ?? 10).add(w ?? 100));
  assert.equal(g(np.array(0)).item(), 113);
  assert.equal(g(np.array(0), undefined, 4).item(), 114);
  assert.equal(g(np.array(0), { w: np.array(1), b: null }).item(), 14);
  assert.equal(g(np.array(0), { w: null, b: np.array(1) }).item(), 104);
});

function optimiser() {
  return loom.optim.sgd(0.1);
}

test("numbers that are given to compiled functions are promoted as they are without", () => {
  const dtypes = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"];
  const calls = {
    add: (x, n) => x.add(n),
    multiply: (x, n) => np.multiply(n, x),
    power: (x, n) => np.power(x, n),
    divide: (x, n) => np.divide(x, n),
    maximum: (x, n) => np.maximum(n, x),
    where: (x, n) => np.where(np.equal(x, x), x, n),
    whereNumber: (x, n) => np.where(np.not_equal(x, x), x, n),
    clip: (x, n) => np.clip(x, null, n),
    less: (x, n) => np.less(x, n),
    equal: (x, n) => np.equal(n, x),
    twice: (x, n) => x.add(n).mul(n),
    closed: (x, n) => vmap((y) => y.add(n))(np.stack([x, x])),
    alone: (x, n) => np.exp(n),
    made: (x, n) => np.array(n),
    inner: (x, n) => jit((y, m) => y.add(m))(x, n),
    gradient: (x, n) => grad((y, m) => np.sum(y.mul(m)))(np.array([1, 2, 3]), n).add(x),
  };
  const says = (g) => {
    try {
      const y = g();
      return [y.dtype, y.astype("float64").js()];
    } catch (e) {
      return [e.name];
    }
  };
  for (const [name, g] of Object.entries(calls)) {
    const compiled = jit(g);
    for (const dtype of dtypes) {
      for (const n of [2, 0, 1, 2.5, 0.1, 100, -0]) {
        const x = np.array([1, 0, 3]).astype(dtype);
        assert.deepEqual(says(() => compiled(x, n)), says(() => g(x, n)), `${name} of ${dtype} and ${n}`);
      }
    }
  }
  // In trees, by themselves, and exactly where the tensor holds them.
  assert.deepEqual(jit((x, { n: [n] }) => x.add(n))(np.array([1], { dtype: "int32" }), { n: [2] }).dtype, "int32");
  assert.equal(jit((n) => n)(2).dtype, "float32");
  assert.equal(jit((x, n) => x.add(n))(np.array([0], { dtype: "int32" }), 2 ** 24 + 1).js()[0], 2 ** 24 + 1);
  assert.equal(jit((x, n) => x.add(n))(np.array([0n]), 2 ** 40 + 1).js()[0], 2 ** 40 + 1);
  assert.equal(jit((x, n) => x.mul(n))(np.array([1], { dtype: "float64" }), 0.1).js()[0], 0.1);
  assert.deepEqual(jit((x, i) => np.take(x, i))(np.array([5, 6]), 1).item(), 6);
  assert.equal(jit((n) => np.array(n, { dtype: "int32" }))(2 ** 24 + 1).item(), 2 ** 24 + 1);
  assert.equal(grad(jit((x, n) => x.mul(n)))(np.array(3), 2).item(), 2);
  // Numbers are no part of the program.
  let traced = 0;
  const count = jit((x, n) => (traced++, x.add(n)));
  for (let i = 0; i < 10; i++) assert.equal(count(np.array(1), i).item(), 1 + i);
  assert.equal(traced, 1);
});

test("a tensor of a tensor is another one", () => {
  const x = np.array([1, 2]);
  const y = np.array(x);
  x.dispose();
  assert.deepEqual(y.js(), [1, 2]);
  assert.deepEqual(np.array(y, { dtype: "int32", shape: [2, 1] }).js(), [[1], [2]]);
});

test("results have the structure of their own types' trace", () => {
  const g = jit((x) => (x.ndim === 1 ? { a: x, b: [x.add(1), "text"] } : x));
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(numbers(g(np.array([1]))), { a: [1], b: [[2], "text"] });
    assert.equal(g(np.array(5)).item(), 5);
    assert.deepEqual(g(np.array([[5]])).js(), [[5]]);
  }
  const away = jit((x) => (x.ndim === 1 ? [x, x.add(1)] : x.add(1)), { donateArgnums: 0 });
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(numbers(away(np.array([1]))), [[1], [2]]);
    assert.equal(away(np.array(5)).item(), 6);
  }
});

// Functions of trees that give a value and something beside it: tensors of several types, structure, statics, nothing.
const aux = {
  tensor: (x) => x.mul(2),
  tree: (x) => ({ logits: x.add(1), more: [np.sum(x), np.argmax(x)] }),
  integers: (x) => x.astype("int32"),
  bools: (x) => np.greater(x, 1),
  statics: (x) => ({ name: "a", none: null, f, x }),
  nothing: () => [],
  plain: () => null,
  argument: (x) => x,
  infinite: (x) => np.log(x.sub(x)),
};
const shownAux = (a) => numbers(a);

test("every transform with aux gives it, and the derivatives that it gives without", () => {
  const x = np.array([1, 2, 4]);
  const value = (x) => np.sum(np.square(x));
  const vector = (x) => np.square(x);
  for (const [name, a] of Object.entries(aux)) {
    const both = (x) => [value(x), a(x)];
    const wide = (x) => [vector(x), a(x)];
    const want = shownAux(a(x));
    const same = (got, y, what) => {
      assert.equal(differs(numbers(got[0]), y), null, `${what}, ${name}`);
      assert.deepEqual(shownAux(got[1]), want, `${what}, ${name}`);
    };
    for (const wrap of [(g) => g, jit]) {
      same(wrap((x) => grad(both, { hasAux: true })(x))(x), [2, 4, 8], "grad");
      const vg = wrap((x) => valueAndGrad(both, { hasAux: true })(x))(x);
      same(vg[0], 21, "valueAndGrad");
      assert.deepEqual(vg[1].js(), [2, 4, 8]);
      const [, g, kept] = wrap((x) => {
        const [y, back, kept] = vjp(wide, [x], { hasAux: true });
        return [y, back(np.array([1, 10, 100])), kept];
      })(x);
      same([g[0], kept], [2, 40, 800], "vjp");
      const [y, dy, beside] = wrap((x) => jvp(wide, [x], [np.array([1, 10, 100])], { hasAux: true }))(x);
      same([y, beside], [1, 4, 16], "jvp");
      const [line, dline, beyond] = wrap((x) => {
        const [y, map, kept] = linearize(wide, x, { hasAux: true });
        return [y, map(np.array([1, 10, 100])), kept];
      })(x);
      same([line, beyond], [1, 4, 16], "linearize");
      assert.deepEqual(dline.js(), [2, 40, 800]);
      for (const [what, jac] of Object.entries({ jacfwd, jacrev })) same(wrap((x) => jac(wide, { hasAux: true })(x))(x), [[2, 0, 0], [0, 4, 0], [0, 0, 8]], what);
      same(wrap((x) => hessian(both, { hasAux: true })(x))(x), [[2, 0, 0], [0, 2, 0], [0, 0, 2]], "hessian");
      assert.deepEqual(dy.js(), [2, 40, 800]);
    }
  }
});

test("aux of trees, of several arguments, and inside of other transforms", () => {
  const f = ({ w }, b) => [{ y: w.mul(b) }, { w, b }];
  const [y, back, kept] = vjp(f, [{ w: np.array([1, 2]) }, np.array(3)], { hasAux: true });
  assert.deepEqual(numbers([y, kept]), [{ y: [3, 6] }, { w: [1, 2], b: 3 }]);
  for (let i = 0; i < 2; i++) assert.deepEqual(numbers(back({ y: np.array([1, 1]) })), [{ w: [3, 3] }, 3]);
  back.dispose();
  const [line, map, beside] = linearize(f, { w: np.array([1, 2]) }, np.array(3), { hasAux: true });
  assert.deepEqual(numbers([line, beside]), [{ y: [3, 6] }, { w: [1, 2], b: 3 }]);
  for (let i = 0; i < 2; i++) assert.deepEqual(numbers(map({ w: np.array([1, 1]) }, np.array(10))), { y: [13, 23] });
  map.dispose();
  // Behind the arguments are no options: the last one is an argument.
  assert.deepEqual(numbers(linearize(({ w }) => w.mul(2), { w: np.array([1, 2]) })[0]), [2, 4]);
  assert.equal(linearize((x) => [x, x], np.array(1), { hasAux: false })[0].length, 2);
  const inTree = hessian(({ w }) => [np.sum(np.square(w)), { w }], { hasAux: true })({ w: np.array([1, 2]) });
  assert.deepEqual(numbers(inTree), [{ w: { w: [[2, 0], [0, 2]] } }, { w: [1, 2] }]);
  const each = vmap((x) => grad((x) => [np.square(x), x.mul(3)], { hasAux: true })(x))(np.array([1, 2]));
  assert.deepEqual(numbers(each), [[2, 4], [3, 6]]);
  const second = grad((x) => {
    const [, back, kept] = vjp((x) => [x.mul(x).mul(x), x.mul(5)], [x], { hasAux: true });
    return back(np.array(1))[0].add(kept.mul(0));
  });
  assert.equal(second(np.array(2)).item(), 12);
  for (const bad of [(x) => np.sum(x), (x) => [np.sum(x)], (x) => [np.sum(x), 1, 2]]) {
    for (const run of [() => grad(bad, { hasAux: true })(np.ones([2])), () => vjp(bad, [np.ones([2])], { hasAux: true }), () => jvp(bad, [np.ones([2])], [np.ones([2])], { hasAux: true }), () => linearize(bad, np.ones([2]), { hasAux: true })]) {
      assert.throws(run, /with hasAux the function must give \[/);
    }
  }
});

test("vjp and linearize with aux leave nothing behind", () => {
  const x = np.ones([4]);
  const run = () => {
    const [y, back, kept] = vjp((x) => [np.sin(x), { a: x.mul(2) }], [x], { hasAux: true });
    tree.dispose([y, kept, back(np.ones([4]))]);
    back.dispose();
    const [z, map, beside] = linearize((x) => [np.sin(x), { a: x.mul(2) }], x, { hasAux: true });
    tree.dispose([z, beside, map(np.ones([4]))]);
    map.dispose();
  };
  run();
  loom.checkLeaks.start();
  run();
  const { leaked, summary } = loom.checkLeaks.stop();
  assert.equal(leaked, 2, summary); // the cotangent and the tangent
});

test("trees of structures that differ in what is static are told apart", () => {
  const { lax } = loom;
  const x = np.array(1);
  const carry = (to) => lax.scan((c, x) => [[c[0].add(1), to], x], [x, NaN], np.ones([2]));
  assert.equal(carry(NaN)[0][0].item(), 3);
  for (const to of [null, "NaN", 1n, f]) assert.throws(() => carry(to), /structure/);
  assert.deepEqual(jacrev((x) => x.mul(x))(np.array([1, 2])).js(), [[2, 0], [0, 4]]);
  assert.deepEqual(numbers(jacfwd(({ a }) => a.mul(2))({ a: np.array([1]) })), { a: [[2]] });
  assert.deepEqual(numbers(hessian(([a]) => np.sum(a.mul(a)))([np.array([1, 2])])), [[[[2, 0], [0, 2]]]]);
  assert.equal(checkpoint((x, s) => x.mul(s.length))(x, "abc").item(), 3);
  assert.deepEqual(numbers(linearize((x) => [x.mul(2), null], x)[0]), [2, null]);
});

test("withDevice takes what doesn't wait", async () => {
  assert.equal(loom.withDevice("wasm", () => np.ones([2]).device), "wasm");
  let ran = false;
  assert.throws(() => loom.withDevice("wasm", async () => (ran = true)), /an async function would leave the device to others/);
  assert.equal(ran, false);
  assert.throws(() => loom.withDevice("wasm", () => Promise.reject(new Error("mine"))), /an async function/);
  assert.throws(() => loom.withDevice("wasm", () => assert.fail("mine")), /mine/);
  assert.equal(loom.defaultDevice(), "wasm");
});
