"use strict";
// The tab Graph: a stage's nodes and edges, placed by dagre. Uses the helpers of page.js.
const BOX = { width: 216, height: 46 };
const LONGEST = 20; // ranks: longer edges have no part in the layout, which they would fill with bends
const stageSeconds = (node) => node.main.reduce((sum, [p, k]) => sum + programs[p].kernels[k].share, 0);

// About how far from the top nodes will be: as early as possible, but for those that are nearer to what reads them then.
function ranks(stage) {
  const rank = stage.nodes.map(() => 0), above = stage.nodes.map(() => 0), readers = stage.nodes.map(() => []);
  for (const [a, b] of stage.edges) { rank[b] = Math.max(rank[b], rank[a] + 1); above[b]++; readers[a].push(b); } // in the order of their ends
  for (let k = rank.length - 1; k >= 0; k--)
    if (readers[k].length && readers[k].length >= above[k]) rank[k] = Math.max(rank[k], Math.min(...readers[k].map((b) => rank[b])) - 1);
  return rank;
}

// The edges that have a part in the layout: the short ones, and as many others as it takes to keep connected what is.
function placing(stage) {
  const rank = ranks(stage), root = stage.nodes.map((_, k) => k);
  const find = (k) => { while (root[k] !== k) k = root[k] = root[root[k]]; return k; };
  const length = ([a, b]) => rank[b] - rank[a], sorted = [...stage.edges].sort((e, f) => length(e) - length(f));
  return sorted.filter((e) => {
    const [a, b] = e.map(find);
    root[a] = b;
    return a !== b || length(e) <= LONGEST;
  });
}

// Adds `at` (centres), `lines` (paths) and `size` to the stage, once.
function place(stage) {
  if (stage.at) return;
  const g = new dagre.graphlib.Graph();
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 24, marginx: 16, marginy: 16, ranker: "network-simplex" });
  g.setDefaultEdgeLabel(() => ({}));
  const tied = new Set(stage.edges.flat()), loose = [...stage.nodes.keys()].filter((k) => !tied.has(k));
  for (const k of tied) g.setNode(String(k), { ...BOX });
  for (const [a, b] of placing(stage)) g.setEdge(String(a), String(b));
  dagre.layout(g);
  stage.at = stage.nodes.map((_, k) => (tied.has(k) ? { x: g.node(String(k)).x, y: g.node(String(k)).y } : null));
  // What has no edges stands in rows below.
  const size = tied.size ? { width: g.graph().width, height: g.graph().height } : { width: 0, height: 0 };
  const across = Math.max(3, Math.floor(size.width / (BOX.width + 22)));
  loose.forEach((k, n) => { stage.at[k] = { x: 16 + BOX.width / 2 + (n % across) * (BOX.width + 22), y: size.height + 24 + BOX.height / 2 + Math.floor(n / across) * (BOX.height + 24) }; });
  stage.size = { width: Math.max(size.width, ...loose.map((k) => stage.at[k].x + BOX.width / 2 + 16)), height: Math.max(size.height, ...loose.map((k) => stage.at[k].y + BOX.height / 2 + 16)) };
  stage.lines = stage.edges.map(([a, b]) => {
    const found = g.edge(String(a), String(b)), { x: x0, y: y0 } = stage.at[a], { x: x1, y: y1 } = stage.at[b];
    if (found) return smooth(found.points);
    const side = Math.max(x0, x1) + BOX.width;
    return `M${x0 + BOX.width / 2} ${y0}C${side} ${y0} ${side} ${y1} ${x1 + BOX.width / 2} ${y1}`;
  });
}
function smooth(points) {
  let path = `M${points[0].x} ${points[0].y}`;
  for (let k = 1; k < points.length - 1; k++) {
    const end = k < points.length - 2 ? { x: (points[k].x + points[k + 1].x) / 2, y: (points[k].y + points[k + 1].y) / 2 } : points[k + 1];
    path += `Q${points[k].x} ${points[k].y} ${end.x} ${end.y}`;
  }
  return points.length === 2 ? `${path}L${points[1].x} ${points[1].y}` : path;
}

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
const tail = (path, most) => (path.length <= most ? path : `…${path.slice(1 - most)}`);
const shape = (type) => (/\[(.*?)\]/.exec(type)?.[1] ?? "").replaceAll(",", "×");

// Draws the stage into `into`; `show(node)` is called for a node that is chosen. Returns what the toolbar needs.
function drawing(stage, into, show, activate) {
  place(stage);
  const seconds = stage.nodes.map(stageSeconds), most = Math.max(...seconds, 1e-12);
  // Operators of one line have the time of its kernels together.
  const line = (n) => (n.file ? `${n.file}:${n.line} ${n.layer}` : ""), sharing = new Map();
  for (const n of stage.nodes) if (n.main.length && line(n)) sharing.set(line(n), (sharing.get(line(n)) ?? 0) + 1);
  const took = (k) => `${time(seconds[k])}${sharing.get(line(stage.nodes[k])) > 1 && stage.nodes[k].kind === "op" ? ` for ${sharing.get(line(stage.nodes[k]))}` : ""}`;
  const heat = (k) => `color-mix(in srgb, var(--hot) ${Math.round(100 * Math.sqrt(seconds[k] / most))}%, var(--paper))`;
  const world = svg("g"), canvas = svg("svg", { class: "canvas", tabindex: "0", role: "application", "aria-label":
    "graph: arrow keys go from node to node, with Shift they move the picture; plus, minus and 0 zoom; Enter opens the kernel" });
  const arrow = svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" });
  arrow.append(svg("path", { d: "M0 0L8 4L0 8z", fill: "var(--faint)" }));
  const defs = svg("defs"), inside = svg("clipPath", { id: "inside" });
  inside.append(svg("rect", { x: 4, width: BOX.width - 8, height: BOX.height }));
  defs.append(arrow, inside);
  const first = new Set(stage.nodes.flatMap((n) => (n.layer ? [n.layer.split("/")[0]] : []))), within = (layer) => (first.size === 1 && layer.includes("/") ? layer.slice(layer.indexOf("/") + 1) : layer);
  canvas.append(defs, world);
  const edges = stage.edges.map(([a, b], e) => svg("path", { class: "edge", d: stage.lines[e], "marker-end": "url(#arrow)" }, stage.nodes[a].type));
  const boxes = stage.nodes.map((node, k) => {
    const { x, y } = stage.at[k], name = `${node.label}${node.layer ? `, ${node.layer}` : ""}${seconds[k] ? `, ${time(seconds[k])}` : ""}`;
    const g = svg("g", { class: `node${node.kind === "input" ? " input" : ""}${!seconds[k] && node.within.length ? " within" : ""}`, id: `node${k}`, role: "button", "aria-label": name, transform: `translate(${x - BOX.width / 2} ${y - BOX.height / 2})` }, name);
    const box = svg("rect", { width: BOX.width, height: BOX.height, rx: 5 });
    box.style.fill = seconds[k] ? heat(k) : "var(--paper)";
    const words = [[8, 19, "start", "label", cut(node.label, 30)], [8, 37, "start", "where", tail(node.layer ? within(node.layer) : node.type, seconds[k] ? 30 - took(k).length : 32)]];
    if (seconds[k]) words.push([BOX.width - 8, 37, "end", "where", took(k)]);
    if (node.kind === "op" && node.label.length + shape(node.type).length < 29) words.push([BOX.width - 8, 19, "end", "where", shape(node.type)]);
    g.append(box, ...words.map(([tx, ty, anchor, kind, text]) => { const t = svg("text", { x: tx, y: ty, "text-anchor": anchor, class: kind, "clip-path": "url(#inside)" }); t.textContent = text; return t; }));
    g.addEventListener("click", () => { if (!moved) select(k); });
    g.addEventListener("dblclick", () => activate(node));
    return g;
  });
  world.append(...edges, ...boxes);

  // A small picture of the whole: a click goes there.
  const map = svg("svg", { class: "map", viewBox: `0 0 ${stage.size.width} ${stage.size.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const frame = svg("rect", { class: "frame" });
  map.append(...stage.at.map(({ x, y }, k) => {
    const r = svg("rect", { x: x - BOX.width / 2, y: y - BOX.height / 2, width: BOX.width, height: BOX.height });
    r.style.fill = seconds[k] ? heat(k) : "var(--line)";
    return r;
  }), frame);
  into.replaceChildren(map, canvas);

  const view = { x: 0, y: 0, k: 1 };
  const extent = () => [canvas.clientWidth || 800, canvas.clientHeight || 500];
  function apply() {
    const [w, h] = extent();
    world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
    for (const [name, value] of Object.entries({ x: -view.x / view.k, y: -view.y / view.k, width: w / view.k, height: h / view.k })) frame.setAttribute(name, value);
  }
  function zoom(factor, px, py) {
    const [w, h] = extent(), k = Math.min(4, Math.max(0.02, view.k * factor)), x = px ?? w / 2, y = py ?? h / 2;
    view.x = x - ((x - view.x) * k) / view.k;
    view.y = y - ((y - view.y) * k) / view.k;
    view.k = k;
    apply();
  }
  function fit() {
    const [w, h] = extent();
    view.k = Math.min(w / stage.size.width, h / stage.size.height, 1.2);
    view.x = (w - view.k * stage.size.width) / 2;
    view.y = Math.max(0, (h - view.k * stage.size.height) / 2);
    apply();
  }
  function begin() { // readable, from the top
    const [w, h] = extent();
    fit();
    if (view.k < 0.75) {
      const top = stage.at.reduce((best, at) => (at.y < best.y ? at : best), { x: 0, y: Infinity });
      view.k = 0.9; view.x = w / 2 - 0.9 * top.x; view.y = Math.min(20, h);
      apply();
    }
  }
  function centre(x, y) { const [w, h] = extent(); view.x = w / 2 - view.k * x; view.y = h / 2 - view.k * y; apply(); }
  let chosen = -1, moved = false;
  function select(k, centred = false) {
    if (chosen >= 0) boxes[chosen].classList.remove("chosen");
    chosen = k;
    boxes[k].classList.add("chosen");
    canvas.setAttribute("aria-activedescendant", `node${k}`);
    edges.forEach((e, n) => e.classList.toggle("near", stage.edges[n].includes(k)));
    if (centred) { if (view.k < 0.5) view.k = 0.9; centre(stage.at[k].x, stage.at[k].y); }
    show(stage.nodes[k], seconds[k]);
  }
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e.offsetX, e.offsetY); }, { passive: false });
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (e) => { fingers.set(e.pointerId, e); moved = false; });
  canvas.addEventListener("pointermove", (e) => {
    const before = fingers.get(e.pointerId);
    if (!before) return;
    if (Math.hypot(e.clientX - before.clientX, e.clientY - before.clientY) < 3 && !moved) return;
    if (!moved) canvas.setPointerCapture(e.pointerId);
    moved = true;
    const other = [...fingers.values()].find((f) => f.pointerId !== e.pointerId);
    if (other) {
      const length = (f) => Math.hypot(f.clientX - other.clientX, f.clientY - other.clientY), corner = canvas.getBoundingClientRect();
      zoom(length(e) / Math.max(length(before), 1), (e.clientX + other.clientX) / 2 - corner.x, (e.clientY + other.clientY) / 2 - corner.y);
    } else { view.x += e.clientX - before.clientX; view.y += e.clientY - before.clientY; apply(); }
    fingers.set(e.pointerId, e);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (e) => fingers.delete(e.pointerId));
  const go = (e) => { const corner = map.getBoundingClientRect(); centre(((e.clientX - corner.x) / corner.width) * stage.size.width, ((e.clientY - corner.y) / corner.height) * stage.size.height); };
  map.addEventListener("pointerdown", (e) => { map.setPointerCapture(e.pointerId); go(e); });
  map.addEventListener("pointermove", (e) => { if (e.buttons) go(e); });
  const step = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 };
  function next(key) {
    if (chosen < 0) return 0;
    if (key === "ArrowRight" || key === "ArrowLeft") return Math.min(boxes.length - 1, Math.max(0, chosen + step[key]));
    const [here, there] = key === "ArrowDown" ? [0, 1] : [1, 0];
    const edge = stage.edges.find((e) => e[here] === chosen);
    return edge ? edge[there] : chosen;
  }
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key in step && e.shiftKey) { const along = e.key === "ArrowDown" || e.key === "ArrowUp" ? "y" : "x"; view[along] -= 80 * step[e.key]; apply(); }
    else if (e.key in step) select(next(e.key), true);
    else if (e.key === "+" || e.key === "=") zoom(1.3);
    else if (e.key === "-") zoom(1 / 1.3);
    else if (e.key === "0") fit();
    else if (e.key === "Enter" && chosen >= 0) activate(stage.nodes[chosen]);
    else return;
    e.preventDefault();
  });
  const resized = new ResizeObserver(apply);
  resized.observe(canvas);
  begin();
  return {
    zoom, fit, select, most,
    find(word) { // marks the nodes that have the word, and gives their numbers
      const hits = word ? stage.nodes.flatMap((n, k) => ([n.kind, n.label, n.layer, n.file, n.source, n.type, ...n.text].join(" ").toLowerCase().includes(word) ? [k] : [])) : [];
      boxes.forEach((b, k) => { b.classList.toggle("hit", hits.includes(k)); b.classList.toggle("dim", Boolean(word) && !hits.includes(k)); });
      return hits;
    },
    hottest: () => select(seconds.indexOf(Math.max(...seconds)), true),
  };
}

let stageNumber = 0;
function graphView(into, wanted) {
  const stages = data.stages, bar = el("div", { class: "tools" }), box = el("div", { class: "picture" });
  const detail = el("aside", { id: "node", "aria-live": "polite" }, el("p", { class: "faint" }, "Choose a node to see its op, its line and its kernels."));
  const count = el("span", { class: "faint", "aria-live": "polite" });
  let shown, hits = [], hit = 0;
  const jump = (node) => { const [first] = [...node.main, ...node.within]; if (first) openKernel(...first); };
  const kernelButton = ([p, k]) => {
    const of = programs[p].kernels[k];
    return el("button", { on: { click: () => openKernel(p, k) } }, `${programs.length > 1 ? `${programs[p].part}: ` : ""}${of.kind} ${of.what}, ${time(of.share)}`);
  };
  const show = (node, seconds) => {
    const block = (name, lines) => (lines.length ? [el("h3", {}, name), el("pre", { class: "wrapped" }, lines.join("\n"))] : []);
    const kernelsOf = (name, places) => (places.length ? [el("h3", {}, name), ...places.map(kernelButton)] : []);
    const alike = stages[stageNumber].nodes.filter((n) => n !== node && n.layer === node.layer && n.line === node.line && n.file === node.file && node.main.length).length;
    const op = node.main.length === 1 && stages[stageNumber].program !== undefined ? programs[node.main[0][0]].kernels[node.main[0][1]].op : node.text;
    detail.replaceChildren(el("h2", {}, node.label),
      el("p", {}, node.layer || "", node.file ? el("span", { class: "faint" }, ` ${node.file}:${node.line}`) : ""),
      ...(node.source ? [el("pre", { class: "wrapped" }, node.source)] : []),
      ...(seconds ? [el("p", {}, `${time(seconds)} of a call${alike ? `, together with ${alike} more of this line` : ""}.`)] : []),
      ...kernelsOf("Kernels", node.main), ...kernelsOf("Computed within the kernels of others", node.within),
      ...block("Reads", node.kind === "input" ? [] : node.reads), ...block("Makes", [node.type]), ...block("Op", op || []));
  };
  const find = () => { hits = shown.find(words.value.trim().toLowerCase()); hit = 0; tell(); };
  const tell = () => { count.textContent = words.value.trim() ? (hits.length ? `${hit + 1} of ${hits.length}` : "none") : ""; if (hits.length) shown.select(hits[hit], true); };
  const words = el("input", { type: "search", placeholder: "search nodes", "aria-label": "search nodes" });
  words.addEventListener("input", find);
  words.addEventListener("keydown", (e) => { if (e.key === "Enter" && hits.length) { hit = (hit + (e.shiftKey ? hits.length - 1 : 1)) % hits.length; tell(); } });
  const text = el("details");
  const draw = (number) => {
    stageNumber = number;
    const stage = stages[number];
    for (const b of bar.querySelectorAll("button[data-stage]")) b.setAttribute("aria-pressed", String(Number(b.dataset.stage) === number));
    shown = drawing(stage, box, show, jump);
    legend.replaceChildren(el("span", {}, "0"), el("span", { class: "scale" }), el("span", {}, time(shown.most)), el("span", { class: "faint" }, "dashed: computed within another kernel"));
    text.hidden = !stage.text;
    text.replaceChildren(...(stage.text ? [el("summary", {}, "as text"), el("pre", {}, stage.text.join("\n"))] : []));
    if (words.value.trim()) find();
  };
  const legend = el("div", { class: "legend" });
  const button = (label, name, click) => el("button", { "aria-label": name, title: name, on: { click } }, label);
  bar.append(
    ...stages.map((s, k) => el("button", { "data-stage": k, "aria-pressed": "false", on: { click: () => draw(k) } }, s.title)),
    words, count,
    button("+", "zoom in", () => shown.zoom(1.3)), button("−", "zoom out", () => shown.zoom(1 / 1.3)), button("fit", "show all of it", () => shown.fit()), button("slowest", "go to the slowest node", () => shown.hottest()), legend);
  into.append(bar, el("div", { class: "graph" }, box, detail), text);
  const number = wanted ? stages.findIndex((s) => s.program === wanted[0]) : stageNumber;
  draw(Math.max(number, 0));
  if (wanted) shown.select(stages[stageNumber].nodes.findIndex((n) => n.main.some(([p, k]) => p === wanted[0] && k === wanted[1])), true);
}
