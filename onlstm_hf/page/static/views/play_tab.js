// Step-by-step animation from distances to a tree: the largest distance lights up, the gap opens, the bracket drops.

import { button, element, shape } from "../dom.js";
import { shown, toBrackets } from "../trees/exports.js";
import { RULE_NAMES, splitsOf, treeFromDistances } from "../trees/distances.js";
import { key } from "../trees/spans.js";
import { columnsOf, Picture } from "./figure.js";

const MILLISECONDS_A_STEP = 1600;

export function playTab(sentence) {
  if (!sentence.tree)
    return element("p", { class: "help" }, "This model induces no trees, so there are no distances to play.");
  const {
    analysis: { words, distances },
    layer,
    width,
  } = sentence;
  let rule = sentence.rule,
    step = 0,
    timer = null;
  let splits, svg;
  const box = element("div", {
    class: "figure-box",
    role: "group",
    tabindex: "0",
    "aria-label": "The splits, step by step",
  });
  const say = element("output", { class: "said" });
  const slider = element("input", {
    type: "range",
    min: 0,
    value: 0,
    "aria-label": "Step",
    oninput: () => show(Number(slider.value)),
  });
  const play = button("▶ Play", () => (timer ? pause() : start()), { class: "main" });
  const rules = element(
    "div",
    { class: "tools", role: "group", "aria-label": "Rule" },
    Object.entries(RULE_NAMES).map(([name, text]) => button(text, () => choose(name), { "data-rule": name })),
  );

  const choose = (name) => {
    pause();
    rule = name;
    for (const option of rules.children) option.setAttribute("aria-pressed", option.dataset.rule === name);
    const tree = treeFromDistances(distances[layer], words, rule);
    splits = splitsOf(tree, rule);
    slider.max = splits.length;
    svg = draw(words, tree, width, rule);
    box.replaceChildren(svg);
    show(0);
  };
  const show = (next) => {
    step = next;
    slider.value = step;
    paint(svg, splits, step, words, say, rule);
  };
  const start = () => {
    if (step >= splits.length) show(0);
    play.textContent = "❚❚ Pause";
    timer = setInterval(
      () => (box.isConnected && step < splits.length ? show(step + 1) : pause()),
      MILLISECONDS_A_STEP,
    );
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  };
  const move = (to) => {
    pause();
    show(Math.min(Math.max(to, 0), splits.length));
  };
  box.addEventListener("keydown", (event) => {
    const to = { ArrowRight: step + 1, ArrowLeft: step - 1, Home: 0, End: splits.length }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  });
  choose(rule);
  return element(
    "div",
    { class: "play-tab" },
    element(
      "p",
      { class: "help" },
      "A large distance means that a large constituent ends before the word. The largest one splits the sentence first.",
    ),
    rules,
    element(
      "div",
      { class: "tools", role: "group", "aria-label": "Steps" },
      play,
      button("◀ Back", () => move(step - 1)),
      button("Next ▶", () => move(step + 1)),
      slider,
    ),
    say,
    box,
  );
}

function draw(words, tree, width, rule) {
  const columns = columnsOf(words, width, { spacing: 1.8, left: 44 });
  const picture = new Picture(columns, `Step by step: ${toBrackets(tree)}`);
  picture.tree(tree);
  const cards = shape("g", { class: "cards", "data-top": picture.bottom - 2, "data-height": columns.size * 1.5 });
  picture.add(cards);
  picture.words();
  picture.measure({ name: "distances", values: tree.distances, unused: rule === "right" ? -1 : 0 });
  const svg = picture.finish();
  svg.columns = columns;
  return svg;
}

function paint(svg, splits, step, words, say, rule) {
  const done = splits.slice(0, step),
    latest = splits[step - 1];
  const made = new Set(done.flatMap((split) => split.made.map(key)));
  const last = new Set(latest?.made.map(key) ?? []);
  for (const node of svg.querySelectorAll(".node[data-start]")) {
    const span = `${node.dataset.start}-${node.dataset.end}`;
    node.classList.toggle("later", !made.has(span));
    node.classList.toggle("chosen", last.has(span));
  }
  const used = new Set(done.map(({ word }) => word));
  for (const pin of svg.querySelectorAll(".pin")) {
    const word = Number(pin.dataset.word);
    pin.classList.toggle("winner", word === latest?.word);
    pin.classList.toggle("used", used.has(word) && word !== latest?.word);
  }
  // Draws a card under each span of words that is not split further.
  const borders = new Set([0, words.length, ...done.flatMap(({ parts }) => parts.flat())]);
  const edges = [...borders].sort((a, b) => a - b);
  const cards = svg.querySelector(".cards"),
    { edges: places, gap } = svg.columns;
  cards.replaceChildren(
    ...edges.slice(1).map((end, index) => {
      const [left, right] = [places[edges[index]], places[end]].sort((a, b) => a - b);
      const inLatest = latest && latest.span[0] <= edges[index] && end <= latest.span[1];
      return shape("rect", {
        x: left + gap * 0.2,
        y: cards.dataset.top,
        width: right - left - gap * 0.4,
        height: cards.dataset.height,
        rx: 8,
        class: inLatest ? "card fresh" : "card",
      });
    }),
  );
  for (const word of svg.querySelectorAll(".word[data-index]")) {
    word.classList.toggle("chosen", Boolean(latest) && Number(word.dataset.index) === latest.word);
  }
  const phrase = ([start, end]) => `“${words.slice(start, end).join(" ")}”`;
  say.textContent = latest
    ? `Step ${step} of ${splits.length}: in ${phrase(latest.span)} the largest distance${rule === "right" ? "" : " inside"} is ` +
      `${shown(latest.distance)}, that of “${words[latest.word]}”. It splits into ${latest.parts.map(phrase).join(" and ")}` +
      `${rule === "right" && latest.parts.length === 3 ? ", and the last two become one constituent" : ""}.`
    : "No split yet: the sentence is one piece. Press Play, or the arrow keys.";
}
