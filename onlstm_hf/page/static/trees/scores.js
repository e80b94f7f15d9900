// Scores of a tree against another tree of the same sentence.

import { keysOf } from "./spans.js";

const EPSILON = 1e-8;

// Precision, recall and F1 as in the authors' code: the whole sentence never counts, and recall is 1 if there is no other
// gold constituent.
export function score(tree, gold) {
  const [predicted, expected] = [tree, gold].map(inner);
  const overlap = [...predicted].filter((span) => expected.has(span)).length;
  const precision = !expected.size && !predicted.size ? 1 : overlap / (predicted.size + EPSILON);
  const recall = expected.size ? overlap / (expected.size + EPSILON) : 1;
  return { precision, recall, f1: (2 * precision * recall) / (precision + recall + EPSILON) };
}

function inner({ words, spans }) {
  const keys = keysOf(spans);
  keys.delete(`0-${words.length}`);
  return keys;
}

export const hasInner = (tree) => inner(tree).size > 0;
