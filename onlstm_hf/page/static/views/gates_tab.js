// Heat map of an ON-LSTM's master forget gates (words by memory levels), or of a PRPN's memory gates.

import { choice, element, shape, table } from "../dom.js";
import { columnsOf, Picture } from "./figure.js";
import { keyIn } from "./interaction.js";

const ERASED = 0.5;

export function gatesTab(sentence) {
  const {
    analysis: { gates, words },
    checkpoint,
    width,
  } = sentence;
  if (!gates.length)
    return element("p", { class: "help" }, "This model has neither ordered memory nor a parsing network.");
  const isOrdered = checkpoint.about.config.model_type === "onlstm";
  let layer = Math.min(sentence.layer, gates.length - 1);
  const box = element("div", {}),
    say = element("output", { class: "said" }, "Point at a column, or use the arrow keys.");
  const rows = element("div", {});
  const draw = () => {
    const summaries = gates[layer].map((gate) => summarize(gate, isOrdered));
    box.replaceChildren(heatMap(words, gates[layer], width, isOrdered, summaries, say));
    rows.replaceChildren(
      table(
        `Gates of: ${sentence.title}`,
        ["word", isOrdered ? "levels erased" : "open memories"],
        summaries.map(({ short }, word) => [words[word], short]),
      ),
    );
  };
  draw();
  return element(
    "div",
    { class: "gates-tab" },
    element(
      "p",
      { class: "help" },
      isOrdered
        ? "Each column shows the memory before a word is read. Light levels are erased, dark ones are kept. Lower " +
            "levels keep their content longer. A tall light column means that a large constituent has just ended: " +
            "the distance is large."
        : "Each column shows which of the last memories are open when a word is read, the newest at the top. " +
            "Dark means open: a memory closes when a later word has a larger distance.",
    ),
    gates.length > 1 &&
      choice(
        "Layer",
        checkpoint.about.layers.map((name, index) => [index, name]),
        layer,
        (value) => {
          layer = Number(value);
          draw();
        },
      ),
    say,
    box,
    element("details", {}, element("summary", {}, "The same as a table"), rows),
  );
}

function summarize(gate, isOrdered) {
  if (!isOrdered) {
    const open = gate.filter((value) => value > ERASED).length;
    return {
      border: open,
      short: `${open} of ${gate.length}`,
      text: `${open} of the last ${gate.length} memories are open`,
    };
  }
  const border = gate.findIndex((value) => value >= ERASED);
  const erased = border < 0 ? gate.length : border;
  const distance = 1 - gate.reduce((sum, value) => sum + value, 0) / gate.length;
  return {
    border: erased,
    short: `${erased} of ${gate.length}`,
    text:
      `${erased ? `levels 1 to ${erased} were erased` : "no level was erased"}, ` +
      `${gate.length - erased ? `${gate.length - erased} kept` : "none kept"}; distance ${distance.toFixed(3)}`,
  };
}

function heatMap(words, gates, width, isOrdered, summaries, say) {
  const columns = columnsOf(words, width, { left: 96 });
  const picture = new Picture(
    columns,
    `Heat map of the gates: ${words.map((word, index) => `${word}: ${summaries[index].text}`).join("; ")}`,
  );
  const levels = gates[0].length,
    cell = Math.max(Math.min(360 / levels, 22), 4),
    top = picture.bottom + 6;
  picture.text(isOrdered ? "short memory" : "newest", columns.left, top + 14, { "font-size": 14, class: "tick" });
  picture.text(isOrdered ? "long memory" : "oldest", columns.left, top + cell * levels - 4, {
    "font-size": 14,
    class: "tick",
  });
  gates.forEach((gate, word) => {
    const [left, right] = [columns.edges[word], columns.edges[word + 1]].sort((a, b) => a - b);
    const group = shape("g", { class: "gate-column", "data-word": word });
    gate.forEach((value, level) =>
      group.append(
        shape("rect", {
          x: left + 1,
          y: top + level * cell,
          width: right - left - 2,
          height: cell + 0.3,
          class: "gate",
          "fill-opacity": value.toFixed(3),
        }),
      ),
    );
    const y = top + summaries[word].border * cell;
    group.append(
      shape("path", { d: `M${left + 1} ${y}H${right - 1}`, class: "border" }),
      shape("rect", { x: left + 1, y: top, width: right - left - 2, height: cell * levels, class: "frame" }),
    );
    picture.add(group);
  });
  picture.bottom = top + cell * levels + 8;
  picture.words();
  const svg = picture.finish();
  const box = element(
    "div",
    { class: "figure-box", role: "group", tabindex: "0", "aria-label": "Heat map of the gates" },
    svg,
  );
  let current = -1;
  const choose = (word) => {
    current = word;
    for (const column of svg.querySelectorAll(".gate-column, .word")) {
      column.classList.toggle("chosen", Number(column.dataset.word ?? column.dataset.index) === word);
    }
    say.textContent = `Before “${words[word]}”: ${summaries[word].text}.`;
  };
  const point = ({ target }) => {
    const column = target.closest(".gate-column, .word[data-index]");
    if (column) choose(Number(column.dataset.word ?? column.dataset.index));
  };
  box.addEventListener("pointermove", point);
  box.addEventListener("click", point);
  box.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[keyIn(words, event)];
    if (!move) return;
    event.preventDefault();
    choose(Math.min(Math.max(current + move, 0), words.length - 1));
  });
  return box;
}
