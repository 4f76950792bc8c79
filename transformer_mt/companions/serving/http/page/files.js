"use strict";

// Files that are chosen or dropped are translated one after the other, each with its progress.
const waiting = [];
let isTranslating = false;
let mostBytes = Infinity;

async function startFiles() {
  let settings;
  try {
    settings = await (await fetch("frontend/settings")).json();
  } catch {
    return; // the text part says that the server does not answer
  }
  if (!settings.filesTranslation) return;
  mostBytes = settings.fileBytes;
  $("file").accept = settings.supportedFilesFormat.join();
  $("files-part").hidden = false;
  $("file").addEventListener("change", () => {
    addFiles($("file").files);
    $("file").value = ""; // the same file can be chosen again
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const mark = (isOver) => document.body.classList.toggle("dropping", isOver);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault(); // or the browser would open the file
    mark(true);
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) mark(false); });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(false);
    addFiles(event.dataTransfer.files);
  });
}

function addFiles(files) {
  for (const file of files) {
    const stop = new AbortController();
    const bar = element("progress", {});
    bar.setAttribute("aria-label", `Progress of ${file.name}`);
    const cancel = element("button", { type: "button", onclick: () => stop.abort() }, "Cancel");
    cancel.setAttribute("aria-label", `Cancel ${file.name}`);
    const result = element("span", { className: "result" }, bar, cancel);
    $("files").append(element("li", {}, element("bdi", {}, file.name), " ", result));
    waiting.push({ file, stop, bar, result, source: sourceLang.value, target: targetLang.value });
  }
  translateWaiting();
}

async function translateWaiting() {
  if (isTranslating) return;
  isTranslating = true;
  while (waiting.length) {
    const work = waiting.shift();
    try {
      const { translatedFileUrl: url, remarks = [] } = await translateFile(work);
      // By its name only: the server may be known by another address here.
      const name = url.slice(url.lastIndexOf("/") + 1);
      const shown = decodeURIComponent(name.slice(name.indexOf(".") + 1));
      work.result.replaceChildren(
        element("a", { href: `download_file/${name}`, download: shown }, `Download ${shown}`),
        ...remarks.map((remark) => ` (${remark})`));
      $("files-status").textContent = `${work.file.name} is translated.`;
    } catch (error) {
      const reason = error.name === "AbortError" ? "canceled" : error.message;
      work.result.replaceChildren(element("span", { className: "error" }, `Not translated: ${reason}.`));
      $("files-status").textContent = `${work.file.name} is not translated: ${reason}.`;
    }
  }
  isTranslating = false;
}

// The answer: the address of the translation, and what of the file is not translated.
async function translateFile({ file, stop, bar, source, target }) {
  stop.signal.throwIfAborted();
  if (file.size > mostBytes) throw new Error(`it must have at most ${mostBytes.toLocaleString("en")} bytes`);
  const form = new FormData();
  for (const [key, value] of Object.entries({ source, target, api_key: $("key").value })) form.append(key, value);
  form.append("file", file);
  const response = await fetch("translate_file", {
    method: "POST", body: form, headers: { Accept: "application/x-ndjson" }, signal: stop.signal,
  }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("it could not be sent to the server");
  });
  if (!response.ok) {
    if (response.status === 403) $("key-row").hidden = false;
    const said = await response.json().catch(() => ({})); // a proxy may answer in other ways
    throw new Error(said.error || `the answer was ${response.status} ${response.statusText}`.trim());
  }
  for await (const line of linesOf(response)) {
    const said = JSON.parse(line);
    if (said.error) throw new Error(said.error);
    if (said.translatedFileUrl) return said;
    bar.max = Math.max(1, said.of);
    bar.value = said.done;
  }
  throw new Error("the server did not finish it");
}

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines;
  }
}

startFiles();
