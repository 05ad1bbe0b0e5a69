import * as loom from "./task.js";

const { say, tasks, Tensor, tree } = loom;

/** A value as a person reads it. */
function text(v) {
  if (v instanceof Tensor) {
    const flat = Array.from(v.dataSync(), Number);
    const some = flat.slice(0, 24).map((x) => (Number.isInteger(x) ? x : Number(x.toPrecision(6))));
    const body = v.ndim === 0 ? String(some[0]) : `[${some.join(", ")}${flat.length > 24 ? `, .. ${flat.length} in all` : ""}]`;
    return `${v.dtype}[${v.shape}] ${body}`;
  }
  if (Array.isArray(v)) return v.map(text).join("\n");
  if (v !== null && typeof v === "object") return Object.entries(v).map(([k, x]) => `${k}: ${text(x)}`).join("\n");
  return String(v);
}

tasks({
  async run({ code }) {
    const lines = [];
    let shown;
    const print = (...values) => lines.push(values.map(text).join("  "));
    const show = (f, ...args) => (shown = loom.explain(f)(...args));
    const names = { ...loom, np: loom.numpy, print, show };
    delete names.default;
    const begun = performance.now();
    let failed = false;
    try {
      const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
      const result = await new AsyncFunction(...Object.keys(names), code)(...Object.values(names));
      if (result !== undefined) print(result);
    } catch (e) {
      failed = true;
      lines.push(`${e.name}: ${e.message}`);
    }
    say("done", { printed: lines.join("\n"), shown, ms: performance.now() - begun, failed });
  },
});
