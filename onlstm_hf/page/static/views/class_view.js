// Class exercise: students draw brackets for the same sentences, and the teacher compares their files.

import { addressOf, goTo } from "../address.js";
import { button, element, message, save, table } from "../dom.js";
import { examplesFor } from "../examples.js";
import { analyze, encodePart, treeOfLayer } from "../model/analysis.js";
import { checkpoint } from "../model/checkpoints.js";
import { agreement, readAnswers, writeAnswers } from "../trees/class_results.js";
import { fileStem, toTsv } from "../trees/exports.js";
import { hasInner } from "../trees/scores.js";
import { rightBranching } from "../trees/spans.js";
import { partsOf } from "../trees/sentences.js";
import { bracketEditor } from "./editor.js";

export async function classView(site, fields) {
  const own = await checkpoint(site.models.includes(fields.model) ? fields.model : site.models[0]);
  const text = fields.sentences ?? examplesFor(own.about.language).exercise.join("\n");
  const area = element("textarea", { id: "sentences", rows: 6, spellcheck: "false", dir: "auto" });
  area.value = text;
  const link = () => addressOf({ view: "class", model: fields.model, sentences: area.value });
  let parts = [],
    problem = "There is no sentence yet: write one above.";
  try {
    const read = partsOf(text, own.about.language ?? "en").parts.map((part) => encodePart(part, own.tokenizer));
    parts = read.filter(({ words }) => words.length);
  } catch (error) {
    problem = `These brackets cannot be read: ${error.message}.`;
  }
  const view = element(
    "div",
    { class: "class-view" },
    element(
      "p",
      {},
      "Each student draws brackets, saves a file and sends it to the teacher. The teacher drops all files below " +
        "and sees how well the students agree with each other, with the gold trees and with the models. " +
        "This page does not send anything.",
    ),
    element(
      "details",
      { open: !parts.length },
      element("summary", {}, "For the teacher: choose the sentences"),
      element(
        "label",
        { for: "sentences" },
        "One sentence per line. A tree in brackets is a sentence with its gold tree, which students do not see.",
      ),
      area,
      element(
        "p",
        { class: "tools" },
        button("Use these sentences", () => goTo({ view: "class", model: fields.model, sentences: area.value })),
        element("a", { href: link() }, "Link for the class"),
      ),
    ),
    parts.length ? [exercise(parts), comparison(parts, own)] : message(problem),
  );
  area.addEventListener("input", () => (view.querySelector("p.tools a").href = link()));
  return { view, show: async () => {}, title: "Exercise for a class" };
}

function exercise(parts) {
  const trees = remembered(parts);
  let current = 0;
  const place = element("div", {}),
    progress = element("p", { class: "note" });
  const name = element("input", { id: "student", autocomplete: "name", maxlength: 80 });
  const show = (next) => {
    current = Math.min(Math.max(next, 0), trees.length - 1);
    progress.textContent = `Sentence ${current + 1} of ${trees.length}; ${trees.filter(hasInner).length} have brackets.`;
    const { words, spans } = trees[current];
    place.replaceChildren(
      bracketEditor(words, spans, (place.clientWidth || 600) - 2, (tree) => {
        trees[current] = tree;
        remember(trees);
        progress.textContent = `Sentence ${current + 1} of ${trees.length}; ${trees.filter(hasInner).length} have brackets.`;
      }),
    );
  };
  const section = element(
    "section",
    {},
    element("h2", {}, "Draw the brackets"),
    progress,
    place,
    element(
      "div",
      { class: "tools" },
      button("◀ Previous", () => show(current - 1)),
      button("Next ▶", () => show(current + 1)),
    ),
    element(
      "div",
      { class: "tools" },
      element("label", { for: "student" }, "Your name"),
      name,
      button(
        "Save my answers",
        () => save(`${fileStem(name.value || "answers")}.json`, writeAnswers(name.value, trees), "application/json"),
        { class: "main" },
      ),
    ),
  );
  requestAnimationFrame(() => show(0));
  return section;
}

// Drawn trees are kept in this tab for one exercise, so that they survive a reload.
const DRAWN = "onlstm_hf class";

function remember(trees) {
  try {
    sessionStorage.setItem(DRAWN, writeAnswers("", trees));
  } catch {
    // The browser may forbid storage; the student can still save a file.
  }
}

function remembered(parts) {
  const empty = parts.map(({ words }) => ({ words, spans: [] }));
  try {
    const { trees } = readAnswers(sessionStorage.getItem(DRAWN) ?? "");
    const textOf = (list) => JSON.stringify(list.map(({ words }) => words));
    return textOf(trees) === textOf(empty) ? trees : empty;
  } catch {
    return empty;
  }
}

function comparison(parts, own) {
  const students = new Map(),
    result = element("div", { id: "agreement" });
  const input = element("input", { type: "file", id: "files", multiple: true, accept: ".json,application/json" });
  const read = async (files) => {
    const problems = [];
    for (const file of files) {
      try {
        if (file.size > 1_000_000) throw new Error("it is too large");
        const answers = readAnswers(await file.text());
        students.set(`${file.name} ${answers.name}`, answers); // names in other scripts have the same file name
      } catch (error) {
        problems.push(`${file.name}: ${error.message}`);
      }
    }
    result.setAttribute("aria-busy", "true");
    let shown = [];
    try {
      if (students.size) shown = await compared([...students.values()], parts, own);
    } catch (error) {
      problems.push(error.message);
    }
    result.replaceChildren(...problems.map(message), ...shown);
    result.removeAttribute("aria-busy");
  };
  input.addEventListener("change", () => read(input.files));
  const zone = element(
    "div",
    { class: "drop" },
    element("label", { for: "files" }, "Drop the students' files here, or choose them "),
    input,
  );
  for (const name of ["dragover", "drop"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", name === "dragover");
      if (name === "drop") read(event.dataTransfer.files);
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  return element("section", {}, element("h2", {}, "For the teacher: compare the class"), zone, result);
}

async function compared(students, parts, own) {
  const references = { gold: parts.map(({ gold }) => gold) };
  if (own.hasTrees) {
    references[own.name] = [];
    for (const encoded of parts) {
      references[own.name].push(treeOfLayer(await analyze(encoded, own), own.about.parse_layer, "right"));
    }
  }
  references["right branching"] = parts.map(({ words }) => rightBranching(words));
  const sentences = agreement(students, references),
    names = Object.keys(references);
  const percent = (value) => (value === null ? "" : (100 * value).toFixed(1));
  const columns = ["sentence", "students", "with each other", ...names.map((name) => `with ${name}`)];
  const rows = sentences.map(({ text, students, between, others }) => [
    text,
    String(students),
    percent(between),
    ...names.map((name) => percent(others[name])),
  ]);
  return [
    element(
      "p",
      { class: "note" },
      `${students.length} ${students.length === 1 ? "file" : "files"}: ${students.map(({ name }) => name).join(", ")}.`,
    ),
    table("Mean F1 of the students' trees, in percent", columns, rows),
    button("Save as TSV", () => save("class.tsv", toTsv([columns, ...rows]), "text/tab-separated-values")),
    element("h3", {}, "Constituents that students drew"),
    element(
      "ul",
      { class: "votes" },
      sentences.map(({ words, students, votes }) =>
        element(
          "li",
          {},
          element("span", { class: "help" }, `${words.join(" ")}: `),
          votes
            .slice(0, 12)
            .map(({ span: [start, end], count }) =>
              element("span", { class: "vote" }, `${words.slice(start, end).join(" ")} ${count} of ${students}`),
            ),
        ),
      ),
    ),
  ];
}
