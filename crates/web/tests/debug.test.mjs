// What LOOM_DEBUG and `setDebug` print.
import test from "node:test";
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { loom, packageFolder } from "./support.mjs";

const url = pathToFileURL(path.join(packageFolder, "index.js"));

/** What a program prints on standard error that compiles a function. */
function printed({ variable, before = "", after = "" }) {
  const program = `
    const loom = await import(${JSON.stringify(`${url}`)});
    ${before}
    await loom.init();
    ${after}
    const { numpy: np, jit } = loom;
    await jit((x) => np.sum(np.exp(x).add(np.exp(x))))(np.ones([64, 3])).data();`;
  const { LOOM_DEBUG, ...env } = process.env;
  if (variable !== undefined) env.LOOM_DEBUG = variable;
  const run = spawnSync(process.execPath, ["--input-type=module", "-e", program], { env, encoding: "utf8" });
  assert.equal(run.status, 0, run.stderr);
  return run.stderr;
}

// A text of each level.
const parts = ["exp(", "-- pass ", "-- schedule: ", "-- loops of ", "-- code of "];
function check(text, level) {
  parts.forEach((part, i) => assert.equal(text.includes(part), level > i, `level ${level}: ${part}\n${text}`));
}

test("each level prints more", () => {
  for (let level = 1; level <= 5; level++) check(printed({ variable: `${level}` }), level);
  // A kernel is a WebAssembly module.
  assert.match(printed({ variable: "5" }), /\d+ bytes\n +0 {2}00 61 73 6d/);
});

test("setDebug and a global variable", () => {
  check(printed({ after: "loom.setDebug(3);" }), 3);
  check(printed({ before: "loom.setDebug(1);", variable: "5" }), 1);
  check(printed({ before: "globalThis.LOOM_DEBUG = 4;" }), 4);
  for (const level of [-1, 6, 1.5, "2"]) assert.throws(() => loom.setDebug(level), /from 0 to 5/);
});

test("nothing else is printed", () => {
  assert.equal(printed({}), "");
  assert.equal(printed({ variable: "0" }), "");
  const warning = printed({ variable: "6" });
  assert.match(warning, /^warning: LOOM_DEBUG=6 is not a level.*\n$/);
});
