// Bergamot's engine in WebAssembly: a model of Marian that translates whole sentences.
const LINES = 32; // sentences that are translated together; more are faster, but a cancel waits for them
// The products of matrices that the engine asks for, and its own functions for them.
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
// are bytes, `vocabularies` a list of one or two.
export async function openEngine({ start, wasm, model, vocabularies, config }) {
  const engine = await new Promise((resolve, reject) => {
    const Module = { print: () => {}, printErr: () => {}, onAbort: reject };
    const product = (own) => (...args) => Module.asm[own](...args);
    const products = Object.fromEntries(Object.entries(PRODUCTS).map(([name, own]) => [name, product(own)]));
    Module.onRuntimeInitialized = () => resolve(Module);
    Module.instantiateWasm = (imports, accept) => {
      const all = { ...imports, wasm_gemm: products };
      WebAssembly.instantiate(wasm, all).then(({ instance }) => accept(instance), reject);
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
  const text = new TextDecoder().decode(config).replace(/^(relative-paths|models|vocabs):.*\n(- .*\n)*/gm, "");
  const noShortlist = inMemory(new Uint8Array(0), 64);
  const settings = `${text}ssplit-mode: sentence\n`;
  const marian = said(engine, () => new engine.TranslationModel(settings, inMemory(model, 256), noShortlist, list, null));
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
  const { model, vocabularies, config } = facts.engine;
  const translated = await openEngine({
    start,
    wasm: await read("runtime/bergamot.wasm"),
    model: await read(model),
    vocabularies: await Promise.all([...new Set(vocabularies)].map(read)),
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
