// Values of JavaScript as keys, and in messages.

const identities = new WeakMap(); // objects and functions, by number
const symbols = new Map(); // symbols, by number
let identified = 0;
function identity(x) {
  const all = typeof x === "symbol" ? symbols : identities;
  if (!all.has(x)) all.set(x, ++identified);
  return all.get(x);
}

/**
 * A text that is the same for two static values only if a function can't tell them apart: by value for what is data, lists, maps and sets
 * included; functions, symbols and objects of classes are only the same as themselves. `check` sees every object; `path` are those around it.
 */
export function keyOfStatic(x, check, path = []) {
  if (typeof x === "string") return JSON.stringify(x);
  if (typeof x === "number") return Object.is(x, -0) ? "-0" : String(x);
  if (typeof x === "bigint") return `${x}n`;
  if (typeof x === "function" || typeof x === "symbol") return `${typeof x} ${identity(x)}`;
  if (x === null || typeof x !== "object") return String(x);
  check(x);
  if (path.includes(x)) return `around ${path.length - path.indexOf(x)}`;
  const inner = [...path, x];
  const all = (items) => Array.from(items, (v) => keyOfStatic(v, check, inner)).join();
  const fields = () => `{${Object.keys(x).map((k) => `${JSON.stringify(k)}:${keyOfStatic(x[k], check, inner)}`)}}`;
  const kind = Object.prototype.toString.call(x).slice(8, -1);
  if (isNative(Object.getPrototypeOf(x))) {
    if (kind === "Array") return `[${all(x)}]`;
    if (kind === "Object") return fields();
    if (kind === "Map") return `Map(${all([...x].flat())})`;
    if (kind === "Set") return `Set(${all(x)})`;
    if (kind === "Date") return `Date(${x.getTime()})`;
    if (kind === "RegExp") return `RegExp(${x})`;
    if (kind === "ArrayBuffer") return `${kind}(${new Uint8Array(x)})`;
    if (ArrayBuffer.isView(x)) return `${kind}(${new Uint8Array(x.buffer, x.byteOffset, x.byteLength)})`;
  }
  // What an object of a class holds may not be all visible.
  return `object ${identity(x)}${fields()}`;
}

/** Whether a prototype is none of a class of the user's. */
const isNative = (made) => made === null || (Object.hasOwn(made, "constructor") && /\[native code\]/.test(Function.prototype.toString.call(made.constructor)));

/** A value for messages. */
export function named(x) {
  if (typeof x === "string") return JSON.stringify(x);
  if (typeof x === "bigint") return `${x}n`;
  if (typeof x === "function") return x.name ? `the function ${x.name}` : "a function";
  if (x === null || typeof x !== "object") return String(x);
  return `a ${x.constructor?.name ?? "object"}`;
}
