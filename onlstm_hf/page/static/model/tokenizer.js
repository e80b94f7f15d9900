// Runs a `tokenizer.json` of the library `tokenizers`, with the components that the tokenizers of this package use.
// Each character of the normalised text keeps its position in the typed text, so that words are shown as typed.

export class Tokenizer {
  constructor(description) {
    const { normalizer, pre_tokenizer: splitter, model, added_tokens: added } = description;
    this.normalize = normalizerOf(normalizer);
    this.split = splitterOf(splitter);
    this.added = new Map(added.map(({ content, id }) => [content, id]));
    this.addedPattern = new RegExp([...this.added.keys()].map(escapePattern).join("|") || "(?!)", "g");
    this.encodeWord = modelOf(model);
    this.unknown = model.vocab[model.unk_token] ?? this.added.get(model.unk_token);
    this.words = [];
    for (const [word, id] of [...Object.entries(model.vocab), ...this.added]) this.words[id] = word;
  }

  // Returns the tokens of a text with their positions: { id, start, end }.
  encode(text) {
    const tokens = [];
    const encodePlain = (from, to) => {
      for (const piece of this.split(this.normalize(aligned(text, from, to)))) tokens.push(...this.encodeWord(piece));
    };
    let from = 0;
    for (const { 0: content, index } of text.matchAll(this.addedPattern)) {
      encodePlain(from, index);
      from = index + content.length;
      tokens.push({ id: this.added.get(content), start: index, end: from });
    }
    encodePlain(from, text.length);
    return tokens;
  }

  // Returns the words of a sentence as typed, their positions and token ids: { words, places, ids, wordOfToken,
  // isUnknown }. Words are the pieces of the pre-tokenizer; text that it drops belongs to no word.
  read(text) {
    const places = wordPlaces(text, this.split(this.normalize(aligned(text, 0, text.length))));
    const tokens = places.length ? this.encode(text) : [];
    let current = 0;
    const read = tokens.map(({ id, start }) => {
      while (current < places.length - 1 && places[current][1] <= start) current++;
      return { id, word: current };
    });
    const found = new Set(read.map(({ word }) => word));
    places.forEach((_, word) => {
      if (!found.has(word)) read.push({ id: this.unknown, word });
    });
    read.sort((a, b) => a.word - b.word);
    const unknown = new Set(read.filter(({ id }) => id === this.unknown).map(({ word }) => word));
    return {
      words: places.map(([start, end]) => text.slice(start, end)),
      places,
      ids: read.map(({ id }) => id),
      wordOfToken: read.map(({ word }) => word),
      isUnknown: places.map((_, word) => unknown.has(word)),
    };
  }
}

// Positions of words. A number that the normaliser replaced with N has only the position of its last character. It
// begins with the first digit after the previous word.
const NUMBER = /\.?\p{Nd}.*/su;

function wordPlaces(text, pieces) {
  let previous = 0;
  return pieces.map((piece) => {
    let { start, end } = placeOf(piece);
    const number = piece.text === "N" && text.slice(start, end) !== "N" && NUMBER.exec(text.slice(previous, end));
    if (number) start = previous + number.index;
    previous = end;
    return [start, end];
  });
}

// A text with the position of each UTF-16 unit in the typed text.
function aligned(text, from, to) {
  const places = [];
  for (let index = from; index < to; index++) places.push([index, index + 1]);
  return { text: text.slice(from, to), places };
}

const cut = ({ text, places }, start, end) => ({ text: text.slice(start, end), places: places.slice(start, end) });

const placeOf = ({ places }) => ({ start: places[0][0], end: places.at(-1)[1] });

function normalizerOf(description) {
  if (!description) return (piece) => piece;
  const { type } = description;
  if (type === "Sequence") {
    const steps = description.normalizers.map(normalizerOf);
    return (piece) => steps.reduce((current, step) => step(current), piece);
  }
  if (type === "Lowercase") return (piece) => mapCharacters(piece, (character) => character.toLowerCase());
  if (type === "Replace") {
    const pattern = patternOf(description.pattern);
    return (piece) => replace(piece, pattern, description.content);
  }
  if (type === "Strip") {
    return (piece) => {
      const start = description.strip_left ? piece.text.length - piece.text.trimStart().length : 0;
      const end = description.strip_right ? piece.text.trimEnd().length : piece.text.length;
      return cut(piece, start, Math.max(start, end));
    };
  }
  if (/^NFK?[CD]$/.test(type)) return (piece) => mapCharacters(piece, (character) => character.normalize(type), true);
  throw new Error(`this page does not know the normalizer ${type}`);
}

// Rewrites each character (with `withMarks`, including its combining marks); the result keeps its position.
function mapCharacters({ text, places }, write, withMarks = false) {
  const result = { text: "", places: [] };
  for (const { 0: character, index } of text.matchAll(withMarks ? /\P{M}?\p{M}*/gsu : /./gsu)) {
    if (!character) continue;
    const written = write(character),
      place = [places[index][0], places[index + character.length - 1][1]];
    result.text += written;
    for (let unit = 0; unit < written.length; unit++) {
      result.places.push(written.length === character.length ? places[index + unit] : place);
    }
  }
  return result;
}

// A replacement gets the position of the last character of its match, as in the library.
function replace({ text, places }, pattern, content) {
  const result = { text: "", places: [] };
  let from = 0;
  for (const { 0: match, index } of text.matchAll(pattern)) {
    result.text += text.slice(from, index) + content;
    result.places.push(...places.slice(from, index));
    const last = match ? places[index + match.length - 1] : [places[index]?.[0] ?? 0, places[index]?.[0] ?? 0];
    for (let unit = 0; unit < content.length; unit++) result.places.push(last);
    from = index + match.length;
  }
  result.text += text.slice(from);
  result.places.push(...places.slice(from));
  return result;
}

function splitterOf(description) {
  if (!description) return (piece) => (piece.text ? [piece] : []);
  const { type } = description;
  if (type === "Sequence") {
    const steps = description.pretokenizers.map(splitterOf);
    return (piece) => steps.reduce((pieces, step) => pieces.flatMap(step), [piece]);
  }
  if (type === "WhitespaceSplit") return (piece) => splitAt(piece, SPACES, "Removed");
  if (type === "Whitespace")
    return (piece) => splitAt(piece, patternOf({ Regex: String.raw`\w+|[^\w\s]+` }), "Removed", true);
  if (type === "Split") {
    const pattern = patternOf(description.pattern);
    return (piece) => splitAt(piece, pattern, description.behavior, description.invert);
  }
  throw new Error(`this page does not know the pre-tokenizer ${type}`);
}

// Splits a piece at the matches of a pattern or, with `invert`, at the text between them.
function splitAt(piece, pattern, behavior, invert = false) {
  const pieces = [];
  let from = 0;
  const add = (start, end, isDelimiter) => {
    if (start < end && !(isDelimiter && behavior === "Removed")) pieces.push(cut(piece, start, end));
  };
  for (const { 0: match, index } of piece.text.matchAll(pattern)) {
    if (!match) continue;
    add(from, index, invert);
    from = index + match.length;
    add(index, from, !invert);
  }
  add(from, piece.text.length, invert);
  if (behavior !== "Removed" && behavior !== "Isolated")
    throw new Error(`this page does not know the split ${behavior}`);
  return pieces;
}

function modelOf({ type, vocab, unk_token: unknown, merges, continuing_subword_prefix: prefix }) {
  const ids = new Map(Object.entries(vocab));
  if (type === "WordLevel") {
    return (piece) => [{ id: ids.get(piece.text) ?? ids.get(unknown), ...placeOf(piece) }];
  }
  if (type === "BPE") {
    const ranks = new Map(
      merges.map((pair, rank) => [(Array.isArray(pair) ? pair : pair.split(" ")).join(" "), rank]),
    );
    return (piece) => encodePairs(piece, ids, unknown, ranks, prefix ?? "");
  }
  throw new Error(`this page does not know the tokenizer model ${type}`);
}

// Byte-pair encoding over characters: repeatedly merges the neighbours with the earliest merge rule.
function encodePairs(piece, ids, unknown, ranks, prefix) {
  const parts = [];
  for (const { 0: character, index } of piece.text.matchAll(/./gsu)) {
    parts.push({ text: (index ? prefix : "") + character, start: index, end: index + character.length });
  }
  const known = parts.map((part) => (ids.has(part.text) ? part : { ...part, text: null }));
  const rankOf = (index) => {
    const [first, second] = [known[index].text, known[index + 1].text];
    return first === null || second === null ? Infinity : (ranks.get(`${first} ${second}`) ?? Infinity);
  };
  const found = known.slice(1).map((_, index) => rankOf(index));
  for (;;) {
    let best = 0;
    for (let index = 1; index < found.length; index++) if (found[index] < found[best]) best = index;
    if (!(found[best] < Infinity)) break;
    const [first, second] = known.slice(best, best + 2);
    known.splice(best, 2, {
      text: first.text + second.text.slice(prefix.length),
      start: first.start,
      end: second.end,
    });
    found.splice(best, 1);
    for (const index of [best - 1, best]) if (index in found) found[index] = rankOf(index);
  }
  return known.map(({ text, start, end }) => ({ id: ids.get(text ?? unknown), ...placeOf(cut(piece, start, end)) }));
}

const escapePattern = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// Converts a regular expression of the library to JavaScript. In the library, classes such as \d and word boundaries
// follow Unicode.
const SPACE = String.raw`\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
const WORD = String.raw`[\p{L}\p{M}\p{N}\p{Pc}]`;
const SPACES = new RegExp(`[${SPACE}]+`, "gu"),
  VISIBLE = new RegExp(`[^${SPACE}]+`, "gu");
// Matches a user-perceived character, including combining marks and joined emoji.
const CLUSTER = String.raw`(?:\p{RI}\p{RI}|\P{M}(?:\p{M}|\p{EMod}|\u200d\p{ExtPict})*|\p{M}+)`;
const BORDER = `(?:(?<=${WORD})(?!${WORD})|(?<!${WORD})(?=${WORD}))`;

export function patternOf({ String: text, Regex: expression }) {
  if (text !== undefined) return new RegExp(escapePattern(text), "gu");
  let flags = "gmu",
    source = "",
    inClass = false;
  if (expression.startsWith("(?i)")) {
    expression = expression.slice(4);
    flags += "i";
  }
  for (const [token] of expression.matchAll(/\[\\s\\S\]|\\[pP]\{[^}]*\}|\\u[0-9a-fA-F]{4}|\\.|./gsu)) {
    if (token === "[" && !inClass) inClass = true;
    else if (token === "]") inClass = false;
    source += translated(token, inClass);
  }
  return new RegExp(source, flags);
}

function translated(token, inClass) {
  if (token === String.raw`[\s\S]`) return "[^]";
  if (token === "\\d") return String.raw`\p{Nd}`;
  if (token === "\\D") return String.raw`\P{Nd}`;
  if (token === "\\s") return inClass ? SPACE : `[${SPACE}]`;
  if (token === "\\S") return `[^${SPACE}]`;
  if (token === "\\w") return inClass ? WORD.slice(1, -1) : WORD;
  if (token === "\\b") return BORDER;
  if (token === "\\X") return CLUSTER;
  if (/^\\[^\p{L}\p{N}]$/u.test(token)) {
    const character = token[1];
    return /[\^$\\.*+?()[\]{}|/-]/.test(character) && !(character === "-" && !inClass) ? token : character;
  }
  return token;
}
