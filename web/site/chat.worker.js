// A model in a worker: opened once, asked again and again; messages come in between two tokens.
import { openModel } from "./models/models.js";

const say = (kind, more = {}) => postMessage({ kind, ...more });
let model = null;
let stopped = false;

const tasks = {
  async open({ files, dtype, context }) {
    const begun = performance.now();
    const byPath = Object.fromEntries(files);
    const module = Object.keys(byPath).find((p) => p.endsWith(".module"));
    model = await openModel(byPath, { dtype, context, module: module && `/${module}` });
    say("opened", { about: model.about, ms: performance.now() - begun, bytes: model.memoryBytes() });
  },
  async chat({ messages, ...settings }) {
    stopped = false;
    say("prompt");
    let [text, tokens, begun] = ["", 0, 0];
    for await (const piece of model.chat(messages, settings)) {
      begun ||= performance.now();
      text += piece;
      tokens++;
      say("piece", { text: piece, tokens, ms: performance.now() - begun });
      if (stopped) break;
    }
    say("end", { text, tokens, ms: performance.now() - begun });
  },
};

onmessage = async ({ data }) => {
  if (data.kind === "stop") {
    stopped = true;
    return;
  }
  try {
    await tasks[data.kind](data);
  } catch (e) {
    say("error", { text: e?.message ?? String(e), opening: data.kind === "open" });
  }
};
