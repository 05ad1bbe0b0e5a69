// What the pages share: the head, a worker that computes, charts.

const pages = [
  ["stories.html", "Stories"],
  ["digits.html", "Digits"],
  ["loops.html", "Loops"],
  ["chat.html", "Chat"],
  ["playground.html", "Playground"],
  ["bench.html", "Benchmark"],
];

const here = location.pathname.split("/").pop() || "index.html";
const head = document.createElement("header");
head.innerHTML = `<nav><a class="name" href="index.html">tensorloom</a>${pages
  .map(([url, name]) => `<a href="${url}"${url === here ? ' class="here"' : ""}>${name}</a>`)
  .join("")}</nav>`;
document.body.prepend(head);

export const $ = (id) => document.getElementById(id);

/** A worker of a page: `handlers` by message kind; everything that computes is over there. */
export function work(url, handlers) {
  const worker = new Worker(url, { type: "module" });
  const fail = (text) => {
    const at = $("status");
    at.textContent = text;
    at.className = "error";
  };
  worker.onmessage = ({ data }) => {
    if (data.kind === "error") return fail(data.text);
    if (data.kind === "ready") offer(data);
    handlers[data.kind]?.(data);
  };
  worker.onerror = (e) => fail(e.message || "the worker could not be started");
  return (kind, more = {}) => worker.postMessage({ kind, device: $("device")?.value, ...more });
}

/** Lets the reader choose where to compute, if the page has a place for it; says why there is no WebGPU. */
function offer({ devices, gpu, software, why }) {
  const select = $("device");
  if (!select) return;
  const names = { wasm: "WebAssembly", webgpu: `WebGPU (${gpu})` };
  select.innerHTML = (devices ?? ["wasm"]).map((d) => `<option value="${d}"></option>`).join("");
  [...select.options].forEach((o) => (o.textContent = names[o.value]));
  // A GPU that is a program on the CPU is slower than the CPU.
  const asked = new URLSearchParams(location.search).get("device");
  select.value = (devices ?? []).includes(asked) ? asked : devices?.includes("webgpu") && !software ? "webgpu" : "wasm";
  if (!devices?.includes("webgpu")) {
    const note = document.createElement("p");
    note.className = "soft";
    note.id = "nogpu";
    note.textContent = `No WebGPU here, so this computes on the CPU: ${why ?? "it was not looked for"}.`;
    select.closest(".row").after(note);
  }
}

const drawn = new Map(); // what each canvas shows, to be drawn again when the page's width changes
addEventListener("resize", () => drawn.forEach((what, canvas) => draw(canvas, ...what)));

/** Lines over numbers: `series` is a list of { x, y, colour, dots, fade }. */
export function chart(canvas, series, options = {}) {
  drawn.set(canvas, [series, options]);
  draw(canvas, series, options);
}

function draw(canvas, series, { least, most, label }) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth || 300;
  const height = canvas.clientHeight || Math.round(width * 0.55);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  const probe = document.createElement("i");
  document.body.append(probe);
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const xs = series.flatMap((s) => s.x);
  const ys = series.flatMap((s) => s.y).filter(Number.isFinite);
  if (ys.length === 0) return probe.remove();
  const [x0, x1] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1e-9)];
  const [y0, y1] = [least ?? Math.min(...ys), most ?? Math.max(...ys)];
  const [left, top, right, bottom] = [38, 10, width - 8, height - 20];
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (right - left);
  const py = (y) => bottom - ((y - y0) / (y1 - y0 || 1)) * (bottom - top);
  c.font = "11px system-ui";
  const light = matchMedia("(prefers-color-scheme: dark)").matches ? "#444b58" : "#ddd8cd";
  const soft = matchMedia("(prefers-color-scheme: dark)").matches ? "#9aa0ab" : "#6a6d75";
  c.textAlign = "right";
  for (let k = 0; k <= 4; k++) {
    const y = y0 + ((y1 - y0) * k) / 4;
    c.strokeStyle = light;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(left, py(y));
    c.lineTo(right, py(y));
    c.stroke();
    c.fillStyle = soft;
    c.fillText(Math.abs(y) >= 100 ? y.toFixed(0) : y.toFixed(2), left - 4, py(y) + 4);
  }
  c.fillText(label ?? String(Math.round(x1)), right, height - 5);
  for (const s of series) {
    c.strokeStyle = c.fillStyle = colour(s.colour);
    c.globalAlpha = s.fade ?? 1;
    if (s.dots) {
      s.x.forEach((x, i) => {
        c.beginPath();
        c.arc(px(x), py(s.y[i]), s.dots, 0, 7);
        c.fill();
      });
    } else {
      c.lineWidth = s.width ?? 2;
      c.beginPath();
      s.x.forEach((x, i) => (i ? c.lineTo(px(x), py(s.y[i])) : c.moveTo(px(x), py(s.y[i]))));
      c.stroke();
    }
    c.globalAlpha = 1;
  }
  probe.remove();
}

/** A running mean. */
export const smooth = (ys, by = 0.9) => {
  let [m, weight] = [0, 0];
  return ys.map((y) => {
    [m, weight] = [by * m + (1 - by) * y, by * weight + (1 - by)];
    return m / weight;
  });
};
