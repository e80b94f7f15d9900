// The results of a model for a sentence or a gold tree, word by word.

import { readTree } from "../trees/brackets.js";
import { hasInner } from "../trees/scores.js";
import { treeOf } from "../trees/spans.js";
import { treeFromDistances } from "../trees/distances.js";
import { attachMarks, marksOf, raiseAtMarks } from "../trees/punctuation.js";

// Tokenizes a part of a text (see `partsOf`): { text, words, places, ids, wordOfToken, isUnknown, gold, named }, where
// `places` are the positions of the words in the text. The words of a tree in brackets are tokenized one by one, and may
// become several words or none. The text of a tree is its words and tagged marks, joined by spaces.
export function encodePart(part, tokenizer) {
  if (!part.isTree) return { text: part.text, ...tokenizer.read(part.text), gold: null, named: [] };
  const tree = readTree(part.text);
  if (!hasInner(tree)) {
    const text = tree.words.join(" ");
    return { text, ...tokenizer.read(text), gold: null, named: tree.named, isFlat: true };
  }
  const encoded = { text: "", words: [], places: [], ids: [], wordOfToken: [], isUnknown: [] },
    starts = [0];
  tree.words.forEach((word, index) => {
    const read = tokenizer.read(word);
    encoded.text += [...tree.marks[index], ""].join(" ");
    encoded.places.push(...read.places.map((place) => place.map((at) => encoded.text.length + at)));
    encoded.text += `${word} `;
    encoded.wordOfToken.push(...read.wordOfToken.map((number) => encoded.words.length + number));
    for (const name of ["words", "ids", "isUnknown"]) encoded[name].push(...read[name]);
    starts.push(encoded.words.length);
  });
  encoded.text += tree.marks.at(-1).join(" ");
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

const MAX_WORDS = 120;

// Runs a checkpoint on an encoded sentence and adds the results for each word: `surprisals`, `endSurprisal`, `expected`
// (the most probable words at each place and at the end; `came` marks the actual word), `distances` and `gates` by layer.
// With punctuation "cue" the distances are raised at marks.
export async function analyze(encoded, checkpoint, punctuation = "drop") {
  const { words, wordOfToken } = encoded;
  if (words.length > MAX_WORDS) {
    throw new Error(
      `The sentence that begins with “${words.slice(0, 5).join(" ")}” has ${words.length} words; at most ${MAX_WORDS} can be parsed.`,
    );
  }
  const reading = await checkpoint.read(encoded.ids);
  const firstToken = words.map((_, word) => wordOfToken.indexOf(word));
  const surprisals = words.map(() => 0);
  wordOfToken.forEach((word, token) => (surprisals[word] += reading.surprisals[token]));
  const guesses = (place) =>
    reading.expected[place].map(({ id, probability }) => {
      const end = checkpoint.about.config.eos_token_id;
      return {
        word: id === end ? END : checkpoint.tokenizer.words[id],
        probability,
        came: id === (encoded.ids[place] ?? end),
      };
    });
  return {
    ...encoded,
    surprisals,
    endSurprisal: reading.surprisals.at(-1),
    expected: [...firstToken, wordOfToken.length].map(guesses),
    distances: reading.distances.map((layer) => {
      const ofWords = firstToken.map((token) => layer[token]);
      return punctuation === "cue" ? raiseAtMarks(ofWords, marksOf(encoded.text, encoded.places)) : ofWords;
    }),
    gates: reading.forgetGates.map((layer) => firstToken.map((token) => layer[token])),
  };
}

export const END = "(end)";

export const total = ({ surprisals, endSurprisal }) => surprisals.reduce((a, b) => a + b, endSurprisal);

// Returns the tree of a layer, counted from 0, by a rule.
export const treeOfLayer = ({ words, distances }, layer, rule) => treeFromDistances(distances[layer], words, rule);

// An analysis and its tree over leaves: the words and, with punctuation "attach", the marks between them, which have no
// results. `wordAt` maps each word to its leaf, and `wordsIn` converts a constituent over leaves into one over words.
export function onLeaves({ analysis, tree, punctuation }) {
  const { text, places, gold } = analysis;
  const marks = punctuation === "attach" ? marksOf(text, places) : [...places, null].map(() => []);
  const attach = (tree) => tree && attachMarks(tree, text, places, marks);
  const { words, wordAt } = attach(tree ?? { spans: [] });
  const spread = (values) => {
    const ofLeaves = words.map(() => null);
    values.forEach((value, word) => (ofLeaves[wordAt[word]] = value));
    return ofLeaves;
  };
  return {
    words,
    wordAt,
    wordsIn: (span) => span.map((edge) => wordAt.filter((leaf) => leaf < edge).length),
    tree: attach(tree),
    gold: attach(gold),
    isUnknown: spread(analysis.isUnknown),
    surprisals: spread(analysis.surprisals),
    distances: analysis.distances.map(spread),
  };
}

export const shareUnknown = ({ isUnknown }) => isUnknown.filter(Boolean).length / Math.max(isUnknown.length, 1);
