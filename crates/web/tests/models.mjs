// node models.mjs FOLDER [PICTURES]: models under node against what transformers computed (crates/models/tests/data), then the page that chats.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { findBrowser, launch, serve } from "./pages/browser.mjs";

const folder = path.resolve(process.argv[2] ?? "target/web/site/models");
const data = fileURLToPath(new URL("../../models/tests/data/", import.meta.url));
const { findModel, openModel } = await import(pathToFileURL(path.join(folder, "models.js")));
const program = await WebAssembly.compile(readFileSync(path.join(folder, "models.wasm")));

/** A tokenizer whose tokens are t0, t1, ..: texts are ids. */
const tokenizer = (size) =>
  JSON.stringify({
    version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null, post_processor: null, decoder: null,
    pre_tokenizer: { type: "WhitespaceSplit" },
    model: { type: "WordLevel", vocab: Object.fromEntries(Array.from({ length: size }, (_, i) => [`t${i}`, i])), unk_token: "t0" },
  });
const encode = (text) => new TextEncoder().encode(text);
/** The files of a model of the tests, under a folder's name. */
function filesOf(name) {
  const files = {};
  for (const file of ["config.json", "model.safetensors"]) files[`${name}/${file}`] = new Uint8Array(readFileSync(path.join(data, name, file)));
  const config = JSON.parse(readFileSync(path.join(data, name, "config.json"), "utf8"));
  files[`${name}/tokenizer.json`] = encode(tokenizer(config.vocab_size));
  const ends = [config.eos_token_id].flat().filter((x) => x !== undefined && x !== null);
  return { files, config, ends };
}

let failed = 0;
async function check(name, f) {
  try {
    const said = await f();
    console.log(`${name}: ${said ?? "fine"}`);
  } catch (e) {
    failed++;
    console.log(`${name}: FAILED: ${e.stack}`);
  }
}

for (const name of ["llama", "qwen2", "qwen3", "gemma", "mistral", "phi3", "gpt2", "gpt_neox", "mixtral", "mamba"]) {
  await check(name, async () => {
    const { files, ends } = filesOf(name);
    const { prompt, tokens } = JSON.parse(readFileSync(path.join(data, name, "expected.json"), "utf8"));
    const model = await openModel(files, { source: program });
    const text = prompt.map((id) => `t${id}`).join(" ");
    assert.deepEqual(model.encode(text), prompt);
    assert.equal(model.decode(prompt), text);
    const over = tokens.findIndex((id) => ends.includes(id));
    const want = over < 0 ? tokens : tokens.slice(0, over);
    for (let turn = 0; turn < 2; turn++) {
      let got = "";
      let pieces = 0;
      for await (const piece of model.complete(text, { maxTokens: tokens.length, temperature: 0, topP: 1 })) {
        got += piece;
        pieces++;
      }
      assert.deepEqual(got.trim() === "" ? [] : got.trim().split(" "), want.map((id) => `t${id}`), `turn ${turn}`);
      assert.ok(pieces >= want.length, `${pieces} pieces`);
    }
    return `${want.length} tokens as transformers, ${model.about.architecture}`;
  });
}

await check("a model of one's own, and a GGUF file", async () => {
  const { files, ends } = filesOf("llama");
  const { prompt, tokens } = JSON.parse(readFileSync(path.join(data, "llama", "expected.json"), "utf8"));
  files["llama/own.module"] = new Uint8Array(readFileSync(fileURLToPath(new URL("../../lang/std/models/llama.module", import.meta.url))));
  const model = await openModel(files, { source: program, module: "/llama/own.module" });
  let got = "";
  for await (const piece of model.complete(prompt.map((id) => `t${id}`).join(" "), { maxTokens: 6, temperature: 0, topP: 1 })) got += piece;
  assert.deepEqual(got.trim().split(" "), tokens.slice(0, 6).map((id) => `t${id}`));
  assert.ok(!tokens.slice(0, 6).some((id) => ends.includes(id)));
  const gguf = await openModel({ "kinds.gguf": new Uint8Array(readFileSync(path.join(data, "gguf/kinds.gguf"))) }, { source: program });
  assert.equal(gguf.about.vocabulary, 64);
});

await check("errors", async () => {
  assert.throws(() => findModel(["a/b.txt"]), /no model is among these files/);
  const { files } = filesOf("llama");
  const without = { ...files };
  delete without["llama/tokenizer.json"];
  await assert.rejects(openModel(without, { source: program }), /tokenizer\.json/);
  await assert.rejects(openModel({ ...files, "llama/model.safetensors": files["llama/model.safetensors"].subarray(0, 1000) }, { source: program }), /model\.safetensors/);
  await assert.rejects(openModel({ ...files, "llama/config.json": encode("{") }, { source: program }), /config\.json.*JSON/);
  await assert.rejects(openModel(files, { source: program, dtype: "int8" }), /float32, bfloat16 or float16/);
  const model = await openModel(files, { source: program });
  const long = Array.from({ length: 80 }, () => "t3").join(" ");
  await assert.rejects(async () => { for await (const _ of model.complete(long)) break; }, /80|context/);
  // Stopped in the middle, and asked again.
  for await (const _ of model.complete("t1 t5 t7", { temperature: 0 })) break;
  let again = 0;
  for await (const _ of model.chat([{ role: "user", content: "t1 t5 t7" }], { maxTokens: 5, seed: 3 })) again++;
  assert.ok(again > 0);
});

const browser = findBrowser();
if (browser) {
  const home = mkdtempSync(path.join(tmpdir(), "tensorloom-model-"));
  const chosen = path.join(home, "llama");
  mkdirSync(chosen);
  for (const [name, bytes] of Object.entries(filesOf("llama").files)) writeFileSync(path.join(home, name), bytes);
  const site = path.resolve(folder, "..");
  const pictures = path.join(site, "../screenshots");
  mkdirSync(pictures, { recursive: true });
  const server = await serve(site);
  const running = await launch(browser);
  await check("the page", async () => {
    const page = await running.page(`${server.url}/chat.html`);
    // Whoever chooses before the page listens is not heard.
    await page.until(`document.readyState === "complete" && document.getElementById("folder") !== null`);
    const { root } = await page.call("DOM.getDocument");
    const { nodeId } = await page.call("DOM.querySelector", { nodeId: root.nodeId, selector: "#folder" });
    await page.call("DOM.setFileInputFiles", { nodeId, files: [chosen] });
    const enabled = `!document.getElementById("send").disabled`;
    await page.until(enabled, 60);
    assert.match(await page.evaluate(`document.getElementById("status").textContent`), /LlamaForCausalLM, [\d,]+ parameters/);
    for (const text of ["t1 t5 t7", "t9 t2 t4"]) {
      await page.evaluate(`document.getElementById("message").value = ${JSON.stringify(text)}; document.getElementById("most").value = 8; document.getElementById("send").click()`);
      await page.until(`${enabled} && document.querySelectorAll(".said.assistant").length === ${text === "t1 t5 t7" ? 1 : 2}`, 60);
    }
    const said = await page.evaluate(`[...document.querySelectorAll(".said")].map((e) => e.textContent)`);
    assert.equal(said.length, 4);
    assert.match(said[1], /^t\d+( t\d+)*$/);
    writeFileSync(path.join(pictures, "chat.png"), await page.picture());
    await page.resize(390, 844);
    await new Promise((done) => setTimeout(done, 300));
    assert.ok((await page.evaluate("document.documentElement.scrollWidth")) <= 390);
    writeFileSync(path.join(pictures, "chat-phone.png"), await page.picture());
    assert.deepEqual(page.errors, []);
    return said.join(" | ");
  });
  await running.close();
  server.close();
} else assert.ok(!process.env.CI, "there is no browser");
assert.ok(existsSync(data) && readdirSync(data).length > 0);
process.exit(failed > 0 ? 1 : 0);
