// Matrices: how they are read from a checkpoint's file, and the products that a recurrent network needs.

// The tensors of a file by name. `descriptions` says of each its shape, and how it is stored: "float32", or "int8", rows
// of integers after one float32 for each row, the scale to multiply them with. The first `fine` rows have 16 bits.
export function readTensors(buffer, descriptions) {
  const tensors = {};
  let offset = 0;
  for (const { name, shape, dtype, fine = 0 } of descriptions) {
    const rows = shape[0],
      size = shape.reduce((product, length) => product * length, 1),
      columns = size / rows;
    let data, numBytes;
    if (dtype === "int8") {
      const scales = new Float32Array(buffer, offset, rows);
      const first = new Int16Array(buffer, offset + 4 * rows, fine * columns);
      const others = new Int8Array(buffer, offset + 4 * rows + 2 * fine * columns, (rows - fine) * columns);
      data = new Float32Array(size);
      expand(first, scales.subarray(0, fine), data.subarray(0, first.length));
      expand(others, scales.subarray(fine), data.subarray(first.length));
      numBytes = 4 * rows + 2 * first.length + others.length;
    } else {
      data = new Float32Array(buffer, offset, size);
      numBytes = 4 * size;
    }
    offset += numBytes + (-numBytes & 3);
    tensors[name] = { data, rows, columns };
  }
  if (offset !== buffer.byteLength) throw new Error("the weights of this model are incomplete; load the page again");
  return tensors;
}

function expand(integers, scales, values) {
  const columns = integers.length / scales.length;
  for (let row = 0, index = 0; row < scales.length; row++) {
    const scale = scales[row];
    for (const end = index + columns; index < end; index++) values[index] = integers[index] * scale;
  }
}

// W x + b for each of `count` vectors that stand one after the other in `inputs`. Four vectors share one pass over the
// weights, which are what takes the time.
export function affine(inputs, count, { data, rows, columns }, bias = null) {
  const outputs = new Float32Array(count * rows);
  for (let first = 0; first < count; first += 4) {
    const [a, b, c, d] = [0, 1, 2, 3].map((step) => Math.min(first + step, count - 1) * columns);
    for (let row = 0; row < rows; row++) {
      const start = row * columns;
      let w = 0,
        x = 0,
        y = 0,
        z = 0;
      for (let index = 0; index < columns; index++) {
        const weight = data[start + index];
        w += weight * inputs[a + index];
        x += weight * inputs[b + index];
        y += weight * inputs[c + index];
        z += weight * inputs[d + index];
      }
      const shift = bias ? bias.data[row] : 0;
      outputs[first * rows + row] = w + shift;
      if (first + 1 < count) outputs[(first + 1) * rows + row] = x + shift;
      if (first + 2 < count) outputs[(first + 2) * rows + row] = y + shift;
      if (first + 3 < count) outputs[(first + 3) * rows + row] = z + shift;
    }
  }
  return outputs;
}

// W x + b for one vector: four rows share one pass over it.
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

// The embeddings of tokens, one after the other.
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
