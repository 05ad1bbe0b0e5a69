// Small programs give what JAX gives, and calls that can't be done say why.
import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { differs, loom, numbers } from "./support.mjs";
import { programs } from "./programs.mjs";

const { numpy: np, lax, linalg, random, optim, jit, grad, vjp, jvp, vmap, jacrev, LoomError } = loom;

test("programs give what JAX gives", () => {
  const want = JSON.parse(readFileSync(new URL("../../../golden/web/programs.json", import.meta.url), "utf8"));
  assert.deepEqual(Object.keys(programs), Object.keys(want));
  const wrong = [];
  for (const [name, f] of Object.entries(programs)) {
    try {
      const d = differs(numbers(f(loom)), want[name], 3e-5);
      if (d) wrong.push(`${name}${d}`);
    } catch (e) {
      wrong.push(`${name}: ${e.stack}`);
    }
  }
  assert.deepEqual(wrong, []);
});

// Each with what the message must name.
const bad = [
  [() => np.matmul(np.ones([3, 1, 2]), np.ones([5, 2, 4])), /np\.matmul.*f32\[3,1,2\].*f32\[5,2,4\]/],
  [() => np.concatenate([np.ones([2, 3]), np.ones([2, 4])], 0), /np\.concatenate.*f32\[2,3\]/],
  [() => np.concatenate([]), /np\.concatenate: a list without tensors/],
  [() => np.sum(np.ones([2]), 3), /axis 3 is out of range/],
  [() => np.sum(np.ones([2]), { axiz: 0 }), /np\.sum/],
  [() => np.exp(np.ones([2]), { keepdims: true }), /np\.exp/],
  [() => np.cumsum(np.ones([2, 2]), { axis: 1, keepdims: true }), /np\.cumsum: keepdims is for reductions/],
  [() => np.arange(6).reshape(-1, 4), /6 elements.*\[-1,4\]/],
  [() => np.arange(6).reshape(-1, -1), /only one size can be -1/],
  [() => np.arange(6).reshape(4), /np\.reshape/],
  [() => np.zeros([-1]), /np\.zeros.*-1/],
  [() => np.zeros([1e6, 1e6, 1e6]), /overflows/],
  [() => np.array(new DataView(new ArrayBuffer(4))), /a DataView has no elements/],
  [() => np.array(["a"]), /expected numbers/],
  [() => np.array([[1], [2, 3]]), /different lengths/],
  [() => np.array(new Float32Array(6), { shape: [4, 2] }), /\[4, 2\]/],
  [() => np.ones([3]).slice(5), /index 5 is outside an axis of 3/],
  [() => np.einsum("ij,jk->iz", np.ones([2, 3]), np.ones([3, 4])), /'z' occurs only in the result/],
  [() => linalg.inv(np.ones([2, 3])), /f32\[2,3\] is not square/],
  [() => random.uniform(np.ones([3]), [2]), /a key must be u32\[2\]/],
  [() => jit(async (x) => x)(np.array(2)), /can't be async/],
  [() => jit((x) => (x.item() > 0 ? x : x.neg()))(np.array(2)), /item\(\), js\(\) or data\(\) needs the value/],
  [() => grad((x) => np.sum(x))(np.array([1, 2], { dtype: "int32" })), /^value_and_grad.*i32\[2\]/],
  [() => grad((x) => [x, x])(np.array(1)), /must give a tensor without axes/],
  [() => grad((x) => x, { argnums: 2 })(np.array(1)), /argument 2, and there are 1/],
  [() => jacrev((x) => x, { argnums: [0, 1] })(np.ones([2])), /argument 1, and there are 1/],
  [() => vjp((x) => x.mul(2), [np.ones([3])])[1](np.ones([2])), /f32\[3\] is f32\[2\]/],
  [() => jvp((x) => x.mul(2), [np.ones([3])], [np.ones([2])]), /f32\[3\] is f32\[2\]/],
  [() => vmap((x, y) => x.add(y))(np.ones([3]), np.ones([2])), /^vmap: argument 1 is f32\[2\]/],
  [() => vmap((x) => x, [0, 0])(np.ones([3])), /2 inAxes for 1 arguments/],
  [() => vmap(([x, y]) => x.add(y), [[0]])([np.ones([3]), np.ones([3])]), /axes \[0\] don't fit an argument \[\*,\*\]/],
  [() => vmap((x) => x, null)(np.ones([2])), /no argument is mapped over/],
  [() => lax.scan((c, [a, b]) => [c.add(a).add(b), c], np.array(0), [np.ones([3]), np.ones([4])]), /^scan: xs\[1\] is f32\[4\]/],
  [() => lax.scan((c) => [np.stack([c, c]), c], np.array(0), np.ones([3])), /carry 0 goes in as f32\[\]/],
  [() => lax.scan((c) => c, np.array(0), np.ones([3])), /the body must give \[carry, y\]/],
  [() => lax.cond(true, (x) => ({ a: x }), (x) => [x], np.array(1)), /branch 0 gives \{"a":\*\}, branch 1 gives \[\*\]/],
  [() => lax.switch(0, [(x) => x, (x) => np.stack([x, x])], np.array(3)), /branch 0 returns .*branch 1 returns/],
  [() => lax.switch(0, []), /no branches/],
  [() => lax.foriLoop(0, 3, (i, { a, b }) => ({ a: b, c: a }), { a: np.array(1), b: np.array(2) }), /comes out as \{"a":\*,"c":\*\}/],
  [() => lax.whileLoop(([i]) => np.less(i, 3), ([i]) => i.add(1), [np.array(0)]), /goes in as \[\*\] and comes out as \*/],
  [() => optim.adam(0.1).update({ w: np.ones([3]) }, optim.adam(0.1).init({ w: np.ones([2]) }), { w: np.ones([2]) }), /f32\[3\]/],
  [() => np.add("a", 1), /np\.add: argument 1/],
  [() => np.add(() => 1, 1), /a function can't be an argument/],
  [() => np.sin(1, 2, 3), /np\.sin: 3 arguments/],
  [() => np.sin(), /np\.sin: argument 1.*missing/],
];

test("what can't be done is an exception with the call and its types, and the program goes on", () => {
  for (const [run, says] of bad) {
    assert.throws(run, (e) => {
      assert.ok(e instanceof LoomError, `${run}: ${e.stack}`);
      assert.match(e.message, says, `${run}`);
      return true;
    });
    assert.equal(np.sum(np.ones([3])).item(), 3);
  }
});

test("forms of calls as in NumPy and JAX", () => {
  const x = np.arange(6).reshape(2, 3).astype("float32");
  const shapes = [
    [np.sum(x, { axis: 0, keepdims: true }), [1, 3]],
    [np.sum(x, 1, { keepdims: true }), [2, 1]],
    [np.sum(x, null, { keepdims: true }), [1, 1]],
    [np.mean(x, { axis: -1, keepdims: true }), [2, 1]],
    [np.var(x, { axis: [0, 1], keepdims: true, ddof: 1 }), [1, 1]],
    [np.argmax(x, { axis: 1, keepdims: true }), [2, 1]],
    [np.max(x, { axes: 0 }), [3]],
    [x.sum(1, { keepdims: true }), [2, 1]],
    [np.sum(x, { axis: 1, keepdims: false }), [2]],
    [np.sum(x, { keepdims: true }), [1, 1]],
    [np.array([x, x]), [2, 2, 3]],
    [np.array([[x.slice(0, 0), 1], [2, x.slice(1, 1)]]), [2, 2]],
    [np.transpose(x, null), [3, 2]],
    [np.eye(3, { dtype: "int32" }), [3, 3]],
    [np.eye(2, 3, { k: 1 }), [2, 3]],
    [np.meshgrid([1, 2], [3, 4, 5])[0], [3, 2]],
    [np.meshgrid([np.ones([2]), np.ones([3])], { indexing: "ij" })[0], [2, 3]],
    [np.einsum("ij,kj->ik", x, x), [2, 2]],
    [np.einsum("ij->ji", x), [3, 2]],
    [lax.convGeneralDilated(np.ones([1, 1, 5, 5]), np.ones([1, 1, 3, 3]), [2, 2], "SAME", { rhsDilation: [1, 1] }), [1, 1, 3, 3]],
    [jit((x, n) => x.reshape(n, -1), { staticArgnums: 1 })(x, 3), [3, 2]],
  ];
  shapes.forEach(([t, shape], k) => assert.deepEqual(t.shape, shape, `form ${k}`));
  assert.deepEqual(np.array([[x.slice(0, 1), 7], [8, x.slice(1, 1)]]).js(), [[1, 7], [8, 4]]);
  assert.deepEqual(np.arange(1, 3, { dtype: "float32" }).js(), [1, 2]);
  assert.equal(np.arange(1, 3, { dtype: "float32" }).dtype, "float32");
  assert.equal(jit((x, n) => x.mul(Number(n)), { staticArgnums: [1] })(np.array(2), 3n).item(), 6);
  assert.deepEqual(np.mod([7, -7], 3).js(), [1, 2]);
});

test("adapters that are programs on the CPU say so themselves", async () => {
  const { isSoftware } = await import(new URL("gpu.js", `file://${(await import("./support.mjs")).packageFolder}/`));
  assert.equal(isSoftware({}, { isFallbackAdapter: true }, "vendor"), true);
  assert.equal(isSoftware({ isFallbackAdapter: false }, {}, "google swiftshader"), false);
  assert.equal(isSoftware({}, {}, "google swiftshader"), true);
  assert.equal(isSoftware({}, {}, "nvidia ampere"), false);
});
