// Punctuation between words, as leaves of a tree or as a cue to constituents. The rules are the same as in
// `onlstm_hf/trees/punctuation.py` and `mark_offsets` of `onlstm_hf/text/word_alignment.py`.

import { key, treeOf } from "./spans.js";

// Standard deviations that a mark adds to the distance of the word after it.
const CUE_STRENGTH = 4;

// Opening marks, each with the marks that can close it.
const CLOSING_MARKS = {
  ...{ "(": ")", "[": "]", "{": "}", "（": "）", "［": "］", "｛": "｝" },
  ...{ "〈": "〉", "《": "》", "「": "」", "『": "』", "【": "】" },
  ...{ "“": '”"', "‘": "’", "„": "“”", "‚": "‘’", "«": "»", "‹": "›", "»": "«»", "›": "‹›", "”": "”" },
  ...{ '"': '"', "'": "'", "`": "`'", "*": "*", _: "_", "¿": "?", "¡": "!" },
};
// Marks in the spelling of the Penn Treebank.
const PENN_MARKS = {
  ...{ "``": "“", "''": "”", "-LRB-": "(", "-RRB-": ")" },
  ...{ "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}" },
};
// A bracket in that spelling, or any one character with what joins it to the rest of an emoji.
const BRACKET_OR_CHARACTER = /-[LR][RCS]B-|.[\u200d\u{e0020}-\u{e007f}]*/gisu;
const SPACE = /[\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/u;

// Returns the positions [start, end) of the marks before each word of a text and after the last one. Repeated marks and
// neighbouring symbols count as one mark; brackets and directed quotation marks are separate.
export function marksOf(text, places) {
  return [...places, [text.length]].map(([to], gap) => {
    const marks = [],
      from = gap ? places[gap - 1][1] : 0;
    let previous = "";
    for (const { 0: mark, index } of text.slice(from, to).matchAll(BRACKET_OR_CHARACTER)) {
      const start = from + index,
        end = start + mark.length,
        run = runOf(mark, start);
      if (run && run === previous) marks.at(-1)[1] = end;
      else if (run) marks.push([start, end]);
      previous = run;
    }
    return marks;
  });
}

function runOf(mark, start) {
  const character = String.fromCodePoint(mark.codePointAt(0));
  if (SPACE.test(character) || /[\p{Cc}\p{Cf}]/u.test(character)) return ""; // invisible
  if (/^[\p{Ps}\p{Pe}\p{Pi}\p{Pf}]|B-$/iu.test(mark)) return `${mark} at ${start}`;
  return /\p{P}/u.test(character) ? character : "symbols";
}

// Raises the distance of each word after a mark, except the first word.
export function raiseAtMarks(distances, marks) {
  const mean = distances.reduce((a, b) => a + b, 0) / distances.length;
  const variance = distances.reduce((sum, distance) => sum + (distance - mean) ** 2, 0) / distances.length;
  const step = CUE_STRENGTH * Math.sqrt(variance);
  return distances.map((distance, word) => distance + (word && marks[word].length ? step : 0));
}

// Attaches marks to a tree of words, as treebanks do: { words, spans, labels, wordAt }, where `wordAt` maps words to
// leaves. A pair of opening and closing marks is attached to the smallest constituent with all words between them. A
// single opening mark begins the largest constituent after it; all other marks are attached as high as possible.
export function attachMarks(tree, text, places, marks) {
  const leaves = [],
    wordAt = [],
    allMarks = [];
  marks.forEach((between, gap) => {
    for (const place of between) {
      allMarks.push(markOf(text, place, places[gap - 1], places[gap], gap, leaves.length));
      leaves.push(place);
    }
    if (gap < places.length) wordAt.push(leaves.push(places[gap]) - 1);
  });
  const attached = constituentsWithMarks(tree.spans, allMarks, wordAt);
  const spanOnLeaves = ([start, end]) => {
    if (end - start === places.length) return [0, leaves.length];
    const inside = attached.filter(({ gap, holder }) => (gap === start || gap === end) && has([start, end], holder));
    const covered = [wordAt[start], wordAt[end - 1], ...inside.map(({ leaf }) => leaf)];
    return [Math.min(...covered), Math.max(...covered) + 1];
  };
  const onLeaves = new Map(tree.spans.map((span) => [key(span), spanOnLeaves(span)]));
  const labels = [...(tree.labels ?? [])].map(([span, names]) => [key(onLeaves.get(span)), names]);
  const words = leaves.map(([start, end]) => text.slice(start, end));
  return { ...treeOf(words, [...onLeaves.values()]), labels: new Map(labels), wordAt };
}

// Spaces around a mark decide whether it can open or close, because some quotation marks look the same at both ends.
function markOf(text, [start, end], before, after, gap, leaf) {
  const mark = text.slice(start, end),
    kind = PENN_MARKS[mark.toUpperCase()] ?? String.fromCodePoint(mark.codePointAt(0));
  const touchesLeft = Boolean(before) && !SPACE.test(text.slice(before[1], start)),
    touchesRight = Boolean(after) && !SPACE.test(text.slice(end, after[0]));
  const isAmbiguous = Object.hasOwn(CLOSING_MARKS, kind);
  const opensByNature = /[\p{Ps}\p{Pi}¿¡]/u.test(kind);
  return {
    kind,
    gap,
    leaf,
    canOpen: opensByNature || (isAmbiguous && (touchesRight || !touchesLeft)),
    canClose: !isAmbiguous || touchesLeft || !touchesRight,
  };
}

// Pairs each closing mark with the last open mark of its kind. Open marks between them stay single.
function pairsOf(marks) {
  const pairs = [],
    opened = [];
  for (const mark of marks) {
    const depth = mark.canClose ? opened.findLastIndex(({ kind }) => CLOSING_MARKS[kind]?.includes(mark.kind)) : -1;
    if (depth >= 0) pairs.push([opened.splice(depth)[0], mark]);
    else if (mark.canOpen) opened.push(mark);
  }
  return pairs;
}

// Returns the marks at the ends of constituents, with the constituents to which they are attached.
function constituentsWithMarks(spans, marks, wordAt) {
  const holders = new Map(),
    closing = new Set();
  for (const [first, last] of pairsOf(marks)) {
    closing.add(last.leaf);
    const holder = smallestWith(spans, [first.gap, last.gap]);
    if (holder) [first, last].forEach(({ leaf }) => holders.set(leaf, holder));
  }
  const largest = new Map([...spans].reverse().map((span) => [span[0], span])); // the largest span by first word
  const following = [...wordAt];
  for (const { leaf, gap, canOpen } of [...marks].reverse()) {
    if (!largest.has(gap) || leaf !== following[gap] - 1 || !canOpen || closing.has(leaf)) continue;
    if (!holders.has(leaf)) holders.set(leaf, largest.get(gap));
    if (holders.get(leaf)[0] === gap) following[gap] = leaf;
  }
  return marks
    .filter(({ leaf }) => holders.has(leaf))
    .map(({ leaf, gap }) => ({ leaf, gap, holder: holders.get(leaf) }));
}

// Returns the smallest constituent with these words, or null without words or if a constituent crosses them.
function smallestWith(spans, words) {
  const [start, end] = words;
  let smallest = null;
  for (const span of start < end ? spans : []) {
    const [from, to] = span;
    if (has(span, words)) smallest = span;
    else if ((from < start && start < to) || (from < end && end < to)) return null;
  }
  return smallest;
}

const has = ([from, to], [start, end]) => from <= start && end <= to;
