// The checkpoints of this page: their descriptions, their tokenizers, and their results from the worker.

import { Tokenizer } from "./tokenizer.js";

const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
const waiting = new Map();
let lastId = 0,
  failure = null;

worker.addEventListener("message", ({ data: { id, reading, problem } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (problem) reject(new Error(problem));
  else resolve(reading);
});
worker.addEventListener("error", () => {
  failure = new Error("The model could not be run in this browser.");
  for (const { reject } of waiting.values()) reject(failure);
  waiting.clear();
});

function ask(message) {
  if (failure) return Promise.reject(failure);
  const id = ++lastId;
  worker.postMessage({ id, ...message });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

async function fetchJson(path) {
  const answer = await fetch(new URL(`../${path}`, import.meta.url));
  if (!answer.ok) throw new Error(`${path} could not be loaded (${answer.status})`);
  return answer.json();
}

export const loadSite = () => fetchJson("site.json");
// The recorded training runs from `training/record_growth.py`.
export const loadGrowth = () =>
  Promise.all(["toy-english", "penn-treebank"].map((name) => fetchJson(`growing/${name}.json`)));

const checkpoints = new Map();

// Returns a checkpoint by name, whose weights are loaded in the background.
export function checkpoint(name) {
  if (!checkpoints.has(name)) {
    const loading = Checkpoint.load(name);
    loading.catch(() => checkpoints.delete(name));
    checkpoints.set(name, loading);
  }
  return checkpoints.get(name);
}

export const describe = (name) => fetchJson(`models/${encodeURIComponent(name)}/model.json`);

class Checkpoint {
  static async load(name) {
    const folder = `models/${encodeURIComponent(name)}`;
    ask({ name }).catch(() => {}); // starts to load the weights; errors appear with the first reading
    const [about, tokenizer] = await Promise.all([
      fetchJson(`${folder}/model.json`),
      fetchJson(`${folder}/tokenizer.json`),
    ]);
    return new Checkpoint(name, about, new Tokenizer(tokenizer));
  }

  constructor(name, about, tokenizer) {
    Object.assign(this, { name, about, tokenizer });
    this.readings = new Map();
  }

  get hasTrees() {
    return this.about.layers.length > 0;
  }

  // Returns the results of the model for the tokens of a sentence; see `LanguageModel.read`.
  read(ids) {
    const key = ids.join(" ");
    if (!this.readings.has(key)) {
      const reading = ask({ name: this.name, ids });
      reading.catch(() => this.readings.delete(key));
      this.readings.set(key, reading);
      if (this.readings.size > 200) this.readings.delete(this.readings.keys().next().value);
    }
    return this.readings.get(key);
  }
}
