// Loads the model and translates, so that the page stays responsive.
import * as ort from "./runtime/ort.wasm.min.js";
import { loadTokenizer } from "./runtime/sentencepiece.js";
import { Translator } from "./translator.js";

let loading, running;

const at = (name) => new URL(`runtime/${name}`, import.meta.url).href;
ort.env.wasm.wasmPaths = { mjs: at("ort-wasm.js"), wasm: at("ort-wasm.wasm") };
// Several threads need a server that sends the headers of cross-origin isolation.
ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;

// The bytes of a file; says how many have come.
async function read(name) {
  const response = await fetch(new URL(name, import.meta.url));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  const chunks = [];
  const reader = response.body.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    chunks.push(value);
    postMessage({ loaded: value.length });
  }
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}

self.onmessage = async ({ data }) => {
  running?.abort(new DOMException("another text", "AbortError"));
  if (data.cancel) return;
  const { id, text, ...options } = data;
  const abort = (running = new AbortController());
  try {
    // One load for all texts that are typed meanwhile; after a failure the next text tries again.
    loading ??= Translator.load(ort, loadTokenizer, read).catch((error) => {
      loading = undefined;
      postMessage({ failed: String(error.message ?? error) });
      throw new DOMException("not loaded", "AbortError");
    });
    const translator = await loading;
    const progress = (done, all) => postMessage({ id, done, all });
    if (text === undefined) return postMessage({ ready: true });
    postMessage({ id, result: await translator.translate(text, { ...options, progress, signal: abort.signal }) });
  } catch (error) {
    if (error.name !== "AbortError") postMessage({ id, error: String(error.message ?? error) });
  }
};
