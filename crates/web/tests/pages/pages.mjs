// node pages.mjs SITE [PAGE]: opens every page in a headless browser, uses it, keeps a picture of it in wide and in narrow.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { findBrowser, launch, serve } from "./browser.mjs";

const site = path.resolve(process.argv[2] ?? "target/web/site");
const only = process.argv[3];
const program = findBrowser();
if (!program) {
  assert.ok(!process.env.CI, "there is no browser");
  console.log("no browser here: the pages were not opened");
  process.exit(0);
}
const pictures = path.join(site, "../screenshots");
mkdirSync(pictures, { recursive: true });
const text = (id) => `document.getElementById("${id}").textContent`;
const click = (id) => `document.getElementById("${id}").click()`;
const enabled = (id) => `!document.getElementById("${id}").disabled`;
/** The longest time in which the page did not answer, while something runs. */
const watch = `new Promise((done) => { let last = performance.now(), worst = 0; const end = last + 1500; const tick = () => { const t = performance.now(); worst = Math.max(worst, t - last); last = t; t < end ? setTimeout(tick, 4) : done(worst); }; tick(); })`;

const uses = {
  async index(page) {
    await page.until(`${text("status")}.includes("WebAssembly")`);
    assert.equal(await page.evaluate(`document.querySelectorAll("a.card").length`), 6);
  },
  async stories(page) {
    await page.until(enabled("go"));
    await page.evaluate(click("go"));
    await page.until(`parseInt(${text("status")}.slice(5)) >= 3`, 120);
    const first = Number(await page.evaluate(text("loss")));
    const worst = await page.evaluate(watch);
    assert.ok(worst < 400, `the page did not answer for ${worst} ms`);
    await page.until(`parseInt(${text("status")}.slice(5)) >= 60`, 240);
    const later = Number(await page.evaluate(text("loss")));
    assert.ok(later < 0.75 * first, `the loss went from ${first} to ${later}`);
    await page.evaluate(click("tell"));
    await page.until(`${text("story")}.startsWith("once there was ") && ${text("story")}.length > 60`, 60);
    return `loss ${first} to ${later}`;
  },
  async digits(page) {
    await page.until(enabled("go"));
    await page.evaluate(click("go"));
    await page.until(`parseInt(${text("status")}.slice(5)) >= 120 && parseInt(${text("figures")}.split(", ")[1]) >= 70`, 300);
    // A one, drawn with a pointer.
    await page.evaluate(`(() => { const pad = document.getElementById("pad"); const r = pad.getBoundingClientRect(); pad.setPointerCapture = () => {};
      const go = (type, x, y) => pad.dispatchEvent(new PointerEvent(type, { clientX: r.left + x * r.width, clientY: r.top + y * r.height, pointerId: 1 }));
      go("pointerdown", 0.5, 0.2); for (let i = 0; i <= 20; i++) go("pointermove", 0.5, 0.2 + 0.03 * i); go("pointerup", 0.5, 0.8); })()`);
    await page.until(`${text("answer")}.startsWith(": ")`, 30);
    const answer = await page.evaluate(text("answer"));
    assert.ok([": 1", ": 7"].includes(answer), `a stroke is read as ${answer}`);
    return `${await page.evaluate(text("figures"))}; a stroke is read as${answer}`;
  },
  async loops(page) {
    await page.until(enabled("ode"), 60);
    await page.until(`${text("status")} === "done"`, 60);
    await page.evaluate(click("kalman"));
    await page.until(enabled("kalman"), 120);
    const noise = await page.evaluate(text("noise"));
    const [world, sensor] = noise.match(/[\d.]+/g).map(Number);
    assert.ok(Math.abs(sensor - 1.5) < 0.3 && world > 0.01 && world < 0.12, noise);
    await page.evaluate(click("ode"));
    await page.until(enabled("ode"), 240);
    const error = Number((await page.evaluate(text("error"))).slice(6));
    assert.ok(error < 0.02, `the equation's error is ${error}`);
    return `${noise}; error ${error}`;
  },
  async chat(page) {
    // Without a model; `cargo xtask test models` talks to one.
    await page.until(`${text("status")} === "no model yet"`);
    assert.ok(await page.evaluate(`document.getElementById("send").disabled`));
  },
  async playground(page) {
    await page.until(enabled("run"));
    const names = await page.evaluate(`[...document.getElementById("example").options].map((o) => o.value)`);
    for (const name of names.reverse()) {
      await page.evaluate(`(() => { const e = document.getElementById("example"); e.value = ${JSON.stringify(name)}; e.onchange(); document.getElementById("run").click(); })()`);
      await page.until(`${enabled("run")} && ${text("timings")}.includes("µs")`, 60);
      assert.notEqual(await page.evaluate(text("status")), "failed", await page.evaluate(text("printed")));
    }
    // A gradient, which is the last: x sin(x) e^-x and its derivative by hand.
    const printed = await page.evaluate(text("printed"));
    const numbers = printed.split("\n").at(-1).match(/\[([^\]]*)\]$/)[1].split(", ").map(Number);
    numbers.forEach((got, i) => {
      const x = i / 2;
      assert.ok(Math.abs(got - Math.exp(-x) * (Math.cos(x) - Math.sin(x))) < 1e-5, printed);
    });
    return `${names.length} programs`;
  },
  async bench(page) {
    await page.until(enabled("go"));
    await page.evaluate(click("go"));
    await page.until(`${text("status")} === "done"`, 240);
    return page.evaluate(`[...document.querySelectorAll("#rows tr")].map((r) => [...r.children].map((c) => c.textContent).join(", ")).join("; ")`);
  },
};

const server = await serve(site);
const browser = await launch(program);
let failed = 0;
try {
  for (const [name, use] of Object.entries(uses).filter(([n]) => !only || n === only)) {
    const page = await browser.page(`${server.url}/${name}.html`);
    try {
      const said = await use(page);
      writeFileSync(path.join(pictures, `${name}.png`), await page.picture());
      await page.resize(390, 844);
      await new Promise((done) => setTimeout(done, 300));
      const wide = await page.evaluate("document.documentElement.scrollWidth");
      assert.ok(wide <= 390, `${name} is ${wide} wide on a phone`);
      writeFileSync(path.join(pictures, `${name}-phone.png`), await page.picture());
      // No GPU here: a page that could use one says so.
      const chooses = await page.evaluate(`document.getElementById("device") !== null`);
      if (chooses) assert.match(await page.evaluate(text("nogpu")), /No WebGPU here.*"wasm" computes everywhere/);
      assert.deepEqual(page.errors, []);
      console.log(`${name}: ${said ?? "fine"}`);
    } catch (e) {
      failed++;
      console.log(`${name}: FAILED: ${e.message}`);
      writeFileSync(path.join(pictures, `${name}-failed.png`), await page.picture());
    }
    await page.close();
  }
} finally {
  await browser.close();
  server.close();
}
process.exit(failed > 0 ? 1 : 0);
