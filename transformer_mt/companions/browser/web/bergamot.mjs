// node bergamot.mjs ENGINE FOLDER < a JSON list of lines: their translations by Bergamot's engine, as JSON.
// ENGINE is the folder `worker` of the package @browsermt/bergamot-translator, FOLDER an export.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [engine, folder] = process.argv.slice(2);
const facts = JSON.parse(readFileSync(join(folder, "metadata.json"), "utf8")).files;
const LINES = 64;

/** The engine's module, which is written for a worker of a browser, with its own integer products. */
function load() {
  const glue = readFileSync(join(engine, "bergamot-translator-worker.js"), "utf8");
  const products = {
    int8_prepare_a: "int8PrepareAFallback",
    int8_prepare_b: "int8PrepareBFallback",
    int8_prepare_b_from_transposed: "int8PrepareBFromTransposedFallback",
    int8_prepare_b_from_quantized_transposed: "int8PrepareBFromQuantizedTransposedFallback",
    int8_prepare_bias: "int8PrepareBiasFallback",
    int8_multiply_and_add_bias: "int8MultiplyAndAddBiasFallback",
    int8_select_columns_of_b: "int8SelectColumnsOfBFallback",
  };
  return new Promise((resolve, reject) => {
    const Module = { printErr: (line) => console.error(line), onAbort: reject };
    Module.onRuntimeInitialized = () => resolve(Module);
    const gemm = Object.entries(products).map(([name, own]) => [name, (...args) => Module.asm[own](...args)]);
    Module.instantiateWasm = (imports, accept) => {
      const wasm = readFileSync(join(engine, "bergamot-translator-worker.wasm"));
      const all = { ...imports, wasm_gemm: Object.fromEntries(gemm) };
      WebAssembly.instantiate(wasm, all).then(({ instance }) => accept(instance), reject);
      return {};
    };
    new Function("Module", glue)(Module);
  });
}

const bergamot = await load();
process.on("uncaughtException", (error) => {
  // An exception of C++ is the address of an object, whose second word is the address of its message.
  const [bytes, words] = [bergamot.HEAPU8, bergamot.HEAPU32];
  const start = typeof error === "number" ? words[(error + 4) >> 2] : 0;
  const message = start ? new TextDecoder().decode(bytes.slice(start, bytes.indexOf(0, start))) : error.stack;
  console.error(`Error: ${message}`);
  process.exit(1);
});
const inMemory = (bytes, alignment) => {
  const memory = new bergamot.AlignedMemory(bytes.length, alignment);
  memory.getByteArrayView().set(bytes);
  return memory;
};
const read = (name) => new Int8Array(readFileSync(join(folder, name)));
const vocabularies = new bergamot.AlignedMemoryList();
for (const name of new Set(facts.vocabularies)) vocabularies.push_back(inMemory(read(name), 64));
const model = new bergamot.TranslationModel(
  readFileSync(join(folder, facts.config), "utf8").replace(/^(relative-paths|models|vocabs):.*\n(- .*\n)*/gm, ""),
  inMemory(read(facts.model), 256),
  inMemory(new Int8Array(0), 64), // no shortlist
  vocabularies,
  null,
);
const service = new bergamot.BlockingService({ cacheSize: 0 });

function translated(lines) {
  const texts = new bergamot.VectorString();
  const options = new bergamot.VectorResponseOptions();
  for (const line of lines) {
    texts.push_back(line);
    options.push_back({ qualityScores: false, alignment: false, html: false });
  }
  const responses = service.translate(model, texts, options);
  const results = lines.map((_, i) => responses.get(i).getTranslatedText());
  for (const object of [texts, options, responses]) object.delete();
  return results;
}

const lines = JSON.parse(readFileSync(0, "utf8"));
translated(lines.slice(0, 1)); // the model is made ready by the first line
const begun = performance.now();
const results = [];
for (let i = 0; i < lines.length; i += LINES) results.push(...translated(lines.slice(i, i + LINES)));
if (process.argv[4] === "--time") console.error(`${((performance.now() - begun) / 1000).toFixed(3)} s`);
console.log(JSON.stringify(results));
