// The sentence view: the input field, the options, and a section with tabs for each sentence.

import { addressOf, goTo } from "../address.js";
import { announce, button, choice, element, message } from "../dom.js";
import { examplesFor } from "../examples.js";
import { analyze, encodePart, shareUnknown, treeOfLayer } from "../model/analysis.js";
import { checkpoint } from "../model/checkpoints.js";
import { RULE_NAMES } from "../trees/distances.js";
import { fileStem } from "../trees/exports.js";
import { partsOf } from "../trees/sentences.js";
import { correctTab } from "./correct_tab.js";
import { expectedTab } from "./expected_tab.js";
import { gatesTab } from "./gates_tab.js";
import { learnersTab } from "./learners_tab.js";
import { playTab } from "./play_tab.js";
import { treeTab } from "./tree_tab.js";

const TABS = {
  tree: ["Tree", treeTab],
  play: ["Step by step", playTab],
  gates: ["Gates", gatesTab],
  expected: ["Next words", expectedTab],
  learners: ["Learners", learnersTab],
  correct: ["Correct it", correctTab],
};
const PUNCTUATION_NAMES = { drop: "leave out", attach: "attach", cue: "cue" };
const PUNCTUATION_HELP = {
  attach:
    "Marks are leaves of the tree, in its picture and its brackets. Scores and the other tabs use only the words.",
  cue: "A mark raises the distance of the word after it. This is not the papers' protocol, which has no punctuation.",
};
const MAX_SENTENCES = 20,
  MAX_CHARACTERS = 20_000;

export async function sentenceView(site, fields, isCurrent) {
  const model = site.models.includes(fields.model) ? fields.model : site.models[0];
  const own = await checkpoint(model);
  const examples = examplesFor(own.about.language);
  const text = fields.text ?? examples.sentences[0].text;
  const layer = chosenLayer(fields.layer, own.about),
    rule = Object.hasOwn(RULE_NAMES, fields.rule) ? fields.rule : "right",
    asked = Object.hasOwn(PUNCTUATION_NAMES, fields.punctuation) ? fields.punctuation : "drop",
    punctuation = own.hasTrees ? asked : "drop";
  const known = { ...fields, model: fields.model, text };
  const results = element("div", { id: "results", "aria-live": "off" });
  const view = element(
    "div",
    { class: "sentence-view" },
    form(site, own, known, { model, layer, rule, punctuation }, examples),
    results,
  );

  const show = async () => {
    results.setAttribute("aria-busy", "true");
    results.replaceChildren(element("p", { class: "help" }, "Reading …"));
    try {
      const sections = await readText({ site, own, text, layer, rule, punctuation, fields: known, results });
      if (!isCurrent()) return;
      results.replaceChildren(...sections);
      announce(`Shown: ${text.slice(0, 80)}`);
    } catch (error) {
      results.replaceChildren(
        message(error instanceof SyntaxError ? `These brackets cannot be read: ${error.message}.` : error.message),
      );
    }
    results.removeAttribute("aria-busy");
  };
  return { view, show, title: text.slice(0, 80) };
}

function chosenLayer(asked, about) {
  const layer = Number(asked) - 1;
  return Number.isInteger(layer) && layer >= 0 && layer < about.layers.length ? layer : about.parse_layer;
}

function form(site, own, fields, { model, layer, rule, punctuation }, examples) {
  const area = element("textarea", {
    id: "text",
    rows: 2,
    spellcheck: "false",
    dir: "auto",
    lang: own.about.language,
  });
  area.value = fields.text;
  const typed = () => area.value || " "; // in the URL no text means the example
  const submit = () => goTo({ ...fields, text: typed() });
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  const change = (name) => (value) => goTo({ ...fields, text: typed(), [name]: value });
  const choices = [
    site.models.length > 1 &&
      choice(
        "Model",
        site.models.map((name) => [name, name]),
        model,
        (value) =>
          goTo({
            ...fields,
            model: value,
            layer: "",
            text: area.value === examples.sentences[0].text ? "" : area.value,
          }),
        { id: "model" },
      ),
    own.about.layers.length > 1 &&
      choice(
        "Layer",
        own.about.layers.map((name, index) => [
          index + 1,
          index === own.about.parse_layer ? `${name} (the model's own)` : name,
        ]),
        layer + 1,
        change("layer"),
        { id: "layer" },
      ),
    own.hasTrees && choice("Rule", Object.entries(RULE_NAMES), rule, change("rule"), { id: "rule" }),
    own.hasTrees &&
      choice("Punctuation", Object.entries(PUNCTUATION_NAMES), punctuation, change("punctuation"), {
        id: "punctuation",
      }),
  ];
  const gallery = element(
    "details",
    { class: "examples" },
    element("summary", {}, "Examples"),
    element(
      "ul",
      {},
      examples.sentences.map(({ text, about }) =>
        element(
          "li",
          {},
          element("a", { href: addressOf({ ...fields, text, tab: "" }), lang: own.about.language, dir: "auto" }, text),
          element("span", { class: "help" }, ` ${about}`),
        ),
      ),
    ),
  );
  return element(
    "form",
    {
      class: "ask",
      onsubmit: (event) => {
        event.preventDefault();
        submit();
      },
    },
    element("label", { for: "text" }, "Sentences, or a tree in brackets"),
    area,
    element(
      "div",
      { class: "actions" },
      element("button", { type: "submit", class: "main", id: "parse" }, "Parse"),
      choices,
    ),
    own.hasTrees && PUNCTUATION_HELP[punctuation] && element("p", { class: "help" }, PUNCTUATION_HELP[punctuation]),
    element(
      "p",
      { class: "help" },
      "Enter parses; Shift+Enter begins a new line. Your text stays in your browser.",
    ),
    aboutModel(own),
    gallery,
  );
}

function aboutModel({ name, about }) {
  const rows = about.scores.map(([what, f1]) => `${what} ${f1}`).join(", ");
  return element(
    "details",
    { class: "about-model" },
    element("summary", {}, `About ${name}`),
    element("p", {}, about.trained.join(" ")),
    about.limits.length > 0 && element("p", {}, about.limits.join(" ")),
    rows && element("p", {}, `F1 of its trees on gold trees that it has not seen, in percent: ${rows}.`),
  );
}

async function readText({ site, own, text, layer, rule, punctuation, fields, results }) {
  const notes = [];
  if (text.length > MAX_CHARACTERS)
    throw new Error(`These are ${text.length} characters; at most ${MAX_CHARACTERS} are read at a time.`);
  const { parts, numSplit } = partsOf(text, own.about.language ?? "en");
  if (!parts.length) throw new Error("There is no sentence yet: type one and parse it.");
  const all = parts.map((part) => ({ part, words: encodePart(part, own.tokenizer) })),
    withWords = all.filter(({ words }) => words.words.length),
    encoded = withWords.slice(0, MAX_SENTENCES);
  if (!encoded.length) throw new Error(`There is no word in “${parts[0].text.slice(0, 40)}”.`);
  if (numSplit && withWords.length > 1) notes.push(`Split into ${withWords.length} sentences.`);
  if (withWords.length < all.length) notes.push(`Left out: ${all.length - withWords.length} without a word.`);
  if (withWords.length > MAX_SENTENCES) {
    notes.push(`The first ${MAX_SENTENCES} of ${withWords.length} sentences are shown.`);
  }
  const unknown = shareUnknown({ isUnknown: encoded.flatMap(({ words }) => words.isUnknown) });
  const sections = [];
  for (const { part, words } of encoded) {
    const analysis = await analyze(words, own, punctuation);
    sections.push(
      section({
        site,
        own,
        part,
        analysis,
        layer,
        rule,
        punctuation,
        fields,
        width: results.clientWidth - 2,
        number: sections.length,
      }),
    );
  }
  const banner =
    unknown > 0.5 &&
    element(
      "p",
      { class: "message", role: "status" },
      `${own.name} does not know most of these words. It was trained on text in ${languageName(own.about.language)}; ` +
        "its trees say little here.",
    );
  return [
    banner,
    notes.length > 0 && element("p", { class: "note", role: "status" }, notes.join(" ")),
    ...sections,
  ].filter(Boolean);
}

function languageName(code) {
  if (!code) return "another language";
  return new Intl.DisplayNames("en", { type: "language" }).of(code);
}

function section({ site, own, part, analysis, layer, rule, punctuation, fields, width, number }) {
  const title = analysis.words.join(" ");
  const tree = analysis.distances.length ? treeOfLayer(analysis, layer, rule) : null;
  const layerName = own.about.layers.length > 1 ? `, ${own.about.layers[layer]}` : "";
  const sentence = {
    site,
    checkpoint: own,
    part,
    analysis,
    layer,
    rule,
    punctuation,
    fields,
    width,
    tree,
    title,
    stem: fileStem(title),
    caption: tree
      ? `${own.name}${layerName}, ${RULE_NAMES[rule]}` +
        (punctuation === "cue" ? ", punctuation as a cue" : "")
      : own.name,
  };
  const named = analysis.named.length > 0 && `Read as labels: ${analysis.named.join(", ")}.`;
  const flat = analysis.isFlat && "There are no brackets inside the sentence, so there is nothing to compare.";
  return element(
    "section",
    { class: "result", "aria-labelledby": `sentence-${number}` },
    element("h2", { id: `sentence-${number}`, lang: own.about.language, dir: "auto" }, title),
    (named || flat) && element("p", { class: "note" }, [named, flat].filter(Boolean).join(" ")),
    tabs(sentence, number),
  );
}

function tabs(sentence, number) {
  const { fields } = sentence;
  let current = Object.hasOwn(TABS, fields.tab) ? fields.tab : "tree";
  const panel = element("div", { role: "tabpanel", id: `panel-${number}`, tabindex: "-1" });
  const list = element("div", { role: "tablist", class: "tabs", "aria-label": `Views of: ${sentence.title}` });
  const show = (name) => {
    current = name;
    for (const tab of list.children) {
      tab.setAttribute("aria-selected", tab.dataset.tab === name);
      tab.tabIndex = tab.dataset.tab === name ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${number}-${name}`);
    panel.replaceChildren(TABS[name][1](sentence));
  };
  const choose = (name) => {
    show(name);
    goTo({ ...fields, tab: name === "tree" ? "" : name }, { replace: true });
    fields.tab = name === "tree" ? "" : name;
  };
  for (const [name, [text]] of Object.entries(TABS)) {
    list.append(
      button(text, () => choose(name), {
        role: "tab",
        id: `tab-${number}-${name}`,
        "data-tab": name,
        "aria-controls": `panel-${number}`,
      }),
    );
  }
  list.addEventListener("keydown", (event) => {
    const names = Object.keys(TABS),
      move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    choose(names[(names.indexOf(current) + move + names.length) % names.length]);
    list.querySelector("[aria-selected=true]").focus();
  });
  show(current);
  return element("div", {}, list, panel);
}
