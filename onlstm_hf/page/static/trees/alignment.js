// Aligns the words of two sentences: pairs of indices, with null for a missing word. Shared words are aligned; the words
// between them are paired from the left.

export function align(first, second) {
  const lengths = Array.from({ length: first.length + 1 }, () => new Array(second.length + 1).fill(0));
  for (let i = first.length - 1; i >= 0; i--) {
    for (let j = second.length - 1; j >= 0; j--) {
      lengths[i][j] =
        first[i] === second[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const columns = [];
  let i = 0,
    j = 0,
    [left, right] = [[], []];
  const flush = () => {
    for (let index = 0; index < Math.max(left.length, right.length); index++)
      columns.push([left[index] ?? null, right[index] ?? null]);
    [left, right] = [[], []];
  };
  while (i < first.length || j < second.length) {
    if (
      i < first.length &&
      j < second.length &&
      first[i] === second[j] &&
      lengths[i][j] === lengths[i + 1][j + 1] + 1
    ) {
      flush();
      columns.push([i++, j++]);
    } else if (j >= second.length || (i < first.length && lengths[i + 1][j] >= lengths[i][j + 1])) left.push(i++);
    else right.push(j++);
  }
  flush();
  return columns;
}
