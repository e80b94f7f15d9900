"use strict";

// Results without reloading, and figures that answer. Everything else works without this script: it fetches the page
// that the form or the Back button asks for, and takes the result, or all that is in it, from there.

document.documentElement.classList.add("script");
let latest = new AbortController();
let shown = location.search;

async function fetchPage(address) {
  latest.abort(); // the server drops what nobody waits for
  latest = new AbortController();
  const result = document.querySelector("#result");
  result.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { signal: latest.signal });
    const body = await answer.text();
    result.removeAttribute("aria-busy");
    if (answer.headers.get("Content-Type").startsWith("text/html")) {
      return new DOMParser().parseFromString(body, "text/html");
    }
    showMessage(result, body);
  } catch (error) {
    if (error.name === "AbortError") return null;
    result.removeAttribute("aria-busy");
    showMessage(result, "The server does not answer.");
  }
  return null;
}

function showMessage(result, text) {
  const message = document.createElement("p");
  message.className = "message";
  message.setAttribute("role", "alert");
  message.textContent = text;
  result.replaceChildren(message);
}

// Puts parts of another page in the place of those of this one; what was unfolded stays so.
function show(page, ...selectors) {
  const unfolded = [...document.querySelectorAll("#result details[open]")].map((part) => part.className);
  for (const selector of selectors) {
    document.querySelector(selector).replaceWith(page.querySelector(selector));
  }
  for (const part of document.querySelectorAll("#result details")) part.open = unfolded.includes(part.className);
  document.title = page.title;
  document.querySelector("#announcement").textContent = `Shown: ${page.title}`;
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const address = `./?${new URLSearchParams(new FormData(event.target))}`;
  const page = await fetchPage(address);
  if (!page) return;
  show(page, "nav", "#result", "#examples");
  const link = document.querySelector("#permalink")?.href ?? address;
  if (link !== location.href) history.pushState(null, "", link);
  shown = location.search;
});

addEventListener("popstate", async () => {
  if (location.search === shown) return; // a step to another part of this page
  shown = location.search;
  const page = await fetchPage(location.href);
  if (page) show(page, "nav", "main", "#examples");
});

document.addEventListener("change", (event) => {
  const { name, form } = event.target;
  if (!event.target.closest("#options")) return;
  if (name === "model") { // another model may lack the layer that was chosen
    for (const layer of form.elements.layer ?? []) layer.checked = layer.value === "";
  }
  form.requestSubmit();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-view], button[data-copy]");
  if (!button) return;
  if (button.dataset.copy) copy(button);
  else toggleView(button);
});

function toggleView(button) {
  const result = button.closest(".result");
  const pressed = button.getAttribute("aria-pressed") === "false";
  for (const other of result.querySelectorAll("[data-view]")) {
    other.setAttribute("aria-pressed", String(pressed && other === button));
  }
  if (pressed) result.dataset.view = button.dataset.view;
  else delete result.dataset.view;
}

async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const rows = [...source.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent).join("\t"));
  try {
    await navigator.clipboard.writeText(rows.length ? rows.join("\n") : source.textContent);
    document.querySelector("#announcement").textContent = "Copied.";
    button.textContent = "Copied";
  } catch { // without HTTPS a page may only select
    getSelection().selectAllChildren(source);
  }
}

// What a figure says of one of its constituents or words.

const numbers = (element) => [Number(element.dataset.start), Number(element.dataset.end)];

function phrase(figure, start, end) {
  const words = [...figure.querySelectorAll(".word")];
  const texts = new Map(words.map((word) => [Number(word.dataset.index), word.dataset.text]));
  return [...texts].filter(([index]) => start <= index && index < end).map(([, text]) => text).join(" ");
}

function choose(figure, element, text) {
  for (const other of figure.querySelectorAll(".chosen")) other.classList.remove("chosen");
  element?.classList.add("chosen");
  figure.closest(".result").querySelector(".span").textContent = text;
}

function chooseNode(figure, node) {
  const [start, end] = numbers(node);
  choose(figure, node, `${node.querySelector("title").textContent} (words ${start + 1} to ${end})`);
  for (const word of figure.querySelectorAll(".word")) {
    word.classList.toggle("chosen", start <= word.dataset.index && word.dataset.index < end);
  }
}

// The innermost constituent around the pointer, as its lines are too thin to be pointed at.
let pointedAt = null;
document.addEventListener("pointermove", (event) => {
  const figure = event.target.closest(".figure");
  if (!figure) return;
  const element = event.target.closest(".word, .pin") ?? innermost(figure, event.clientX, event.clientY);
  if (!element || element === pointedAt) return;
  pointedAt = element;
  if (element.classList.contains("node")) chooseNode(figure, element);
  else choose(figure, element, element.querySelector("title").textContent);
});

function innermost(figure, x, y) {
  const area = (box) => box.width * box.height;
  const around = [...figure.querySelectorAll(".node")]
    .map((node) => ({ node, box: node.getBoundingClientRect() }))
    .filter(({ box }) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom);
  return around.sort((a, b) => area(a.box) - area(b.box))[0]?.node;
}

// The arrow keys walk through a tree: up to what a constituent is part of, down to its parts, left and right to others.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey && event.target.matches("textarea")) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
  if (!event.target.matches(".figure") || !event.key.startsWith("Arrow")) return;
  const nodes = [...event.target.querySelectorAll(".node")];
  if (!nodes.length) return;
  event.preventDefault();
  const current = nodes.find((node) => node.classList.contains("chosen"));
  const next = current ? neighbour(nodes, current, event.key) : nodes[0];
  if (!next) return;
  chooseNode(event.target, next);
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
});

function neighbour(nodes, current, key) {
  const [start, end] = numbers(current);
  const others = nodes.filter((node) => node !== current && node.dataset.panel === current.dataset.panel);
  const size = (node) => node.dataset.end - node.dataset.start;
  const inside = (node) => start <= node.dataset.start && node.dataset.end <= end;
  const around = (node) => node.dataset.start <= start && end <= node.dataset.end;
  const byPlace = (a, b) => a.dataset.start - b.dataset.start || size(b) - size(a);
  if (key === "ArrowUp") {
    const enclosing = others.filter(around).sort((a, b) => size(a) - size(b))[0];
    return enclosing ?? nodes[nodes.indexOf(current) - 1];
  }
  if (key === "ArrowDown") return others.filter(inside).sort(byPlace)[0];
  if (key === "ArrowLeft") return others.filter((node) => node.dataset.end <= start).sort(byPlace).at(-1);
  return others.filter((node) => node.dataset.start >= end).sort(byPlace)[0];
}

// The slider shows how distances become a tree: the constituents that the first splits have made.
document.addEventListener("input", (event) => {
  if (!event.target.matches(".tools input")) return;
  const figure = event.target.closest(".result").querySelector(".figure");
  const step = Number(event.target.value);
  const nodes = [...figure.querySelectorAll(".node[data-step]")];
  for (const node of nodes) node.classList.toggle("later", node.dataset.step > step);
  const latestNodes = nodes.filter((node) => Number(node.dataset.step) === step);
  if (!latestNodes.length) {
    choose(figure, null, "No split yet: the sentence is one constituent.");
    return;
  }
  const widest = latestNodes.sort((a, b) => (b.dataset.end - b.dataset.start) - (a.dataset.end - a.dataset.start))[0];
  const [start, end] = numbers(widest);
  const word = Number(widest.dataset.word);
  choose(figure, widest, `Split ${step} of ${event.target.max}: in “${phrase(figure, start, end)}” the distance ` +
    `${widest.dataset.distance} of “${phrase(figure, word, word + 1)}” is the largest.`);
  for (const node of latestNodes) node.classList.add("chosen");
  for (const shown of figure.querySelectorAll(`.word[data-index="${word}"]`)) shown.classList.add("chosen");
});
