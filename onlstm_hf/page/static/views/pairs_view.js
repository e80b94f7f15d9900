// Minimal pairs: which of two sentences the models prefer, in total and at the critical place.

import { addressOf, goTo } from "../address.js";
import { button, element, message, table, visible } from "../dom.js";
import { examplesFor } from "../examples.js";
import { analyze, encodePart, END, total } from "../model/analysis.js";
import { checkpoint, describe } from "../model/checkpoints.js";
import { align } from "../trees/alignment.js";
import { columnsOf, Picture } from "./figure.js";

const LEAST_BITS = 0.005; // smaller differences are rounding errors

export async function pairsView(site, fields, isCurrent) {
  const own = await checkpoint(site.models.includes(fields.model) ? fields.model : site.models[0]);
  const examples = examplesFor(own.about.language).pairs;
  const pair = {
    first: fields.first ?? examples[0]?.first ?? "",
    second: fields.second ?? examples[0]?.second ?? "",
    at: fields.first === undefined ? examples[0]?.at : fields.at,
  };
  const results = element("div", { id: "results" });
  const inputs = ["first", "second"].map((name) =>
    element("input", {
      id: name,
      value: pair[name],
      spellcheck: "false",
      dir: "auto",
      lang: own.about.language,
      autocomplete: "off",
    }),
  );
  const submit = (event) => {
    event.preventDefault();
    goTo({ view: "pairs", model: fields.model, first: inputs[0].value, second: inputs[1].value });
  };
  const view = element(
    "div",
    { class: "pairs-view" },
    element(
      "p",
      {},
      "Enter two sentences that differ in one point; the first is grammatical. A model that has learned the rule is " +
        "less surprised by it. Look at the place that matters, because the total also depends on rare words.",
    ),
    element(
      "form",
      { class: "ask", onsubmit: submit },
      element("label", { for: "first" }, "Grammatical"),
      inputs[0],
      element("label", { for: "second" }, "Ungrammatical"),
      inputs[1],
      element("div", { class: "actions" }, element("button", { type: "submit", class: "main", id: "compare" }, "Compare")),
    ),
    results,
    examples.length > 0 &&
      element(
        "section",
        { class: "examples" },
        element("h2", {}, "Examples"),
        element(
          "ul",
          {},
          examples.map(({ first, second, at, about }) =>
            element(
              "li",
              {},
              element(
                "a",
                { href: addressOf({ view: "pairs", model: fields.model, first, second, at }) },
                `${first} / ${second}`,
              ),
              element("span", { class: "help" }, ` ${about}`),
            ),
          ),
        ),
      ),
  );

  const show = async () => {
    if (!pair.first.trim() || !pair.second.trim()) {
      results.replaceChildren(element("p", { class: "help" }, "Type two sentences and compare them."));
      return;
    }
    results.setAttribute("aria-busy", "true");
    try {
      const readings = [];
      for (const name of await ofOneLanguage(own, site)) {
        readings.push({ name, ...(await readPair(await checkpoint(name), pair)) });
      }
      if (isCurrent()) results.replaceChildren(...shown(readings, pair, fields, results.clientWidth));
    } catch (error) {
      results.replaceChildren(message(error.message));
    }
    results.removeAttribute("aria-busy");
  };
  return { view, show, title: `${pair.first} / ${pair.second}` };
}

// Returns the models for the language of this model, itself first.
async function ofOneLanguage(own, site) {
  const others = site.models.filter((name) => name !== own.name);
  const described = await Promise.all(others.map(describe));
  return [own.name, ...others.filter((_, index) => described[index].language === own.about.language)];
}

async function readPair(model, pair) {
  const [first, second] = await Promise.all(
    [pair.first, pair.second].map((text) => analyze(encodePart({ text, isTree: false }, model.tokenizer), model)),
  );
  const columns = align(first.words, second.words).map(([i, j]) => ({
    first: unit(first, i),
    second: unit(second, j),
  }));
  columns.push({ first: unit(first, first.words.length), second: unit(second, second.words.length), isEnd: true });
  for (const column of columns) {
    column.difference = (column.second?.surprisal ?? 0) - (column.first?.surprisal ?? 0);
    column.differs = column.first?.word !== column.second?.word;
  }
  return { columns, difference: total(second) - total(first), surprisals: [total(first), total(second)] };
}

function unit({ words, surprisals, endSurprisal, isUnknown }, index) {
  if (index === null) return null;
  return index === words.length
    ? { word: END, surprisal: endSurprisal, isUnknown: false }
    : { word: words[index], surprisal: surprisals[index], isUnknown: isUnknown[index] };
}

// Returns the critical columns: those of the chosen word, or those in which the sentences differ.
function critical(columns, at) {
  const chosen = columns.filter(({ first, second }) => at && first?.word === at && second?.word === at);
  return chosen.length ? chosen : columns.filter(({ differs, isEnd }) => differs && !isEnd);
}

function shown(readings, pair, fields, width) {
  const rows = readings.map(({ name, columns, difference }) => {
    const place = critical(columns, pair.at).reduce((sum, column) => sum + column.difference, 0);
    const unknown = columns.some(({ differs, first, second }) => differs && (first?.isUnknown || second?.isUnknown));
    return [
      name,
      bits(place),
      preferred(place),
      bits(difference),
      preferred(difference),
      unknown ? "a differing word is unknown" : "",
    ];
  });
  const [own] = readings;
  const words = critical(own.columns, pair.at)
    .map(({ first, second }) =>
      first?.word === second?.word
        ? `“${first.word}”`
        : `“${first?.word ?? "nothing"}” or “${second?.word ?? "nothing"}”`,
    )
    .join(", ");
  const items = own.columns.filter(({ differs, isEnd }) => !differs && !isEnd).map(({ first }) => first.word);
  return [
    element("p", { class: "verdict" }, verdict(rows[0][0], own, pair, words)),
    table("All models on this pair", ["model", "at the place", "prefers there", "in total", "prefers", "note"], rows, {
      class: "pairs",
    }),
    element(
      "p",
      { class: "help" },
      "In bits, the surprisal of the second sentence minus that of the first: above 0 the model prefers the " +
        `grammatical one. The place: ${words || "the whole sentence"}.`,
    ),
    element(
      "div",
      { class: "tools", role: "group", "aria-label": "Place that matters" },
      element("span", {}, "Place:"),
      button(
        "where they differ",
        () => goTo({ view: "pairs", model: fields.model, first: pair.first, second: pair.second }),
        { id: "place", "aria-pressed": !pair.at },
      ),
      [...new Set(items)].map((word) =>
        button(
          word,
          () => goTo({ view: "pairs", model: fields.model, first: pair.first, second: pair.second, at: word }),
          { id: `place-${word}`, "aria-pressed": pair.at === word },
        ),
      ),
    ),
    element("h2", {}, `Word by word, ${own.name}`),
    element(
      "div",
      {
        class: "figure-box",
        role: "group",
        tabindex: "0",
        "aria-label": `Surprisals of ${pair.first} and ${pair.second}`,
      },
      draw(own, pair, width),
    ),
    table(
      "Surprisals word by word",
      ["grammatical", "bits", "ungrammatical", "bits", "difference"],
      own.columns.map(({ first, second, difference }) => [
        first?.word ?? "",
        first?.surprisal.toFixed(1) ?? "",
        second?.word ?? "",
        second?.surprisal.toFixed(1) ?? "",
        bits(difference),
      ]),
    ),
  ];
}

function verdict(name, own, pair, words) {
  const place = critical(own.columns, pair.at).reduce((sum, column) => sum + column.difference, 0);
  const atPlace = preferred(place),
    inTotal = preferred(own.difference);
  if (own.columns.every(({ differs }) => !differs)) return "The two sentences are the same.";
  if (atPlace === inTotal)
    return `${name} prefers the ${inTotal} sentence, also at the place that matters: ${words}, ${bits(place)} bits.`;
  return (
    `At the place that matters, ${words}, ${name} prefers the ${atPlace} sentence (${bits(place)} bits), ` +
    `although the whole sentence points the other way (${bits(own.difference)} bits).`
  );
}

const bits = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(2)}`;
const preferred = (value) => (Math.abs(value) < LEAST_BITS ? "neither" : value > 0 ? "grammatical" : "ungrammatical");

function draw({ columns, name }, pair, width) {
  const longest = columns.map(
    ({ first, second }) => [first?.word ?? "", second?.word ?? ""].sort((a, b) => b.length - a.length)[0],
  );
  const layout = columnsOf(longest, width - 2, { left: 44 });
  const picture = new Picture(
    layout,
    columns
      .map(
        ({ first, second, difference }) => `${first?.word ?? "–"} / ${second?.word ?? "–"}: ${bits(difference)} bits`,
      )
      .join("; "),
  );
  const matters = new Set(critical(columns, pair.at));
  for (const side of ["first", "second"]) {
    picture.caption(side === "first" ? "grammatical" : "ungrammatical");
    const words = columns.map((column) => column[side]);
    layout.words = words.map((word) => visible(word?.word ?? "·"));
    picture.words({
      isUnknown: words.map((word) => word?.isUnknown),
      surprisals: words.map((word) => word?.surprisal ?? 0),
    });
  }
  picture.difference(
    "difference: above the line for the grammatical sentence, in bits",
    columns.map(({ difference }) => difference),
    columns.map((column) => matters.has(column)),
  );
  return picture.finish();
}
