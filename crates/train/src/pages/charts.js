const at = id => document.getElementById(id);
const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};
const shape = (name, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  return made;
};
const whole = x => Math.round(x).toLocaleString("en");

// Round values between two bounds, about `count` of them.
function ticks(low, high, count, log) {
  if (log) {
    const powers = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5].flatMap(p => [1, 2, 5].map(m => m * 10 ** p));
    const inside = powers.filter(v => v >= low && v <= high);
    return inside.length > 9 ? inside.filter(v => /^[^1-9]*1/.test(v.toExponential())) : inside;
  }
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(m => m * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

// Lines over steps: { points: [[step, value]], color, width, dots, name }.
function chart(target, series, options) {
  const wide = options.wide ?? options.height > 200;
  const [width, height] = [wide ? 1040 : 500, options.height];
  const edge = { left: 52, right: 12, top: 8, bottom: 26 };
  const all = series.flatMap(line => line.points).filter(p => p[1] !== null);
  if (all.length === 0) { at(target).textContent = "nothing measured yet"; return; }
  const xs = all.map(p => p[0]);
  let [low, high] = [Math.min(...all.map(p => p[1])), Math.max(...all.map(p => p[1]))];
  const scale = options.log ? v => Math.log(Math.max(v, 1e-9)) : v => v;
  if (options.zero) low = 0;
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  high += options.log ? high * 0.1 : room;
  if (options.log) low *= 0.9;
  const [bottom, top] = [scale(low), scale(high)];
  const first = Math.min(...xs), last = Math.max(...xs, first + 1);
  const x = step => edge.left + (step - first) / (last - first) * (width - edge.left - edge.right);
  const y = value => height - edge.bottom - (scale(value) - bottom) / (top - bottom) * (height - edge.top - edge.bottom);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const value of ticks(low, high, wide ? 6 : 4, options.log)) {
    svg.append(shape("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }));
    const label = shape("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" });
    label.textContent = options.label(value);
    svg.append(label);
  }
  for (const step of ticks(first, last, wide ? 8 : 4)) {
    const label = shape("text", { x: x(step), y: height - 6, "text-anchor": "middle" });
    label.textContent = whole(step);
    svg.append(label);
  }
  for (const line of series) {
    const points = line.points.filter(p => p[1] !== null);
    const path = points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
    svg.append(shape("path", { d: path, fill: "none", stroke: line.color, "stroke-width": line.width, "stroke-linejoin": "round" }));
    if (line.dots) for (const p of points) svg.append(shape("circle", { cx: x(p[0]), cy: y(p[1]), r: 3, fill: line.color }));
  }
  const mark = shape("line", { class: "hover", y1: edge.top, y2: height - edge.bottom, visibility: "hidden" });
  svg.append(mark);
  svg.addEventListener("mousemove", event => {
    const box = svg.getBoundingClientRect();
    const step = first + ((event.clientX - box.left) / box.width * width - edge.left) / (width - edge.left - edge.right) * (last - first);
    const nearest = points => points.reduce((best, p) => Math.abs(p[0] - step) < Math.abs(best[0] - step) ? p : best);
    const named = series.filter(line => line.name && line.points.length).map(line => [line.name, nearest(line.points)]);
    if (named.length === 0) return;
    const shown = named[0][1][0];
    mark.setAttribute("x1", x(shown));
    mark.setAttribute("x2", x(shown));
    mark.setAttribute("visibility", "visible");
    const tip = at("tip");
    tip.replaceChildren(element("div", "tile-note", `step ${whole(shown)}`));
    for (const [name, p] of named.slice(0, options.most ?? 30)) tip.append(element("div", "", `${name}${name ? " " : ""}${options.exact(p[1])}`));
    tip.style.display = "block";
    const left = event.clientX + 16;
    tip.style.left = `${left + 160 > innerWidth ? event.clientX - 160 : left}px`;
    tip.style.top = `${event.clientY + 12}px`;
  });
  svg.addEventListener("mouseleave", () => {
    mark.setAttribute("visibility", "hidden");
    at("tip").style.display = "none";
  });
  at(target).append(svg);
}

// A running mean, so that the trend is seen through the noise of single batches.
function smooth(points) {
  const keep = 0.6;
  let sum = 0, weight = 0;
  return points.filter(p => p[1] !== null).map(p => {
    sum = keep * sum + p[1];
    weight = keep * weight + 1;
    return [p[0], sum / weight];
  });
}
