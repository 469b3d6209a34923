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
const size = (n) => (n >= 1048576 ? `${(n / 1048576).toFixed(1)} MiB` : n >= 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${n} B`);
// A name in a table: in one line, as wide as the others leave room for, shortened in its middle, whole when pointed at.
// The end stays, as it tells layers apart; the beginning gives way, with an ellipsis.
const shortened = (text) => {
  const words = String(text), slash = words.lastIndexOf("/"), end = slash >= 0 && words.length - slash <= 26 ? slash : Math.max(words.length - 14, Math.ceil(words.length / 2));
  return el("span", { class: "name", title: words }, el("span", {}, words.slice(0, end)), el("span", {}, words.slice(end)));
};
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
    const round = data.profile.rounds, sizes = (...pairs) => pairs.filter(([, n]) => n).map(([name, n]) => `${name} ${size(n)}`).join(", ");
    if (data.profile.busy) into.append(el("p", { class: "warning" }, `${crowd(data.profile.use)} Times are longer than on an idle machine.`));
    into.append(el("div", { class: "facts" },
      fact("a call, median", time(p.seconds), `90 %: ${time(p.percentiles["0.9"])}, 99 %: ${time(p.percentiles["0.99"])}; ${p.calls} calls`),
      round ? fact("a round, median", time(round.seconds), `CPU time ${time(round.cpu)}; ${(1 / round.seconds).toFixed(1)} a second`) : null,
      fact("in kernels", `${(100 * p.kernel_seconds / p.seconds).toFixed(1)} %`, `waiting at barriers: ${(100 * p.wait_seconds / p.seconds).toFixed(1)} %`),
      fact("threads", String(p.thread_calls.length), data.target),
      m.parameters ? fact("parameters", size(m.parameters), sizes(["packed copies:", m.packed])) : null,
      m.arena ? fact("arena", size(m.arena), sizes(["inputs", m.inputs], ["results", m.results])) : null));
    if (programs.length > 1) {
      const count = round ? round.number : 1, of = (q) => (q.part === "packing" ? q.total / count : (q.calls * q.seconds) / count);
      const sum = programs.reduce((all, q) => all + of(q), 0), rows = programs.map((q) => [`${q.name}: ${q.part}`, q.calls, time(q.seconds), time(of(q)), `${((100 * of(q)) / sum).toFixed(1)} %`]);
      into.append(el("h2", {}, round ? "A round" : "All calls"), table(["program", "calls", "a call", round ? "a round" : "all", "share"], [...rows, [el("b", {}, "all of them"), "", "", el("b", {}, time(sum)), "100 %"]], [1, 2, 3, 4]));
    }
    if (data.omitted) into.append(el("p", { class: "faint" }, `Left out, as the page would be too large: ${data.omitted.join("; ")}.`));
    into.append(el("h2", {}, "Where the time goes"), layerTable(p.layers.slice(0, 10), 3));
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
      const shown = sortable(["kernel", "what", "layer", "time", "expected", ""], rows, [
        (k) => k.kind, (k) => k.what, (k) => k.layer, (k) => k.share, (k) => k.estimate, (k) => k.share], (k) => [
        k.kind, shortened(k.what), shortened(k.layer), time(k.share), time(k.estimate), bar(k, most)], [3, 4], (k) => { kernel(detail, k); detail.focus(); detail.scrollIntoView({ behavior: "smooth" }); });
      shown.classList.add("kernels");
      box.replaceChildren(shown);
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
        if (p.rules.length) d.append(table(["rule that applied", "times", ""], p.rules, [1]));
        if (p.idle.length) d.append(el("details", {}, el("summary", {}, `${p.idle.length} rules that found nothing to do`), table(["rule", "ops it was asked about", ""], p.idle, [1])));
        if (p.missed.length) d.append(el("details", {}, el("summary", {}, `${p.missed.length} ops that were left alone, and why`), table(["op", "layer", "because"], p.missed.map((m) => [m.op, m.layer, m.why]))));
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
    const p = program();
    if (!p.timeline.length) { into.append(el("p", {}, "No call was recorded event by event.")); return; }
    into.append(el("p", { class: "faint" }, "The call that took the median time: a row per thread, a box per kernel, which leads to the kernel; waiting at barriers is orange."), timelineChart(p));
  },
  Memory(into) {
    const p = program(), tensors = p.memory.tensors;
    into.append(el("p", { class: "faint" }, `The arena, ${size(p.memory.arena)}: time from left to right, in kernels; addresses from bottom to top; a box is an intermediate result, the darker the larger.`), memoryChart(p),
      table(["tensor", "layer", "bytes", "from kernel", "to"], [...tensors].sort((a, b) => b.nbytes - a.nbytes).slice(0, 40).map((t) => [shortened(t.name), shortened(t.layer), size(t.nbytes), t.first, t.last]), [2, 3, 4]));
  },
  Compare(into) { compareView(into); },
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
function sortable(heads, items, keys, cells, numbers, pick, below = () => "") {
  const body = el("tbody"), fill = (list) => body.replaceChildren(...list.flatMap((item) => {
    const tr = el("tr", pick ? { class: "pick", tabindex: "0" } : {}, ...cells(item).map((c, k) => el("td", { class: numbers.includes(k) ? "n" : "path" }, c instanceof Node ? c : String(c))));
    if (pick) { tr.addEventListener("click", () => pick(item)); tr.addEventListener("keydown", (e) => { if (e.key === "Enter") pick(item); }); }
    const more = below(item);
    return more ? [tr, el("tr", {}, el("td", { class: "below faint", colspan: heads.length }, more))] : [tr];
  }));
  let last = null, down = true;
  const sort = (k) => { down = last === k ? !down : true; last = k; fill([...items].sort((a, b) => (keys[k](a) < keys[k](b) ? 1 : -1) * (down ? 1 : -1))); };
  fill(items);
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h, k) => el("th", numbers.includes(k) ? { class: "n" } : {}, el("button", { on: { click: () => sort(k) } }, h))))), body);
}
function bar(k, most) {
  return el("span", {}, el("span", { class: "bar", style: `width:${(120 * (k.share - k.wait)) / most}px` }), el("span", { class: "bar wait", style: `width:${(120 * k.wait) / most}px` }));
}
// `advised`: under so many of the first a sentence tells what limits them.
function layerTable(layers, advised = 0) {
  const p = program(), most = Math.max(...p.layers.map((l) => l.share), 1e-12), peak = peaks();
  const of = (value, k) => (peak ? ` (${Math.round((100 * value) / peak[k])} %)` : "");
  const shown = sortable(["layer", "where", "time", "share", "FLOP/s", "bytes/s", "expected", ""], layers,
    [(l) => l.path, (l) => l.file + l.line, (l) => l.share, (l) => l.share, (l) => l.flops / l.share, (l) => l.nbytes / l.share, (l) => l.estimate, (l) => l.share],
    (l) => [shortened(l.path), shortened(l.file ? `${l.file.split("/").pop()}:${l.line}` : ""), time(l.share), `${(100 * l.share / p.seconds).toFixed(1)} %`,
      rate(l.flops / l.share, "") + of(l.flops / l.share, 0), rate(l.nbytes / l.share, "") + of(l.nbytes / l.share, 1), time(l.estimate), bar(l, most)], [2, 3, 4, 5, 6],
    (l) => { open("Kernels"); const box = document.querySelector("#view input"); box.value = l.path; box.dispatchEvent(new Event("input")); },
    (l) => (layers.indexOf(l) < advised ? l.advice : ""));
  shown.classList.add("layers");
  return shown;
}
function crowd(use) {
  return `The machine was busy: other programs used ${use.others.toFixed(1)} of its ${use.cores} cores.`;
}
function diff(lines) {
  return el("pre", {}, ...lines.map((line) => el("span", { class: line.startsWith("+ ") ? "add" : line.startsWith("- ") ? "cut" : "" }, line + "\n")));
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
    chosenAmong(k), leftAlone(k), roofline(k), block("Op", k.op), block("LLVM IR", code[0]), block("Assembly", code[1]),
    left ? el("p", { class: "faint" }, "The code of faster kernels, as this one, is left out: the page would be too large.") : null].filter(Boolean));
}
function chosenAmong(k) {
  const all = k.alternatives || [], best = all.find((a) => a[3]);
  if (all.length < 2) return null;
  const rows = (kind) => all.filter((a) => a[0] === kind).map(([, what, microseconds, chosen]) => [chosen ? el("b", {}, `${what}, chosen`) : what, time(microseconds / 1e6)]);
  const part = (kind, head) => { const found = rows(kind); return found.length > 1 ? table([head, "expected, on one core"], found, [1]) : null; };
  return el("div", { class: "choice" }, el("h2", {}, best ? "Chosen among" : "Others that were considered"), part("algorithm", "algorithm"), part("tile", "registers: rows×columns"));
}
function leftAlone(k) {
  const found = data.pipelines.flatMap((p) => p.passes).flatMap((p) => p.missed).filter((m) => k.layers.includes(m.layer));
  const rows = [...new Map(found.map((m) => [m.op + m.why, m])).values()];
  return rows.length ? el("div", {}, el("h2", {}, "Not fused"), table(["op", "because"], rows.map((m) => [m.op, m.why]))) : null;
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
document.getElementById("machine").textContent = `${data.made}; ${data.machine}; ${inputs.slice(0, 6).join(", ")}${inputs.length > 6 ? ` and ${inputs.length - 6} more` : ""}`;
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
