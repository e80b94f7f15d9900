// Editor for brackets from a first to a last word. A new bracket replaces those that it crosses.

import { button, element } from "../dom.js";
import { toBrackets } from "../trees/exports.js";
import { crosses, key, treeOf } from "../trees/spans.js";
import { columnsOf, Picture } from "./figure.js";

// Shows the words for bracketing. `changed` is called with each new tree.
export function bracketEditor(words, spans, width, changed) {
  let tree = treeOf(words, spans),
    first = null,
    focused = 0;
  const history = [];
  const box = element("div", { class: "editor", role: "group", "aria-label": `Brackets of: ${words.join(" ")}` });
  const say = element("output", { class: "said" });

  const replace = (next) => {
    history.push(tree);
    tree = next;
    first = null;
    draw();
    changed(tree);
  };
  const pick = (word) => {
    focused = word;
    if (first === null) {
      first = word;
      draw();
      return;
    }
    const span = [Math.min(first, word), Math.max(first, word) + 1];
    first = null;
    if (span[1] - span[0] < 2 || tree.spans.some((other) => key(other) === key(span))) {
      draw();
      return;
    }
    replace(treeOf(words, [...tree.spans.filter((other) => !crosses(other, span)), span]));
  };
  const remove = (span) =>
    replace(
      treeOf(
        words,
        tree.spans.filter((other) => key(other) !== key(span)),
      ),
    );

  const undo = button("Undo", () => {
    if (!history.length) return;
    tree = history.pop();
    first = null;
    draw();
    changed(tree);
  });
  const clear = button("Remove all", () => replace(treeOf(words, [])));

  const draw = () => {
    const columns = columnsOf(words, width),
      picture = new Picture(columns, `Your tree: ${toBrackets(tree)}`);
    picture.tree(tree);
    picture.words();
    const svg = picture.finish();
    for (const node of svg.querySelectorAll(".node[data-start]")) {
      const span = [Number(node.dataset.start), Number(node.dataset.end)];
      if (span[1] - span[0] < words.length) node.addEventListener("click", () => remove(span));
    }
    for (const word of svg.querySelectorAll(".word")) {
      word.classList.toggle("chosen", Number(word.dataset.index) === first);
      word.addEventListener("click", () => pick(Number(word.dataset.index)));
    }
    const inner = tree.spans.filter(([start, end]) => end - start < words.length);
    const list = words.map((word, index) =>
      button(word, () => pick(index), {
        "aria-pressed": first === index,
        class: "pick",
        tabindex: index === focused ? 0 : -1,
        dir: "auto",
      }),
    );
    const row = element(
      "div",
      { class: "picks", role: "toolbar", "aria-label": "Words: choose the first and the last of a constituent" },
      list,
    );
    row.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      list[focused].tabIndex = -1;
      focused = Math.min(Math.max(focused + move, 0), words.length - 1);
      list[focused].tabIndex = 0;
      list[focused].focus();
    });
    const hadFocus = box.contains(document.activeElement);
    box.replaceChildren(
      element("div", { class: "figure-box", role: "group", tabindex: "0", "aria-label": "Your tree" }, svg),
      row,
      element(
        "div",
        { class: "tools" },
        undo,
        clear,
        inner.map((span) =>
          button(`× ${words.slice(...span).join(" ")}`, () => remove(span), {
            class: "chip",
            dir: "auto",
            "aria-label": `Remove the brackets around: ${words.slice(...span).join(" ")}`,
          }),
        ),
      ),
      say,
    );
    undo.disabled = !history.length;
    if (hadFocus) list[focused].focus();
    say.textContent =
      first === null
        ? "Choose the first word of a constituent, then its last word. Choose a line or an × to take brackets away."
        : `From “${words[first]}” to …: choose the last word.`;
  };
  draw();
  return box;
}
