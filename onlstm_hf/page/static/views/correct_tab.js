// The reader's own tree of a sentence, with what it makes of the scores of the learners.

import { button, element, table } from "../dom.js";
import { goTo } from "../address.js";
import { onLeaves } from "../model/analysis.js";
import { toBrackets, toSquareBrackets } from "../trees/exports.js";
import { hasInner, score } from "../trees/scores.js";
import { leftBranching, rightBranching } from "../trees/spans.js";
import { bracketEditor } from "./editor.js";

export function correctTab(sentence) {
  const {
    analysis: { words, gold },
    tree,
    width,
    checkpoint,
  } = sentence;
  const begin = gold ?? tree ?? { words, spans: [] };
  const result = element("div", { "aria-live": "polite" });
  let current = begin;
  const update = (mine) => {
    current = mine;
    const others = [
      ["right branching", rightBranching(words)],
      ["left branching", leftBranching(words)],
    ];
    if (tree) others.unshift([checkpoint.name, tree]);
    result.replaceChildren(
      hasInner(mine)
        ? table(
            "F1 against your tree",
            ["tree of", "F1 against yours"],
            others.map(([name, other]) => [name, (100 * score(other, mine).f1).toFixed(1)]),
            { class: "scores" },
          )
        : element("p", { class: "help" }, "A sentence without inner brackets compares nothing."),
      element("pre", { tabindex: "0", "aria-label": "Your tree" }, toBrackets(mine)),
    );
  };
  update(begin);
  return element(
    "div",
    { class: "correct-tab" },
    element(
      "p",
      { class: "help" },
      "Move the brackets until you agree. What you have drawn is then the gold tree, and the scores follow.",
    ),
    bracketEditor(words, begin.spans, width, update),
    result,
    button("Use it as the gold tree", () => goTo({ ...sentence.fields, text: asText(sentence, current), tab: "" }), {
      class: "main",
    }),
  );
}

// The tree as a text for the field. Where marks count, they stay in it.
function asText({ analysis, punctuation }, tree) {
  const marked = punctuation === "drop" ? "drop" : "attach";
  return toSquareBrackets(onLeaves({ analysis, tree, punctuation: marked }).tree);
}
