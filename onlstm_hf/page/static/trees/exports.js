// Trees and numbers in formats of other programs.

import { nest } from "./spans.js";

// `leaf` writes a word, `node` a constituent from its parts.
function fold(tree, leaf, node) {
  const visit = ({ span: [start, end], children }, isRoot) =>
    children.length || isRoot ? node(children.map((child) => visit(child, false))) : leaf(tree.words[start], end);
  return visit(nest(tree), true);
}

// Escapes a word like `InducedTree.to_bracket`, so that `from_bracket` reads it back.
const bracketed = (word) =>
  word
    .replace(/\\|-(?=[LR]RB[-()])/g, "\\$&")
    .replaceAll("(", "-LRB-")
    .replaceAll(")", "-RRB-");
const squared = (word) => word.replaceAll("[", "-LSB-").replaceAll("]", "-RSB-");

export const toBrackets = (tree) => inBrackets(tree, bracketed, "(", ")");

export const toSquareBrackets = (tree) => inBrackets(tree, squared, "[", "]");

// The first word gets its own brackets if it would look like a label: ((a) (b c) (d e)).
function inBrackets(tree, write, opening, closing) {
  const isBinary = tree.spans.length === tree.words.length - 1;
  const isApart = !isBinary && looksLabelled(nest(tree));
  const enclosed = (text) => `${opening}${text}${closing}`;
  const leaf = (word, end) => (isApart && end === 1 ? enclosed(write(word)) : write(word));
  return fold(tree, leaf, (parts) => enclosed(parts.join(" ")));
}

const isWord = ({ children }) => !children.length;

// Returns whether each constituent could be read as a label with one word or with constituents.
function looksLabelled({ children: [first, ...others] }) {
  const isTagged = others.length === 1 && isWord(others[0]);
  const isLabelled = others.every((other) => !isWord(other) && looksLabelled(other));
  return Boolean(first) && isWord(first) && others.length > 0 && (isTagged || isLabelled);
}

const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
const latex = (word) => `{${word.replace(/[\\~^&%$#_{}]/g, (character) => LATEX[character] ?? `\\${character}`)}}`;

export const toQtree = (tree) => `\\Tree ${fold(tree, latex, (parts) => `[.{} ${parts.join(" ")} ]`)}`;

export const toForest = (tree) =>
  `\\begin{forest} nice empty nodes\n${fold(
    tree,
    (word) => `[${latex(word)}]`,
    (parts) => `[${parts.join(" ")}]`,
  )}\n\\end{forest}`;

// Writes tab-separated values, quoted like Python's `csv`. Cells that a spreadsheet would read as formulas get an
// apostrophe in front.
export function toTsv(rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : typeof value === "number" ? shown(value) : String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /["\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join("\t")}\r\n`).join("");
}

export const shown = (value) => String(Number(value.toPrecision(4)));

// Returns a file name for a sentence: its ASCII letters and digits, with hyphens for other characters.
export function fileStem(title) {
  const stem = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, 60);
  return stem.replace(/^-+|-+$/g, "") || "sentence";
}
