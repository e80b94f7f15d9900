// Reading of matrices from a checkpoint's file, and products for recurrent networks.

// Returns the tensors of a file by name. `descriptions` has the shape and storage of each: "float32", or "integer": a
// float32 scale per row, then the low bytes of all integers, then their high bytes.
export function readTensors(buffer, descriptions) {
  const tensors = {};
  let offset = 0;
  for (const { name, shape, dtype } of descriptions) {
    const rows = shape[0],
      size = shape.reduce((product, length) => product * length, 1),
      columns = size / rows;
    const first = new Float32Array(buffer, offset, dtype === "integer" ? rows : size);
    let data = first,
      numBytes = first.byteLength;
    if (dtype === "integer") {
      const low = new Int8Array(buffer, offset + numBytes, size);
      const high = new Int8Array(buffer, offset + numBytes + size, size);
      data = expand(first, low, high, columns);
      numBytes += 2 * size;
    }
    offset += numBytes + (-numBytes & 3);
    tensors[name] = { data, rows, columns };
  }
  if (offset !== buffer.byteLength) throw new Error("the weights of this model are incomplete; load the page again");
  return tensors;
}

function expand(scales, low, high, columns) {
  const values = new Float32Array(low.length);
  for (let row = 0, index = 0; row < scales.length; row++) {
    const scale = scales[row];
    for (const end = index + columns; index < end; index++) values[index] = (256 * high[index] + low[index]) * scale;
  }
  return values;
}

// W x + b for each of the `count` consecutive vectors in `inputs`. Eight vectors share one pass over the weights. Their
// numbers are interleaved, in JavaScript's double precision.
export function affine(inputs, count, { data, rows, columns }, bias = null) {
  const outputs = new Float32Array(count * rows);
  const block = new Float64Array(8 * columns),
    sums = new Float64Array(8);
  for (let first = 0; first < count; first += 8) {
    const size = Math.min(8, count - first);
    for (let vector = 0; vector < size; vector++) {
      const start = (first + vector) * columns;
      for (let index = 0; index < columns; index++) block[8 * index + vector] = inputs[start + index];
    }
    for (let row = 0; row < rows; row++) {
      multiplyRow(data, row * columns, columns, block, sums);
      const shift = bias ? bias.data[row] : 0;
      for (let vector = 0; vector < size; vector++) outputs[(first + vector) * rows + row] = sums[vector] + shift;
    }
  }
  return outputs;
}

function multiplyRow(data, start, columns, block, sums) {
  let [a, b, c, d, e, f, g, h] = [0, 0, 0, 0, 0, 0, 0, 0];
  for (let index = 0, at = 0; index < columns; index++, at += 8) {
    const weight = data[start + index];
    a += weight * block[at];
    b += weight * block[at + 1];
    c += weight * block[at + 2];
    d += weight * block[at + 3];
    e += weight * block[at + 4];
    f += weight * block[at + 5];
    g += weight * block[at + 6];
    h += weight * block[at + 7];
  }
  sums.set([a, b, c, d, e, f, g, h]);
}

// W x + b for one vector; four rows share one pass over it.
export function affineStep(input, { data, rows, columns }, bias = null) {
  const outputs = new Float32Array(rows);
  const dot = (row) => {
    let sum = 0;
    for (let index = 0, start = row * columns; index < columns; index++) sum += data[start + index] * input[index];
    return sum;
  };
  let row = 0;
  for (; row + 3 < rows; row += 4) {
    const a = row * columns,
      b = a + columns,
      c = b + columns,
      d = c + columns;
    let w = 0,
      x = 0,
      y = 0,
      z = 0;
    for (let index = 0; index < columns; index++) {
      const value = input[index];
      w += data[a + index] * value;
      x += data[b + index] * value;
      y += data[c + index] * value;
      z += data[d + index] * value;
    }
    outputs[row] = w;
    outputs[row + 1] = x;
    outputs[row + 2] = y;
    outputs[row + 3] = z;
  }
  for (; row < rows; row++) outputs[row] = dot(row);
  if (bias) for (row = 0; row < rows; row++) outputs[row] += bias.data[row];
  return outputs;
}

export const rowOf = ({ data, columns }, row) => data.subarray(row * columns, (row + 1) * columns);

// Returns the concatenated embeddings of tokens.
export function lookUp(embeddings, ids) {
  const vectors = new Float32Array(ids.length * embeddings.columns);
  ids.forEach((id, index) => vectors.set(rowOf(embeddings, id), index * embeddings.columns));
  return vectors;
}

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

export function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const terms = Float64Array.from(scores, (score) => Math.exp(score - largest));
  const total = terms.reduce((a, b) => a + b, 0);
  return terms.map((term) => term / total);
}

export function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}
