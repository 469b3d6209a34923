"use strict";
// The models and their load, looked at again every two seconds; and a form that sends a request.

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

let known = "";

async function look() {
  try {
    const { models } = await get("/v2/load");
    at("state").textContent = "ready";
    at("state").className = "";
    at("models").replaceChildren();
    for (const m of models) {
      const row = make("tr", undefined, at("models"));
      const some = m.calls > 0;
      const cells = [m.name, m.version, m.requests, m.errors, m.waiting, m.calls,
        some ? ((m.requests - m.errors) / m.calls).toFixed(1) : "", some ? (1000 * m.seconds / m.calls).toFixed(1) : "",
        m.merged ? "merged" : `alone: ${m.why}`];
      for (const cell of cells) make("td", cell, row);
    }
    const names = models.map((m) => `${m.name}/versions/${m.version}`);
    if (names.join() !== known) {
      known = names.join();
      const before = at("model").value;
      at("model").replaceChildren();
      for (const name of names) {
        const option = make("option", name.replace("/versions/", ", version "), at("model"));
        option.value = name;
      }
      if (names.includes(before)) at("model").value = before;
      await inputs();
    }
  } catch (error) {
    at("state").textContent = `not reachable (${error.message})`;
    at("state").className = "wrong";
  }
}

async function inputs() {
  at("inputs").replaceChildren();
  if (!at("model").value) return;
  const described = await get(`/v2/models/${at("model").value}`);
  for (const x of described.inputs) {
    const part = make("p", undefined, at("inputs"));
    part.dataset.name = x.name;
    part.dataset.datatype = x.datatype;
    const label = make("label", `${x.name}: ${x.datatype} `, part);
    const shape = make("input", undefined, label);
    shape.value = x.shape.map((n) => (n < 0 ? 1 : n)).join("x");
    shape.className = "shape";
    const filler = make("button", "random numbers", part);
    filler.type = "button";
    const data = make("textarea", undefined, part);
    data.rows = 4;
    data.setAttribute("aria-label", `elements of ${x.name}`);
    filler.onclick = () => {
      const size = sizes(shape.value).reduce((a, b) => a * b, 1);
      data.value = JSON.stringify(Array.from({ length: Math.min(size, 1e6) }, () => number(x.datatype)));
    };
    filler.click();
  }
}

const sizes = (text) => (text.trim() ? text.split(/[x,\s]+/).map(Number) : []);
const number = (datatype) => {
  if (datatype === "BOOL") return Math.random() < 0.5;
  if (!/FP|BF/.test(datatype)) return Math.floor(10 * Math.random());
  return Number((2 * Math.random() - 1).toFixed(4));
};

at("model").onchange = inputs;
at("try").onsubmit = async (event) => {
  event.preventDefault();
  at("answer").className = "";
  at("answer").textContent = "…";
  try {
    const given = [...at("inputs").children].map((part) => ({
      name: part.dataset.name,
      datatype: part.dataset.datatype,
      shape: sizes(part.querySelector(".shape").value),
      data: JSON.parse(part.querySelector("textarea").value),
    }));
    const begin = performance.now();
    const response = await fetch(`/v2/models/${at("model").value}/infer`, {
      method: "POST",
      body: JSON.stringify({ inputs: given }),
    });
    const answer = await response.json();
    at("seconds").textContent = `${(performance.now() - begin).toFixed(1)} ms`;
    if (!response.ok) throw new Error(answer.error);
    at("answer").textContent = answer.outputs
      .map((y) => `${y.name}: ${y.datatype} [${y.shape.join(", ")}]\n${y.data.slice(0, 1000).join(" ")}`
        + (y.data.length > 1000 ? " …" : "")).join("\n\n");
  } catch (error) {
    at("answer").className = "wrong";
    at("answer").textContent = error.message;
  }
};

get("/v2").then((server) => { at("version").textContent = server.version; }, () => {});
look();
setInterval(look, 2000);
