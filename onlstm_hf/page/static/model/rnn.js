// Recurrent baselines without trees: LSTM, GRU and simple recurrent network, as in PyTorch.

import { affine, affineStep, lookUp, sigmoid } from "./tensors.js";

// Reads the tokens `ids` and returns the outputs of the last layer, one vector per token.
export function readRnn(tensors, config, ids) {
  let inputs = lookUp(tensors["embeddings.weight"], ids);
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const part = (name) => tensors[`layers.${layer}.${name}`];
    const gates = affine(inputs, ids.length, part("input_projection.weight"), part("input_projection.bias"));
    inputs = readLayer(
      gates,
      ids.length,
      part("recurrent_projection.weight"),
      part("recurrent_projection.bias"),
      STEPS[config.cell_type],
    );
  }
  return { hidden: inputs, distances: [], forgetGates: [] };
}

function readLayer(inputGates, length, weight, bias, step) {
  const size = weight.columns;
  const outputs = new Float32Array(length * size);
  let hidden = new Float32Array(size);
  const cell = new Float32Array(size);
  for (let time = 0; time < length; time++) {
    const inner = affineStep(hidden, weight, bias);
    const outer = inputGates.subarray(time * weight.rows, (time + 1) * weight.rows);
    const next = outputs.subarray(time * size, (time + 1) * size);
    for (let unit = 0; unit < size; unit++)
      next[unit] = step(
        (gate) => outer[gate * size + unit],
        (gate) => inner[gate * size + unit],
        hidden[unit],
        cell,
        unit,
      );
    hidden = next;
  }
  return outputs;
}

// Returns the new hidden state of a unit from the input and hidden contributions to each gate.
const STEPS = {
  lstm(x, h, hidden, cell, unit) {
    const gate = (index) => x(index) + h(index);
    cell[unit] = sigmoid(gate(1)) * cell[unit] + sigmoid(gate(0)) * Math.tanh(gate(2));
    return sigmoid(gate(3)) * Math.tanh(cell[unit]);
  },
  gru(x, h, hidden) {
    const reset = sigmoid(x(0) + h(0)),
      update = sigmoid(x(1) + h(1));
    return (1 - update) * Math.tanh(x(2) + reset * h(2)) + update * hidden;
  },
  rnn: (x, h) => Math.tanh(x(0) + h(0)),
};
