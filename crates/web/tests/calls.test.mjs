// Every call of golden/web/calls.json gives what NumPy, JAX and SciPy give, and stands in docs/conformance/javascript.md.
import test from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { differs, loom, numbers } from "./support.mjs";

const calls = JSON.parse(readFileSync(new URL("../../../golden/web/calls.json", import.meta.url), "utf8"));
const { numpy: np } = loom;
const given = {
  np,
  x: np.array([0.5, -1.25, 2, 3.5]),
  y: np.array([1.5, 2, -0.5, 4]),
  p: np.array([0.1, 0.2, 0.3, 0.4]),
  A: np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]]),
  B: np.array([[1, 2], [3, 4], [5, 6]]),
  i: np.array([3, 1, 2, 0], { dtype: "int32" }),
  b: np.array([true, false, true, true]),
};
const names = [...Object.keys(loom), ...Object.keys(given)];
const values = [...Object.values(loom), ...Object.values(given)];

test("calls give what NumPy, JAX and SciPy give", () => {
  const wrong = [];
  for (const [call, want] of calls) {
    try {
      const d = differs(numbers(new Function(...names, `"use strict"; return (${call});`)(...values)), want);
      if (d) wrong.push(`${call}${d}`);
    } catch (e) {
      wrong.push(`${call}: ${e.message}`);
    }
  }
  assert.ok(calls.length >= 200, `${calls.length} calls`);
  assert.deepEqual(wrong, []);
});

test("the page of conformance lists them all", () => {
  const page = readFileSync(new URL("../../../docs/conformance/javascript.md", import.meta.url), "utf8");
  const missing = calls.map(([call]) => call).filter((call) => !page.includes(`\`${call.replaceAll("|", "\\|")}\``));
  assert.deepEqual(missing, []);
});
