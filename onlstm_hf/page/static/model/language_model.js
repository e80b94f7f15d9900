// A language model: the weights of a checkpoint, and its results for a sentence.

import { readOnlstm } from "./onlstm.js";
import { readPrpn } from "./prpn.js";
import { readRnn } from "./rnn.js";
import { affine, readTensors } from "./tensors.js";

const READERS = { onlstm: readOnlstm, prpn: readPrpn, rnn: readRnn };
const NUM_EXPECTED = 5;

export class LanguageModel {
  constructor({ config, tensors }, buffer) {
    this.config = config;
    this.tensors = readTensors(buffer, tensors);
    this.decoder = this.tensors["lm_head.weight"] ?? this.tensors["embeddings.weight"];
  }

  // Reads the token ids of a sentence after one end token, and returns
  //   surprisals   of each token and of the final end token, in bits
  //   expected     the most probable tokens at each of these places: { id, probability }
  //   distances    one number per token, for each layer with distances
  //   forgetGates  one number per memory level for each token, for each layer with these gates
  read(ids) {
    const targets = [...ids, this.config.eos_token_id];
    const { hidden, distances, forgetGates } = this.run(ids);
    const scores = affine(hidden, targets.length, this.decoder, this.tensors["lm_head.bias"]);
    const size = this.decoder.rows;
    const places = targets.map((target, place) => predict(scores.subarray(place * size, (place + 1) * size), target));
    return {
      surprisals: places.map(({ surprisal }) => surprisal),
      expected: places.map(({ expected }) => expected),
      distances,
      forgetGates,
    };
  }

  // The forward pass without predictions: outputs of the last layer, distances and gates.
  run(ids) {
    const { config } = this;
    const { hidden, distances, forgetGates } = READERS[config.model_type](this.tensors, config, [
      config.eos_token_id,
      ...ids,
    ]);
    const withoutEnd = (layers) => layers.map((layer) => layer.slice(1));
    return { hidden, distances: withoutEnd(distances), forgetGates: withoutEnd(forgetGates) };
  }
}

function predict(scores, target) {
  let largest = -Infinity;
  for (const score of scores) if (score > largest) largest = score;
  let total = 0;
  for (const score of scores) total += Math.exp(score - largest);
  const logTotal = largest + Math.log(total);
  const best = [];
  for (let id = 0; id < scores.length; id++) {
    if (best.length === NUM_EXPECTED && scores[id] <= scores[best.at(-1)]) continue;
    let place = best.length;
    while (place > 0 && scores[best[place - 1]] < scores[id]) place--;
    best.splice(place, 0, id);
    best.length = Math.min(best.length, NUM_EXPECTED);
  }
  return {
    surprisal: (logTotal - scores[target]) / Math.LN2,
    expected: best.map((id) => ({ id, probability: Math.exp(scores[id] - logTotal) })),
  };
}
