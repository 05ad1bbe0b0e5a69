// Memory beyond 2 GiB, where addresses are negative numbers of 32 bits. By itself in a process: the memory is only reserved, but stays so.
import test from "node:test";
import assert from "node:assert/strict";

const { instantiate } = WebAssembly;
let memory;
WebAssembly.instantiate = async (...given) => {
  const instance = await instantiate(...given);
  memory ??= instance.exports.memory;
  return instance;
};
const { loom } = await import("./support.mjs");
const { numpy: np, grad, jit } = loom;

test("tensors, messages and errors that lie beyond 2 GiB", () => {
  const GIB = 2 ** 30;
  memory.grow((2 * GIB - memory.buffer.byteLength) / 65536 + 1);
  // What is allocated now lies behind what was reserved.
  const n = 3 << 20;
  const data = Float32Array.from({ length: n }, (_, i) => i % 1000);
  const x = np.array(data);
  assert.ok(memory.buffer.byteLength > 2 * GIB);
  assert.deepEqual(x.dataSync(), data);
  assert.deepEqual(loom.toBytes(x), new Uint8Array(data.buffer));
  assert.deepEqual(x.add(1).dataSync(), data.map((v) => v + 1));
  // So many words that the words move.
  const list = Array.from({ length: 1 << 20 }, (_, i) => i % 7);
  assert.equal(np.sum(list).item(), list.reduce((a, b) => a + b));
  assert.equal(jit(grad((x) => np.sum(np.square(x))))(x).dataSync()[5], 10);
  assert.throws(() => np.zeros([2], { dtype: "x".repeat(1 << 20) }), /there is no dtype "xxx/);
  assert.throws(() => np.matmul(np.ones([2, 3]), np.ones([2, 3])), /np\.matmul/);
});
