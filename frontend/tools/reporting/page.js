"use strict";
// Names come from models and files: text is only ever set as textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const el = (tag, attrs = {}, ...inside) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k === "on" ? Object.entries(v).forEach(([n, f]) => e.addEventListener(n, f)) : e.setAttribute(k, v);
  e.append(...inside.filter((x) => x !== null && x !== undefined));
  return e;
};
const svg = (tag, attrs = {}, title = "") => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (title) { const t = document.createElementNS("http://www.w3.org/2000/svg", "title"); t.textContent = title; e.append(t); }
  return e;
};
const time = (s) => (s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(2)} ms` : `${(s * 1e6).toFixed(1)} µs`);
const size = (n) => (n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${n} B`);
const rate = (n, unit) => (n >= 1e9 ? `${(n / 1e9).toFixed(1)} G${unit}` : `${(n / 1e6).toFixed(1)} M${unit}`);
const programs = data.profile.programs;
let current = programs.findIndex((p) => p.part !== "packing");
const program = () => programs[Math.max(current, 0)];
const peaks = () => {
  const found = data.profile.peaks[String(program().thread_calls.length)];
  return found ? [found.flops, found.bandwidth] : null;
};

const views = {
  Overview(into) {
    const p = program(), m = p.memory;
    const fact = (name, value, more = "") => el("div", {}, el("b", {}, value), name, more ? el("div", { class: "faint" }, more) : null);
    into.append(el("div", { class: "facts" },
      fact("a call, mean", time(p.seconds), `${(1 / p.seconds).toFixed(1)} a second, ${p.calls.length} calls`),
      fact("median", time(p.percentiles["0.5"]), `90 %: ${time(p.percentiles["0.9"])}, 99 %: ${time(p.percentiles["0.99"])}`),
      fact("in kernels", `${(100 * p.kernel_seconds / p.seconds).toFixed(1)} %`, `waiting at barriers: ${(100 * p.wait_seconds / p.seconds).toFixed(1)} %`),
      fact("threads", String(p.thread_calls.length), data.target),
      fact("parameters", size(m.parameters), `packed copies: ${size(m.packed)}`),
      fact("arena", size(m.arena), `inputs ${size(m.inputs)}, results ${size(m.results)}`)));
    into.append(el("h2", {}, "Where the time goes"), layerTable(p.layers.slice(0, 10)));
    const stages = Object.entries(data.compiling).sort((a, b) => b[1] - a[1]);
    if (stages.length) into.append(el("h2", {}, "Compiling"), table(["stage", "seconds"], stages.slice(0, 12).map(([name, s]) => [name, time(s)]), [1]));
  },
  Layers(into) {
    const box = el("div");
    const show = (word) => box.replaceChildren(layerTable(program().layers.filter((l) => (l.path + l.file).toLowerCase().includes(word))));
    into.append(search("a layer or a file", show), box);
    show("");
  },
  Kernels(into, wanted) {
    const box = el("div"), detail = el("div", { id: "kernel", tabindex: "-1" });
    const show = (word) => {
      const rows = program().kernels.filter((k) => [k.what, k.kind, k.layer, k.why].join(" ").toLowerCase().includes(word));
      const most = Math.max(...program().kernels.map((k) => k.share), 1e-12);
      box.replaceChildren(sortable(["kernel", "what", "layer", "time", "expected", ""], rows, [
        (k) => k.kind, (k) => k.what, (k) => k.layer, (k) => k.share, (k) => k.estimate, (k) => k.share], (k) => [
        k.kind, k.what, k.layer, time(k.share), time(k.estimate), bar(k, most)], [3, 4], (k) => { kernel(detail, k); detail.focus(); detail.scrollIntoView({ behavior: "smooth" }); }));
    };
    into.append(search("a kernel, layer or reason", show), detail, box);
    show("");
    if (wanted !== undefined) { kernel(detail, program().kernels[wanted]); detail.focus(); }
  },
  Passes(into) {
    const box = el("div"), bar = el("div", { class: "tools" });
    let number = 0;
    const show = (word) => box.replaceChildren(...data.pipelines[number].passes.filter((p) => JSON.stringify(p).toLowerCase().includes(word)).map((p) => {
      const changed = Object.entries(p.changes).map(([k, [a, b]]) => `${k} ${a} → ${b}`).join(", ");
      const d = el("details", {}, el("summary", {}, el("b", {}, p.name), ` ${p.ops[0]} → ${p.ops[1]} ops, ${time(p.seconds)} `, el("span", { class: "faint" }, changed || (p.diff.length ? "" : "nothing changed"))));
      d.addEventListener("toggle", () => {
        if (!d.open || d.childElementCount > 1) return;
        if (p.rules.length) d.append(table(["rule", "times", ""], p.rules, [1]));
        d.append(diff(p.diff));
      });
      return d;
    }));
    const words = search("a pass, an op, a rule, a line of a diff", show);
    const choose = (k) => {
      number = k;
      for (const b of bar.querySelectorAll("button")) b.setAttribute("aria-pressed", String(Number(b.dataset.pipeline) === k));
      show(words.value.trim().toLowerCase());
    };
    if (data.pipelines.length > 1) bar.append(...data.pipelines.map((p, k) => el("button", { "data-pipeline": k, on: { click: () => choose(k) } }, p.title)));
    into.append(bar, words, box);
    choose(0);
  },
  Timeline(into) {
    const events = program().timeline, p = program();
    if (!events.length) { into.append(el("p", {}, "No call was recorded event by event.")); return; }
    const end = Math.max(...events.map((e) => e[2] + e[3])), threads = Math.max(...events.map((e) => e[0])) + 1;
    const s = svg("svg", { viewBox: `0 0 1000 ${threads * 46 + 20}`, role: "img", "aria-label": "threads over time" });
    for (const [thread, k, begin, seconds] of events) {
      const name = k === null ? "waiting" : `${p.kernels[k].layer}: ${p.kernels[k].what}`;
      s.append(svg("rect", { x: 1000 * begin / end, y: thread * 46 + 4, width: Math.max(1000 * seconds / end, 0.3), height: 36, fill: k === null ? "var(--wait)" : `hsl(${(k * 47) % 360} 45% 55%)` }, `${name}, ${time(seconds)}`));
    }
    into.append(el("p", { class: "faint" }, `The last call, ${time(end)}: a row per thread, a box per kernel; waiting at barriers is orange.`), s);
  },
  Memory(into) {
    const p = program(), tensors = p.memory.tensors, last = p.kernels.length, top = Math.max(p.memory.arena, 1);
    const s = svg("svg", { viewBox: "0 0 1000 420", role: "img", "aria-label": "the arena over time" });
    for (const t of tensors)
      s.append(svg("rect", { x: 1000 * t.first / last, y: 420 - 420 * (t.offset + t.nbytes) / top, width: Math.max(1000 * (t.last + 1 - t.first) / last, 1), height: Math.max(420 * t.nbytes / top, 1), fill: "var(--bar)", stroke: "var(--paper)", "stroke-width": 0.5 }, `${t.name} (${t.layer}), ${size(t.nbytes)}`));
    into.append(el("p", { class: "faint" }, `The arena, ${size(p.memory.arena)}: time from left to right, in kernels; addresses from bottom to top; a box is an intermediate result.`), s,
      table(["tensor", "layer", "bytes", "from kernel", "to"], [...tensors].sort((a, b) => b.nbytes - a.nbytes).slice(0, 40).map((t) => [t.name, t.layer, size(t.nbytes), t.first, t.last]), [2, 3, 4]));
  },
  Compare(into) {
    const now = new Map(program().layers.map((l) => [l.path, l])), then = new Map(data.old.layers.map((l) => [l.path, l]));
    const rows = [...new Set([...now.keys(), ...then.keys()])].map((path) => ({ path, now: now.get(path)?.share ?? 0, then: then.get(path)?.share ?? 0 }));
    into.append(el("p", {}, `Before (${data.old.file}): ${time(data.old.seconds)} a call; now: ${time(program().seconds)}, ${(program().seconds / data.old.seconds).toFixed(2)} times that.`),
      sortable(["layer", "before", "now", "difference"], rows.sort((a, b) => Math.abs(b.now - b.then) - Math.abs(a.now - a.then)), [(r) => r.path, (r) => r.then, (r) => r.now, (r) => r.now - r.then],
        (r) => [r.path, time(r.then), time(r.now), `${r.now >= r.then ? "+" : "−"}${time(Math.abs(r.now - r.then))}`], [1, 2, 3]));
  },
  Graph(into, wanted) { graphView(into, wanted); },
};

function search(what, show) {
  const box = el("input", { type: "search", placeholder: `search ${what}`, "aria-label": `search ${what}` });
  box.addEventListener("input", () => show(box.value.trim().toLowerCase()));
  return box;
}
function table(heads, rows, numbers = []) {
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h, k) => el("th", numbers.includes(k) ? { class: "n" } : {}, h)))),
    el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map((c, k) => el("td", { class: numbers.includes(k) ? "n" : "path" }, c instanceof Node ? c : String(c)))))));
}
function sortable(heads, items, keys, cells, numbers, pick) {
  const body = el("tbody"), fill = (list) => body.replaceChildren(...list.map((item) => {
    const tr = el("tr", pick ? { class: "pick", tabindex: "0" } : {}, ...cells(item).map((c, k) => el("td", { class: numbers.includes(k) ? "n" : "path" }, c instanceof Node ? c : String(c))));
    if (pick) { tr.addEventListener("click", () => pick(item)); tr.addEventListener("keydown", (e) => { if (e.key === "Enter") pick(item); }); }
    return tr;
  }));
  let last = null, down = true;
  const sort = (k) => { down = last === k ? !down : true; last = k; fill([...items].sort((a, b) => (keys[k](a) < keys[k](b) ? 1 : -1) * (down ? 1 : -1))); };
  fill(items);
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h, k) => el("th", numbers.includes(k) ? { class: "n" } : {}, el("button", { on: { click: () => sort(k) } }, h))))), body);
}
function bar(k, most) {
  return el("span", {}, el("span", { class: "bar", style: `width:${(120 * (k.share - k.wait)) / most}px` }), el("span", { class: "bar wait", style: `width:${(120 * k.wait) / most}px` }));
}
function layerTable(layers) {
  const p = program(), most = Math.max(...p.layers.map((l) => l.share), 1e-12), peak = peaks();
  const of = (value, k) => (peak ? ` (${Math.round((100 * value) / peak[k])} %)` : "");
  return sortable(["layer", "where", "time", "share", "FLOP/s", "bytes/s", "expected", ""], layers,
    [(l) => l.path, (l) => l.file + l.line, (l) => l.share, (l) => l.share, (l) => l.flops / l.share, (l) => l.nbytes / l.share, (l) => l.estimate, (l) => l.share],
    (l) => [l.path, l.file ? `${l.file.split("/").pop()}:${l.line}` : "", time(l.share), `${(100 * l.share / p.seconds).toFixed(1)} %`,
      rate(l.flops / l.share, "") + of(l.flops / l.share, 0), rate(l.nbytes / l.share, "") + of(l.nbytes / l.share, 1), time(l.estimate), bar(l, most)], [2, 3, 4, 5, 6],
    (l) => { open("Kernels"); const box = document.querySelector("#view input"); box.value = l.path; box.dispatchEvent(new Event("input")); });
}
function diff(lines) {
  return el("pre", {}, ...lines.map((line) => el("span", { class: line.startsWith("+ ") ? "add" : line.startsWith("- ") ? "cut" : "" }, line + "\n")));
}
function roofline(k) {
  const peak = peaks();
  if (!peak || !k.flops || !k.nbytes || !k.share) return null;
  const [flops, bytes] = peak, x = (v) => 60 + 150 * (Math.log10(v) + 2), y = (v) => 230 - 45 * (Math.log10(v) - 7);
  const s = svg("svg", { viewBox: "0 0 700 250", style: "max-width:700px", role: "img", "aria-label": "roofline" }), ridge = flops / bytes;
  s.append(svg("polyline", { points: `${x(0.01)},${y(0.01 * bytes)} ${x(ridge)},${y(flops)} 690,${y(flops)}`, fill: "none", stroke: "var(--faint)" }),
    svg("circle", { cx: x(k.flops / k.nbytes), cy: y(k.flops / k.share), r: 5, fill: "var(--bar)" }, `${(k.flops / k.nbytes).toFixed(2)} FLOP a byte, ${rate(k.flops / k.share, "FLOP/s")}`));
  return el("div", {}, el("h2", {}, "Roofline"), el("p", { class: "faint" }, `${(k.flops / k.nbytes).toFixed(2)} FLOP a byte; it reaches ${rate(k.flops / k.share, "FLOP/s")} of ${rate(Math.min(flops, (k.flops / k.nbytes) * bytes), "FLOP/s")} that this machine could.`), s);
}
function kernel(into, k) {
  const block = (name, lines) => (lines && lines.length ? el("div", {}, el("h2", {}, name), el("pre", {}, lines.join("\n"))) : null);
  const code = data.functions[k.function] || [[], []], left = k.function && !data.functions[k.function];
  into.replaceChildren(...[
    el("h2", {}, `${k.kind}: ${k.what}`),
    el("p", {}, `${k.layer}${k.file ? ` — ${k.file}:${k.line}` : ""} `, k.inside === null && data.stages.some((s) => s.program === current) ? el("button", { on: { click: () => open("Graph", [current, k.number]) } }, "show in the graph") : null),
    k.source ? el("pre", {}, k.source) : null,
    el("p", {}, `${time(k.busy)} at work and ${time(k.wait)} waiting, expected ${time(k.estimate)} on one thread. Why this kernel: ${k.why || "there is no other"}.`),
    k.layers.length > 1 ? el("p", { class: "faint" }, `Also computes: ${k.layers.slice(1).join(", ")}`) : null,
    roofline(k), block("Op", k.op), block("LLVM IR", code[0]), block("Assembly", code[1]),
    left ? el("p", { class: "faint" }, "The code of faster kernels, as this one, is left out: the page would be too large.") : null].filter(Boolean));
}
function openKernel(p, k) {
  setProgram(p);
  open("Kernels", k);
  window.scrollTo(0, 0);
}
function setProgram(p) {
  current = p;
  const choice = document.querySelector("nav select");
  if (choice) choice.value = String(p);
}
function open(name, wanted) {
  for (const b of document.querySelectorAll("nav button")) b.setAttribute("aria-selected", String(b.dataset.view === name));
  const view = document.getElementById("view");
  view.replaceChildren();
  views[name](view, wanted);
}
document.title = `${data.model} — gluonjit report`;
document.getElementById("model").textContent = data.model;
const inputs = program() ? program().inputs : [];
document.getElementById("machine").textContent = `${data.machine}; ${inputs.slice(0, 6).join(", ")}${inputs.length > 6 ? ` and ${inputs.length - 6} more` : ""}`;
const nav = document.querySelector("nav");
if (!data.old) delete views.Compare;
for (const name of Object.keys(views)) nav.append(el("button", { role: "tab", "data-view": name, on: { click: () => open(name) } }, name));
if (programs.length > 1) {
  const choice = el("select", { "aria-label": "which program" }, ...programs.map((p, k) => el("option", { value: k }, `${p.name}: ${p.part}`)));
  choice.value = String(current);
  choice.addEventListener("change", () => { current = Number(choice.value); open("Overview"); });
  nav.append(choice);
}
nav.addEventListener("keydown", (e) => {
  const all = [...nav.querySelectorAll("button")], at = all.indexOf(document.activeElement);
  if (at >= 0 && (e.key === "ArrowRight" || e.key === "ArrowLeft")) { const next = all[(at + (e.key === "ArrowRight" ? 1 : all.length - 1)) % all.length]; next.focus(); next.click(); }
});
open("Overview");
