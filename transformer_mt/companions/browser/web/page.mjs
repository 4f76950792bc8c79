// node page.mjs FOLDER [--time] < a JSON list of lines: their translations by the JavaScript of a page, as JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = new URL(`${pathToFileURL(process.argv[2])}/`);
const at = (name) => new URL(name, folder).href;
const read = async (name) => new Uint8Array(readFileSync(new URL(name, folder)));
const { load } = await import(at("engine.js"));
const translator = await load(read, at);
const lines = JSON.parse(readFileSync(0, "utf8"));
await translator.translate(lines.slice(0, 2).join("\n")); // as the page does, with its division of texts
const begun = performance.now();
const results = await translator.searched(lines.map((line) => translator.encode(line)));
if (process.argv[3] === "--time") console.error(`${((performance.now() - begun) / 1000).toFixed(3)} s`);
console.log(JSON.stringify(results.map(({ text }) => text)));
