// The user's own tree of a sentence, and the learners' scores against it.

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
      "Change the brackets until you agree with them. The scores use your tree as the gold tree.",
    ),
    bracketEditor(words, begin.spans, width, update),
    result,
    button("Use it as the gold tree", () => goTo({ ...sentence.fields, text: asText(sentence, current), tab: "" }), {
      class: "main",
    }),
  );
}

// Writes the tree as text for the input field, with marks unless they are dropped.
function asText({ analysis, punctuation }, tree) {
  const marked = punctuation === "drop" ? "drop" : "attach";
  return toSquareBrackets(onLeaves({ analysis, tree, punctuation: marked }).tree);
}
