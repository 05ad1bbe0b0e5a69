// Tensorloom for JavaScript: tensors, transforms and the numerical library over the program `tensorloom.wasm`.
//
//   import { init, numpy as np, grad, jit } from "tensorloom";
//   await init();
//   const f = jit((x) => np.sum(np.square(x)));
//
// Functions of the namespaces come from the program's own list (`functions`), which is made of docs/functions.json.

import { completeForms, keepAxes } from "./forms.js";
import { gpuImports, openGpu } from "./gpu.js";
import { keyOfStatic, named } from "./statics.js";

let wasm; // exports of the program
let memory;
let table;
let thrown; // an exception on its way through the program
let debugLevel; // as it was set before the program was loaded

const decoder = new TextDecoder();
const decode = (at, n) => decoder.decode(new Uint8Array(memory.buffer, at >>> 0, n >>> 0).slice());

// Addresses come from the program as signed numbers of 32 bits, and mean unsigned ones.
/** The place of the program's words, of which there are at least so many, in `f64()`. */
const room = (n) => (wasm.room(n) >>> 0) / 8;
/** The address of the program's bytes, which become so many. */
const bytesFor = (n) => wasm.bytes(n) >>> 0;
/** A copy of the first bytes. */
const fetched = (n) => {
  const at = wasm.fetched() >>> 0;
  return memory.buffer.slice(at, at + n);
};

/** An error of the program: a call whose operands don't fit, a tensor that is gone. */
export class LoomError extends Error {
  constructor(message) {
    super(message);
    this.name = "LoomError";
  }
}

// ---------------------------------------------------------------- starting

const functions = new Map(); // functions that the program may call, by number
let nextFunction = 1;

const loom = {
  instantiate(at, length) {
    try {
      const bytes = new Uint8Array(memory.buffer, at >>> 0, length).slice();
      const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { memory, table } });
      const place = free.pop() ?? table.grow(1);
      table.set(place, exports.kernel);
      return place;
    } catch {
      return 0;
    }
  },
  forget(place) {
    table.set(place, null);
    free.push(place);
  },
  now: () => performance.now(),
  panicked(at, n) {
    thrown = new LoomError(`internal error, please report it: ${decode(at, n)}`);
  },
  print(at, n) {
    console.error(decode(at, n).trimEnd());
  },
  apply(id, n) {
    try {
      const at = room(n);
      const handles = Array.from(f64().subarray(at, at + n));
      const scope = enter();
      try {
        scope.results = functions.get(id)(handles.map((h) => new Tensor(h)));
      } finally {
        leave(scope);
      }
      const { results } = scope;
      const out = room(results.length);
      const words = f64();
      results.forEach((t, i) => (words[out + i] = t.handle()));
      return results.length;
    } catch (e) {
      thrown ??= e;
      return -1;
    }
  },
  loose(id) {
    functions.delete(id);
  },
  results: () => resultCount,
  arrived(id, n) {
    const { done, failed } = reads.get(id);
    reads.delete(id);
    if (n < 0) return failed(new LoomError(told()));
    done(fetched(n));
  },
};
let resultCount = 0; // of the last function that also gave what its backward rule needs
const reads = new Map(); // what is on its way, by number
const gpu = gpuImports({ memory: () => memory, wasm: () => wasm, told: () => wasm.poll_reads() });
Object.assign(loom, gpu.imports);

/** What a read or a wait that has begun will give. */
function later(id) {
  const got = new Promise((done, failed) => reads.set(id, { done, failed }));
  wasm.poll_reads();
  return got;
}
const free = []; // places in the table that were given back

let starting;
let noGpu; // why there is no WebGPU

/**
 * Loads the program; must be awaited before anything else. Gives the names of the devices: `wasm`, and `webgpu` where there is one.
 *
 * Options: `source`, a URL, bytes, or a compiled module (by default `tensorloom.wasm` beside this file; it may also be given instead of
 * options); `device`, where tensors are made: `"wasm"` (the default), `"webgpu"`, which fails with the reason where there is none, or
 * `"auto"`. With `device: "wasm"` no GPU is looked for.
 */
export async function init(options = {}) {
  const given = isOptions(options) ? options : { source: options };
  const { source, device } = given;
  if (device !== undefined && !["wasm", "webgpu", "auto"].includes(device)) throw new LoomError(`init: there is no device "${device}"; there are wasm, webgpu, auto`);
  starting ??= start(source).catch((e) => {
    starting = undefined;
    throw e;
  });
  const wanted = device === "wasm" ? null : openDevice();
  await starting;
  const opened = await wanted;
  if (device === "webgpu" && !gpu.opened()) throw noGpu;
  if (opened) defaultDevice(device === "webgpu" || device === "auto" ? "webgpu" : defaultDevice());
  else if (device === "wasm") defaultDevice("wasm");
  return devices();
}

const isOptions = (x) => x !== null && typeof x === "object" && !(x instanceof URL) && !ArrayBuffer.isView(x) && !(x instanceof ArrayBuffer) && !(x instanceof WebAssembly.Module);

let opening;
/** Opens WebGPU, once. Gives whether there is one. */
function openDevice() {
  opening ??= (async () => {
    try {
      const opened = await openGpu((text) => new LoomError(text));
      await starting;
      if (wasm.live() > 0) throw new LoomError('webgpu has to be opened before tensors are made: call `await init({ device: "webgpu" })` first, or dispose of them');
      gpu.attach(opened);
      if (wasm.gpu_open() < 0) fail();
      return true;
    } catch (e) {
      noGpu = e instanceof LoomError ? e : new LoomError(`WebGPU could not be opened: ${e.message}; "wasm" computes everywhere`);
      opening = undefined;
      return false;
    }
  })();
  return opening;
}

async function start(source) {
  source ??= new URL("./tensorloom.wasm", import.meta.url);
  if (source instanceof URL || typeof source === "string") {
    const url = new URL(source, import.meta.url);
    if (url.protocol === "file:") {
      const { readFile } = await import(/* @vite-ignore */ "node:fs/promises");
      source = await readFile(url);
    } else {
      const response = await fetch(url);
      if (!response.ok) throw new LoomError(`${url} can't be loaded: ${response.status} ${response.statusText}`);
      source = await response.arrayBuffer();
    }
  }
  const module = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
  const instance = await WebAssembly.instantiate(module, { loom });
  memory = instance.exports.memory;
  table = instance.exports.__indirect_function_table;
  wasm = instance.exports;
  wasm.start();
  wasm.dtypes();
  dtypeNames.push(...lastText().split(" "));
  wasm.functions();
  surface(JSON.parse(lastText()));
  const level = debugLevel ?? globalThis.process?.env?.LOOM_DEBUG ?? globalThis.LOOM_DEBUG;
  if (level !== undefined) special("debug", String(level)); // a wrong value is a warning
}

function ready() {
  if (!wasm) throw new LoomError("call `await init()` first");
}

let view = new Float64Array(0);
function f64() {
  if (view.buffer !== memory.buffer) view = new Float64Array(memory.buffer);
  return view;
}

const lastText = () => decode(wasm.text(), wasm.text_bytes());

/** The last text as a message: places in the program mean nothing here. */
const told = () => lastText().replace(/ \(at [\w./-]+\.rs:\d+:\d+\)/g, "").replace(/^to_literal needs/, "item(), js() or data() needs") || "a call failed";

function fail() {
  const error = thrown ?? new LoomError(told());
  thrown = undefined;
  throw error;
}

/** Runs a call of the program; a trap is an error that says why. */
function run(f) {
  let n;
  try {
    n = f();
  } catch (e) {
    const error = thrown ?? e;
    thrown = undefined;
    throw error;
  }
  if (n < 0) fail();
  return n;
}

// ---------------------------------------------------------------- values as words

let out = [];

function put(v) {
  if (v === undefined || v === null) out.push(0);
  else if (typeof v === "number") out.push(1, v);
  else if (typeof v === "boolean") out.push(2, v ? 1 : 0);
  else if (v instanceof Tensor) out.push(3, v.handle());
  else if (v instanceof Held) out.push(3, v.handle());
  else if (typeof v === "string") putText(v, 5);
  else if (typeof v === "bigint") out.push(1, Number(v));
  else if (Array.isArray(v)) {
    out.push(4, v.length);
    v.forEach(put);
  } else if (ArrayBuffer.isView(v)) {
    const t = array(v);
    out.push(3, t.handle());
  } else if (typeof v === "object") {
    const keys = Object.keys(v).filter((k) => v[k] !== undefined);
    out.push(6, keys.length);
    for (const k of keys) {
      putText(k);
      put(v[k]);
    }
  } else throw new LoomError(`a ${typeof v} can't be an argument here`);
}

function putText(s, tag) {
  if (tag !== undefined) out.push(tag);
  out.push(s.length);
  for (let i = 0; i < s.length; i++) out.push(s.charCodeAt(i));
}

/** Puts what `put` has written into the program's words; gives how many. */
function send() {
  const n = out.length;
  const at = room(n);
  const words = f64();
  for (let i = 0; i < n; i++) words[at + i] = out[i];
  out = [];
  return n;
}

let cursor = 0;

function get(words) {
  const tag = words[cursor++];
  switch (tag) {
    case 0:
      return null;
    case 1:
      return words[cursor++];
    case 2:
      return words[cursor++] !== 0;
    case 3:
      return words[cursor++]; // what it is, the caller knows
    case 4:
      return Array.from({ length: words[cursor++] }, () => get(words));
    case 5:
      return getText(words);
    case 6: {
      const all = {};
      for (let n = words[cursor++]; n > 0; n--) {
        const key = getText(words);
        all[key] = get(words);
      }
      return all;
    }
    default:
      throw new LoomError(`a message has the tag ${tag}`);
  }
}

function getText(words) {
  const n = words[cursor++];
  let s = "";
  for (let i = 0; i < n; i++) s += String.fromCharCode(words[cursor++]);
  return s;
}

/** A call whose arguments were put; `wrap` is what handles become. */
function receive(n, wrap = Tensor) {
  if (n === 0) return undefined;
  const at = room(0);
  cursor = at;
  const words = f64();
  const wrapped = (tagAt) => {
    const tag = words[cursor];
    if (tag === 3) {
      cursor += 2;
      return new wrap(words[cursor - 1]);
    }
    if (tag === 4) {
      cursor++;
      const n = words[cursor++];
      const all = new Array(n);
      for (let i = 0; i < n; i++) all[i] = wrapped();
      return all;
    }
    if (tag === 6) {
      cursor++;
      const all = {};
      for (let n = words[cursor++]; n > 0; n--) {
        const key = getText(words);
        all[key] = wrapped();
      }
      return all;
    }
    return get(words);
  };
  return wrapped();
}

function special(name, ...args) {
  ready();
  out = []; // a call that failed may have left words
  putText(name, 5);
  args.forEach(put);
  const n = send();
  return receive(run(() => wasm.special(n)));
}

// ---------------------------------------------------------------- ownership

// The garbage collector takes no tensor that a leak watch knows: one that it takes was made before the watch.
const registry = new FinalizationRegistry((handle) => {
  if (leakWatch) liveBefore -= 1;
  wasm.release(handle);
});
const scopes = []; // functions of transforms that are running, with the tensors made inside of each

function enter() {
  const scope = { made: [], results: [] };
  scopes.push(scope);
  return scope;
}

/** What a function of a transform made belongs to it: all but its results goes when the program has copied those. */
function leave(scope) {
  scopes.pop();
  const keep = new Set(scope.results);
  const results = [];
  for (const t of scope.made) keep.has(t) ? results.push(t) : t.dispose();
  // The program copies them right after this call.
  if (results.length > 0) pending.push(results);
}
const pending = []; // results that the program has copied

function sweep() {
  while (pending.length > 0) for (const t of pending.pop()) t.dispose();
}

let leakWatch = null;
let liveBefore = 0; // handles that were made before the watch and are live

/** Something else that the program holds: an optimiser, a schedule, a compiled function. */
class Held {
  #handle;
  constructor(handle) {
    this.#handle = handle;
    registry.register(this, handle, this);
  }
  handle() {
    if (this.#handle < 0) throw new LoomError("this was disposed of");
    return this.#handle;
  }
  dispose() {
    if (this.#handle < 0) return;
    registry.unregister(this);
    wasm.release(this.#handle);
    this.#handle = -1;
  }
}

const dtypeNames = [];
const views = {
  bool: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
};

/** An n-dimensional array. Operations leave their operands alone; `dispose` frees it, else the garbage collector does. */
export class Tensor {
  #handle;
  #shape;
  #dtype;

  constructor(handle) {
    this.#handle = handle;
    registry.register(this, handle, this);
    if (scopes.length > 0) scopes[scopes.length - 1].made.push(this);
    if (leakWatch) leakWatch.set(this, new Error().stack);
  }

  handle() {
    if (this.#handle < 0) {
      const what = this.#dtype ? `${this.#dtype}[${this.#shape}]` : "a tensor";
      throw new LoomError(`${what} was used after it was disposed of`);
    }
    return this.#handle;
  }

  /** Forgets the handle without giving it back: the program has taken it. */
  given() {
    registry.unregister(this);
    leakWatch?.delete(this);
    this.#handle = -1;
  }

  #describe() {
    const rank = run(() => wasm.describe(this.handle()));
    const at = room(0);
    const words = f64();
    this.#dtype = dtypeNames[words[at]];
    this.#shape = Array.from(words.subarray(at + 1, at + 1 + rank));
  }

  get shape() {
    if (!this.#shape) this.#describe();
    return this.#shape.slice();
  }
  get dtype() {
    if (!this.#dtype) this.#describe();
    return this.#dtype;
  }
  get ndim() {
    return this.shape.length;
  }
  get size() {
    return this.shape.reduce((a, b) => a * b, 1);
  }
  get disposed() {
    return this.#handle < 0;
  }
  /** Itself: operations don't consume their operands. */
  get ref() {
    return this;
  }
  get T() {
    return numpy.transpose(this);
  }

  /** Where it lives: `wasm` or `webgpu`. */
  get device() {
    return deviceNames[run(() => wasm.device_of(this.handle()))];
  }
  /** The same tensor on another device; itself if it lives there. */
  async to(device) {
    const to = deviceNumber(device);
    if (deviceNumber(this.device) === to) return this;
    if (to !== 0) return special("to", this, to);
    const { dtype, shape } = this;
    const bytes = await later(run(() => wasm.begin_read(this.handle())));
    return withDevice("wasm", () => fromBytes(new Uint8Array(bytes), dtype, shape));
  }

  /** The elements, in row-major order, when they are computed. */
  async data() {
    if (this.device === "wasm") return this.dataSync();
    const dtype = this.dtype;
    if (!(dtype in views)) {
      const wide = this.astype("float32");
      const got = wide.data();
      wide.dispose();
      return got;
    }
    return new views[dtype](await later(run(() => wasm.begin_read(this.handle()))));
  }

  /** The elements at once. On `webgpu` that is not possible in a page: use `await data()`. */
  dataSync() {
    const dtype = this.dtype;
    if (!(dtype in views)) {
      const wide = this.astype("float32");
      try {
        return wide.dataSync();
      } finally {
        wide.dispose();
      }
    }
    const n = run(() => wasm.fetch(this.handle()));
    return new views[dtype](fetched(n));
  }

  /** The elements as nested lists; a number for a tensor without axes. */
  js() {
    return this.#nested(this.dataSync());
  }
  async jsAsync() {
    return this.#nested(await this.data());
  }
  #nested(flat) {
    const bool = this.dtype === "bool";
    let at = 0;
    const build = (shape) => {
      if (shape.length === 0) {
        const x = flat[at++];
        return bool ? x !== 0 : typeof x === "bigint" ? Number(x) : x;
      }
      return Array.from({ length: shape[0] }, () => build(shape.slice(1)));
    };
    return build(this.shape);
  }
  item() {
    if (this.size !== 1) throw new LoomError(`item() of ${this.dtype}[${this.shape}], which is not one number`);
    const x = this.dataSync()[0];
    return this.dtype === "bool" ? x !== 0 : typeof x === "bigint" ? Number(x) : x;
  }

  astype(dtype) {
    return special("cast", this, dtype);
  }
  /** Numbers, `[start, end, step]`, `null` for a new axis, `"..."`, or a tensor of integers, one for each axis. */
  slice(...picks) {
    return special("index", this, picks);
  }
  detach() {
    return special("detach", this);
  }
  async blockUntilReady() {
    return blockUntilReady(this);
  }

  dispose() {
    if (this.#handle < 0) return;
    registry.unregister(this);
    if (leakWatch && !leakWatch.delete(this)) liveBefore -= 1;
    wasm.release(this.#handle);
    this.#handle = -1;
  }

  toString() {
    return this.disposed ? "Tensor(disposed)" : `Tensor(${this.dtype}[${this.shape}])`;
  }
  [Symbol.for("nodejs.util.inspect.custom")]() {
    return this.toString();
  }
  [Symbol.toPrimitive](hint) {
    if (hint === "string") return this.toString();
    throw new LoomError(`${this.toString()} is no number; read it with item(), js() or await data()`);
  }
}
if (typeof Symbol.dispose === "symbol") Tensor.prototype[Symbol.dispose] = Tensor.prototype.dispose;

const typedNames = new Map([
  [Float32Array, "float32"],
  [Float64Array, "float64"],
  [Int8Array, "int8"],
  [Int16Array, "int16"],
  [Int32Array, "int32"],
  [Uint8Array, "uint8"],
  [Uint8ClampedArray, "uint8"],
  [Uint16Array, "uint16"],
  [Uint32Array, "uint32"],
  [BigInt64Array, "int64"],
  [BigUint64Array, "uint64"],
]);
// Not every engine has it.
if (typeof Float16Array !== "undefined") {
  typedNames.set(Float16Array, "float16");
  views.float16 = Float16Array;
}

/** A tensor of numbers, nested lists, a typed array (with `shape`), or another tensor. */
function array(value, { dtype, shape, device } = {}) {
  ready();
  if (device !== undefined) return withDevice(device, () => array(value, { dtype, shape }));
  if (value instanceof Tensor) {
    const same = !dtype || dtype === value.dtype ? value.slice() : (weak.get(value) ?? value).astype(dtype);
    return shape ? numpy.reshape(same, shape) : same;
  }
  let flat = value;
  let own = "float32";
  if (ArrayBuffer.isView(value)) {
    own = typedNames.get(value.constructor);
    if (!own) throw new LoomError(`array: a ${value.constructor.name} has no elements of a known type; give a typed array of numbers, such as Float32Array`);
    shape ??= [value.length];
  } else if (Array.isArray(value) && value.flat(Infinity).some(isTensor)) {
    return stacked(value, { dtype, shape });
  } else {
    const found = [];
    flat = [];
    const walk = (v, depth) => {
      if (Array.isArray(v)) {
        if (found.length === depth) found.push(v.length);
        if (found[depth] !== v.length || (flat.length > 0 && depth >= found.length)) ragged();
        v.forEach((x) => walk(x, depth + 1));
      } else {
        if (depth !== found.length) ragged();
        flat.push(v);
      }
    };
    const ragged = () => {
      throw new LoomError("array: lists of different lengths side by side");
    };
    walk(value, 0);
    if (flat.some((x) => typeof x !== "number" && typeof x !== "boolean" && typeof x !== "bigint")) {
      throw new LoomError("array: expected numbers, lists of numbers, a typed array or a tensor");
    }
    own = flat.length > 0 && typeof flat[0] === "boolean" ? "bool" : typeof flat[0] === "bigint" ? "int64" : "float32";
    shape ??= found;
  }
  shape = typeof shape === "number" ? [shape] : shape;
  const stored = views[dtype ?? own] ? (dtype ?? own) : "float32";
  const View = views[stored];
  const big = stored === "int64" || stored === "uint64";
  const data =
    flat instanceof View ? flat : View.from(flat, big ? (x) => BigInt(typeof x === "bigint" ? x : Math.trunc(Number(x))) : Number);
  const at = bytesFor(data.byteLength);
  new Uint8Array(memory.buffer, at, data.byteLength).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  const words = room(shape.length);
  shape.forEach((n, i) => (f64()[words + i] = n));
  const made = new Tensor(run(() => wasm.make(dtypeNames.indexOf(stored), shape.length)));
  return dtype && dtype !== stored ? made.astype(dtype) : made;
}

/** Lists with tensors in them, side by side. */
function stacked(value, { dtype, shape }) {
  const type = value.flat(Infinity).find(isTensor).dtype;
  const made = [];
  const own = (t) => {
    made.push(t);
    return t;
  };
  const all = value.map((v) => (isTensor(v) ? v : own(array(v, { dtype: type }))));
  let result = numpy.stack(all);
  const then = (f) => {
    made.push(result);
    result = f(result);
  };
  if (dtype && dtype !== result.dtype) then((t) => t.astype(dtype));
  if (shape) then((t) => numpy.reshape(t, shape));
  made.forEach((t) => t.dispose());
  return result;
}

/** A tensor of raw elements, little-endian, of any dtype. */
export function fromBytes(bytes, dtype, shape) {
  ready();
  const code = dtypeNames.indexOf(dtype);
  if (code < 0) throw new LoomError(`fromBytes: there is no dtype "${dtype}"; there are ${dtypeNames.join(", ")}`);
  const at = bytesFor(bytes.byteLength);
  new Uint8Array(memory.buffer, at, bytes.byteLength).set(bytes);
  const words = room(shape.length);
  shape.forEach((n, i) => (f64()[words + i] = n));
  return new Tensor(run(() => wasm.make(code, shape.length)));
}

/** The raw elements of a tensor on `wasm`, little-endian. */
export function toBytes(t) {
  const n = run(() => wasm.fetch(t.handle()));
  return new Uint8Array(fetched(n));
}

const stored = {
  BOOL: "bool", I8: "int8", I16: "int16", I32: "int32", I64: "int64", U8: "uint8", U16: "uint16", U32: "uint32", U64: "uint64",
  F8_E4M3: "float8_e4m3fn", F8_E5M2: "float8_e5m2", F16: "float16", BF16: "bfloat16", F32: "float32", F64: "float64",
};

/** Files of HuggingFace's format: tensors by name. */
export const safetensors = {
  /** Tensors of a file's bytes, by name. */
  parse(buffer) {
    const bytes = buffer instanceof Uint8Array ? buffer : new Uint8Array(buffer);
    const bad = (why) => new LoomError(`safetensors: ${why}`);
    if (bytes.byteLength < 8) throw bad("the file is shorter than its head");
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true));
    if (length > bytes.byteLength - 8) throw bad("the head is longer than the file; was it loaded whole?");
    let head;
    try {
      head = JSON.parse(decoder.decode(bytes.subarray(8, 8 + length)));
    } catch (e) {
      throw bad(`the head is no JSON: ${e.message}`);
    }
    const found = {};
    for (const [name, entry] of Object.entries(head)) {
      if (name === "__metadata__") continue;
      const [from, to] = entry.data_offsets ?? [];
      const dtype = stored[entry.dtype];
      if (!dtype) throw bad(`${name} is of type ${entry.dtype}, which is not known`);
      if (!(from >= 0 && to >= from && 8 + length + to <= bytes.byteLength)) throw bad(`the data of ${name} are not in the file`);
      found[name] = fromBytes(bytes.subarray(8 + length + from, 8 + length + to), dtype, entry.shape);
    }
    return found;
  },
  /** The bytes of a file with these tensors. */
  serialize(tensors) {
    const names = Object.entries(stored);
    const head = {};
    const all = [];
    let at = 0;
    for (const [name, t] of Object.entries(tensors)) {
      const data = toBytes(t);
      head[name] = { dtype: names.find(([, d]) => d === t.dtype)[0], shape: t.shape, data_offsets: [at, at + data.byteLength] };
      all.push(data);
      at += data.byteLength;
    }
    const text = new TextEncoder().encode(JSON.stringify(head));
    // The data begin at a multiple of 8.
    const padded = new Uint8Array(Math.ceil(text.byteLength / 8) * 8).fill(32);
    padded.set(text);
    const file = new Uint8Array(8 + padded.byteLength + at);
    new DataView(file.buffer).setBigUint64(0, BigInt(padded.byteLength), true);
    file.set(padded, 8);
    let to = 8 + padded.byteLength;
    for (const data of all) {
      file.set(data, to);
      to += data.byteLength;
    }
    return file;
  },
  /** Tensors of a `File`, a `Blob` or a URL; what a URL gives is kept in the page's cache. */
  async load(from) {
    if (typeof from !== "string" && !(from instanceof URL)) return this.parse(await from.arrayBuffer());
    const cache = typeof caches === "undefined" ? null : await caches.open("tensorloom").catch(() => null);
    let response = await cache?.match(from);
    if (!response) {
      response = await fetch(from);
      if (!response.ok) throw new LoomError(`${from} can't be loaded: ${response.status} ${response.statusText}`);
      await cache?.put(from, response.clone());
    }
    return this.parse(await response.arrayBuffer());
  },
};

// ---------------------------------------------------------------- trees

const isTensor = (x) => x instanceof Tensor;
/** Whether this is an object whose fields are a tree: not a list, a map, a date and the like. */
const isPlain = (x) => x !== null && typeof x === "object" && Object.prototype.toString.call(x) === "[object Object]" && !isTensor(x) && !(x instanceof Held);

/** In a structure: what is no tensor and stays as it is. */
class Static {
  constructor(value) {
    this.value = value;
  }
}

/** Tensors of a tree in order, and its structure. Numbers become tensors unless `keep`. */
function flatten(x, leaves, keep = false) {
  if (isTensor(x)) {
    leaves.push(x);
    return "*";
  }
  if (!keep && (typeof x === "number" || typeof x === "boolean" || ArrayBuffer.isView(x))) {
    leaves.push(array(x));
    return "*";
  }
  if (Array.isArray(x)) return x.map((v) => flatten(v, leaves, keep));
  if (isPlain(x)) {
    const all = {};
    for (const k of Object.keys(x).sort()) all[k] = flatten(x[k], leaves, keep);
    return all;
  }
  return new Static(x);
}

function build(structure, leaves) {
  if (structure === "*") return leaves.shift();
  if (structure === "#") return weakNumber(leaves.shift());
  if (Array.isArray(structure)) return structure.map((s) => build(s, leaves));
  if (structure instanceof Static) return structure.value;
  const all = {};
  for (const k of Object.keys(structure)) all[k] = build(structure[k], leaves);
  return all;
}

const count = (structure) => {
  if (typeof structure === "string") return 1;
  if (structure instanceof Static) return 0;
  return Object.values(structure).reduce((n, s) => n + count(s), 0);
};

/** A text for a structure; `leaf` writes what is no tensor. */
function written(structure, leaf) {
  if (typeof structure === "string") return structure;
  if (structure instanceof Static) return leaf(structure.value);
  if (Array.isArray(structure)) return `[${structure.map((s) => written(s, leaf))}]`;
  return `{${Object.keys(structure).map((k) => `${JSON.stringify(k)}:${written(structure[k], leaf)}`)}}`;
}

/** A text that is the same for equal structures only. */
const keyOf = (structure) => written(structure, (value) => `=${keyOfStatic(value, noTensor)}`);
const noTensor = (x) => {
  if (isTensor(x)) throw new LoomError(`${x} is a static argument, or inside of what is no list and no plain object: a tensor can't be static; leave it out of staticArgnums, or out of that object`);
};
/** Structures for people: `{"a":*}`. */
const shown = (structure) => written(structure, named);

/** Leaves of a result that must have a structure. */
function leavesLike(name, result, structure) {
  const leaves = [];
  const own = flatten(result, leaves);
  if (keyOf(own) !== keyOf(structure)) throw new LoomError(`${name}: the value goes in as ${shown(structure)} and comes out as ${shown(own)}; its structure can't change`);
  return leaves;
}

function parts(x) {
  const leaves = [];
  const structure = flatten(x, leaves);
  return [leaves, structure];
}

/** Trees of plain objects and lists whose leaves are tensors. */
export const tree = {
  flatten(x) {
    const [leaves, structure] = parts(x);
    return [leaves, structure];
  },
  unflatten: (structure, leaves) => build(structure, leaves.slice()),
  leaves: (x) => parts(x)[0],
  structure: (x) => keyOf(parts(x)[1]),
  map(f, x, ...more) {
    const [leaves, structure] = parts(x);
    const others = more.map((m) => parts(m)[0]);
    return build(structure, leaves.map((l, i) => f(l, ...others.map((o) => o[i]))));
  },
  dispose(x) {
    const leaves = [];
    flatten(x, leaves, true);
    leaves.forEach((t) => t.dispose());
  },
  ref: (x) => x,
};

// ---------------------------------------------------------------- functions for the program

/** Registers a function of lists of tensors while `body` runs. */
function lend(f, body) {
  const id = nextFunction++;
  functions.set(id, f);
  try {
    return body(id);
  } finally {
    functions.delete(id);
    sweep();
  }
}

/** A function of trees as one of lists of tensors; its result's structure is left in `seen`. */
function flat(f, structure, seen, spread = true) {
  return (leaves) => {
    const args = build(structure, leaves.slice());
    const result = spread ? f(...args) : f(args);
    if (result instanceof Promise) throw new LoomError("a function of a transform can't be async");
    const outs = [];
    seen.structure = flatten(result, outs);
    return outs;
  };
}

const list = (x) => (Array.isArray(x) ? x : [x]);
const none = [];

// ---------------------------------------------------------------- transforms

const weak = new WeakMap(); // tensors of compiled functions that stand for numbers: the same in the dtype that holds the number exactly

/** A number that was given to a compiled function: a tensor that takes part in promotion as the number does. */
function weakNumber(exact) {
  const t = exact.astype("float32");
  weak.set(t, exact);
  return t;
}

/**
 * An argument of a compiled function: its tensors and numbers, and its structure. `refuse(value, inside)` gives the error for what is neither;
 * `narrow` is for devices without types of 64 bits.
 */
function traced(x, leaves, refuse, narrow, inside = false) {
  if (weak.has(x)) {
    leaves.push(weak.get(x));
    return "#";
  }
  if (isTensor(x)) {
    leaves.push(x);
    return "*";
  }
  if (typeof x === "number") {
    const whole = Number.isInteger(x) && !Object.is(x, -0) && Math.abs(x) < 9e15;
    const wide = narrow ? "float32" : whole ? "int64" : "float64";
    leaves.push(array(x, { dtype: whole && Math.abs(x) < 2 ** 31 ? "int32" : wide }));
    return "#";
  }
  if (ArrayBuffer.isView(x)) {
    leaves.push(array(x));
    return "*";
  }
  const part = (v) => (v === null || v === undefined ? new Static(v) : traced(v, leaves, refuse, narrow, true));
  if (Array.isArray(x)) return x.map(part);
  if (isPlain(x)) return Object.fromEntries(Object.keys(x).sort().map((k) => [k, part(x[k])]));
  throw refuse(x, inside);
}

/** The dtypes and shapes of tensors. */
const typesOf = (leaves) => leaves.map((t) => `${t.dtype}[${t.shape}]`).join();

/**
 * Compiles a function: traced once for each structure and types of its arguments, and each value of static ones. It runs where they are.
 * Arguments are tensors, numbers, and lists and objects of them; numbers keep the promotion of numbers. Anything else is static by
 * `staticArgnums` only: data are compared by value, functions and objects of classes by identity. Options: `staticArgnums`;
 * `device`, where arguments are moved that live elsewhere; `donateArgnums`, arguments that are given away: results take their memory, and
 * they are gone after the call, whether it succeeds or not. The result has `dispose()`, which frees its programs.
 */
export function jit(f, { staticArgnums = [], device, donateArgnums = [] } = {}) {
  const entries = new Map();
  const away = list(donateArgnums);
  const fixed = list(staticArgnums);
  const entryFor = (key, structure) => {
    const id = nextFunction++;
    // Which leaves are those of arguments that are given away.
    const donated = [];
    let leaf = 0;
    structure.forEach((s, i) => {
      const n = count(s);
      if (away.includes(i)) for (let k = 0; k < n; k++) donated.push(leaf + k);
      leaf += n;
    });
    const at = room(donated.length);
    donated.forEach((place, k) => (f64()[at + k] = place));
    const entry = { held: new Held(wasm.jit_new(id, donated.length)), donated, structure, results: new Map(), only: null, traced: null };
    // It is traced again for other types, by what is given then, and may give another structure.
    functions.set(id, (leaves) => {
      const seen = {};
      const types = typesOf(leaves);
      const outs = flat(f, entry.structure, seen)(leaves);
      entry.results.set(types, seen.structure);
      entry.traced = seen.structure;
      const keys = new Set([...entry.results.values()].map(keyOf));
      entry.only = keys.size === 1 ? seen.structure : null;
      return outs;
    });
    entries.set(key, entry);
    return entry;
  };
  /** The structure of arguments some of which are no tensors. */
  const structured = (args, leaves) => {
    const narrow = device === "webgpu" || defaultDevice() === "webgpu" || (gpu.opened() && args.some((t) => isTensor(t) && t.device === "webgpu"));
    return args.map((a, i) => {
      const refuse = (x, inside) => {
        const bool = typeof x === "boolean" ? "; np.array(..) makes a tensor of a bool" : "";
        return new LoomError(`jit: argument ${i} ${inside ? "holds" : "is"} ${named(x)}, which is no tensor: name ${i} in staticArgnums to compile for each of its values${bool}`);
      };
      return fixed.includes(i) || a === undefined ? new Static(a) : traced(a, leaves, refuse, narrow);
    });
  };
  let gone = false;
  const compiled = (...args) => {
    ready();
    if (gone) throw new LoomError("this compiled function was disposed of");
    let leaves = args;
    let key = args.length;
    let structure;
    for (let i = 0; i < args.length; i++) {
      if (!isTensor(args[i]) || weak.has(args[i]) || fixed.includes(i)) {
        leaves = [];
        structure = structured(args, leaves);
        key = keyOf(structure);
        break;
      }
    }
    const entry = entries.get(key) ?? entryFor(key, structure ?? args.map(() => "*"));
    if (structure) entry.structure = structure;
    let moved = null;
    if (device !== undefined && scopes.length === 0) [leaves, moved] = allOn(device, leaves);
    const n = leaves.length;
    // Inside of a function of a transform there is no memory to give.
    const given = entry.donated.length > 0 && scopes.length === 0 ? entry.donated : none;
    const types = entry.only || entry.results.size === 0 ? null : typesOf(leaves);
    entry.traced = null;
    let at = room(n + given.length);
    let words = f64();
    for (let i = 0; i < n; i++) words[at + i] = leaves[i].handle();
    let m;
    try {
      if (given.length === 0) m = wasm.jit_call(entry.held.handle(), n);
      else {
        const own = [...new Set(given.map((place) => leaves[place]))];
        own.forEach((t, i) => (words[at + n + i] = t.handle()));
        own.forEach((t) => t.given());
        m = wasm.jit_call_giving(entry.held.handle(), n, own.length);
      }
    } catch (e) {
      thrown ??= e;
      m = -1;
    }
    moved?.forEach((t) => t.dispose());
    if (pending.length > 0) sweep();
    if (m < 0) fail();
    at = room(0);
    words = f64();
    if (entry.only === "*") return new Tensor(words[at]);
    const outs = Array.from({ length: m }, (_, i) => words[at + i]).map((h) => new Tensor(h));
    return build(entry.traced ?? entry.only ?? entry.results.get(types), outs);
  };
  compiled.dispose = () => {
    gone = true;
    entries.forEach((e) => e.held.dispose());
    entries.clear();
  };
  if (typeof Symbol.dispose === "symbol") compiled[Symbol.dispose] = compiled.dispose;
  return compiled;
}

/** A function that gives `[y, aux]`: gradients are those of `y`, and end at `aux`. */
const withAux = (name, f) => (...args) => {
  const both = f(...args);
  if (both instanceof Promise) throw new LoomError("a function of a transform can't be async");
  if (!Array.isArray(both) || both.length !== 2) throw new LoomError(`${name}: with hasAux the function must give [results, aux]`);
  return [both[0], tree.map((t) => t.detach(), both[1])];
};

/** Value and gradient of a function that gives a number. Options: `argnums` (0), `hasAux`. */
export function valueAndGrad(f, { argnums = 0, hasAux = false } = {}) {
  return (...args) => {
    const leaves = [];
    const ends = [];
    const structure = args.map((a) => {
      const s = flatten(a, leaves);
      ends.push(leaves.length);
      return s;
    });
    const wanted = list(argnums);
    const places = [];
    for (const i of wanted) {
      if (!(i in args)) throw new LoomError(`argnums names argument ${i}, and there are ${args.length}`);
      for (let k = i === 0 ? 0 : ends[i - 1]; k < ends[i]; k++) places.push(k);
    }
    const seen = {};
    const g = (tensors) => {
      const args = build(structure, tensors.slice());
      const [value, aux] = hasAux ? withAux("grad", f)(...args) : [f(...args), []];
      if (!isTensor(value)) throw new LoomError("grad: the function must give a tensor without axes");
      const outs = [value];
      seen.structure = flatten(aux, outs);
      return outs;
    };
    const [value, aux, grads] = lend(g, (id) => special("valueAndGrad", id, places, leaves));
    const all = grads.slice();
    const each = wanted.map((i) => build(structure[i], all));
    const gradient = Array.isArray(argnums) ? each : each[0];
    return hasAux ? [[value, build(seen.structure, aux)], gradient] : [value, gradient];
  };
}

/** The gradient of a function that gives a number. Options: `argnums` (0), `hasAux`. */
export function grad(f, options = {}) {
  const both = valueAndGrad(f, options);
  return (...args) => {
    const [value, gradient] = both(...args);
    if (!options.hasAux) {
      value.dispose();
      return gradient;
    }
    value[0].dispose();
    return [gradient, value[1]];
  };
}

/** `[y, back]`: the results of `f(...primals)`, and the function from their cotangents to those of the arguments. Options: `hasAux`. */
export function vjp(f, primals, { hasAux = false } = {}) {
  const [leaves, structure] = parts(primals);
  const seen = {};
  const [outs, handle] = lend(flat(hasAux ? withAux("vjp", f) : f, structure, seen), (id) => special2("vjp", id, leaves));
  const [y, aux] = hasAux ? build(seen.structure, outs.slice()) : [build(seen.structure, outs.slice())];
  const n = hasAux ? count(seen.structure[0]) : outs.length;
  const types = outs.slice(n).map(({ shape, dtype }) => [shape, { dtype }]);
  const back = (ct) => {
    const given = [];
    flatten(ct, given);
    const none = types.map((type) => numpy.zeros(...type));
    try {
      return build(structure, special("mapped", handle, [...given, ...none]));
    } finally {
      none.forEach((t) => t.dispose());
    }
  };
  back.dispose = () => handle.dispose();
  return hasAux ? [y, back, aux] : [y, back];
}

/**
 * A function with a reverse rule of its own. `f.defvjp(forward, backward)`: `forward` takes the arguments and gives `[results, kept]`, `backward`
 * takes `(kept, cotangents of the results)` and gives a list with a cotangent for each argument, `null` for zeros. Trees are fine everywhere.
 */
export function customVjp(f) {
  let rules = null;
  const own = ownRule();
  const custom = (...args) => {
    // Rules are traced with each call: inside of them it is the function itself.
    if (own.runs) return f(...args);
    if (!rules) throw new LoomError("customVjp: there is no rule yet; give one with `.defvjp(forward, backward)`");
    const [forward, backward] = rules;
    const [leaves, structure] = parts(args);
    const seen = {};
    const ahead = (tensors) => {
      const both = own(() => forward(...build(structure, tensors.slice())));
      if (!Array.isArray(both) || both.length !== 2) throw new LoomError("customVjp: forward must give [results, what backward needs]");
      const outs = [];
      seen.structure = flatten(both[0], outs);
      seen.count = outs.length;
      seen.kept = flatten(both[1], outs);
      resultCount = seen.count;
      return outs;
    };
    const back = (tensors) => {
      const all = tensors.slice();
      const kept = build(seen.kept, all);
      const cotangents = own(() => backward(kept, build(seen.structure, all)));
      return cotangentLeaves("customVjp", cotangents, args, leaves, structure);
    };
    const outs = lend(ahead, (a) => lend(back, (b) => special("customVjp", a, b, leaves)));
    return build(seen.structure, outs);
  };
  custom.defvjp = (forward, backward) => {
    rules = [forward, backward];
    return custom;
  };
  custom.fun = f;
  return custom;
}

/** Runs a rule, and says while it does. */
function ownRule() {
  const run = (rule) => {
    const before = run.runs;
    run.runs = true;
    try {
      return rule();
    } finally {
      run.runs = before;
    }
  };
  run.runs = false;
  return run;
}

/** The leaves of a rule's results: as many for each argument as that has, zeros where it gives `null`. */
function cotangentLeaves(name, given, args, leaves, structure) {
  if (!Array.isArray(given) || given.length !== args.length) throw new LoomError(`${name}: the rule must give a list with one for each of the ${args.length} arguments`);
  const outs = [];
  let at = 0;
  given.forEach((g, i) => {
    const n = count(structure[i]);
    const before = outs.length;
    if (g === null || g === undefined) for (let k = 0; k < n; k++) outs.push(zerosLike(leaves[at + k]));
    else flatten(g, outs);
    if (outs.length - before !== n) throw new LoomError(`${name}: argument ${i} has ${n} tensors, the rule gives ${outs.length - before} for it`);
    at += n;
  });
  return outs;
}

const zerosLike = (t) => numpy.zeros(t.shape, { dtype: t.dtype });

/** A function with a forward rule of its own. `f.defjvp(rule)`: `rule(primals, tangents)` gives `[results, their tangents]`. */
export function customJvp(f) {
  let rule = null;
  const own = ownRule();
  const custom = (...args) => {
    if (own.runs) return f(...args);
    if (!rule) throw new LoomError("customJvp: there is no rule yet; give one with `.defjvp(rule)`");
    const [leaves, structure] = parts(args);
    const seen = {};
    const along = (tensors) => {
      const all = tensors.slice();
      const primals = build(structure, all);
      const both = own(() => rule(primals, build(structure, all)));
      if (!Array.isArray(both) || both.length !== 2) throw new LoomError("customJvp: the rule must give [results, their tangents]");
      const outs = [];
      flatten(both[1], outs);
      return outs;
    };
    const outs = lend(flat(f, structure, seen), (a) => lend(along, (b) => special("customJvp", a, b, leaves)));
    return build(seen.structure, outs);
  };
  custom.defjvp = (given) => {
    rule = given;
    return custom;
  };
  return custom;
}

/** A result whose last item is an object of the program's. */
function special2(name, ...args) {
  ready();
  out = [];
  putText(name, 5);
  args.forEach(put);
  const n = send();
  const size = run(() => wasm.special(n));
  const at = room(0);
  const words = f64();
  const object = words[at + size - 1];
  const leaves = Array.from({ length: words[at + 3] }, (_, i) => words[at + 5 + 2 * i]);
  return [leaves.map((h) => new Tensor(h)), new Held(object)];
}

/**
 * `[y, map]`: the results, and the linear function from tangents of the arguments to those of the results. Options, behind the arguments: `hasAux`;
 * then `[y, map, aux]`.
 */
export function linearize(f, ...primals) {
  const last = primals[primals.length - 1];
  const given = isPlain(last) && typeof last.hasAux === "boolean" && Object.keys(last).length === 1;
  const { hasAux } = given ? primals.pop() : { hasAux: false };
  const [leaves, structure] = parts(primals);
  const seen = {};
  const [outs, handle] = lend(flat(hasAux ? withAux("linearize", f) : f, structure, seen), (id) => special2("linearize", id, leaves));
  const [y, aux] = hasAux ? build(seen.structure, outs.slice()) : [build(seen.structure, outs.slice())];
  const map = (...tangents) => {
    const given = [];
    flatten(tangents, given);
    const dy = special("mapped", handle, given);
    if (!hasAux) return build(seen.structure, dy);
    dy.splice(count(seen.structure[0])).forEach((t) => t.dispose());
    return build(seen.structure[0], dy);
  };
  map.dispose = () => handle.dispose();
  return hasAux ? [y, map, aux] : [y, map];
}

/** `[y, dy]`: the results and their derivatives along tangents. Options: `hasAux`; then `[y, dy, aux]`. */
export function jvp(f, primals, tangents, { hasAux = false } = {}) {
  const [leaves, structure] = parts(primals);
  const [along] = parts(tangents);
  const seen = {};
  const [y, dy] = lend(flat(hasAux ? withAux("jvp", f) : f, structure, seen), (id) => special("jvp", id, leaves, along));
  if (!hasAux) return [build(seen.structure, y), build(seen.structure, dy)];
  const [value, aux] = build(seen.structure, y);
  dy.splice(count(seen.structure[0])).forEach((t) => t.dispose());
  return [value, build(seen.structure[0], dy), aux];
}

/** A function over a batch. `inAxes`: an axis, `null`, or one for each argument; `outAxes`: an axis. */
export function vmap(f, inAxes = 0, outAxes = 0, { axisSize } = {}) {
  if (isPlain(inAxes) && !Array.isArray(inAxes)) ({ inAxes = 0, outAxes = 0, axisSize } = inAxes);
  return (...args) => {
    const leaves = [];
    const axes = [];
    const structure = args.map((a, i) => {
      const s = flatten(a, leaves);
      axes.push(...axesOf(Array.isArray(inAxes) ? inAxes[i] : inAxes, s));
      return s;
    });
    if (Array.isArray(inAxes) && inAxes.length !== args.length) throw new LoomError(`vmap: ${inAxes.length} inAxes for ${args.length} arguments`);
    const seen = {};
    const outs = lend(flat(f, structure, seen), (id) => special("vmap", id, leaves, axes, list(outAxes), axisSize));
    return build(seen.structure, outs);
  };
}

/** An axis for each leaf of a structure, given as a tree of axes: one stands for everything below it. */
function axesOf(axes, structure) {
  if (axes === null || axes === undefined || typeof axes === "number") return new Array(count(structure)).fill(axes ?? null);
  const kind = (x) => (Array.isArray(x) ? "list" : isPlain(x) ? "object" : "tensor");
  if (kind(axes) !== kind(structure) || (Array.isArray(axes) && axes.length !== structure.length)) {
    throw new LoomError(`vmap: the axes ${JSON.stringify(axes)} don't fit an argument ${shown(structure)}`);
  }
  return Object.keys(structure).flatMap((k) => axesOf(axes[k], structure[k]));
}

/** Derivatives of each result (outer tree) by each tensor of the chosen arguments (inner tree). Options: `argnums` (0), `hasAux`. */
function jacobian(name) {
  return (f, { argnums = 0, hasAux = false } = {}) =>
    (...args) => {
      if (hasAux) {
        const [, aux] = withAux(name, f)(...args);
        return [jacobian(name)((...given) => f(...given)[0], { argnums })(...args), aux];
      }
      const leaves = [];
      const ends = [];
      const structure = args.map((a) => {
        const s = flatten(a, leaves);
        ends.push(leaves.length);
        return s;
      });
      const seen = {};
      /** Derivatives of all results by one leaf. */
      const by = (place) => {
        const inner = ([x]) => {
          const all = leaves.slice();
          all[place] = x;
          const outs = [];
          seen.structure = flatten(f(...build(structure, all)), outs);
          return outs;
        };
        return lend(inner, (id) => special(name, id, leaves[place]));
      };
      const wanted = list(argnums).map((i) => {
        if (!(i in args)) throw new LoomError(`argnums names argument ${i}, and there are ${args.length}`);
        const first = i === 0 ? 0 : ends[i - 1];
        return { structure: structure[i], columns: Array.from({ length: ends[i] - first }, (_, k) => by(first + k)) };
      });
      const each = (row) => wanted.map((w) => build(w.structure, w.columns.map((c) => c[row])));
      const rows = Array.from({ length: count(seen.structure ?? []) }, (_, row) => (Array.isArray(argnums) ? each(row) : each(row)[0]));
      return build(seen.structure ?? [], rows);
    };
}

/** Jacobian by forward mode. Options: `argnums`, `hasAux`. */
export const jacfwd = jacobian("jacfwd");
/** Jacobian by reverse mode. Options: `argnums`, `hasAux`. */
export const jacrev = jacobian("jacrev");
export { jacrev as jacobian };
const hessianOfTensor = jacobian("hessian");
/** Second derivatives. Options: `argnums`, `hasAux`. */
export const hessian =
  (f, options = {}) =>
  (...args) => {
    const { argnums = 0 } = options;
    const alone = !Array.isArray(argnums) && !Array.isArray(args[argnums]) && !isPlain(args[argnums]);
    return alone ? hessianOfTensor(f, options)(...args) : jacfwd(jacrev(f, options), options)(...args);
  };

/** A function whose inner values are computed again for its gradient. */
export const checkpoint = (f) => (...args) => {
  const [leaves, structure] = parts(args);
  const seen = {};
  const outs = lend(flat(f, structure, seen), (id) => special("checkpoint", id, leaves));
  return build(seen.structure, outs);
};

/** The graph of a function, as text. */
export const makeJaxpr =
  (f) =>
  (...args) => {
    const [leaves, structure] = parts(args);
    return lend(flat(f, structure, {}), (id) => special("makeGraph", id, leaves));
  };

/** Tensors on a device, and those of them that are copies. */
function allOn(device, leaves) {
  const to = deviceNumber(device);
  const moved = [];
  const all = leaves.map((t) => {
    if (deviceNumber(t.device) === to) return t;
    if (to === 0) throw new LoomError(`${t.dtype}[${t.shape}] is on webgpu: move it with \`await x.to("wasm")\` before the call`);
    moved.push(special("to", t, to));
    return moved.at(-1);
  });
  return [all, moved];
}

/**
 * What becomes of a function on the device of its arguments: its graph, program, kernels (in WGSL on `webgpu`) and timings, as texts.
 * On `webgpu` there are no timings: the time of a run is what `await blockUntilReady` takes.
 */
export const explain =
  (f) =>
  (...args) => {
    const [leaves, structure] = parts(args);
    const onGpu = leaves.length > 0 ? leaves.some((t) => t.device === "webgpu") : defaultDevice() === "webgpu";
    const [graph, program, kernels, timings] = lend(flat(f, structure, {}), (id) => special("explain", id, leaves, onGpu));
    return { graph, program, kernels, timings };
  };

// ---------------------------------------------------------------- namespaces

/** NumPy's functions. */
export const numpy = { pi: Math.PI, e: Math.E, inf: Infinity, nan: NaN, newaxis: null, array, asarray: array };
/** JAX's functions of `lax`. */
export const lax = { linalg: {} };
/** Layers' functions. */
export const nn = {};
/** Random numbers by keys, with the bits of JAX. */
export const random = {};
export const linalg = {};
export const fft = {};
export const scipySpecial = {};
/** Optimisers as chains, in the style of optax. */
export const optim = {};
const top = {};

for (const d of ["bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]) {
  numpy[d] = d === "bool_" ? "bool" : d;
}

const spaces = { "": top, np: numpy, lax, nn, random, linalg, fft, special: scipySpecial, optim };

/** An optimiser: `init(params)` and `update(grads, state, params)`. */
class Chain extends Held {
  init(params) {
    return special("optimInit", this, parts(params)[0]);
  }
  /** `[updates, state]`. */
  update(grads, state, params) {
    const [leaves, structure] = parts(grads);
    const [updates, next] = special("optimUpdate", this, leaves, state, parts(params ?? grads)[0]);
    return [build(structure, updates), next];
  }
}

const places = new Set(["indices", "index", "labels"]);
/** Numbers that say where: integers, unlike other numbers. */
const whole = (v) => (typeof v === "number" || (Array.isArray(v) && !v.flat(Infinity).some((x) => typeof x !== "number")) ? array(v, { dtype: "int32" }) : v);

/** Arguments in which tensors that stand for numbers have the dtype that those numbers would get. */
function besideOthers(given, operands, names) {
  const own = (v, i) => {
    if (!operands[i] && names[i] !== "x") return undefined;
    if (isTensor(v)) return weak.has(v) ? undefined : v.dtype;
    return ArrayBuffer.isView(v) ? typedNames.get(v.constructor) : Array.isArray(v) ? "float32" : undefined;
  };
  const other = given.map(own).find((dtype) => dtype !== undefined);
  if (other === undefined) return given;
  return given.map((v, i) => (operands[i] && weak.has(v) ? weak.get(v).astype(promoted(other, weak.get(v).dtype.startsWith("int"))) : v));
}

const promotions = new Map();
/** The dtype of a number, whole or not, beside a tensor. */
function promoted(dtype, whole) {
  const key = `${dtype} ${whole}`;
  if (!promotions.has(key)) {
    const like = numpy.zeros([], { dtype });
    const sum = numpy.add(like, whole ? 1 : 1.5);
    promotions.set(key, sum.dtype);
    sum.dispose();
    like.dispose();
  }
  return promotions.get(key);
}

function bind(index, name, args, wrap) {
  const names = args.map((a) => a[0]);
  const along = names.findIndex((n) => n === "axes" || n === "axis");
  const defaults = args.map((a) => a[1]);
  // Where numbers are promoted with what stands beside them.
  const operands = args.map((a) => a[2]);
  const options = new Set(names);
  const n = args.length;
  return (...given) => {
    ready();
    // A last object names arguments.
    let last = given[given.length - 1];
    let kept = false;
    if (given.length > 0 && isPlain(last) && !Array.isArray(last) && !("re" in last)) {
      if (along >= 0) [last, kept] = alongAxes(last, names[along]);
      if (kept !== false && Object.keys(last).length === 0) given.pop();
      const keys = Object.keys(last);
      if (keys.length > 0 && keys.every((k) => options.has(k)) && (given.length <= n || n === 0)) {
        given.pop();
        for (const k of keys) given[names.indexOf(k)] = last[k];
      } else if (keys.length > 0 && given.length > n) {
        throw new LoomError(`${name}: there is no option ${keys.find((k) => !options.has(k))}; there are ${names.join(", ")}`);
      }
    }
    if (given.length > n) throw new LoomError(`${name}: ${given.length} arguments, and it takes ${names.join(", ")}`);
    if (given.some((v) => weak.has(v))) given = besideOthers(given, operands, names);
    out = [];
    for (let i = 0; i < n; i++) {
      const v = given[i] === undefined && defaults[i] !== null ? defaults[i] : given[i];
      put(places.has(names[i]) ? whole(weak.get(v) ?? v) : names[i] === "starts" && Array.isArray(v) ? v.map(whole) : v);
    }
    const m = send();
    try {
      const result = receive(run(() => wasm.call(index, m)), wrap);
      if (kept !== true) return result;
      return keepAxes(name, isTensor(given[0]) ? given[0] : array(given[0]), given[along] ?? defaults[along], result, { numpy, LoomError });
    } catch (e) {
      // What a transform around the call says is not about the call.
      if (e instanceof LoomError && !e.message.startsWith(name) && !/^(vmap|scan|value_and_grad|grad|[jv]jp|linearize|while|fori|cond|switch)\b/.test(e.message)) e.message = `${name}: ${e.message}`;
      throw e;
    }
  };
}

/** Options of a function along axes: `axis` or `axes`, whichever it is called, and whether `keepdims` is among them. */
function alongAxes(options, own) {
  const { keepdims, ...rest } = options;
  const other = own === "axes" ? "axis" : "axes";
  if (other in rest && !(own in rest)) {
    rest[own] = rest[other];
    delete rest[other];
  }
  return [rest, keepdims === undefined ? false : keepdims ? true : null];
}

/** Fills the namespaces from the program's list; names by hand stay. */
function surface(all) {
  all.forEach(([module, name, js, args, returns], index) => {
    const space = spaces[module];
    const wrap = returns === "GradientTransformation" ? Chain : returns === "Schedule" ? Held : Tensor;
    const f = bind(index, module ? `${module}.${js}` : js, args, wrap);
    space[js] ??= f;
    if (name !== js) space[name] ??= f;
  });
  // Methods: NumPy's functions of a tensor.
  for (const [module, , js, args] of all) {
    if (module === "np" && args.length > 0 && /^(x|a|p|y)$/.test(args[0][0]) && !(js in Tensor.prototype)) {
      const f = numpy[js];
      Tensor.prototype[js] = function (...rest) {
        return f(this, ...rest);
      };
    }
  }
  completeForms({ numpy, lax, nn, random, linalg, fft, optim, scipySpecial, tree, Tensor, LoomError, array, isTensor, isPlain, list, parts, build, special });
  for (const name of Object.keys(top)) if (!(name in numpy)) numpy[name] = top[name];
}

// ---------------------------------------------------------------- loops and branches

/**
 * A loop over the first axis of `xs`: `f(carry, x)` gives `[carry, y]`; `[carry, ys]` comes back, the ys stacked.
 * Options: `length`, `reverse`, `checkpoint` (true, false, every so many), `acceptPath`.
 */
lax.scan = (f, init, xs = null, { length, reverse = false, checkpoint, acceptPath } = {}) => {
  const [carry, carryOf] = parts(init);
  const [slices, sliceOf] = xs === null ? [[], new Static(null)] : parts(xs);
  const n = carry.length;
  let ysOf;
  const body = (leaves) => {
    const result = f(build(carryOf, leaves.slice(0, n)), build(sliceOf, leaves.slice(n)));
    if (!Array.isArray(result) || result.length !== 2) throw new LoomError("scan: the body must give [carry, y]");
    const outs = [];
    const given = flatten(result[0], outs);
    if (keyOf(given) !== keyOf(carryOf)) {
      throw new LoomError(`scan: the body gives a carry of another structure: ${keyOf(given)} for ${keyOf(carryOf)}`);
    }
    ysOf = flatten(result[1], outs);
    return outs;
  };
  const paths = acceptPath === undefined ? undefined : list(acceptPath);
  const [last, ys] = lend(body, (id) => special("scan", id, carry, slices, length, reverse, checkpoint, paths));
  return [build(carryOf, last), build(ysOf, ys)];
};

/** `f(i, value)` for i from `lower` to below `upper`. */
lax.foriLoop = lax.fori = (lower, upper, f, init) => {
  const [leaves, structure] = parts(init);
  const body = ([i, ...rest]) => leavesLike("fori", f(i, build(structure, rest)), structure);
  return build(structure, lend(body, (id) => special("fori", lower, upper, id, leaves)));
};

/** `body(value)` while `test(value)`. */
lax.whileLoop = lax.while = (test, body, init) => {
  const [leaves, structure] = parts(init);
  const tested = (all) => parts(test(build(structure, all.slice())))[0];
  const next = (all) => leavesLike("while", body(build(structure, all.slice())), structure);
  return build(structure, lend(tested, (t) => lend(next, (b) => special("while", t, b, leaves))));
};

/** One of two functions of the operands, by a bool. */
lax.cond = (pred, onTrue, onFalse, ...operands) => {
  const [leaves, structure] = parts(operands);
  const seen = [{}, {}];
  const p = isTensor(pred) ? pred : array(!!pred);
  const yes = flat(onTrue, structure, seen[0]);
  const no = flat(onFalse, structure, seen[1]);
  const outs = lend(yes, (a) => lend(no, (b) => special("cond", p, a, b, leaves)));
  sameBranches("cond", seen);
  return build_(seen[0], outs);
};
const build_ = (seen, outs) => build(seen.structure, outs);
/** Branches must agree on the structure of what they give. */
function sameBranches(name, seen) {
  const first = keyOf(seen[0].structure);
  const other = seen.findIndex((s) => keyOf(s.structure) !== first);
  if (other > 0) throw new LoomError(`${name}: branch 0 gives ${shown(seen[0].structure)}, branch ${other} gives ${shown(seen[other].structure)}; they must have one structure`);
}

/** One of several functions of the operands, by an integer. */
lax.switch = (index, branches, ...operands) => {
  const [leaves, structure] = parts(operands);
  if (branches.length === 0) throw new LoomError("switch: there are no branches");
  const seen = branches.map(() => ({}));
  const i = isTensor(index) ? index : array(index, { dtype: "int32" });
  const ids = branches.map((f, k) => {
    const id = nextFunction++;
    functions.set(id, flat(f, structure, seen[k]));
    return id;
  });
  try {
    const outs = special("switch", i, ids, leaves);
    sameBranches("switch", seen);
    return build_(seen[0], outs);
  } finally {
    ids.forEach((id) => functions.delete(id));
    sweep();
  }
};

/** A function over the first axis, one slice after the other. */
lax.map = (f, xs) => {
  const [leaves, structure] = parts(xs);
  const seen = {};
  return build_(seen, lend(flat(f, structure, seen, false), (id) => special("map", id, leaves)));
};

/** Running combinations by an associative function of two trees. Options: `reverse`, `axis`. */
lax.associativeScan = (f, elems, { reverse = false, axis = 0 } = {}) => {
  const [leaves, structure] = parts(elems);
  const n = leaves.length;
  const both = (all) => leavesLike("associativeScan", f(build(structure, all.slice(0, n)), build(structure, all.slice(n))), structure);
  return build(structure, lend(both, (id) => special("associativeScan", id, leaves, reverse, axis)));
};

// ---------------------------------------------------------------- devices, debugging, leaks

const deviceNames = ["wasm", "webgpu"];
let homeDevice = 0;

/** The number of a device by its name. */
function deviceNumber(name) {
  ready();
  const n = deviceNames.indexOf(name);
  if (n < 0 || (n === 1 && !gpu.opened())) {
    const why = n === 1 ? `: ${noGpu?.message ?? 'call `await init({ device: "webgpu" })` first'}` : `; there is ${devices().join(", ")}`;
    throw new LoomError(`there is no device "${name}" here${why}`);
  }
  return n;
}

/** What there is to compute on. */
export const devices = () => (gpu.opened() ? ["wasm", "webgpu"] : ["wasm"]);
/** Why there is no WebGPU, if there is none and it was looked for. */
export const whyNoGpu = () => (gpu.opened() ? null : (noGpu?.message ?? null));
/** The name of the GPU, if there is one. */
export const gpuName = () => gpu.opened()?.name ?? null;
/** Whether that is a program on the CPU. */
export const gpuIsSoftware = () => gpu.opened()?.software ?? false;
/** Where tensors are made; with a name, from now on. */
export const defaultDevice = (name) => {
  if (name !== undefined) wasm.set_device((homeDevice = deviceNumber(name)));
  return deviceNames[homeDevice];
};
/**
 * Runs `f`; tensors that it makes live on a device. `f` can't be async: while it waits, others would run on its device. Around its parts
 * that don't wait `withDevice` can be called, or `np.array` be given the `device`.
 */
export function withDevice(name, f) {
  const refused = () => new LoomError("withDevice: an async function would leave the device to others while it waits; call withDevice inside of it, around what doesn't wait, or defaultDevice once");
  if (Object.prototype.toString.call(f) === "[object AsyncFunction]") throw refused();
  const before = defaultDevice();
  defaultDevice(name);
  let result;
  try {
    result = f();
  } finally {
    defaultDevice(before);
  }
  if (typeof result?.then === "function") {
    Promise.resolve(result).catch(() => {});
    throw refused();
  }
  return result;
}
/** A tree on a device (the default one): what lives there stays as it is. */
export async function devicePut(x, device = defaultDevice()) {
  const [leaves, structure] = parts(x);
  return build(structure, await Promise.all(leaves.map((t) => t.to(device))));
}
/** Computes a tree, and waits until it is there. */
export async function blockUntilReady(x) {
  const [leaves] = parts(x);
  special("force", leaves);
  if (leaves.some((t) => t.device === "webgpu")) await later(wasm.gpu_sync());
  return x;
}
export const getBackend = () => ({ type: defaultDevice(), slotCount: () => wasm.live() });
/** Bytes that the program's memory has, or those in use on the GPU (`"webgpu"`). */
export const memoryBytes = (device = "wasm") => (deviceNumber(device) === 0 ? memory.buffer.byteLength : wasm.gpu_bytes());

/**
 * Prints every program that is compiled from now on: 0 nothing, 1 graphs, 2 graphs after each pass, 3 steps and buffers, 4 loops, 5 code. At
 * the start it is the environment variable `LOOM_DEBUG` (Node.js), or the global variable `LOOM_DEBUG`.
 */
export function setDebug(level) {
  if (!Number.isInteger(level) || level < 0 || level > 5) throw new LoomError(`setDebug takes a level from 0 to 5, not ${level}`);
  debugLevel = level;
  if (wasm) special("debug", String(level));
}

/** Tensors that are made and not disposed of, with the place of each. */
export const checkLeaks = {
  start() {
    ready();
    leakWatch = new Map();
    liveBefore = wasm.live();
  },
  stop() {
    const leaked = wasm.live() - liveBefore;
    const details = [];
    for (const [t, stack] of leakWatch ?? []) {
      if (t.disposed) continue;
      const line = stack.split("\n").slice(1).find((l) => !l.includes(import.meta.url)) ?? "";
      details.push(`${t.dtype}[${t.shape}] created at ${line.trim().replace(/^at /, "")}`);
    }
    leakWatch = null;
    const summary =
      leaked === 0
        ? "nothing is left"
        : `${leaked} left:\n  ${details.join("\n  ")}\ndispose of them, or compute inside of jit, which keeps nothing`;
    return { leaked, details, summary };
  },
};
