// Trees of one sentence by several learners, and their agreement.

import { element, message, table } from "../dom.js";
import { analyze, encodePart, treeOfLayer } from "../model/analysis.js";
import { checkpoint } from "../model/checkpoints.js";
import { toBrackets } from "../trees/exports.js";
import { score } from "../trees/scores.js";
import { leftBranching, rightBranching } from "../trees/spans.js";
import { columnsOf, kindsAgainst, Picture } from "./figure.js";
import { interactive } from "./interaction.js";

const BASELINES = { "right branching": rightBranching, "left branching": leftBranching };
const chosen = new Set(["right branching"]);

export function learnersTab(sentence) {
  const others = sentence.site.models.filter((name) => name !== sentence.checkpoint.name);
  const result = element("div", {});
  let latest = 0;
  const update = async () => {
    const number = ++latest;
    result.setAttribute("aria-busy", "true");
    try {
      const learners = await learnersOf(
        sentence,
        [...others, ...Object.keys(BASELINES)].filter((name) => chosen.has(name)),
      );
      if (number !== latest) return;
      result.replaceChildren(...shown(sentence, learners));
    } catch (error) {
      if (number !== latest) return;
      result.replaceChildren(message(error.message));
    }
    result.removeAttribute("aria-busy");
  };
  const box = (name) =>
    element(
      "label",
      {},
      element("input", {
        type: "checkbox",
        checked: chosen.has(name),
        onchange: ({ target }) => {
          if (target.checked) chosen.add(name);
          else chosen.delete(name);
          update();
        },
      }),
      ` ${name}`,
    );
  update();
  return element(
    "div",
    { class: "learners-tab" },
    element(
      "fieldset",
      {},
      element("legend", {}, `Beside ${sentence.checkpoint.name}`),
      [...others, ...Object.keys(BASELINES)].map(box),
    ),
    element(
      "p",
      { class: "help" },
      sentence.analysis.gold
        ? "Lines that are not in the gold tree are dashed."
        : "Lines that are not in the first tree are dashed. With a gold tree in brackets the learners are compared with that.",
    ),
    result,
  );
}

async function learnersOf({ checkpoint: own, tree, part, analysis, rule, punctuation }, names) {
  const learners = analysis.gold ? [["gold", analysis.gold]] : [];
  if (tree) learners.push([own.name, tree]);
  for (const name of names) {
    if (BASELINES[name]) {
      learners.push([name, BASELINES[name](analysis.words)]);
      continue;
    }
    const other = await checkpoint(name);
    if (!other.hasTrees) throw new Error(`${name} induces no trees.`);
    const found = await analyze(encodePart(part, other.tokenizer), other, punctuation);
    if (found.words.join(" ") !== analysis.words.join(" ")) {
      throw new Error(`${name} splits this sentence into other words: ${found.words.join(" ")}`);
    }
    learners.push([name, treeOfLayer(found, other.about.parse_layer, rule)]);
  }
  return learners;
}

function shown({ analysis: { words }, width }, learners) {
  if (!learners.length) return [element("p", { class: "help" }, "Choose a learner.")];
  const [[, reference]] = learners;
  const picture = new Picture(
    columnsOf(words, width),
    learners.map(([name, tree]) => `${name}: ${toBrackets(tree)}`).join("; "),
  );
  learners.forEach(([name, tree], index) => {
    picture.caption(index ? `${name}: F1 ${f1(tree, reference)} against ${learners[0][0]}` : name);
    picture.tree(tree, { kindOf: index ? kindsAgainst(reference) : () => "plain", labels: tree.labels, panel: index });
    picture.words();
  });
  const say = element("output", { class: "said" }, "Point at a constituent, or use the arrow keys.");
  const svg = picture.finish();
  return [
    say,
    interactive(svg, words, ({ words: phrase, word }) => (say.textContent = phrase ? phrase.join(" ") : words[word])),
    element("h3", {}, "F1 of each against each"),
    table(
      "F1 of each tree against each other one",
      ["tree of", ...learners.map(([name]) => name)],
      learners.map(([name, tree], row) => [
        name,
        ...learners.map(([, other], column) => (row === column ? "–" : f1(tree, other))),
      ]),
    ),
  ];
}

// F1 of the tree against the reference; swapping them changes it only if one of them is flat.
const f1 = (tree, reference) => (100 * score(tree, reference).f1).toFixed(1);
