// Models in a page: `openModel(files)` gives one that writes. In a worker, or under node.
import { disk } from "./files.js";

/** An error of the program: a file that doesn't fit, a conversation that is too long. */
export class ModelError extends Error {
  constructor(message) {
    super(message);
    this.name = "ModelError";
  }
}

/** Where a model is among chosen files: a folder with a `config.json`, or a GGUF file. */
export function findModel(paths) {
  const config = paths.filter((p) => /(^|\/)config\.json$/.test(p)).sort((a, b) => a.length - b.length)[0];
  if (config !== undefined) return `/${config.slice(0, -"config.json".length).replace(/\/$/, "")}`;
  const gguf = paths.find((p) => /\.gguf$/i.test(p));
  if (gguf !== undefined) return `/${gguf}`;
  throw new ModelError("no model is among these files: a HuggingFace folder (config.json, model.safetensors, tokenizer.json) or a .gguf file is needed");
}

/** A text that can be told while it grows: `for await (const piece of ..)`. */
async function* pieces(model, begin) {
  begin();
  try {
    for (;;) {
      const [code, text] = model.ask("next");
      if (text) yield text;
      if (code === 0) return;
      // Messages come in between.
      await new Promise((done) => setTimeout(done, 0));
    }
  } finally {
    model.ask("stop");
  }
}

/**
 * Opens a model. `files`: an object from paths to `File`s, `Blob`s or bytes. Options: `source`, the program (a URL, bytes or a module);
 * `path`, where the model is (else it is looked for); `module`, a `.module` file among the files; `dtype`; `context`, how long a
 * conversation may be; `print`.
 */
export async function openModel(files, { source, path, module, dtype, context, print } = {}) {
  source ??= new URL("./models.wasm", import.meta.url);
  if (source instanceof URL || typeof source === "string") {
    const response = await fetch(source);
    if (!response.ok) throw new ModelError(`${source} can't be loaded: ${response.status} ${response.statusText}`);
    source = await response.arrayBuffer();
  }
  path ??= findModel(Object.keys(files));
  let wasm;
  let why;
  const free = [];
  const memory = () => wasm.memory;
  // Addresses come from the program as signed numbers of 32 bits, and mean unsigned ones.
  const bytes = (at, n) => new Uint8Array(wasm.memory.buffer, at >>> 0, n >>> 0);
  const text = (at, n) => new TextDecoder().decode(bytes(at, n).slice());
  const loom = {
    instantiate(at, n) {
      try {
        const table = wasm.__indirect_function_table;
        const made = new WebAssembly.Instance(new WebAssembly.Module(bytes(at, n).slice()), { env: { memory: wasm.memory, table } });
        const place = free.pop() ?? table.grow(1);
        table.set(place, made.exports.kernel);
        return place;
      } catch {
        return 0;
      }
    },
    forget(place) {
      wasm.__indirect_function_table.set(place, null);
      free.push(place);
    },
    now: () => performance.now(),
    panicked(at, n) {
      why = text(at, n);
    },
  };
  const compiled = source instanceof WebAssembly.Module ? source : await WebAssembly.compile(source);
  const instance = await WebAssembly.instantiate(compiled, { loom, wasi_snapshot_preview1: disk(files, memory, print ?? (globalThis.LOOM_DEBUG ? (line) => console.error(line) : undefined)) });
  wasm = instance.exports;
  wasm._initialize?.();
  wasm.start();

  const model = {
    /** A call of the program; `[code, text]`. */
    ask(name, message) {
      if (message !== undefined) {
        const data = new TextEncoder().encode(JSON.stringify(message));
        bytes(wasm.bytes(data.byteLength), data.byteLength).set(data);
      }
      let code;
      try {
        code = wasm[name]();
      } catch (e) {
        throw new ModelError(why ? `internal error, please report it: ${why}` : e.message);
      }
      const answer = text(wasm.text(), wasm.text_bytes());
      if (code < 0) throw new ModelError(answer);
      return [code, answer];
    },
    /** What follows a conversation, `{ role, content }` each, piece by piece. Options: `maxTokens`, `temperature`, `topK`, `topP`, `minP`, `repetition`, `seed`. */
    chat: (messages, options = {}) => pieces(model, () => model.ask("begin", { ...options, messages })),
    /** What follows a text, piece by piece. */
    complete: (prompt, options = {}) => pieces(model, () => model.ask("begin", { ...options, prompt })),
    encode: (text) => JSON.parse(model.ask("encode", text)[1]),
    decode: (ids) => model.ask("decode", ids)[1],
    /** Bytes that the program's memory has. */
    memoryBytes: () => wasm.memory.buffer.byteLength,
  };
  const [, about] = model.ask("open_model", { path, module, dtype, context });
  return Object.assign(model, { about: JSON.parse(about) });
}
