// A headless Chromium by its debugging pipe, and a server for a folder: nothing to install beside the browser.
import { spawn, spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".json": "application/json" };

export function serve(folder) {
  const server = createServer(async (request, response) => {
    const name = path.normalize(decodeURIComponent(new URL(request.url, "http://x").pathname)).replace(/\/$/, "/index.html");
    try {
      const bytes = await readFile(path.join(folder, name));
      response.writeHead(200, { "content-type": kinds[path.extname(name)] ?? "application/octet-stream" });
      response.end(bytes);
    } catch {
      response.writeHead(404);
      response.end();
    }
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() })));
}

export function findBrowser() {
  return ["chromium", "google-chrome", "chromium-browser"].find((name) => spawnSync(name, ["--version"]).status === 0);
}

export async function launch(program, flags = []) {
  const profile = mkdtempSync(path.join(tmpdir(), "tensorloom-pages-"));
  const child = spawn(
    program,
    ["--headless=new", "--no-sandbox", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "--disable-dev-shm-usage", "--hide-scrollbars", ...flags],
    { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
  );
  const [to, from] = [child.stdio[3], child.stdio[4]];
  const waiting = new Map();
  const listeners = [];
  let next = 1;
  let rest = "";
  from.setEncoding("utf8");
  from.on("data", (text) => {
    const all = (rest + text).split("\0");
    rest = all.pop();
    for (const m of all.map((t) => JSON.parse(t))) {
      if (m.id) {
        const [done, fail] = waiting.get(m.id) ?? [];
        waiting.delete(m.id);
        m.error ? fail?.(new Error(m.error.message)) : done?.(m.result);
      } else listeners.forEach((l) => l(m));
    }
  });
  const send = (method, params = {}, sessionId) =>
    new Promise((done, fail) => {
      const id = next++;
      waiting.set(id, [done, fail]);
      to.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  const close = async () => {
    const gone = new Promise((done) => child.once("exit", done));
    await send("Browser.close").catch(() => child.kill());
    await gone;
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  const page = async (url, { width = 1100, height = 900 } = {}) => {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const call = (method, params) => send(method, params, sessionId);
    const errors = [];
    const listen = (m) => {
      if (m.sessionId !== sessionId) return;
      if (m.method === "Runtime.exceptionThrown") errors.push(m.params.exceptionDetails.exception?.description ?? m.params.exceptionDetails.text);
      if (m.method === "Runtime.consoleAPICalled" && m.params.type === "error") errors.push(m.params.args.map((a) => a.value ?? a.description).join(" "));
      if (m.method === "Log.entryAdded" && m.params.entry.level === "error") errors.push(`${m.params.entry.text} ${m.params.entry.url ?? ""}`);
    };
    listeners.push(listen);
    await Promise.all(["Runtime.enable", "Log.enable", "Page.enable"].map((m) => call(m)));
    await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await call("Page.navigate", { url });
    const evaluate = async (text) => {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression: text, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    };
    const until = async (text, seconds = 60) => {
      const end = Date.now() + 1e3 * seconds;
      while (Date.now() < end) {
        if (await evaluate(text).catch(() => false)) return;
        if (errors.length > 0) break;
        await new Promise((done) => setTimeout(done, 100));
      }
      const status = await evaluate(`document.getElementById("status")?.textContent`).catch(() => "");
      throw new Error(`${url}: ${text} did not come true; status: ${status}; errors: ${errors.join("; ")}`);
    };
    const picture = async () => Buffer.from((await call("Page.captureScreenshot", { format: "png", captureBeyondViewport: false })).data, "base64");
    const resize = (width, height) => call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    return { call, evaluate, until, picture, resize, errors, close: () => send("Target.closeTarget", { targetId }) };
  };
  return { page, close };
}
