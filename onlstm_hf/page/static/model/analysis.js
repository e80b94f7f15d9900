// What a model finds in a sentence or a gold tree, word by word.

import { readTree } from "../trees/brackets.js";
import { hasInner } from "../trees/scores.js";
import { treeOf } from "../trees/spans.js";
import { treeFromDistances } from "../trees/distances.js";

// The words of a part of a text (see `partsOf`) as a tokenizer reads them: { words, ids, wordOfToken, isUnknown, gold,
// labels, named }. Of a tree in brackets each word is read by itself; it may become several words or none.
export function encodePart({ text, isTree }, tokenizer) {
  if (!isTree) return { ...tokenizer.read(text), gold: null, named: [] };
  const tree = readTree(text);
  if (!hasInner(tree)) return { ...tokenizer.read(tree.words.join(" ")), gold: null, named: tree.named, isFlat: true };
  const encoded = { words: [], ids: [], wordOfToken: [], isUnknown: [] },
    starts = [0];
  for (const word of tree.words) {
    const read = tokenizer.read(word);
    encoded.wordOfToken.push(...read.wordOfToken.map((index) => encoded.words.length + index));
    for (const name of ["words", "ids", "isUnknown"]) encoded[name].push(...read[name]);
    starts.push(encoded.words.length);
  }
  const labels = new Map();
  const spans = tree.spans
    .map(([start, end]) => [starts[start], starts[end]])
    .filter(([start, end]) => end - start > 1);
  for (const [place, names] of tree.labels) {
    const [start, end] = place.split("-").map(Number);
    const key = `${starts[start]}-${starts[end]}`;
    if (names.length) labels.set(key, [...(labels.get(key) ?? []), ...names]);
  }
  return { ...encoded, gold: { ...treeOf(encoded.words, spans), labels }, named: tree.named };
}

// Reads an encoded sentence with a checkpoint, and adds for each word what was found: `surprisals`, `endSurprisal`,
// `expected` (the likeliest words there, and last of all after the sentence), `distances` and `gates` by layer.
export async function analyze(encoded, checkpoint) {
  const reading = await checkpoint.read(encoded.ids);
  const { words, wordOfToken } = encoded;
  const firstToken = words.map((_, word) => wordOfToken.indexOf(word));
  const surprisals = words.map(() => 0);
  wordOfToken.forEach((word, token) => (surprisals[word] += reading.surprisals[token]));
  const guesses = (place) =>
    reading.expected[place].map(({ id, probability }) => ({
      word: id === checkpoint.about.config.eos_token_id ? END : checkpoint.tokenizer.words[id],
      probability,
    }));
  return {
    ...encoded,
    surprisals,
    endSurprisal: reading.surprisals.at(-1),
    expected: [...firstToken, wordOfToken.length].map(guesses),
    distances: reading.distances.map((layer) => firstToken.map((token) => layer[token])),
    gates: reading.forgetGates.map((layer) => firstToken.map((token) => layer[token])),
  };
}

export const END = "(end)";

export const total = ({ surprisals, endSurprisal }) => surprisals.reduce((a, b) => a + b, endSurprisal);

// The tree of a layer, counted from 0, by a rule.
export const treeOfLayer = ({ words, distances }, layer, rule) => treeFromDistances(distances[layer], words, rule);

export const shareUnknown = ({ isUnknown }) => isUnknown.filter(Boolean).length / Math.max(isUnknown.length, 1);
