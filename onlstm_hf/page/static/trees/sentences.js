// Parses the input text: sentences and trees in brackets.

import { looksLikeTree } from "./brackets.js";

const ABBREVIATION =
  /(^|\s|\()(mr|mrs|ms|dr|prof|sen|rep|gov|gen|st|jr|sr|inc|corp|co|ltd|vs|etc|jan|feb|aug|sept|oct|nov|dec|([a-z]\.)*[a-z])\.\s*$/i;
const NUMBER_FOLLOWS = /(^|\s|\()nos?\.\s*$/i; // “no. 5”, unlike “He said no. They left.”

// Returns the parts of a text: { text, isTree }. A tree in brackets may span several lines. Other lines are sentences; a
// line with several sentences is split. `split` counts such lines.
export function partsOf(text, language = "en") {
  const parts = [];
  let unclosed = "",
    numSplit = 0;
  for (const line of text.split(/\r\n|\r|\n/)) {
    const whole = `${unclosed} ${line.trim()}`.trim();
    unclosed = isOpen(whole) ? whole : "";
    if (!whole || unclosed) continue;
    if (looksLikeTree(whole)) {
      parts.push({ text: whole, isTree: true });
      continue;
    }
    const sentences = splitSentences(whole, language);
    numSplit += sentences.length > 1;
    parts.push(...sentences.map((sentence) => ({ text: sentence, isTree: false })));
  }
  if (unclosed) {
    throw new SyntaxError(
      `the brackets of “${unclosed.slice(0, 40)}” are never closed; a line that begins with a ` +
        "bracket begins a gold tree",
    );
  }
  return { parts, numSplit };
}

function isOpen(text) {
  const opening = text[0],
    closing = { "(": ")", "[": "]" }[opening];
  return Boolean(closing) && text.split(opening).length > text.split(closing).length;
}

export function splitSentences(text, language) {
  if (!globalThis.Intl?.Segmenter) return [text];
  const sentences = [];
  for (const { segment } of new Intl.Segmenter(language, { granularity: "sentence" }).segment(text)) {
    const before = sentences.at(-1) ?? "";
    const isWithin = ABBREVIATION.test(before) || (NUMBER_FOLLOWS.test(before) && /^\d/.test(segment));
    if (isWithin) sentences.push(sentences.pop() + segment);
    else sentences.push(segment);
  }
  return sentences.map((sentence) => sentence.trim()).filter(Boolean);
}
