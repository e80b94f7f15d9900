// The PRPN of Shen, Lin, Huang & Courville (ICLR 2018): a parsing network computes distances, which open and close the
// last memories; a reading network and a predict network attend to the open ones.

import { affine, affineStep, lookUp, sigmoid } from "./tensors.js";

// Reads the tokens `ids` and returns the decoder inputs, one vector per token, the distance of each token, and for each
// token the gates of its memories in the reading network, newest first.
export function readPrpn(tensors, config, ids) {
  const length = ids.length;
  const embeddings = lookUp(tensors["embeddings.weight"], ids);
  const { distances, nextDistances } = config.parsing_network
    ? parse(tensors, config, embeddings, length)
    : { distances: new Array(length).fill(0), nextDistances: new Array(length).fill(0) };
  const readingGates = memoryGates(distances, distances, config);
  const predictionGates = memoryGates(nextDistances, distances, config);

  let inputs = embeddings;
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const part = (name) => tensors[`reading_network.${layer}.${name}`];
    inputs = readLayer(part, inputs, length, readingGates, config);
  }
  const hidden = predict(tensors, config, inputs, length, predictionGates);
  return config.parsing_network
    ? { hidden, distances: [distances], forgetGates: [readingGates] }
    : { hidden, distances: [], forgetGates: [] };
}

// The paper's section "Parsing Network": two convolution layers compute the distance of a word and the expected distance
// of the next word.
function parse(tensors, config, embeddings, length) {
  const part = (name) => tensors[`parsing_network.${name}`];
  const width = config.lookback + 1,
    size = config.embedding_size;
  const windows = new Float32Array(length * size * width);
  for (let time = 0; time < length; time++) {
    for (let place = 0; place < width; place++) {
      const source = time - config.lookback + place;
      if (source < 0) continue; // zero padding before the text
      for (let unit = 0; unit < size; unit++) {
        windows[(time * size + unit) * width + place] = embeddings[source * size + unit];
      }
    }
  }
  const features = affine(windows, length, part("convolution.weight"), part("convolution.bias"));
  normalizeBatch(features, length, part, "norm");
  features.forEach((value, index) => (features[index] = Math.max(value, 0)));
  const { data, columns } = part("distance_convolution.weight"),
    bias = part("distance_convolution.bias").data;
  const distance = (time, which) => {
    let sum = bias[which];
    const start = time * 2 * columns + which * columns;
    for (let unit = 0; unit < columns; unit++) sum += data[which * columns + unit] * features[start + unit];
    return sigmoid(sum);
  };
  const times = [...new Array(length).keys()];
  return { distances: times.map((time) => distance(time, 0)), nextDistances: times.map((time) => distance(time, 1)) };
}

// The section "Modeling Syntactic Structure": a memory closes when a later word has a larger distance.
function memoryGates(own, distances, { num_slots, resolution, hard, parsing_network }) {
  return own.map((distance, time) => {
    let open = 1;
    return Array.from({ length: num_slots }, (_, slot) => {
      const difference = (distance - (distances[time - slot] ?? Infinity)) / resolution;
      const alpha = hard ? Math.min(Math.max(difference * 2 + 1, -1), 1) / 2 + 0.5 : sigmoid(difference * 10 + 5);
      open *= parsing_network ? alpha : Number(slot <= time);
      return open;
    });
  });
}

// The section "Reading Network": an LSTM whose previous state is an attention-weighted sum of its memories.
function readLayer(part, inputs, length, gates, config) {
  const size = config.hidden_size,
    inputSize = inputs.length / length;
  const inputGates = affine(inputs, length, part("input_projection.weight"), part("input_projection.bias"));
  for (let time = 0; time < length; time++) {
    normalize(inputGates.subarray(time * 4 * size, (time + 1) * 4 * size), part, "input_norm");
  }
  const hidden = new Float32Array(length * size),
    cell = new Float32Array(length * size);
  for (let time = 0; time < length; time++) {
    let attention = { weights: [1], sum: 1 };
    if (config.reading_attention) {
      const keyInput = new Float32Array(inputSize + size);
      keyInput.set(inputs.subarray(time * inputSize, (time + 1) * inputSize));
      if (time > 0) keyInput.set(hidden.subarray((time - 1) * size, time * size), inputSize);
      const key = affineStep(keyInput, part("key_projection.weight"), part("key_projection.bias"));
      attention = attend(key, hidden, time, gates[time], size);
    }
    const summaryHidden = summary(attention, hidden, time, size);
    const summaryCell = summary(attention, cell, time, size);
    const step = affineStep(summaryHidden, part("recurrent_projection.weight"), part("recurrent_projection.bias"));
    normalize(step, part, "recurrent_norm");
    step.forEach((value, index) => (step[index] = value + inputGates[time * 4 * size + index]));
    const newCell = cell.subarray(time * size, (time + 1) * size);
    for (let unit = 0; unit < size; unit++) {
      newCell[unit] =
        sigmoid(step[size + unit]) * summaryCell[unit] + sigmoid(step[unit]) * Math.tanh(step[2 * size + unit]);
    }
    const normalized = normalize(Float32Array.from(newCell), part, "cell_norm");
    for (let unit = 0; unit < size; unit++) {
      hidden[time * size + unit] = sigmoid(step[3 * size + unit]) * Math.tanh(normalized[unit]);
    }
  }
  return hidden;
}

// The section "Predict Network": attention to the memories through the expected gates of the next word.
function predict(tensors, config, hidden, length, gates) {
  const part = (name) => tensors[`predict_network.${name}`];
  const size = config.hidden_size;
  let features = hidden,
    width = size;
  if (config.prediction_attention) {
    width = 2 * size;
    features = new Float32Array(length * width);
    const keys = affine(hidden, length, part("key_projection.weight"), part("key_projection.bias"));
    for (let time = 0; time < length; time++) {
      const attention = attend(keys.subarray(time * size, (time + 1) * size), hidden, time, gates[time], size);
      features.set(hidden.subarray(time * size, (time + 1) * size), time * width);
      features.set(summary(attention, hidden, time, size), time * width + size);
    }
  }
  for (let block = 0; block < config.num_residual_blocks; block++) {
    const inBlock = (name) => part(`residual_blocks.${block}.${name}`);
    const inner = affine(features, length, inBlock("input_projection.weight"), inBlock("input_projection.bias"));
    normalizeBatch(inner, length, inBlock, "input_norm");
    inner.forEach((value, index) => (inner[index] = Math.max(value, 0)));
    const outer = affine(inner, length, inBlock("output_projection.weight"), inBlock("output_projection.bias"));
    normalizeBatch(outer, length, inBlock, "output_norm");
    features = outer.map((value, index) => Math.max(features[index] + value, 0));
  }
  const outputs = affine(features, length, part("output_projection.weight"), part("output_projection.bias"));
  normalizeBatch(outputs, length, part, "output_norm");
  return outputs.map(Math.tanh);
}

// Structured attention (section 4.2): a softmax over the memories, newest first, with terms weighted by the gates.
// Memories before the text are zeros and have score 0.
function attend(key, memories, time, gates, size) {
  const scores = gates.map((_, slot) => {
    const start = (time - 1 - slot) * size;
    let score = 0;
    if (start >= 0) for (let unit = 0; unit < size; unit++) score += key[unit] * memories[start + unit];
    return score / Math.sqrt(size);
  });
  const largest = Math.max(...scores);
  const weights = scores.map((score, slot) => Math.exp(score - largest) * gates[slot]);
  return { weights, sum: weights.reduce((a, b) => a + b, 0) + 1e-8 };
}

function summary({ weights, sum }, memories, time, size) {
  const total = new Float32Array(size);
  for (let slot = 0; slot < weights.length && slot < time; slot++) {
    const start = (time - 1 - slot) * size,
      share = weights[slot] / sum;
    for (let unit = 0; unit < size; unit++) total[unit] += share * memories[start + unit];
  }
  return total;
}

// In-place layer normalisation with the unbiased standard deviation plus 1e-6.
function normalize(values, part, name) {
  const gain = part(`${name}.weight`).data,
    bias = part(`${name}.bias`).data,
    size = values.length;
  const mean = values.reduce((a, b) => a + b, 0) / size;
  const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (size - 1);
  const deviation = Math.sqrt(variance) + 1e-6;
  values.forEach((value, index) => (values[index] = (gain[index] * (value - mean)) / deviation + bias[index]));
  return values;
}

// In-place batch normalisation with running statistics.
function normalizeBatch(values, length, part, name) {
  const [gain, bias, mean, variance] = ["weight", "bias", "running_mean", "running_var"].map(
    (kind) => part(`${name}.${kind}`).data,
  );
  const size = values.length / length;
  values.forEach((value, index) => {
    const unit = index % size;
    values[index] = (gain[unit] * (value - mean[unit])) / Math.sqrt(variance[unit] + 1e-5) + bias[unit];
  });
}
