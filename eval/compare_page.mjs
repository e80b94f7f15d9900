// Reads sentences with a model of a written page, in Node: `node eval/compare_page.mjs FOLDER/models/NAME`. Takes lines
// of JSON, each the ids of a sentence, and answers each with a line of JSON, what the page finds in it. With
// --only-distances it leaves out what takes most of the time, the words that are expected.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const [folder, option] = process.argv.slice(2);
const { LanguageModel } = await import(pathToFileURL(`${folder}/../../model/language_model.js`));
const description = JSON.parse(readFileSync(`${folder}/model.json`, "utf-8"));
const bytes = gunzipSync(readFileSync(`${folder}/weights.bin`));
const model = new LanguageModel(description, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));

for await (const line of createInterface({ input: process.stdin })) {
  const started = performance.now();
  const ids = JSON.parse(line);
  const { distances } = option === "--only-distances" ? model.run(ids) : {};
  const reading = distances ? { distances } : model.read(ids);
  process.stdout.write(`${JSON.stringify({ ...reading, milliseconds: performance.now() - started })}\n`);
}
