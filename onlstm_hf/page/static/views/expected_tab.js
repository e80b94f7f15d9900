// The model's predictions at each place: the five most probable next words, and the actual word.

import { element, shape } from "../dom.js";
import { END } from "../model/analysis.js";

export function expectedTab({ analysis, title }) {
  const { words, expected, surprisals, endSurprisal, isUnknown } = analysis;
  const rows = expected.map((guesses, place) => {
    const word = words[place] ?? END,
      surprisal = surprisals[place] ?? endSurprisal;
    const probability = 2 ** -surprisal;
    return element(
      "tr",
      {},
      element(
        "td",
        { class: "before", dir: "auto" },
        place ? `… ${words.slice(Math.max(place - 3, 0), place).join(" ")}` : "(start)",
      ),
      element(
        "td",
        {},
        element(
          "ol",
          { class: "guesses" },
          guesses.map((guess) =>
            element(
              "li",
              { class: guess.came ? "came" : null },
              bar(guess.probability),
              element("bdi", {}, guess.word),
              " ",
              element("span", { class: "percent" }, percent(guess.probability)),
            ),
          ),
        ),
      ),
      element("th", { scope: "row", dir: "auto", class: isUnknown[place] ? "unknown" : null }, word),
      element("td", {}, percent(probability)),
      element("td", {}, `${surprisal.toFixed(1)} bits`),
    );
  });
  return element(
    "div",
    { class: "expected-tab" },
    element(
      "p",
      { class: "help" },
      "Each row shows the words before, the five most probable next words, and the actual word. “<unk>” stands for all unknown words.",
    ),
    element(
      "div",
      { class: "scroll", role: "group", tabindex: "0", "aria-label": `Expected words in: ${title}` },
      element(
        "table",
        { class: "expected" },
        element("caption", { class: "hidden" }, "The most probable next words at each place"),
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            ["before", "expected", "came", "probability", "surprisal"].map((name) =>
              element("th", { scope: "col" }, name),
            ),
          ),
        ),
        element("tbody", {}, rows),
      ),
    ),
  );
}

const percent = (probability) => (probability < 0.001 ? "< 0.1 %" : `${Number((100 * probability).toPrecision(2))} %`);

function bar(probability) {
  return shape(
    "svg",
    { class: "bar", width: 48, height: 12, "aria-hidden": "true" },
    shape("rect", { width: 48, height: 12, rx: 2, class: "bar-back" }),
    shape("rect", { width: Math.max(48 * probability, 1), height: 12, rx: 2, class: "bar-front" }),
  );
}
