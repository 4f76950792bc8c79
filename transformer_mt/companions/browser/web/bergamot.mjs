// node bergamot.mjs ENGINE FOLDER [--time] < a JSON list of lines: their translations by Bergamot, as JSON.
// ENGINE is the folder `worker` of the package @browsermt/bergamot-translator, FOLDER an export.
import { readFileSync } from "node:fs";
import { join } from "node:path";

// As a data URL, since Node takes a .js file outside of a package for another kind of module.
const module = encodeURIComponent(readFileSync(new URL("bergamot.js", import.meta.url), "utf8"));
const { openEngine } = await import(`data:text/javascript,${module}`);
const [engine, folder] = process.argv.slice(2);
const { model, vocabularies, shortlist, config } = JSON.parse(readFileSync(join(folder, "metadata.json"), "utf8")).files;
const LINES = 32; // as a page has

const translate = await openEngine({
  start: new Function("Module", readFileSync(join(engine, "bergamot-translator-worker.js"), "utf8")),
  wasm: readFileSync(join(engine, "bergamot-translator-worker.wasm")),
  model: readFileSync(join(folder, model)),
  vocabularies: [...new Set(vocabularies)].map((name) => readFileSync(join(folder, name))),
  shortlist: shortlist && readFileSync(join(folder, shortlist)),
  config: readFileSync(join(folder, config)),
});
const lines = JSON.parse(readFileSync(0, "utf8"));
translate(lines.slice(0, 2)); // the model is made ready by the first lines
const begun = performance.now();
const results = [];
for (let i = 0; i < lines.length; i += LINES) results.push(...translate(lines.slice(i, i + LINES)));
if (process.argv[4] === "--time") console.error(`${((performance.now() - begun) / 1000).toFixed(3)} s`);
console.log(JSON.stringify(results));
