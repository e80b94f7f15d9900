// Gold trees in round or square brackets, with or without labels.

import { sortSpans } from "./spans.js";

const CLOSING = { "(": ")", "[": "]" };
// Tags of leaves that are not words in the papers' protocol: punctuation, currency signs, empty elements.
const MARK_TAGS = new Set([",", ".", ":", "``", "''", "-LRB-", "-RRB-", "HYPH", "NFP"]);
const DROPPED_TAGS = new Set([...MARK_TAGS, "$", "#", "C$", "A$", "-NONE-"]);
const ROOTS = new Set(["TOP", "ROOT", "S1", "VROOT"]);
const LABELS = new Set(
  (
    "s sbar sbarq sinv sq np vp pp ap adjp advp adv whnp whpp whadjp whadvp qp nx prn prt frag intj lst nac rrc ucp x xp " +
    "dp ip cp tp np nbar n v d p c t det aux nom card conjp negp infl comp root top vroot s1"
  ).split(" "),
);
const TAGS = new Set(
  (
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ " +
    "WDT WP WP$ WRB ADJ ADV NUM PRON NOUN VERB ADP"
  ).split(" "),
);
const FORM = /^\.?[A-Za-z][A-Za-z0-9]*\$?['’]*([-_=|+][A-Za-z0-9]+)*$|^-[A-Z]+-$|^[.,:$#]$|^(``|'')$/;

// Returns whether a part of a text is a tree, that is, enclosed in a matching pair of brackets.
export function looksLikeTree(text) {
  text = withoutTree(text);
  const closing = CLOSING[text[0]];
  if (!closing || text.at(-1) !== closing) return false;
  let depth = 0;
  for (let index = 0; index < text.length; index++) {
    if (text[index] === text[0]) depth++;
    if (text[index] === closing) depth--;
    if (depth === 0 && index < text.length - 1) return /^\s*[([]/.test(text.slice(index + 1));
  }
  return true;
}

// Reads a tree: { words, spans, labels, named, marks }. `labels` has the labels of each constituent by span; `named` are
// all labels in text order; `marks` has the tagged marks, which are not words, before each word and after the last one.
// `spans` are the constituents of two words or more.
export function readTree(text) {
  text = withoutTree(text);
  const root = parse(text),
    isLatex = /^\[\s*\./.test(text);
  const unescaped = isLatex ? fromLatex : fromBrackets;
  const labelled = hasLabels(root);
  const words = [],
    spans = [],
    labels = new Map(),
    named = new Set(),
    marks = [[]];
  const add = (word) => {
    words.push(unescaped(word));
    marks.push([]);
  };
  const visit = (node, isRoot) => {
    const { parts } = node;
    if (labelled && parts.length === 2 && parts.every(isText)) {
      const [tag, word] = parts;
      if (MARK_TAGS.has(tag)) marks.at(-1).push(unescaped(word));
      if (DROPPED_TAGS.has(tag)) return;
      named.add(cleaned(tag));
      add(word);
      return;
    }
    const hasLabel = labelled && isText(parts[0]) && parts.length > 1;
    const label = hasLabel ? cleaned(parts[0]) : null;
    if (label) named.add(label);
    const start = words.length;
    for (const part of hasLabel ? parts.slice(1) : parts) {
      if (isText(part)) add(part);
      else visit(part, false);
    }
    const wraps = isRoot && labelled && (label === null || ROOTS.has(label));
    if (words.length - start > 1 && !wraps) {
      const span = [start, words.length],
        place = `${start}-${words.length}`;
      if (!labels.has(place)) spans.push(span);
      labels.set(place, [label, ...(labels.get(place) ?? [])].filter(Boolean));
    }
  };
  visit(root, true);
  if (words.length > 1 && !labels.has(`0-${words.length}`)) spans.push([0, words.length]);
  return { words, spans: sortSpans(spans), labels, named: [...named], marks };
}

const isText = (part) => typeof part === "string";

const cleaned = (label) => label.replace(/^\./, "").replace(/(?<=.)[-=].*$/, "");

// Trees for LaTeX's qtree begin with \Tree. Their labels begin with a dot, and their words may be in braces.
const withoutTree = (text) => text.replace(/^\\Tree\s*/, "");

const fromLatex = (word) =>
  word
    .replace(/^\{(.+)\}$/, "$1")
    .replace(
      /\\text(backslash|asciitilde|asciicircum)\{\}/g,
      (_, name) => ({ backslash: "\\", asciitilde: "~", asciicircum: "^" })[name],
    )
    .replace(/\\([&%$#_{}])/g, "$1");

// Unescapes brackets and slashes in words, as in the Penn Treebank.
const fromBrackets = (word) =>
  word
    .replace(/-([LR])([RSC])B-/g, (_, side, kind) => ({ R: "()", S: "[]", C: "{}" })[kind][side === "L" ? 0 : 1])
    .replace(/\\\//g, "/");

function parse(text) {
  const opening = text[0],
    closing = CLOSING[opening];
  const open = [{ parts: [] }];
  const tokens = opening === "[" ? /[[\]]|[^\s[\]]+/g : /[()]|[^\s()]+/g;
  for (const [token] of text.matchAll(tokens)) {
    if (token === opening) {
      open.push({ parts: [] });
    } else if (token === closing) {
      const node = open.pop();
      if (!open.length) throw new SyntaxError(`there is a “${closing}” too many`);
      if (!node.parts.length) throw new SyntaxError(`there is nothing between “${opening}” and “${closing}”`);
      open.at(-1).parts.push(node);
    } else if (token !== "{}" && token !== ".{}") {
      // the empty label of qtree
      open.at(-1).parts.push(token);
    }
  }
  if (open.length > 1) throw new SyntaxError(`a “${opening}” is never closed`);
  const [root, ...otherTrees] = open[0].parts;
  if (otherTrees.length) throw new SyntaxError(`there are ${1 + otherTrees.length} trees; write one per line`);
  return root;
}

// A tree has labels if the first item of every bracket with several items can be a label.
function hasLabels(root) {
  const first = [];
  let numTagged = 0,
    numBare = 0;
  const visit = ({ parts }) => {
    const texts = parts.filter(isText);
    const isTagged = parts.length === 2 && texts.length === 2;
    if (isText(parts[0]) && parts.length > 1) first.push(MARK_TAGS.has(parts[0]) && !isTagged ? "?" : parts[0]);
    else if (texts.length > 1) first.push("?"); // several words after a bracket
    if (isTagged) numTagged++;
    else numBare += Math.max(texts.length - 1, 0);
    parts.filter((part) => !isText(part)).forEach(visit);
  };
  visit(root);
  if (!first.length) return false;
  if (numBare === 0 && numTagged > 1 && hasOnlyTags(root)) return true;
  const numKnown = first.filter(isKnownLabel).length;
  return (
    first.every((text) => FORM.test(text) && (isKnownLabel(text) || /[A-Z]/.test(text))) && 2 * numKnown >= first.length
  );
}

// Returns whether each word has its own bracket with a tag, and each other bracket a label, as in a treebank.
function hasOnlyTags(root) {
  const isTagged = ({ parts }) => parts.length === 2 && parts.every(isText);
  const check = (node, isRoot) => {
    if (isTagged(node)) return true;
    const [label, ...children] = isText(node.parts[0]) ? node.parts : [null, ...node.parts];
    if (label === null && !(isRoot && children.length === 1)) return false;
    return children.length > 0 && children.every((child) => !isText(child) && check(child, false));
  };
  return check(root, true);
}

function isKnownLabel(text) {
  const name = text.replace(/^\./, "").replace(/(?<=.)['’_=|+-].*$/, "");
  return LABELS.has(name.toLowerCase()) || /^[A-Za-z]+P$/.test(name) || TAGS.has(name) || DROPPED_TAGS.has(text);
}
