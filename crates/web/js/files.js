// A disk of chosen files for a WASI program: folders and files that can be read, nothing else. Contents come when they are asked for.

const OK = 0, BADF = 8, INVAL = 28, NOENT = 44, NOSYS = 52, NOTDIR = 54, ROFS = 69;
const DIRECTORY = 3, REGULAR = 4, CHARACTER = 2;
const ROOT = 3;

/** What can be read: `size`, and `read(from, to)`, which gives bytes at once. Of a `File` or `Blob` in a worker, or of bytes. */
export function readable(source) {
  if (source instanceof Uint8Array) return { size: source.byteLength, read: (from, to) => source.subarray(from, to) };
  if (typeof source.read === "function") return source;
  const reader = new FileReaderSync();
  // Readers ask for little at a time; what lies behind it is likely asked for next.
  const ahead = 1 << 20;
  let [start, held] = [0, new Uint8Array(0)];
  return {
    size: source.size,
    read(from, to) {
      if (to - from > ahead) return new Uint8Array(reader.readAsArrayBuffer(source.slice(from, to)));
      if (from < start || to > start + held.byteLength) {
        held = new Uint8Array(reader.readAsArrayBuffer(source.slice(from, from + ahead)));
        start = from;
      }
      return held.subarray(from - start, to - start);
    },
  };
}

/** The imports of WASI over `files`: an object from paths (`model/config.json`) to what `readable` takes. `memory()` is the program's. */
export function disk(files, memory, print = () => {}) {
  const root = { folder: new Map() };
  for (const [path, source] of Object.entries(files)) {
    const parts = path.split("/").filter(Boolean);
    let at = root;
    for (const part of parts.slice(0, -1)) {
      if (!at.folder.has(part)) at.folder.set(part, { folder: new Map() });
      at = at.folder.get(part);
      if (!at.folder) throw new Error(`${path}: ${part} is a file`);
    }
    at.folder.set(parts.at(-1), { file: readable(source) });
  }
  let next = ROOT + 1;
  const open = new Map([[ROOT, { node: root, at: 0 }]]);
  const numbers = new Map(); // nodes have numbers, as files on a disk do
  const number = (node) => {
    if (!numbers.has(node)) numbers.set(node, BigInt(numbers.size + 1));
    return numbers.get(node);
  };
  const environment = globalThis.LOOM_DEBUG === undefined ? null : new TextEncoder().encode(`LOOM_DEBUG=${globalThis.LOOM_DEBUG}\0`);
  const view = () => new DataView(memory().buffer);
  const bytes = (at, n) => new Uint8Array(memory().buffer, at, n);
  const decode = (at, n) => new TextDecoder().decode(bytes(at, n).slice());
  const find = (fd, path) => {
    let node = open.get(fd)?.node;
    if (!node) return BADF;
    const parts = [];
    for (const part of path.split("/").filter((p) => p && p !== ".")) part === ".." ? parts.pop() : parts.push(part);
    for (const part of parts) {
      if (!node.folder) return NOTDIR;
      node = node.folder.get(part);
      if (!node) return NOENT;
    }
    return node;
  };
  const stat = (node, at) => {
    const v = view();
    bytes(at, 64).fill(0);
    v.setBigUint64(at, 1n, true);
    v.setBigUint64(at + 8, number(node), true);
    v.setUint8(at + 16, node.folder ? DIRECTORY : REGULAR);
    v.setBigUint64(at + 24, 1n, true);
    v.setBigUint64(at + 32, BigInt(node.file?.size ?? 0), true);
    return OK;
  };
  /** Reads into the parts of memory that a list names. */
  const fill = (file, from, list, count) => {
    let done = 0;
    for (let i = 0; i < count; i++) {
      const [at, n] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
      const end = Math.min(file.size, from + done + n);
      if (end <= from + done) break;
      const data = file.read(from + done, end);
      bytes(at, data.byteLength).set(data);
      done += data.byteLength;
      if (data.byteLength < n) break;
    }
    return done;
  };
  let said = "";
  const calls = {
    fd_prestat_get(fd, at) {
      if (fd !== ROOT) return BADF;
      view().setUint32(at, 0, true);
      view().setUint32(at + 4, 1, true);
      return OK;
    },
    fd_prestat_dir_name(fd, at, n) {
      if (fd !== ROOT || n < 1) return BADF;
      bytes(at, 1)[0] = 47;
      return OK;
    },
    path_open(fd, _flags, at, n, create, _rights, _inherit, _fdflags, to) {
      const node = find(fd, decode(at, n));
      if (typeof node === "number") return create & 1 && node === NOENT ? ROFS : node;
      if (create & 2 && !node.folder) return NOTDIR;
      open.set(next, { node, at: 0 });
      view().setUint32(to, next++, true);
      return OK;
    },
    path_filestat_get(fd, _flags, at, n, to) {
      const node = find(fd, decode(at, n));
      return typeof node === "number" ? node : stat(node, to);
    },
    fd_filestat_get(fd, to) {
      const node = open.get(fd)?.node;
      return node ? stat(node, to) : BADF;
    },
    fd_fdstat_get(fd, to) {
      const node = open.get(fd)?.node;
      if (!node && fd > 2) return BADF;
      bytes(to, 24).fill(0);
      view().setUint8(to, node ? (node.folder ? DIRECTORY : REGULAR) : CHARACTER);
      view().setBigUint64(to + 8, 0x1fffffffn, true);
      view().setBigUint64(to + 16, 0x1fffffffn, true);
      return OK;
    },
    fd_close: (fd) => (open.delete(fd) ? OK : BADF),
    fd_read(fd, list, count, to) {
      const o = open.get(fd);
      if (!o?.node.file) return BADF;
      const n = fill(o.node.file, o.at, list, count);
      o.at += n;
      view().setUint32(to, n, true);
      return OK;
    },
    fd_pread(fd, list, count, from, to) {
      const o = open.get(fd);
      if (!o?.node.file) return BADF;
      view().setUint32(to, fill(o.node.file, Number(from), list, count), true);
      return OK;
    },
    fd_seek(fd, offset, whence, to) {
      const o = open.get(fd);
      if (!o?.node.file) return BADF;
      const base = [0, o.at, o.node.file.size][whence];
      const at = base + Number(offset);
      if (base === undefined || at < 0) return INVAL;
      o.at = at;
      view().setBigUint64(to, BigInt(at), true);
      return OK;
    },
    fd_tell(fd, to) {
      const o = open.get(fd);
      if (!o) return BADF;
      view().setBigUint64(to, BigInt(o.at), true);
      return OK;
    },
    fd_readdir(fd, at, room, cookie, to) {
      const folder = open.get(fd)?.node.folder;
      if (!folder) return NOTDIR;
      let used = 0;
      const entries = [...folder].slice(Number(cookie));
      for (let i = 0; i < entries.length && used < room; i++) {
        const [name, node] = entries[i];
        const text = new TextEncoder().encode(name);
        const entry = new Uint8Array(24 + text.byteLength);
        const v = new DataView(entry.buffer);
        v.setBigUint64(0, cookie + BigInt(i) + 1n, true);
        v.setBigUint64(8, number(node), true);
        v.setUint32(16, text.byteLength, true);
        v.setUint8(20, node.folder ? DIRECTORY : REGULAR);
        entry.set(text, 24);
        // What doesn't fit is cut, which says that there is more.
        const n = Math.min(entry.byteLength, room - used);
        bytes(at + used, n).set(entry.subarray(0, n));
        used += n;
      }
      view().setUint32(to, used, true);
      return OK;
    },
    fd_write(fd, list, count, to) {
      if (fd !== 1 && fd !== 2) return ROFS;
      let n = 0;
      for (let i = 0; i < count; i++) {
        const [at, length] = [view().getUint32(list + 8 * i, true), view().getUint32(list + 8 * i + 4, true)];
        said += decode(at, length);
        n += length;
      }
      const lines = said.split("\n");
      said = lines.pop();
      lines.forEach(print);
      view().setUint32(to, n, true);
      return OK;
    },
    environ_sizes_get(count, size) {
      view().setUint32(count, environment ? 1 : 0, true);
      view().setUint32(size, environment?.byteLength ?? 0, true);
      return OK;
    },
    environ_get(places, at) {
      if (!environment) return OK;
      view().setUint32(places, at, true);
      bytes(at, environment.byteLength).set(environment);
      return OK;
    },
    args_sizes_get(count, size) {
      view().setUint32(count, 0, true);
      view().setUint32(size, 0, true);
      return OK;
    },
    args_get: () => OK,
    clock_time_get(id, _precision, to) {
      const ms = id === 0 ? Date.now() : performance.now();
      view().setBigUint64(to, BigInt(Math.round(ms * 1e6)), true);
      return OK;
    },
    clock_res_get(_id, to) {
      view().setBigUint64(to, 1000n, true);
      return OK;
    },
    random_get(at, n) {
      for (let i = 0; i < n; i += 65536) crypto.getRandomValues(bytes(at + i, Math.min(65536, n - i)));
      return OK;
    },
    sched_yield: () => OK,
    proc_exit(code) {
      throw new Error(`the program ended with ${code}`);
    },
  };
  // Addresses come as signed numbers of 32 bits, and mean unsigned ones.
  const unsigned = (f) => (...args) => f(...args.map((a) => (typeof a === "number" ? a >>> 0 : a)));
  // What is not there writes, or isn't asked for by those who read.
  return new Proxy(calls, { get: (all, name) => (all[name] && unsigned(all[name])) ?? (/^(path_(create|remove|unlink|rename|symlink|link)|fd_(allocate|filestat_set|sync|datasync|pwrite))/.test(String(name)) ? () => ROFS : () => NOSYS) });
}
