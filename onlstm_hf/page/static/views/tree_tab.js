// The tree of a sentence over its words (and marks), with its distances below, and exports.

import { announce, button, element, save, table } from "../dom.js";
import { END, onLeaves, total } from "../model/analysis.js";
import { shown, toBrackets, toForest, toQtree, toSquareBrackets, toTsv } from "../trees/exports.js";
import { score } from "../trees/scores.js";
import { key, keysOf, leftBranching, rightBranching } from "../trees/spans.js";
import { columnsOf, kindsAgainst, Picture } from "./figure.js";
import { interactive, outline } from "./interaction.js";
import { pngOf, svgDocument } from "./saving.js";

const LONG = 25; // sentences with more words show the outline beside the figure

export function treeTab(given) {
  const sentence = { ...given, leaves: onLeaves(given) };
  const { analysis, leaves, tree, width } = sentence;
  const parts = element("div", { class: "tree-tab" });
  const say = element(
    "output",
    { class: "said" },
    tree
      ? "Point at a constituent, tap it, or use the arrow keys."
      : "This model induces no trees; the bars are the surprisals of the words.",
  );
  let allLayers = false;
  const box = element("div", {});
  const draw = () => {
    const svg = drawSentence(sentence, allLayers);
    box.replaceChildren(interactive(svg, leaves.words, (chosen) => (say.textContent = described(sentence, chosen))));
  };
  draw();
  sentence.figure = () => box.querySelector("svg");
  const tools = element(
    "div",
    { class: "tools", role: "group", "aria-label": "Figure" },
    sentence.checkpoint.about.layers.length > 1 &&
      button(
        "All layers",
        (event) => {
          allLayers = !allLayers;
          event.target.setAttribute("aria-pressed", allLayers);
          draw();
        },
        { "aria-pressed": "false" },
      ),
    document.fullscreenEnabled && button("Full screen", () => fullScreen(parts, sentence, draw)),
  );
  parts.append(say, box, tools);
  if (tree) {
    const words = outline(leaves.tree, (leaf) =>
      element(
        "span",
        { class: classOf(sentence, leaf) },
        leaves.words[leaf],
        leaves.isUnknown[leaf] && element("span", { class: "mark" }, " unknown"),
      ),
    );
    const isLong = analysis.words.length > LONG;
    parts.append(
      element(
        "details",
        { class: "as-outline", open: isLong || width < 640 },
        element("summary", {}, "The tree as an outline"),
        words,
      ),
    );
  }
  if (analysis.gold) parts.append(againstGold(sentence));
  parts.append(numbers(sentence), tree && exportsOf(sentence));
  return parts;
}

function drawSentence(
  { analysis, leaves, tree: overWords, checkpoint, layer, rule, punctuation, width, caption },
  allLayers,
) {
  const { words, wordAt, wordsIn, tree, gold, surprisals, isUnknown, distances } = leaves;
  const kindOf = (other, mine) => {
    const kind = kindsAgainst(other, mine);
    return (span) => kind(wordsIn(span));
  };
  const columns = columnsOf(words, width, { left: 44 });
  const picture = new Picture(
    columns,
    tree ? `Tree of ${words.join(" ")}: ${toBrackets(tree)}` : `Words: ${words.join(" ")}`,
  );
  if (gold && tree) {
    picture.caption("gold tree");
    picture.tree(gold, { kindOf: kindOf(overWords, "gold"), labels: gold.labels, panel: 0 });
    picture.words();
  }
  if (tree) {
    picture.caption(caption);
    picture.tree(tree, { kindOf: kindOf(analysis.gold), panel: 1 });
  }
  picture.words({ isUnknown, surprisals });
  const kinds = tree && gold ? ["both", "one", "gold"] : [];
  picture.legend(isUnknown.some(Boolean) ? [...kinds, "unknown"] : kinds);
  const shownLayers = allLayers ? distances.map((_, index) => index) : distances.length ? [layer] : [];
  shownLayers.sort((a, b) => (b === layer) - (a === layer) || a - b); // the layer of the tree is next to it
  for (const index of shownLayers) {
    const of = distances.length > 1 ? ` of ${checkpoint.about.layers[index]}` : "";
    const makes = index === layer ? ", which make the tree" : "";
    const raised = punctuation === "cue" ? ", raised after marks" : "";
    const name = `distances${of}${raised}${makes}`;
    picture.measure({ name, values: distances[index], unused: rule === "right" ? -1 : wordAt[0] });
  }
  picture.measure({ name: "surprisal: how unexpected a word is, in bits", values: surprisals, kind: "bars" });
  return picture.finish();
}

function described({ analysis: { gold }, leaves, tree, layer }, chosen) {
  const { words, wordsIn, surprisals, distances, isUnknown } = leaves;
  if (chosen.word !== undefined) {
    const { word } = chosen;
    if (surprisals[word] === null) return `${words[word]}: a mark, which the model does not read`;
    const distance = distances.length ? `, distance ${shown(distances[layer][word])}` : "";
    return (
      `${words[word]}: ${surprisals[word].toFixed(1)} bits${distance}` +
      (isUnknown[word] ? "; the model does not know this word and reads <unk>" : "")
    );
  }
  const [start, end] = wordsIn([chosen.start, chosen.end]),
    span = key([start, end]);
  const where = gold && tree ? agreement(keysOf(tree.spans).has(span), keysOf(gold.spans).has(span)) : "";
  return `${chosen.words.join(" ")} (words ${start + 1} to ${end})${where}`;
}

const agreement = (inTree, inGold) =>
  inTree && inGold ? ", in both trees" : inTree ? ", only in this tree" : ", only in the gold tree";

function classOf({ analysis: { gold }, leaves: { tree, wordsIn, isUnknown } }, leaf) {
  if (isUnknown[leaf]) return "unknown";
  if (!gold || !tree) return null;
  // A leaf is coloured if a constituent that begins with it is in only one of the trees.
  const starting = tree.spans.filter(([start]) => start === leaf).map((span) => key(wordsIn(span)));
  const other = keysOf(gold.spans);
  return starting.every((span) => other.has(span)) ? "agrees" : "differs";
}

function againstGold({ analysis: { words, gold }, tree, checkpoint, punctuation }) {
  if (!tree) return null;
  const rows = [
    [checkpoint.name, tree],
    ["right branching", rightBranching(words)],
    ["left branching", leftBranching(words)],
  ].map(([name, other]) => {
    const { f1, precision, recall } = score(other, gold);
    return [name, ...[f1, precision, recall].map((value) => (100 * value).toFixed(1))];
  });
  return element(
    "section",
    { class: "against-gold" },
    element("h3", {}, "Against the gold tree"),
    table("Scores against the gold tree", ["tree of", "F1", "precision", "recall"], rows, { class: "scores" }),
    element(
      "p",
      { class: "help" },
      `In percent. The whole sentence does not count, as in the papers${punctuation === "attach" ? ", nor do marks" : ""}.`,
    ),
  );
}

function numbersOf({ analysis: { endSurprisal }, leaves: { words, distances, surprisals, isUnknown }, checkpoint }) {
  const columns = [
    "word",
    ...checkpoint.about.layers.map((name) => `distance, ${name}`),
    "surprisal (bits)",
    "unknown",
  ];
  const rows = words.map((word, index) => [
    word,
    ...distances.map((layer) => layer[index]),
    surprisals[index],
    isUnknown[index] ? "yes" : "no",
  ]);
  return [columns, ...rows, [END, ...distances.map(() => null), endSurprisal, "no"]];
}

function numbers(sentence) {
  const [columns, ...rows] = numbersOf(sentence);
  const cells = rows.map((row) => row.map((cell) => (typeof cell === "number" ? shown(cell) : (cell ?? ""))));
  return element(
    "details",
    { class: "numbers" },
    element("summary", {}, "The numbers"),
    element(
      "p",
      { class: "help" },
      `Surprisal of the whole sentence with its end: ${total(sentence.analysis).toFixed(1)} bits.`,
    ),
    table(`Numbers of: ${sentence.title}`, columns, cells),
    element(
      "p",
      { class: "tools" },
      button("Copy", (event) => copy(toTsv([columns, ...rows]), event.target), { "aria-label": "Copy the numbers" }),
      button("Save as TSV", () =>
        save(`${sentence.stem}.tsv`, toTsv([columns, ...rows]), "text/tab-separated-values"),
      ),
      button("Save as JSON", () => save(`${sentence.stem}.json`, recordOf(sentence), "application/json")),
    ),
  );
}

function recordOf(sentence) {
  const [columns, ...rows] = numbersOf(sentence);
  const words = rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
  const tree = sentence.leaves.tree && toBrackets(sentence.leaves.tree);
  return `${JSON.stringify({ sentence: sentence.title, made_by: sentence.caption, tree, words }, null, 1)}\n`;
}

function exportsOf(sentence) {
  const { tree } = sentence.leaves;
  const forms = {
    Brackets: toBrackets,
    "Square brackets": toSquareBrackets,
    "LaTeX, qtree": toQtree,
    "LaTeX, forest": toForest,
  };
  return element(
    "details",
    { class: "exports" },
    element("summary", {}, "Pictures, brackets and LaTeX"),
    element(
      "p",
      { class: "tools" },
      button("Save as SVG", () => save(`${sentence.stem}.svg`, svgDocument(sentence.figure()), "image/svg+xml")),
      button("Save as PNG", async () => save(`${sentence.stem}.png`, await pngOf(sentence.figure()), "image/png")),
      button("Print", () => print()),
    ),
    Object.entries(forms).map(([name, write]) => [
      element("h3", {}, name),
      element("pre", { tabindex: "0", "aria-label": name }, write(tree)),
      button("Copy", (event) => copy(write(tree), event.target), { "aria-label": `Copy: ${name}` }),
    ]),
  );
}

async function copy(text, target) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
    target.textContent = "Copied";
  } catch {
    // without HTTPS, a page can only select the text
    const shownText = target.parentElement.querySelector("pre, table") ?? target.previousElementSibling;
    if (shownText) getSelection().selectAllChildren(shownText);
  }
}

async function fullScreen(parts, sentence, draw) {
  const usual = sentence.width;
  const leave = () => {
    if (document.fullscreenElement) return;
    document.removeEventListener("fullscreenchange", leave);
    sentence.width = usual;
    draw();
  };
  await parts.requestFullscreen();
  document.addEventListener("fullscreenchange", leave);
  sentence.width = innerWidth - 48;
  draw();
}
