// The ON-LSTM of Shen, Tan, Sordoni & Courville (ICLR 2019), equations 6 to 14. `C` levels of memory have `K` units
// each: the first levels forget often, the last ones remember long.

import { affine, affineStep, lookUp, mean, sigmoid, softmax } from "./tensors.js";

// Equation 6: a cumulative softmax, which rises from 0 to 1 over the levels.
export function cumax(logits) {
  let sum = 0;
  return softmax(logits).map((share) => (sum += share));
}

// Reads the tokens `ids` and returns the outputs of the last layer, one vector per token, and for each layer the
// distances and master forget gates of the tokens.
export function readOnlstm(tensors, config, ids) {
  let inputs = lookUp(tensors["embeddings.weight"], ids);
  const distances = [],
    forgetGates = [];
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const part = (name) => tensors[`layers.${layer}.${name}`];
    const gates = affine(inputs, ids.length, part("input_projection.weight"), part("input_projection.bias"));
    const output = readLayer(
      gates,
      ids.length,
      part("recurrent_projection.weight"),
      part("recurrent_projection.bias"),
      config.chunk_size,
    );
    inputs = output.hidden;
    forgetGates.push(output.forgetGates);
    distances.push(output.forgetGates.map((gate) => 1 - mean(gate)));
  }
  return { hidden: inputs, distances, forgetGates };
}

function readLayer(inputGates, length, weight, bias, chunkSize) {
  const size = weight.columns,
    levels = size / chunkSize,
    numGates = weight.rows;
  const outputs = new Float32Array(length * size),
    forgetGates = [];
  let hidden = new Float32Array(size);
  const cell = new Float32Array(size);
  for (let step = 0; step < length; step++) {
    const gates = affineStep(hidden, weight, bias);
    for (let row = 0; row < numGates; row++) gates[row] += inputGates[step * numGates + row];
    const at = (start, unit) => gates[2 * levels + start * size + unit];

    // Equations 7 to 10: how much of each memory level is written and how much is kept.
    const masterInput = cumax(gates.subarray(0, levels)).map((value) => 1 - value);
    const masterForget = cumax(gates.subarray(levels, 2 * levels));
    hidden = outputs.subarray(step * size, (step + 1) * size);
    for (let unit = 0; unit < size; unit++) {
      const level = Math.floor(unit / chunkSize);
      // Equations 11 to 14: where both master gates are open, the standard LSTM gates decide.
      const overlap = masterForget[level] * masterInput[level];
      const forget = sigmoid(at(2, unit)) * overlap + (masterForget[level] - overlap);
      const input = sigmoid(at(1, unit)) * overlap + (masterInput[level] - overlap);
      cell[unit] = forget * cell[unit] + input * Math.tanh(at(0, unit));
      hidden[unit] = sigmoid(at(3, unit)) * Math.tanh(cell[unit]);
    }
    forgetGates.push(Array.from(masterForget));
  }
  return { hidden: outputs, forgetGates };
}
