// What the package's tests share: the package itself, and a comparison of trees of numbers.
import { pathToFileURL } from "node:url";
import path from "node:path";

const folder = path.resolve(process.env.TENSORLOOM_PACKAGE ?? "target/web/package");
export const loom = await import(pathToFileURL(path.join(folder, "index.js")));
await loom.init();
export const packageFolder = folder;

/** Tensors of a tree as numbers. */
export function numbers(x) {
  if (x instanceof loom.Tensor) return x.js();
  if (Array.isArray(x)) return x.map(numbers);
  if (ArrayBuffer.isView(x)) return Array.from(x, Number);
  if (x !== null && typeof x === "object") return Object.fromEntries(Object.entries(x).map(([k, v]) => [k, numbers(v)]));
  return x;
}

/** Where two trees differ, or null. */
export function differs(got, want, tolerance = 2e-5, at = "") {
  if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length) return `${at}: ${JSON.stringify(got)} for ${JSON.stringify(want)}`;
    for (let i = 0; i < want.length; i++) {
      const d = differs(got[i], want[i], tolerance, `${at}[${i}]`);
      if (d) return d;
    }
    return null;
  }
  if (want !== null && typeof want === "object") {
    for (const k of Object.keys(want)) {
      const d = differs(got?.[k], want[k], tolerance, `${at}.${k}`);
      if (d) return d;
    }
    return null;
  }
  if (typeof want === "number") {
    const close = typeof got === "number" && Math.abs(got - want) <= tolerance * Math.max(1, Math.abs(want));
    return close ? null : `${at}: ${got} for ${want}`;
  }
  const special = { nan: Number.isNaN(got), inf: got === Infinity, "-inf": got === -Infinity };
  if (typeof want === "string" && want in special) return special[want] ? null : `${at}: ${got} for ${want}`;
  return got === want ? null : `${at}: ${got} for ${want}`;
}
