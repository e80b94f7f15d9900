// Interaction with a figure by pointer, tap and keyboard, and an equivalent outline in words.

import { element, visible } from "../dom.js";
import { nest } from "../trees/spans.js";
import { isRightToLeft } from "./figure.js";

// Returns the key of an event in a figure; left and right are swapped for right-to-left text.
export function keyIn(words, { key }) {
  const mirrored = { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" }[key];
  return (isRightToLeft(words) && mirrored) || key;
}

// Makes a figure interactive: pointer, tap and arrow keys describe the selected constituent or word.
export function interactive(svg, words, say) {
  const group = element(
    "div",
    { class: "figure-box", role: "group", tabindex: "0", "aria-label": `Figure of: ${words.join(" ")}` },
    svg,
  );
  const nodes = () => [...svg.querySelectorAll(".node[data-start]:not(.later)")];
  const numbers = (node) => [Number(node.dataset.start), Number(node.dataset.end)];

  const choose = (node) => {
    for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
    node.classList.add("chosen");
    const [start, end] = numbers(node);
    for (const word of svg.querySelectorAll(".word[data-index]")) {
      word.classList.toggle("chosen", start <= word.dataset.index && word.dataset.index < end);
    }
    say({ words: words.slice(start, end), start, end, node });
  };
  const chooseWord = (word) => {
    for (const other of svg.querySelectorAll(".chosen")) other.classList.remove("chosen");
    word.classList.add("chosen");
    say({ word: Number(word.dataset.index ?? word.dataset.word) });
  };
  // Selects the innermost constituent around the pointer, because its lines are too thin to point at.
  const at = ({ clientX: x, clientY: y, target }) => {
    const word = target.closest(".word[data-index], .pin");
    if (word) return chooseWord(word);
    const around = nodes()
      .map((node) => ({ node, box: node.getBoundingClientRect() }))
      .filter(({ box }) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom)
      .sort((a, b) => a.box.width * a.box.height - b.box.width * b.box.height);
    if (around.length) choose(around[0].node);
  };
  group.addEventListener("pointermove", at);
  group.addEventListener("click", at);
  group.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow") || !nodes().length) return;
    event.preventDefault();
    const current = svg.querySelector(".node.chosen");
    const next = current ? neighbour(nodes(), current, keyIn(words, event), numbers) : nodes()[0];
    if (!next) return;
    choose(next);
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return group;
}

// Moves up to the parent of a constituent, down to its parts, left and right to its neighbours.
function neighbour(nodes, current, arrow, numbers) {
  const [start, end] = numbers(current);
  const others = nodes.filter((node) => node !== current && node.dataset.panel === current.dataset.panel);
  const size = (node) => node.dataset.end - node.dataset.start;
  const byPlace = (a, b) => a.dataset.start - b.dataset.start || size(b) - size(a);
  if (arrow === "ArrowUp") {
    const around = others.filter((node) => node.dataset.start <= start && end <= node.dataset.end);
    return around.sort((a, b) => size(a) - size(b))[0] ?? nodes[nodes.indexOf(current) - 1];
  }
  if (arrow === "ArrowDown") {
    return others.filter((node) => start <= node.dataset.start && node.dataset.end <= end).sort(byPlace)[0];
  }
  if (arrow === "ArrowLeft")
    return others
      .filter((node) => node.dataset.end <= start)
      .sort(byPlace)
      .at(-1);
  return others.filter((node) => node.dataset.start >= end).sort(byPlace)[0];
}

// Renders the tree as nested lists with one word per line.
export function outline(tree, describe = (word) => visible(tree.words[word])) {
  const item = ({ span: [start], children }) =>
    children.length ? element("li", {}, element("ul", {}, children.map(item))) : element("li", {}, describe(start));
  return element(
    "ul",
    { class: "outline", dir: "auto", "aria-label": "The tree as an outline", tabindex: "0" },
    nest(tree).children.map(item),
  );
}
