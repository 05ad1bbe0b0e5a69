import * as loom from "./task.js";

const { say, tasks, Tensor, tree } = loom;

/** A value as a person reads it. */
async function text(v) {
  if (v instanceof Tensor) {
    const flat = Array.from(await v.data(), Number);
    const some = flat.slice(0, 24).map((x) => (Number.isInteger(x) ? x : Number(x.toPrecision(6))));
    const body = v.ndim === 0 ? String(some[0]) : `[${some.join(", ")}${flat.length > 24 ? `, .. ${flat.length} in all` : ""}]`;
    return `${v.dtype}[${v.shape}] ${body}`;
  }
  if (Array.isArray(v)) return (await Promise.all(v.map(text))).join("\n");
  if (v !== null && typeof v === "object") return (await Promise.all(Object.entries(v).map(async ([k, x]) => `${k}: ${await text(x)}`))).join("\n");
  return String(v);
}

/** How long a run takes on the GPU: as many as take a while, then their mean. */
async function gpuTime(f, args) {
  const compiled = loom.jit(f);
  const once = (n) => {
    for (let i = 0; i < n - 1; i++) tree.dispose(compiled(...args));
    return compiled(...args);
  };
  let [n, took] = [1, 0];
  while (took < 40 && n < 2000) {
    const begun = performance.now();
    const last = once((n *= 2));
    await loom.blockUntilReady(last);
    took = performance.now() - begun;
    tree.dispose(last);
  }
  compiled.dispose();
  return `${((took / n) * 1e3).toFixed(1).padStart(10)} µs  a run on ${loom.gpuName()}, mean of ${n}`;
}

tasks({
  async run({ code }) {
    const lines = [];
    let shown;
    let failed = false;
    const wrong = (e) => {
      failed = true;
      return `${e.name}: ${e.message}`;
    };
    // A line is put together when its values have come; they are held until then.
    const print = (...values) => lines.push(Promise.all(values.map(text)).then((all) => all.join("  "), wrong));
    let timed = null;
    const show = (f, ...args) => {
      shown = loom.explain(f)(...args);
      timed = shown.timings === "" ? [f, args] : null;
    };
    const names = { ...loom, np: loom.numpy, print, show };
    delete names.default;
    const begun = performance.now();
    try {
      const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
      const result = await new AsyncFunction(...Object.keys(names), code)(...Object.values(names));
      if (result !== undefined) print(result);
    } catch (e) {
      lines.push(wrong(e));
    }
    const printed = (await Promise.all(lines)).join("\n");
    const ms = performance.now() - begun;
    if (timed) shown.timings = await gpuTime(...timed);
    say("done", { printed, shown, ms, failed });
  },
});
