// The tree of one sentence during training, with a slider over the snapshots of a training run.

import { button, choice, element, shape } from "../dom.js";
import { loadGrowth } from "../model/checkpoints.js";
import { treeFromDistances } from "../trees/distances.js";
import { toBrackets } from "../trees/exports.js";
import { score } from "../trees/scores.js";
import { treeOf } from "../trees/spans.js";
import { columnsOf, kindsAgainst, Picture } from "./figure.js";

export async function growingView(site, fields) {
  const runs = await loadGrowth();
  let growth = runs[0],
    sentence = bestLearned(growth),
    step = growth.snapshots.length - 1,
    timer = null;
  const box = element("div", {
    class: "figure-box",
    role: "group",
    tabindex: "0",
    "aria-label": "The tree at this step",
  });
  const say = element("output", { class: "said" });
  const slider = element("input", {
    type: "range",
    min: 0,
    max: step,
    value: step,
    "aria-label": "Training",
    oninput: () => {
      pause();
      show(Number(slider.value));
    },
  });
  const play = button("▶ Play", () => (timer ? pause() : start()), { class: "main" });
  const chart = element("div", {});
  const start = () => {
    if (step >= growth.snapshots.length - 1) show(0);
    play.textContent = "❚❚ Pause";
    timer = setInterval(() => (box.isConnected && step < growth.snapshots.length - 1 ? show(step + 1) : pause()), 700);
  };
  const pause = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ Play";
  };
  const show = (next) => {
    step = next;
    slider.value = step;
    const width = (box.parentElement?.clientWidth || 600) - 2;
    const { words, gold: constituents } = growth.sentences[sentence];
    const labels = new Map(constituents.map(([label, from, to]) => [`${from}-${to}`, [label]]));
    const gold = goldOf(growth.sentences[sentence]);
    const snapshot = growth.snapshots[step],
      tree = treeFromDistances(snapshot.distances[sentence], words, "right");
    const picture = new Picture(
      columnsOf(words, width, { left: 44 }),
      `Tree after ${snapshot.update} updates: ${toBrackets(tree)}`,
    );
    picture.caption("gold tree, which the model never sees");
    picture.tree(gold, { kindOf: kindsAgainst(tree, "gold"), labels, panel: 0 });
    picture.words();
    picture.caption(`the model's tree after ${snapshot.update} updates`);
    picture.tree(tree, { kindOf: kindsAgainst(gold), panel: 1 });
    picture.words();
    picture.legend(["both", "one", "gold"]);
    picture.measure({ name: "distances", values: tree.distances });
    box.replaceChildren(picture.finish());
    say.textContent =
      `After ${snapshot.update} updates: F1 of this tree ${(100 * score(tree, gold).f1).toFixed(1)}; of all held-out sentences ` +
      `${snapshot.parsing_f1.toFixed(1)}; perplexity ${snapshot.validation_perplexity.toFixed(1)}.`;
    chart.replaceChildren(course(growth.snapshots, step, Math.min(width, 720)));
  };
  const about = element("p", {}, growth.about);
  const sentenceChoice = () =>
    choice(
      "Sentence",
      growth.sentences.map(({ words }, index) => [index, words.join(" ")]),
      sentence,
      (value) => {
        sentence = Number(value);
        show(step);
      },
    );
  const sentences = element("div", {}, sentenceChoice());
  const change = (run) => {
    pause();
    growth = runs[run];
    sentence = bestLearned(growth);
    about.textContent = growth.about;
    sentences.replaceChildren(sentenceChoice());
    slider.max = growth.snapshots.length - 1;
    show(growth.snapshots.length - 1);
  };
  const view = element(
    "div",
    { class: "growing-view" },
    about,
    element(
      "div",
      { class: "actions" },
      choice(
        "Training run",
        runs.map(({ title }, index) => [index, title]),
        0,
        (value) => change(Number(value)),
      ),
      sentences,
    ),
    element(
      "div",
      { class: "tools", role: "group", "aria-label": "Training" },
      play,
      button("◀ Back", () => move(-1)),
      button("Next ▶", () => move(1)),
      slider,
    ),
    say,
    box,
    element("h2", {}, "The whole course"),
    chart,
  );
  const move = (by) => {
    pause();
    show(Math.min(Math.max(step + by, 0), growth.snapshots.length - 1));
  };
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(by);
  });
  return { view, show: async () => show(step), title: "Growing up" };
}

const goldOf = ({ words, gold }) =>
  treeOf(
    words,
    gold.map(([, from, to]) => [from, to]),
  );

// Returns the sentence with the best final tree; the longest one if several tie.
function bestLearned({ sentences, snapshots }) {
  const f1 = sentences.map(
    (sentence, index) =>
      score(treeFromDistances(snapshots.at(-1).distances[index], sentence.words, "right"), goldOf(sentence)).f1,
  );
  return f1.lastIndexOf(Math.max(...f1));
}

// Plots F1 of the held-out sentences and perplexity over the updates, with a mark at the current snapshot.
function course(snapshots, step, width) {
  const height = 200,
    left = 44,
    right = width - 44,
    base = height - 30,
    top = 40;
  const x = (index) => left + ((right - left) * index) / Math.max(snapshots.length - 1, 1);
  const logs = snapshots.map(({ validation_perplexity: value }) => Math.log(value));
  const [smallest, largest] = [Math.min(...logs), Math.max(...logs)];
  const f1 = (index) => base - ((base - top) * snapshots[index].parsing_f1) / 100;
  const perplexity = (index) => base - ((base - top) * (logs[index] - smallest)) / (largest - smallest || 1);
  const line = (y) =>
    snapshots.map((_, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(index).toFixed(1)}`).join("");
  const label = (text, at, y, attributes) => shape("text", { x: at, y, "font-size": 14, ...attributes }, text);
  const { parsing_f1: score, validation_perplexity: value, update } = snapshots[step];
  return shape(
    "svg",
    {
      class: "figure course",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": `F1 and perplexity over the training; at update ${update} F1 ${score}, perplexity ${value}`,
    },
    shape("path", { d: `M${left} ${base}H${right}`, class: "grid base" }),
    shape("path", { d: `M${left} ${top}H${right}`, class: "grid" }),
    label("100", left - 8, top + 5, { class: "tick end" }),
    label("0", left - 8, base + 5, { class: "tick end" }),
    shape("path", { d: line(f1), class: "line-f1" }),
    shape("path", { d: line(perplexity), class: "line-perplexity" }),
    shape("path", { d: `M${x(step)} ${top}V${base}`, class: "here" }),
    shape("circle", { cx: x(step), cy: f1(step), r: 5, class: "dot-f1" }),
    label("F1 of all held-out sentences (solid)", left, 14, { class: "caption" }),
    label("perplexity (dotted, logarithmic)", right, 32, { class: "caption end" }),
    label(Math.exp(largest).toFixed(0), right + 8, top + 5, { class: "tick" }),
    label(Math.exp(smallest).toFixed(0), right + 8, base + 5, { class: "tick" }),
    label(`${snapshots[0].update}`, left, height - 8, { class: "tick" }),
    label(`${snapshots.at(-1).update} updates`, right, height - 8, { class: "tick end" }),
  );
}
