// The page: two texts, languages, progress, cancel, copy.
const $ = (id) => document.getElementById(id);
const facts = await (await fetch("model.json")).json();
const worker = new Worker("worker.js", { type: "module" });
const total = Object.values(facts.files).reduce((a, b) => a + b, 0);
let loaded = 0, newest = 0, timer;

document.title = $("title").textContent = facts.title;
facts.directions.forEach((direction, i) => $("direction").add(new Option(direction.title, i)));
$("direction").disabled = facts.directions.length < 2;
const tags = Object.keys(facts.tags);
[["", ""], ...tags.map((tag) => [tag, tag])].forEach(([name, value]) => $("tag").add(new Option(name, value)));
$("tag").hidden = !tags.length;
direct();

function direct() {
  const { from, to } = facts.directions[$("direction").value];
  $("source").lang = from.replaceAll("_", "-");
  $("target").lang = to.replaceAll("_", "-");
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
  if (data.ready) return newest || say("Ready. Texts stay on this device.");
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
$("tag").addEventListener("change", translate);
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
