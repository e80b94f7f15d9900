// Trees drawn by the students of a class: one file per student, and the agreement between them.

import { hasInner, score } from "./scores.js";
import { crosses, key, treeOf } from "./spans.js";

const FORMAT = "onlstm_hf class",
  VERSION = 1;
const MAX_BYTES = 200_000,
  MAX_SENTENCES = 100,
  MAX_WORDS = 200;

export function writeAnswers(name, trees) {
  const answers = trees.map(({ words, spans }) => ({ words, spans }));
  return `${JSON.stringify({ format: FORMAT, version: VERSION, name, answers }, null, 1)}\n`;
}

// Reads a student's name and trees from a file. The file is untrusted, so everything is checked.
export function readAnswers(text) {
  const refuse = (what) => {
    throw new Error(`this is no file of a student's answers: ${what}`);
  };
  if (text.length > MAX_BYTES) refuse("it is too large");
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    refuse("it is not JSON");
  }
  if (content?.format !== FORMAT || content.version !== VERSION) refuse("it is of another format");
  const { name, answers } = content;
  if (typeof name !== "string" || name.length > 80) refuse("it has no name");
  if (!Array.isArray(answers) || answers.length > MAX_SENTENCES) refuse("it has no answers");
  const trees = answers.map((answer) => {
    const { words, spans } = answer ?? {};
    if (
      !Array.isArray(words) ||
      words.length > MAX_WORDS ||
      !words.every((word) => typeof word === "string" && word.length < 200)
    ) {
      refuse("a sentence in it has no words");
    }
    const isSpan = (span) =>
      Array.isArray(span) &&
      span.length === 2 &&
      span.every(Number.isInteger) &&
      span[0] >= 0 &&
      span[0] < span[1] - 1 &&
      span[1] <= words.length;
    if (!Array.isArray(spans) || spans.length > words.length || !spans.every(isSpan))
      refuse("a tree in it is not one of its sentence");
    if (spans.some((one) => spans.some((other) => crosses(one, other)))) refuse("brackets in it cross");
    return treeOf(words, spans);
  });
  return { name: name.trim() || "somebody", trees };
}

// Returns for each sentence the mean F1 between students and with reference trees: { words, students, between, others }.
// `references` has lists of trees by name. Sentences are identified by their words.
export function agreement(students, references) {
  const sentences = new Map();
  for (const { name, trees } of students) {
    for (const tree of trees) {
      const text = tree.words.join(" ");
      if (!sentences.has(text)) sentences.set(text, []);
      if (hasInner(tree)) sentences.get(text).push({ name, tree });
    }
  }
  return [...sentences].map(([text, drawn]) => {
    const pairs = drawn.flatMap((one, index) => drawn.slice(index + 1).map((other) => mutual(one.tree, other.tree)));
    const others = Object.fromEntries(
      Object.entries(references).map(([name, trees]) => {
        const reference = trees.find((tree) => tree && tree.words.join(" ") === text);
        return [
          name,
          reference && hasInner(reference) && drawn.length
            ? mean(drawn.map(({ tree }) => score(tree, reference).f1))
            : null,
        ];
      }),
    );
    return {
      text,
      words: text.split(" "),
      students: drawn.length,
      between: pairs.length ? mean(pairs) : null,
      others,
      votes: votes(drawn),
    };
  });
}

const mutual = (one, other) => score(one, other).f1;

const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

// Counts the students who drew each constituent, in descending order.
function votes(drawn) {
  const counts = new Map();
  for (const { tree } of drawn) {
    for (const span of tree.spans) {
      if (span[1] - span[0] === tree.words.length) continue;
      counts.set(key(span), { span, count: 1 + (counts.get(key(span))?.count ?? 0) });
    }
  }
  return [...counts.values()].sort((a, b) => b.count - a.count || a.span[0] - b.span[0]);
}
