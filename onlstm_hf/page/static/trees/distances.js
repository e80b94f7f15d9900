// Trees from the distances of words, and the order of their splits.
//
// A tree is { words, spans }: `spans` are its constituents of two words or more, including the whole sentence, as
// [start, end) over the words. They are sorted by start, then longest first.

import { sortSpans } from "./spans.js";

// Recursively splits a sentence at its largest distance. Ties are broken in favour of the first distance, with "ranges"
// the last one.
//   "right"   the papers' rule: [words before i, [word i, words after i]]
//   "none"    unbiased: [words before i, words from i]; the distance of the first word is not used
//   "ranges"  the rule of a PRPN's gates at infinite temperature
export const RULE_NAMES = { right: "papers' rule", none: "unbiased rule", ranges: "ranges of a PRPN's gates" };

export function treeFromDistances(distances, words, rule) {
  return { words, distances, spans: sortSpans(constituents(distances, rule)) };
}

function constituents(distances, rule) {
  const spans = [],
    last = distances.length - 1;
  if (rule === "right") {
    rangesOfMaxima(distances).forEach(([start, end], word) => {
      if (end - start > 1) spans.push([start, end]);
      if (start < word && word < end - 1) spans.push([word, end]);
    });
  } else if (rule === "none") {
    for (const [start, end] of rangesOfMaxima(distances.slice(1))) spans.push([start, end + 1]);
  } else {
    for (const [start, end] of rangesOfMaxima(distances.slice(1).reverse()))
      spans.push([last - end, last - start + 1]);
  }
  return spans;
}

// Returns for each index the widest range [start, end) around it in which its value is the first maximum.
function rangesOfMaxima(values) {
  const starts = values.map(() => 0),
    ends = values.map(() => values.length);
  const stillMaxima = []; // indices whose ranges reach the current index; their values never increase
  values.forEach((value, index) => {
    while (stillMaxima.length && values[stillMaxima.at(-1)] < value) ends[stillMaxima.pop()] = index;
    if (stillMaxima.length) starts[index] = stillMaxima.at(-1) + 1;
    stillMaxima.push(index);
  });
  return starts.map((start, index) => [start, ends[index]]);
}

// Returns the splits of a tree in descending order of distance: { word, distance, span, parts, made }. `span` is the span
// to split, `parts` are the resulting spans (two, or up to three with the papers' rule), and `made` are the constituents
// that this split adds.
export function splitsOf({ words, distances }, rule) {
  const waiting = [[0, words.length]],
    splits = [];
  while (waiting.length) {
    const [start, end] = waiting.pop();
    if (end - start < 2) continue;
    const word = largest(distances, start, end, rule);
    const parts =
      rule === "right"
        ? [
            [start, word],
            [word, word + 1],
            [word + 1, end],
          ]
        : [
            [start, word],
            [word, end],
          ];
    const made = [[start, end]];
    if (rule === "right" && start < word && word < end - 1) made.push([word, end]);
    const kept = parts.filter(([from, to]) => from < to);
    splits.push({ word, distance: distances[word], span: [start, end], parts: kept, made });
    waiting.push(...kept.filter(([from, to]) => !(rule === "right" && from === word)));
  }
  const length = ({ span: [start, end] }) => end - start;
  return splits.sort((a, b) => b.distance - a.distance || length(b) - length(a));
}

function largest(distances, start, end, rule) {
  let best = rule === "right" ? start : start + 1;
  for (let word = best + 1; word < end; word++) {
    if (distances[word] > distances[best] || (rule === "ranges" && distances[word] === distances[best])) best = word;
  }
  return best;
}
