// The engine of a page: onnxruntime and a SentencePiece processor, with the search of translator.js.
// `read(name)` gives the bytes of a file of the export, `at(name)` its address.
export async function load(read, at) {
  const ort = await import(at("runtime/ort.wasm.min.js"));
  const { loadTokenizer } = await import(at("runtime/sentencepiece.js"));
  const { Translator } = await import(at("translator.js"));
  ort.env.wasm.wasmPaths = { mjs: at("runtime/ort-wasm.js"), wasm: at("runtime/ort-wasm.wasm") };
  // Several threads need a server that sends the headers of cross-origin isolation.
  ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;
  return Translator.load(ort, loadTokenizer, read);
}
