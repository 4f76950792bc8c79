// Loads the model and translates, so that the page stays responsive.
// Messages that come while the libraries are loaded wait for them.
let isReady;
const ready = new Promise((resolve) => (isReady = resolve));
self.onmessage = (message) => ready.then(() => answer(message));

const version = new URL(import.meta.url).search;
const at = (name) => new URL(name + version, import.meta.url).href;
const { load } = await import(at("engine.js"));
const { crc32 } = await import(at("translator.js"));

let loading, running, checksums;

// The bytes of a file of this version; says how many have come.
async function read(name) {
  const response = await fetch(at(name));
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  const chunks = [];
  const reader = response.body.getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    chunks.push(value);
    postMessage({ loaded: value.length });
  }
  const bytes = new Uint8Array(await new Blob(chunks).arrayBuffer());
  checksums ??= JSON.parse(new TextDecoder().decode(bytes)).checksums; // model.json comes first
  if (checksums[name] !== undefined && checksums[name] !== crc32(bytes)) {
    throw new Error(`${name} is of another version; the page is being replaced by a new one`);
  }
  return bytes;
}

async function answer({ data }) {
  running?.abort(new DOMException("another text", "AbortError"));
  if (data.cancel) return;
  const { id, text, ...options } = data;
  const abort = (running = new AbortController());
  try {
    // One load for all texts that are typed meanwhile; after a failure the next text tries again.
    loading ??= load(read, at).catch((error) => {
      loading = checksums = undefined;
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
}
isReady();
