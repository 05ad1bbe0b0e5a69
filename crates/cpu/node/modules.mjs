// Reads modules with their data from tests/modules.rs: compiles each, runs those that can be run alone, compares.
const bytes = await new Promise((done) => {
  const all = [];
  process.stdin.on("data", (d) => all.push(d)).on("end", () => done(Buffer.concat(all)));
});
let at = 0;
const number = () => bytes.readUInt32LE((at += 4) - 4);
const block = () => {
  const n = number();
  return bytes.subarray(at, (at += n));
};
// By the numbers of DType::ALL; floats are compared with a tolerance, all else by its bits.
const [BF16, F32, F64, SCRATCH] = [12, 13, 14, 99];
const floats = (d, b) => {
  const v = new DataView(b.buffer, b.byteOffset, b.byteLength);
  if (d === F64) return Array.from({ length: b.length / 8 }, (_, i) => v.getFloat64(8 * i, true));
  if (d === F32) return Array.from({ length: b.length / 4 }, (_, i) => v.getFloat32(4 * i, true));
  const word = new DataView(new ArrayBuffer(4));
  return Array.from({ length: b.length / 2 }, (_, i) => {
    word.setUint16(2, v.getUint16(2 * i, true), true);
    return word.getFloat32(0, true);
  });
};
const slack = { [F64]: 1e-9, [F32]: 3e-5, [BF16]: 2e-2 };
const memory = new WebAssembly.Memory({ initial: 64 });
const table = new WebAssembly.Table({ initial: 4, element: "anyfunc" });
let [valid, run, wrong] = [0, 0, 0];
while (at < bytes.length) {
  let instance;
  const code = block();
  try {
    instance = new WebAssembly.Instance(new WebAssembly.Module(code), { env: { memory, table } });
    valid++;
  } catch (e) {
    if (wrong++ < 5) console.log(`module ${valid}: ${e.message}`);
  }
  if (number() === 0) continue;
  const parallel = number();
  const buffers = Array.from({ length: number() }, () => ({ dtype: number(), before: block(), after: block() }));
  if (!instance) continue;
  let place = 65536;
  const places = buffers.map(({ before }) => {
    const own = place;
    place += Math.ceil((before.length + 64) / 64) * 64;
    return own;
  });
  if (place > memory.buffer.byteLength) memory.grow(Math.ceil((place - memory.buffer.byteLength) / 65536));
  const whole = new Uint8Array(memory.buffer);
  buffers.forEach(({ before }, i) => whole.set(before, places[i]));
  new Uint32Array(memory.buffer, 1024, places.length).set(places);
  instance.exports.kernel(1024, 8192, 0n, BigInt(parallel));
  run++;
  buffers.forEach(({ dtype, after }, i) => {
    if (dtype === SCRATCH) return;
    const got = Buffer.from(memory.buffer.slice(places[i], places[i] + after.length));
    if (got.equals(after)) return;
    const close =
      dtype in slack &&
      floats(dtype, got).every((x, k) => {
        const y = floats(dtype, after)[k];
        return Object.is(x, y) || (Number.isNaN(x) && Number.isNaN(y)) || Math.abs(x - y) <= slack[dtype] * Math.max(1, Math.abs(y));
      });
    if (!close && wrong++ < 5) console.log(`module ${valid}: buffer ${i} of dtype ${dtype} differs`);
  });
}
console.log(`${valid} modules are valid, ${run} ran, ${wrong} wrong`);
process.exit(wrong > 0 ? 1 : 0);
