// The page: two texts, languages, progress, cancel, copy.
const $ = (id) => document.getElementById(id);
// All files are asked for by the version of this page: no host gives those of another export.
const version = new URL(import.meta.url).search;
const facts = await (await fetch(`model.json${version}`)).json();
if (facts.version && `?v=${facts.version}` !== version) throw updating();
const worker = new Worker(`worker.js${version}`, { type: "module" });
const total = Object.values(facts.files).reduce((a, b) => a + b, 0);
let loaded = 0, newest = 0, timer;

document.title = $("title").textContent = facts.title;
facts.directions.forEach((direction, i) => $("direction").add(new Option(direction.title, i)));
$("direction").disabled = facts.directions.length < 2;
const tags = Object.keys(facts.tags);
[["", ""], ...tags.map((tag) => [tag, tag])].forEach(([name, value]) => $("tag").add(new Option(name, value)));
$("tag").hidden = !tags.length;
// After "back" a browser restores the text, but neither its languages, which were not there yet, nor the rest.
for (const name of ["direction", "tag"]) {
  const kept = sessionStorage.getItem(`${location.pathname} ${name}`);
  if ([...$(name).options].some(({ value }) => value === kept)) $(name).value = kept;
}
direct();
addEventListener("pageshow", restore);

function restore() {
  const isLost = $("source").value.trim() && !$("target").value;
  if (isLost) translate();
  return isLost;
}

function updating() {
  const message = "This page is being replaced by a new one. Load it again in a minute.";
  say(message);
  return new Error(message);
}

function direct() {
  const { from, to } = facts.directions[$("direction").value];
  $("source").lang = from.replaceAll("_", "-");
  $("target").lang = to.replaceAll("_", "-");
  for (const name of ["direction", "tag"]) sessionStorage.setItem(`${location.pathname} ${name}`, $(name).value);
}

function say(text, share) {
  $("status").textContent = text;
  $("progress").hidden = share === undefined;
  $("progress").value = share ?? 0;
}

function translate() {
  const text = $("source").value;
  $("cancel").hidden = !text.trim();
  if (!text.trim()) {
    worker.postMessage({ cancel: true });
    newest++;
    $("target").value = "";
    return say("");
  }
  const direction = facts.directions[$("direction").value];
  worker.postMessage({ id: ++newest, text, direction, tag: $("tag").value || null });
}

worker.onmessage = ({ data }) => {
  if (data.loaded) return say("Loading the model, once", (loaded += data.loaded) / total);
  if (data.failed) {
    loaded = 0;
    return say(`The model cannot be loaded: ${data.failed}. Type again to try again.`);
  }
  // After the model was loaded: so both do not load it at the same time.
  if (data.ready || data.result) navigator.serviceWorker?.register("offline.js");
  if (data.ready) return newest || restore() || say("Ready. Texts stay on this device.");
  if (data.id !== newest) return;
  if (data.all) return say(`${data.done} of ${data.all} sentences`, data.done / data.all);
  $("cancel").hidden = true;
  if (data.error) return say(`Not translated: ${data.error}`);
  $("target").value = data.result;
  say("");
};
worker.onerror = (event) => say(`The model cannot be loaded: ${event.message ?? "see the browser's console"}`);

$("source").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, 300);
});
$("direction").addEventListener("change", () => (direct(), translate()));
$("tag").addEventListener("change", () => (direct(), translate()));
$("cancel").addEventListener("click", () => {
  worker.postMessage({ cancel: true });
  newest++;
  $("cancel").hidden = true;
  say("Cancelled");
});
$("copy").addEventListener("click", async () => {
  $("target").select();
  // The clipboard is there on HTTPS and localhost alone; the older command everywhere.
  if (navigator.clipboard) await navigator.clipboard.writeText($("target").value);
  else document.execCommand("copy");
  say("Copied");
});
worker.postMessage({});
restore(); // last: each message ends the work on those before
