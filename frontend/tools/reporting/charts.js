"use strict";
// The roofline, the threads over time, the arena, and the tables that compare two reports.
const label = (x, y, text, more = {}) => {
  const t = svg("text", { x, y, "font-size": 11, fill: "var(--faint)", ...more });
  t.textContent = text;
  return t;
};
function ticks(end, count = 8) {
  const rough = end / count, ten = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((k) => k * ten).find((k) => k >= rough) || 1;
  return Array.from({ length: Math.floor(end / step + 1e-9) + 1 }, (_, k) => k * step);
}
// Text in a box of so many units, or nothing where it has no room. A character takes 6 units.
const fits = (text, width) => (width < 42 ? "" : tail(text, Math.floor((width - 6) / 6)));

function roofline(k) {
  const peak = peaks();
  if (!peak || !k.flops || !k.nbytes || !k.share) return null;
  const [flops, bytes] = peak, intensity = k.flops / k.nbytes, reached = k.flops / k.share, could = Math.min(flops, intensity * bytes);
  const low = Math.floor(Math.log10(Math.min(0.1, intensity))), high = Math.ceil(Math.log10(Math.max(1000, intensity)));
  const top = Math.ceil(Math.log10(Math.max(flops, reached))), bottom = Math.floor(Math.log10(Math.min(reached, bytes * 10 ** low)));
  const x = (v) => 70 + (610 * (Math.log10(v) - low)) / (high - low), y = (v) => 215 - (200 * (Math.log10(v) - bottom)) / (top - bottom);
  const s = svg("svg", { viewBox: "0 0 700 260", style: "max-width:700px", role: "img", "aria-label": "roofline" }), ridge = flops / bytes;
  for (let e = low; e <= high; e++) s.append(svg("line", { x1: x(10 ** e), x2: x(10 ** e), y1: 15, y2: 215, stroke: "var(--line)" }), label(x(10 ** e), 230, String(10 ** e), { "text-anchor": "middle" }));
  for (let e = bottom; e <= top; e++) s.append(svg("line", { x1: 70, x2: 680, y1: y(10 ** e), y2: y(10 ** e), stroke: "var(--line)" }), label(64, y(10 ** e) + 4, rate(10 ** e, ""), { "text-anchor": "end" }));
  s.append(label(375, 250, "FLOP a byte of operands and results", { "text-anchor": "middle" }), label(74, 11, "FLOP/s"),
    svg("polyline", { points: `${x(10 ** low)},${y(bytes * 10 ** low)} ${x(ridge)},${y(flops)} 680,${y(flops)}`, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5 }),
    label(676, y(flops) - 5, `this machine computes ${rate(flops, "FLOP/s")}`, { "text-anchor": "end" }),
    label(x(Math.sqrt(ridge * 10 ** low)) + 10, y(bytes * Math.sqrt(ridge * 10 ** low)) + 12, `memory gives ${rate(bytes, "B/s")}`),
    svg("circle", { cx: x(intensity), cy: y(reached), r: 6, fill: "var(--hot)", stroke: "var(--ink)" }, `${intensity.toFixed(2)} FLOP a byte, ${rate(reached, "FLOP/s")}`));
  const more = reached > could ? " More than it could: operands are in a cache, or an algorithm such as Winograd's computes less than is counted." : "";
  return el("div", {}, el("h2", {}, "Roofline"), el("p", { class: "faint" }, `${intensity.toFixed(2)} FLOP a byte; it reaches ${rate(reached, "FLOP/s")} of ${rate(could, "FLOP/s")} that this machine could.${more}`), s);
}

function timelineChart(p) {
  const events = p.timeline, end = Math.max(...events.map((e) => e[2] + e[3])), threads = Math.max(...events.map((e) => e[0])) + 1;
  const x = (seconds) => 60 + (935 * seconds) / end, height = threads * 46 + 30;
  const s = svg("svg", { viewBox: `0 0 1010 ${height}`, role: "img", "aria-label": "threads over time" });
  for (const at of ticks(end)) s.append(svg("line", { x1: x(at), x2: x(at), y1: 0, y2: height - 22, stroke: "var(--line)" }), label(x(at), height - 8, at ? time(at) : "0", { "text-anchor": "middle" }));
  for (let t = 0; t < threads; t++) s.append(label(0, t * 46 + 26, `thread ${t}`));
  for (const [thread, k, begin, seconds] of events) {
    const width = Math.max((935 * seconds) / end, 0.3), kernel = k === null ? null : p.kernels[k];
    const name = kernel ? `${kernel.layer}: ${kernel.kind} ${kernel.what}` : "waiting";
    const box = svg("rect", { x: x(begin), y: thread * 46 + 4, width, height: 36, fill: kernel ? `hsl(${(k * 47) % 360} 45% 55%)` : "var(--wait)", ...(kernel ? { style: "cursor:pointer" } : {}) }, `${name}, ${time(seconds)}`);
    if (kernel) box.addEventListener("click", () => openKernel(programs.indexOf(p), k));
    const text = kernel ? fits(kernel.layer.split("/").pop(), width) : "";
    s.append(box, ...(text ? [label(x(begin) + 4, thread * 46 + 26, text, { fill: "#fff", "pointer-events": "none" })] : []));
  }
  return s;
}

function memoryChart(p) {
  const tensors = p.memory.tensors, last = Math.max(p.kernels.length, 1), top = Math.max(p.memory.arena, 1);
  const x = (kernel) => 60 + (935 * kernel) / last, y = (address) => 420 - (415 * address) / top;
  const s = svg("svg", { viewBox: "0 0 1010 455", role: "img", "aria-label": "the arena over time" });
  for (const at of ticks(top, 6)) s.append(svg("line", { x1: 60, x2: 995, y1: y(at), y2: y(at), stroke: "var(--line)" }), label(54, y(at) + 4, at ? size(at) : "0", { "text-anchor": "end" }));
  for (const at of ticks(last, 12).filter(Number.isInteger)) s.append(label(x(at), 436, String(at), { "text-anchor": "middle" }));
  s.append(label(527, 452, "kernel", { "text-anchor": "middle" }));
  const most = Math.max(...tensors.map((t) => t.nbytes), 1);
  for (const t of tensors) {
    const width = Math.max(x(t.last + 1) - x(t.first), 1), height = Math.max((415 * t.nbytes) / top, 1), share = Math.round(25 + (65 * t.nbytes) / most);
    s.append(svg("rect", { x: x(t.first), y: y(t.offset + t.nbytes), width, height, fill: `color-mix(in srgb, var(--bar) ${share}%, var(--paper))`, stroke: "var(--faint)", "stroke-width": 0.5 }, `${t.name} (${t.layer}), ${size(t.nbytes)}, kernels ${t.first} to ${t.last}`));
    const text = height >= 14 ? fits(t.name, width) : "";
    if (text) s.append(label(x(t.first) + 4, y(t.offset + t.nbytes) + 12, text, { fill: "var(--ink)", "pointer-events": "none" }));
  }
  return s;
}

// Sums by name of what was and of what is, those that differ most first.
function compared(then, now) {
  const names = [...new Set([...Object.keys(then), ...Object.keys(now)])];
  return names.map((name) => ({ name, then: then[name] ?? 0, now: now[name] ?? 0 })).sort((a, b) => Math.abs(b.now - b.then) - Math.abs(a.now - a.then));
}
function comparison(head, rows, shown) {
  const was = (r) => (r.then ? shown(r.then) : "—"), is = (r) => (r.now ? shown(r.now) : "—");
  const change = (r) => (!r.then ? "new" : !r.now ? "gone" : r.now === r.then ? "the same" : `${r.now > r.then ? "+" : "−"}${shown(Math.abs(r.now - r.then))}, ${(r.now / r.then).toFixed(2)} times`);
  return sortable([head, "before", "now", "difference"], rows, [(r) => r.name, (r) => r.then, (r) => r.now, (r) => Math.abs(r.now - r.then)], (r) => [shortened(r.name), was(r), is(r), change(r)], [1, 2, 3]);
}
function compareView(into) {
  const p = program(), old = data.old.programs.find((o) => o.part === p.part) || data.old.programs[0];
  const sums = (items, name, value) => items.reduce((all, item) => ({ ...all, [name(item)]: (all[name(item)] ?? 0) + value(item) }), {});
  const shares = (list, name) => sums(list, name, (k) => k.share), title = (k) => `${k.layer}: ${k.kind} ${k.what}`;
  const were = [[data.old.busy, "The machine was busy when the earlier report was made."], [data.profile.busy, "The machine was busy this time."]];
  into.append(el("p", {}, `Before (${data.old.file}${data.old.made ? `, ${data.old.made}` : ""}): ${time(old.seconds)} a call; now: ${time(p.seconds)}, ${(p.seconds / old.seconds).toFixed(2)} times that (medians).`),
    ...were.filter(([busy]) => busy).map(([, words]) => el("p", { class: "warning" }, `${words} Its times are longer than on an idle one.`)),
    el("h2", {}, "Layers"), comparison("layer", compared(shares(old.layers, (l) => l.path), shares(p.layers, (l) => l.path)), time),
    el("h2", {}, "Kernels"), comparison("kernel", compared(shares(old.kernels, title), shares(p.kernels, title)), time),
    el("h2", {}, "Memory"), comparison("what", compared(old.memory, Object.fromEntries(Object.keys(old.memory).map((k) => [k, p.memory[k]]))), size),
    el("h2", {}, "Compiling"), comparison("stage", compared(data.old.compiling, data.compiling), time));
}
