// Bergamot's engine in WebAssembly: a model of Marian that translates whole sentences.
const LINES = 32; // sentences that are translated together; more are faster, but a cancel waits for them
// The products of matrices that the engine imports, and the functions of its own that it brings for them.
const PRODUCTS = {
  int8_prepare_a: "int8PrepareAFallback",
  int8_prepare_b: "int8PrepareBFallback",
  int8_prepare_b_from_transposed: "int8PrepareBFromTransposedFallback",
  int8_prepare_b_from_quantized_transposed: "int8PrepareBFromQuantizedTransposedFallback",
  int8_prepare_bias: "int8PrepareBiasFallback",
  int8_multiply_and_add_bias: "int8MultiplyAndAddBiasFallback",
  int8_select_columns_of_b: "int8SelectColumnsOfBFallback",
};

// A function that translates a list of sentences. `start(Module)` runs the engine's own JavaScript; the others
// are bytes: `products` is int8_products.wasm, `vocabularies` a list of one or two; the model may have a
// `shortlist`. Without `products`, the engine's own products of matrices are used.
export async function openEngine({ start, wasm, products, model, vocabularies, shortlist, config }) {
  const engine = await new Promise((resolve, reject) => {
    const Module = { print: () => {}, printErr: () => {}, onAbort: reject };
    const itsOwn = Object.entries(PRODUCTS).map(([name, own]) => [name, (...args) => Module.asm[own](...args)]);
    const instance = async (bytes, imports) => (await WebAssembly.instantiate(bytes, imports)).instance;
    const instantiate = async (imports) => {
      const wasm_gemm = products ? (await instance(products, imports)).exports : Object.fromEntries(itsOwn);
      return instance(wasm, { ...imports, wasm_gemm });
    };
    Module.onRuntimeInitialized = () => resolve(Module);
    Module.instantiateWasm = (imports, accept) => {
      instantiate(imports).then(accept, reject); // both work in the memory of `imports`
      return {};
    };
    start(Module);
  });
  const inMemory = (bytes, alignment) => {
    const memory = new engine.AlignedMemory(bytes.length, alignment);
    memory.getByteArrayView().set(bytes);
    return memory;
  };
  const list = new engine.AlignedMemoryList();
  for (const bytes of vocabularies) list.push_back(inMemory(bytes, 64));
  // The files are in memory, and texts were divided before.
  const text = new TextDecoder().decode(config).replace(/^(relative-paths|models|vocabs|shortlist):.*\n(- .*\n)*/gm, "");
  const settings = `${text}ssplit-mode: sentence\n`;
  const memories = [inMemory(model, 256), inMemory(shortlist ?? new Uint8Array(0), 64)];
  const marian = said(engine, () => new engine.TranslationModel(settings, ...memories, list, null));
  const service = new engine.BlockingService({ cacheSize: 0 });

  return (lines) => said(engine, () => {
    const texts = new engine.VectorString(), options = new engine.VectorResponseOptions();
    for (const line of lines) {
      texts.push_back(line);
      options.push_back({ qualityScores: false, alignment: false, html: false });
    }
    const responses = service.translate(marian, texts, options);
    const results = lines.map((_, i) => responses.get(i).getTranslatedText());
    for (const object of [texts, options, responses]) object.delete();
    return results;
  });
}

// What `run` returns. An exception of C++ is the address of an object, whose second word is the address of its
// message.
function said(engine, run) {
  try {
    return run();
  } catch (error) {
    if (typeof error !== "number") throw error;
    const { HEAPU8: bytes, HEAPU32: words } = engine;
    const begin = words[(error + 4) >> 2];
    throw new Error(new TextDecoder().decode(bytes.slice(begin, bytes.indexOf(0, begin))));
  }
}

// The engine of a page, with the rules of translator.js around it. `read(name)` gives the bytes of a file of
// the export, `at(name)` its address.
export async function load(read, at) {
  const facts = JSON.parse(new TextDecoder().decode(await read("model.json")));
  const { Translator, Rules } = await import(at("translator.js"));
  const { default: start } = await import(at("runtime/bergamot.js"));
  const { model, vocabularies, shortlist, config } = facts.engine;
  const translated = await openEngine({
    start,
    wasm: await read("runtime/bergamot.wasm"),
    products: await read("runtime/int8_products.wasm"),
    model: await read(model),
    vocabularies: await Promise.all([...new Set(vocabularies)].map(read)),
    shortlist: shortlist && (await read(shortlist)),
    config: await read(config),
  });

  // Sentences stay text here: the engine divides them into tokens, and long ones into parts.
  class Bergamot extends Translator {
    encode(text, rules = new Rules(this.facts.directions[0].rules)) {
      return rules.asRead(text).trim();
    }

    fitting(text) {
      return [text];
    }

    async searched(sentences, { progress, signal } = {}) {
      const results = [];
      for (let begin = 0; begin < sentences.length; begin += LINES) {
        await new Promise((resolve) => setTimeout(resolve)); // other messages, one of which may cancel
        if (signal?.aborted) throw signal.reason;
        const texts = translated(sentences.slice(begin, begin + LINES));
        results.push(...texts.map((text) => ({ text: text.replace(/\s*[\r\n]+\s*/g, " ").trim() })));
        progress?.(results.length, sentences.length);
      }
      return results;
    }
  }
  return new Bergamot(null, facts, [], []);
}
