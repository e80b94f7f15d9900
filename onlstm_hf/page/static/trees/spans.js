// Constituents as [start, end) over the words of a sentence.

export const sortSpans = (spans) => spans.sort(([a, b], [c, d]) => a - c || d - b);

export const key = ([start, end]) => `${start}-${end}`;

export const keysOf = (spans) => new Set(spans.map(key));

export const crosses = ([a, b], [c, d]) => (a < c && c < b && b < d) || (c < a && a < d && d < b);

// Baseline trees. In a right-branching tree, each word and everything after it form a constituent.
export function rightBranching(words) {
  return { words, spans: words.slice(1).map((_, start) => [start, words.length]) };
}

export function leftBranching(words) {
  return { words, spans: words.slice(1).map((_, index) => [0, words.length - index]) };
}

// Returns the tree with these constituents and the whole sentence, sorted and without duplicates.
export function treeOf(words, spans) {
  const whole = words.length > 1 ? [[0, words.length]] : [];
  const unique = new Map([...whole, ...spans].map((span) => [key(span), span]));
  return { words, spans: sortSpans([...unique.values()]) };
}

// Converts a tree to nested nodes { span, children }; a word is a node without children.
export function nest({ words, spans }) {
  const root = { span: [0, words.length], children: [] };
  const open = [root];
  let next = spans.length && key(spans[0]) === key(root.span) ? 1 : 0;
  words.forEach((_, word) => {
    while (open.length > 1 && open.at(-1).span[1] <= word) open.pop();
    for (; next < spans.length && spans[next][0] === word; next++) {
      const node = { span: spans[next], children: [] };
      open.at(-1).children.push(node);
      open.push(node);
    }
    open.at(-1).children.push({ span: [word, word + 1], children: [] });
  });
  return root;
}
