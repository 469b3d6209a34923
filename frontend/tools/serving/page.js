"use strict";
// The models and their load, looked at again every two seconds; and a form that sends a request.

const MOST_SHOWN = 1000; // elements of an output
const MOST_RANDOM = 1e6; // elements of an input

const at = (id) => document.getElementById(id);
const make = (tag, text, within) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (within) within.append(made);
  return made;
};
const get = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
};

// ---- models and load

let known = ""; // the models of the last look
let earlier = { time: 0, models: new Map() };

async function look() {
  try {
    const { models } = await get("/v2/load");
    say("ready");
    show(models);
    const names = models.map((m) => `${m.name}/versions/${m.version}`);
    if (names.join() !== known) {
      await offer(names);
      known = names.join();
    }
  } catch (error) {
    say(`not reachable (${error.message})`, "wrong");
  }
}

function say(text, kind = "") {
  if (at("state").textContent === text) return; // it would be read aloud again
  at("state").textContent = text;
  at("state").className = kind;
}

function show(models) {
  const time = performance.now() / 1000;
  const passed = time - earlier.time;
  at("models").replaceChildren();
  for (const m of models) {
    const before = earlier.models.get(`${m.name}/${m.version}`);
    const row = make("tr", undefined, at("models"));
    const some = m.calls > 0;
    const cells = [
      m.name,
      m.version,
      m.requests,
      before ? (Math.max(m.requests - before.requests, 0) / passed).toFixed(1) : "",
      m.errors,
      m.waiting,
      some ? ((m.requests - m.errors) / m.calls).toFixed(1) : "",
      some ? (1000 * m.seconds / m.calls).toFixed(1) : "",
      before ? `${Math.round(100 * Math.min(Math.max(m.seconds - before.seconds, 0) / passed, 1))} %` : "",
      m.merged ? "together" : `one by one: ${m.why}`,
    ];
    for (const cell of cells) make("td", cell, row);
  }
  earlier = { time, models: new Map(models.map((m) => [`${m.name}/${m.version}`, m])) };
}

// Offers the models in the form. What was typed for one that is still there stays.
async function offer(names) {
  const before = at("model").value;
  at("model").replaceChildren();
  for (const name of names) {
    const option = make("option", name.replace("/versions/", ", version "), at("model"));
    option.value = name;
  }
  if (names.includes(before)) at("model").value = before;
  if (at("model").value !== before) await inputs();
}

// ---- trying one

async function inputs() {
  const model = at("model").value;
  at("inputs").replaceChildren();
  const described = model ? await get(`/v2/models/${model}`) : { inputs: [] };
  if (at("model").value !== model) return; // another one was chosen meanwhile
  at("inputs").replaceChildren();
  for (const x of described.inputs) {
    const part = make("p", undefined, at("inputs"));
    part.dataset.name = x.name;
    part.dataset.datatype = x.datatype;
    const label = make("label", `${x.name}: ${x.datatype} `, part);
    const shape = make("input", undefined, label);
    shape.value = x.shape.map((n) => (n < 0 ? 1 : n)).join("x");
    shape.className = "shape";
    if (x.shape.includes(-1)) shape.title = `any size for -1: ${x.shape.join("x")}`;
    const filler = make("button", "random numbers", part);
    filler.type = "button";
    const data = make("textarea", undefined, part);
    data.rows = 4;
    data.spellcheck = false;
    data.setAttribute("aria-label", `elements of ${x.name}`);
    const fill = () => {
      const size = sizes(shape.value).reduce((a, b) => a * b, 1);
      if (!Number.isInteger(size) || size < 0 || size > MOST_RANDOM) return;
      data.value = JSON.stringify(Array.from({ length: size }, () => number(x.datatype)));
      data.dataset.random = "yes";
    };
    filler.onclick = fill;
    data.oninput = () => delete data.dataset.random;
    shape.oninput = () => {
      if (data.dataset.random) fill();
    };
    fill();
  }
}

const sizes = (text) => (text.trim() ? text.trim().split(/[x,\s]+/).map(Number) : []);
const number = (datatype) => {
  if (datatype === "BOOL") return Math.random() < 0.5;
  if (!/FP|BF/.test(datatype)) return Math.floor(10 * Math.random());
  return Number((2 * Math.random() - 1).toFixed(4));
};

function given(part) {
  const { name, datatype } = part.dataset;
  const shape = sizes(part.querySelector(".shape").value);
  if (!shape.every((n) => Number.isInteger(n) && n >= 0)) throw new Error(`${name}: write its shape as 1x3x224x224`);
  let data;
  try {
    data = JSON.parse(part.querySelector("textarea").value);
  } catch (error) {
    throw new Error(`${name}: its elements are a list in JSON, such as [1, 2.5]: ${error.message}`);
  }
  return { name, datatype, shape, data };
}

// JSON has an element's value exactly; more digits than its type has say nothing.
const DIGITS = { FP32: 7, FP16: 4, BF16: 3 };
const shown = (y) => {
  const digits = DIGITS[y.datatype];
  const data = y.data.slice(0, MOST_SHOWN).map((n) => (digits ? Number(n.toPrecision(digits)) : n));
  return `${y.name}: ${y.datatype} [${y.shape.join(", ")}]\n${data.join(" ")}${y.data.length > MOST_SHOWN ? " …" : ""}`;
};

at("model").onchange = () => inputs().catch((error) => say(error.message, "wrong"));
at("try").onsubmit = async (event) => {
  event.preventDefault();
  if (at("run").getAttribute("aria-disabled")) return;
  at("run").setAttribute("aria-disabled", "true"); // `disabled` would take the focus away
  at("answer").className = "";
  at("answer").textContent = "…";
  at("seconds").textContent = "";
  try {
    const body = JSON.stringify({ inputs: [...at("inputs").children].map(given) });
    const begin = performance.now();
    const response = await fetch(`/v2/models/${at("model").value}/infer`, { method: "POST", body });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    at("seconds").textContent = `${(performance.now() - begin).toFixed(1)} ms, the way there and back included`;
    at("answer").textContent = answer.outputs.map(shown).join("\n\n");
  } catch (error) {
    at("answer").className = "wrong";
    at("answer").textContent = error.message;
  }
  at("run").removeAttribute("aria-disabled");
};

get("/v2").then((server) => { at("version").textContent = server.version; }, () => {});
look();
setInterval(look, 2000);
