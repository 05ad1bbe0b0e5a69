// node webgpu.mjs SITE [SUITE [GRAPHS [EVERY]]]: the package on WebGPU in a headless browser, whose adapter is a program on the CPU: the documented
// calls, training, leaks, errors; and the suite for backends (SUITE is its program), with the table of ops and random graphs.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { findBrowser, launch, serve } from "./browser.mjs";

const site = path.resolve(process.argv[2] ?? "target/web/site");
const [suite, graphs = "40", every = "9"] = process.argv.slice(3);
const program = findBrowser();
if (!program) {
  assert.ok(!process.env.CI, "there is no browser");
  console.log("no browser here: WebGPU was not tried");
  process.exit(0);
}
const text = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
writeFileSync(path.join(site, "webgpu.tests.js"), text("./webgpu.tests.js"));
writeFileSync(path.join(site, "webgpu.calls.json"), text("../../../../golden/web/calls.json"));
if (suite) writeFileSync(path.join(site, "webgpu.suite.wasm"), readFileSync(suite));

const server = await serve(site);
const gpu = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--ignore-gpu-blocklist"];
let failed = 0;
const open = async (flags) => {
  const browser = await launch(program, flags);
  const page = await browser.page(`${server.url}/index.html`);
  await page.until(`document.getElementById("status").textContent.length > 0`);
  return { browser, page };
};
try {
  const { browser, page } = await open(gpu);
  const names = await page.evaluate(`import("/webgpu.tests.js").then((m) => Object.keys(m.tests))`);
  for (const name of names.filter((n) => n !== "suite" || suite)) {
    const begun = Date.now();
    try {
      const said = await page.evaluate(`import("/webgpu.tests.js").then((m) => m.tests[${JSON.stringify(name)}](${graphs}, ${every}))`);
      console.log(`webgpu ${name}: ${said ?? "fine"} (${((Date.now() - begun) / 1e3).toFixed(1)} s)`);
    } catch (e) {
      failed++;
      console.log(`webgpu ${name}: FAILED: ${e.message}`);
    }
  }
  assert.deepEqual(page.errors, []);
  await page.close();
  // Pages on the GPU.
  const id = (name) => `document.getElementById("${name}").textContent`;
  const uses = {
    async stories(page) {
      await page.until(`!document.getElementById("go").disabled`, 120);
      assert.match(await page.evaluate(`document.getElementById("device").selectedOptions[0].textContent`), /^WebGPU \(/);
      await page.evaluate(`document.getElementById("go").click()`);
      await page.until(`parseInt(${id("status")}.slice(5)) >= 2`, 240);
      const first = Number(await page.evaluate(id("loss")));
      await page.until(`parseInt(${id("status")}.slice(5)) >= 5`, 240);
      const later = Number(await page.evaluate(id("loss")));
      assert.ok(later < 0.97 * first, `the loss went from ${first} to ${later}`);
      return `loss ${first} to ${later}, ${await page.evaluate(id("status"))}`;
    },
    async digits(page) {
      await page.until(`!document.getElementById("go").disabled`, 120);
      await page.evaluate(`document.getElementById("go").click()`);
      await page.until(`parseInt(${id("status")}.slice(5)) >= 2`, 240);
      const first = await page.evaluate(id("figures"));
      await page.evaluate(`(() => { const pad = document.getElementById("pad"); const r = pad.getBoundingClientRect(); pad.setPointerCapture = () => {};
        const go = (type, y) => pad.dispatchEvent(new PointerEvent(type, { clientX: r.left + r.width / 2, clientY: r.top + y * r.height, pointerId: 1 }));
        go("pointerdown", 0.2); for (let i = 0; i <= 20; i++) go("pointermove", 0.2 + 0.03 * i); go("pointerup", 0.8); })()`);
      await page.until(`${id("answer")}.startsWith(": ")`, 120);
      return `${first}, ${await page.evaluate(id("status"))}`;
    },
    async loops(page) {
      await page.until(`${id("status")} === "done"`, 240);
      await page.evaluate(`document.getElementById("ode").click()`);
      await page.until(`${id("status")}.startsWith("step") && parseInt(${id("status")}.slice(5)) >= 10`, 240);
      const errors = [Number((await page.evaluate(id("error"))).slice(6))];
      await page.until(`parseInt(${id("status")}.slice(5)) >= 20`, 240);
      errors.push(Number((await page.evaluate(id("error"))).slice(6)));
      assert.ok(errors[1] < errors[0], `the error went from ${errors}`);
      return `the equation's error went from ${errors.join(" to ")}`;
    },
    async bench(page) {
      await page.until(`!document.getElementById("go").disabled`, 120);
      await page.evaluate(`document.getElementById("go").click()`);
      await page.until(`document.querySelectorAll("#rows tr").length >= 2`, 240);
      return page.evaluate(`[...document.querySelectorAll("#rows tr")].map((r) => [...r.children].map((c) => c.textContent).join(", ")).join("; ")`);
    },
    async chat(page) {
      await page.until(`${id("status")} === "no model yet"`);
      return "no model yet";
    },
    async index(page) {
      await page.until(`${id("status")}.includes("WebGPU")`);
      return page.evaluate(id("status"));
    },
    async playground(page) {
      await page.until(`!document.getElementById("run").disabled`, 120);
      const programs = ["A softmax, fused", "A gradient"];
      for (const name of programs) {
        await page.evaluate(`(() => { const e = document.getElementById("example"); e.value = ${JSON.stringify(name)}; e.onchange(); document.getElementById("run").click(); })()`);
        await page.until(`!document.getElementById("run").disabled && ${id("timings")}.includes("µs")`, 120);
        assert.notEqual(await page.evaluate(id("status")), "failed", await page.evaluate(id("printed")));
        assert.match(await page.evaluate(id("kernels")), /@compute @workgroup_size/);
      }
      const numbers = (await page.evaluate(id("printed"))).split("\n").at(-1).match(/\[([^\]]*)\]$/)[1].split(", ").map(Number);
      numbers.forEach((got, i) => assert.ok(Math.abs(got - Math.exp(-i / 2) * (Math.cos(i / 2) - Math.sin(i / 2))) < 1e-5, `${numbers}`));
      return page.evaluate(id("timings"));
    },
  };
  const pictures = path.join(site, "../screenshots");
  mkdirSync(pictures, { recursive: true });
  for (const [name, use] of Object.entries(uses)) {
    const page = await browser.page(`${server.url}/${name}.html?device=webgpu`);
    try {
      const said = await use(page);
      assert.deepEqual(page.errors, []);
      console.log(`webgpu, the page ${name}: ${said}`);
    } catch (e) {
      failed++;
      console.log(`webgpu, the page ${name}: FAILED: ${e.message}`);
    }
    writeFileSync(path.join(pictures, `${name}-webgpu.png`), await page.picture());
    await page.resize(390, 844);
    await new Promise((done) => setTimeout(done, 300));
    writeFileSync(path.join(pictures, `${name}-webgpu-phone.png`), await page.picture());
    await page.close();
  }
  await browser.close();
  // And without: said clearly, and everything else goes on.
  const without = await open(["--disable-features=WebGPU", "--disable-webgpu"]);
  const why = await without.page.evaluate(
    `import("/tensorloom/index.js").then(async (m) => { const e = await m.init({ device: "webgpu" }).catch((e) => e); await m.init(); return [String(e), m.devices().join(), m.numpy.sum(m.numpy.ones([3])).item()]; })`,
  );
  assert.match(why[0], /LoomError: .*WebGPU/);
  assert.deepEqual(why.slice(1), ["wasm", 3]);
  console.log(`without: ${why[0]}`);
  await without.browser.close();
} catch (e) {
  failed++;
  console.log(`webgpu: FAILED: ${e.message}`);
} finally {
  server.close();
}
process.exit(failed > 0 ? 1 : 0);
