// Web worker that runs the models, so that the page stays responsive. Messages are { id, name, ids }; the first message
// for a model loads it.

import { LanguageModel } from "./language_model.js";

const models = new Map();

async function load(name) {
  const folder = new URL(`../models/${encodeURIComponent(name)}/`, import.meta.url);
  const [description, buffer] = await Promise.all([
    fetchFile(new URL("model.json", folder)).then((answer) => answer.json()),
    fetchFile(new URL("weights.bin", folder)).then(unpack),
  ]);
  return new LanguageModel(description, buffer);
}

async function unpack(answer) {
  try {
    return await new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  } catch (error) {
    throw new Error(`the weights of this model cannot be unpacked (${error.message}); load the page again`);
  }
}

async function fetchFile(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address.pathname.split("/").at(-1)} could not be loaded (${answer.status})`);
  return answer;
}

addEventListener("message", async ({ data: { id, name, ids } }) => {
  try {
    if (!models.has(name)) models.set(name, load(name));
    const model = await models.get(name);
    postMessage({ id, reading: ids && model.read(ids) });
  } catch (error) {
    models.delete(name);
    postMessage({ id, problem: error.message });
  }
});
