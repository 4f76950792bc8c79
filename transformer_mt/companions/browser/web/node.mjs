// node node.mjs FOLDER < a JSON list of lines: their translations by the JavaScript of an export, as JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const folder = new URL(`${pathToFileURL(process.argv[2])}/`);
const at = (name) => new URL(name, folder).href;
const read = async (name) => new Uint8Array(readFileSync(new URL(name, folder)));
const ort = await import(at("runtime/ort.wasm.min.js"));
const { loadTokenizer } = await import(at("runtime/sentencepiece.js"));
const { Translator } = await import(at("translator.js"));
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { mjs: at("runtime/ort-wasm.js"), wasm: at("runtime/ort-wasm.wasm") };
ort.env.wasm.wasmBinary = await read("runtime/ort-wasm.wasm");

const lines = JSON.parse(readFileSync(0, "utf8"));
const translator = await Translator.load(ort, loadTokenizer, read);
await translator.translate(lines.slice(0, 2).join("\n")); // as the page does, with its division of texts
const begun = performance.now();
const results = await translator.searched(lines.map((line) => translator.encode(line)));
if (process.argv[3] === "--time") console.error(`${((performance.now() - begun) / 1000).toFixed(3)} s`);
console.log(JSON.stringify(results.map(({ text, score }) => ({ text, score }))));
