"use strict";

// What the server's flags mean. Flags that are not listed are shown as they are.
const FLAGS = {
  split: null, // usual for a line of several sentences
  empty: null,
  unchanged: null, // a number, an address, an emoji
  control_character: "The source has a control character, which was read as a space.",
  truncated: "The translation was stopped at its length limit: its end is missing.",
  no_hypothesis: "No translation was found.",
  protected_split: "Protected text was lost, so the text around it was translated in parts.",
  copied: "The translation equals the source.",
  repeating: "The translation repeats itself.",
  length_ratio: "The translation is much longer or shorter than the source.",
  unfamiliar: "This is unlike the text that the model was trained on.",
  low_confidence: "The model is less sure of this than of nineteen in twenty translations.",
  missing_number: "A number of the source is missing in the translation.",
  missing_url: "A web or mail address of the source is missing in the translation.",
};
const WAIT_MS = 250; // after the last key
const RETRY_MS = 5000; // while there is no model
const ALTERNATIVES = 3;
const LARGEST_MAP = 80; // words of a side

const $ = (id) => document.getElementById(id);
const source = $("source"), translation = $("translation"), status = $("status");
const sourceLang = $("source-lang"), targetLang = $("target-lang");

let languages = [];
let newest = 0; // number of the newest request; answers to older ones are ignored
let pending = null; // its AbortController
let timer = 0;
let translated = "", translatedFrom = ""; // what is shown, and its source

async function start() {
  try {
    languages = await (await fetch("languages")).json();
  } catch {
    return fail("The server does not answer. Reload the page to try again.");
  }
  const sources = languages.filter((language) => language.targets.length);
  if (!sources.length) {
    setTimeout(start, RETRY_MS);
    return fail("This server has no model yet.");
  }
  say("");
  fill(sourceLang, sources);
  if (sources.length > 1) sourceLang.add(new Option("Detect language", "auto"), 0);
  sourceLang.selectedIndex = 0;
  const asked = new URLSearchParams(location.search); // as LibreTranslate's page has them
  choose(sourceLang, asked.get("source"), remembered("source"));
  fillTargets();
  choose(targetLang, asked.get("target"), remembered("target"));
  if (asked.has("q")) source.value = asked.get("q");
  source.addEventListener("input", () => {
    showCount();
    clearTimeout(timer);
    timer = setTimeout(translate, WAIT_MS);
  });
  sourceLang.addEventListener("change", () => { fillTargets(); remember(); translate(); });
  targetLang.addEventListener("change", () => { remember(); translate(); });
  $("key").addEventListener("change", translate);
  $("swap").addEventListener("click", swap);
  $("copy").addEventListener("click", copy);
  document.addEventListener("keydown", shortcut);
  showCount();
  if (source.value) translate(); // the browser may have kept it
}

function fill(select, items) {
  select.replaceChildren(...items.map((item) => new Option(item.name, item.code)));
}

// Chooses the first of the values that the list has.
function choose(select, ...values) {
  const known = values.find((value) => [...select.options].some((option) => option.value === value));
  if (known) select.value = known;
}

function remember() {
  try {
    localStorage.setItem("source", sourceLang.value);
    localStorage.setItem("target", targetLang.value);
  } catch {
    // The browser is set to keep nothing.
  }
}

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function fillTargets() {
  const chosen = targetLang.value;
  const from = sourceLang.value;
  const codes = new Set(
    languages.filter((l) => from === "auto" || l.code === from).flatMap((l) => l.targets));
  fill(targetLang, languages.filter((language) => codes.has(language.code)));
  if (codes.has(chosen)) targetLang.value = chosen;
}

function shortcut(event) {
  if (event.ctrlKey && event.key === "Enter") translate();
  else if (event.altKey && event.code === "KeyS") swap();
  else if (event.altKey && event.code === "KeyC") copy();
  else return;
  event.preventDefault();
}

function swap() {
  const [from, to] = [sourceLang.value, targetLang.value];
  if (!languages.some((l) => l.code === to && l.targets.length && (from === "auto" || l.targets.includes(from)))) {
    return say(`There is no model from ${targetLang.selectedOptions[0].text} to this language.`);
  }
  sourceLang.value = to;
  fillTargets();
  if (from !== "auto") targetLang.value = from;
  remember();
  if (translated && source.value === translatedFrom) source.value = translated;
  showCount();
  translate();
  source.focus();
}

async function copy() {
  try {
    await navigator.clipboard.writeText(translated);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(translation);
    say("The browser does not allow copying here: the translation is selected instead.");
  }
}

async function translate() {
  clearTimeout(timer);
  pending?.abort();
  const number = ++newest;
  if (!source.value.trim()) return show([], {});
  pending = new AbortController();
  translation.classList.add("old");
  translation.setAttribute("aria-busy", "true");
  say("Translating …");
  const body = { q: source.value, source: sourceLang.value, target: targetLang.value, alternatives: ALTERNATIVES };
  if ($("key").value) body.api_key = $("key").value;
  let answer, response;
  try {
    response = await fetch("details", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: pending.signal,
    });
    answer = await response.json();
  } catch (error) {
    if (number === newest && error.name !== "AbortError") fail("The server does not answer.");
    return;
  }
  if (number !== newest) return;
  if (response.ok) return show(answer.lines, answer.detectedLanguage, body.q);
  if (response.status === 403 && $("key-row").hidden) {
    $("key-row").hidden = false;
    if (document.activeElement !== source) $("key").focus(); // nor what is typed would be the key
  }
  fail(`Not translated: ${answer.error}.`);
}

function show(lines, detected, from = "") {
  translatedFrom = from;
  translated = lines.map((line) => line.candidates[0].text).join("\n");
  translation.textContent = translated;
  translation.lang = targetLang.value;
  translation.classList.remove("old");
  translation.setAttribute("aria-busy", "false");
  const language = languages.find((l) => l.code === detected?.language);
  say(language ? `Detected: ${language.name}` : "");
  showWarnings(lines);
  showAlternatives(lines);
  showWords(lines);
  showAttention(lines);
}

function say(text) {
  status.classList.remove("error");
  status.textContent = text;
}

function fail(text) {
  show([], {}); // what stands there is of another text
  status.textContent = text;
  status.classList.add("error");
}

function showCount() {
  const count = [...source.value].length;
  $("count").textContent = `${count.toLocaleString("en")} character${count === 1 ? "" : "s"}`;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function showWarnings(lines) {
  const items = [];
  lines.forEach((line, i) => {
    for (const flag of line.flags) {
      const text = flag in FLAGS ? FLAGS[flag] : flag;
      if (text) items.push(element("li", {}, lines.length > 1 ? `Line ${i + 1}: ${text}` : text));
    }
  });
  $("warnings").replaceChildren(...items);
}

function showAlternatives(lines) {
  const parts = [];
  lines.forEach((line, i) => {
    if (line.candidates.length < 2) return;
    if (lines.length > 1) parts.push(element("li", { className: "quiet" }, `Line ${i + 1}`));
    line.candidates.forEach(({ text, score }, rank) => {
      const shown = element("span", { lang: targetLang.value, dir: "auto" }, text);
      parts.push(element("li", { value: rank + 1 }, shown, " ",
        element("span", { className: "score" }, `(score ${score.toFixed(2)})`)));
    });
  });
  $("alternatives").replaceChildren(...parts);
  $("alternatives-part").hidden = !parts.length;
}

// Positions count Unicode code points, of which JavaScript's strings may need two units.
function slice(points, [begin, end]) {
  return points.slice(begin, end).join("");
}

function showWords(lines) {
  const parts = [];
  for (const line of lines) {
    const from = [...line.source], to = [...line.candidates[0].text];
    for (const segment of line.segments) {
      const [src, tgt] = [sentence(from, segment.source), sentence(to, segment.target)];
      link(segment, src.words, tgt.words);
      const paragraphs = [src.paragraph, tgt.paragraph];
      paragraphs[0].setAttribute("aria-label", "Source words");
      paragraphs[1].setAttribute("aria-label", "Translation words");
      paragraphs[1].lang = targetLang.value;
      parts.push(element("div", { className: "segment" }, ...paragraphs));
    }
  }
  $("words").replaceChildren(...parts);
  $("words-part").hidden = !parts.length;
}

// A paragraph with an element for each word; one Tab stop, the arrow keys move within it.
function sentence(points, spans) {
  const paragraph = element("p", { dir: "auto" });
  paragraph.setAttribute("role", "group");
  const words = [];
  let end = spans.length ? spans[0][0] : 0;
  for (const span of spans) {
    paragraph.append(slice(points, [end, span[0]]));
    const word = element("span", { className: "word", tabIndex: words.length ? -1 : 0 }, slice(points, span));
    paragraph.append(word);
    words.push(word);
    end = span[1];
  }
  paragraph.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -words.length, End: words.length }[event.key];
    const at = words.indexOf(event.target);
    if (!step || at < 0) return;
    const move = getComputedStyle(paragraph).direction === "rtl" && event.key.startsWith("Arrow") ? -step : step;
    const next = words[Math.max(0, Math.min(words.length - 1, at + move))];
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
  return { paragraph, words };
}

function link(segment, src, tgt) {
  const key = String;
  const bySource = new Map(segment.source.map((span, i) => [key(span), src[i]]));
  const byTarget = new Map(segment.target.map((span, i) => [key(span), tgt[i]]));
  const partners = new Map([...src, ...tgt].map((word) => [word, []]));
  for (const [from, to] of segment.links) {
    const [a, b] = [bySource.get(key(from)), byTarget.get(key(to))];
    partners.get(a).push(b);
    partners.get(b).push(a);
  }
  for (const [word, others] of partners) {
    const names = others.map((other) => other.textContent).join(" ");
    word.setAttribute("role", "note");
    word.setAttribute("aria-label", names ? `${word.textContent}: ${names}` : `${word.textContent}: no word`);
    const mark = (isOn) => [word, ...others].forEach((each) => each.classList.toggle("linked", isOn));
    for (const event of ["mouseenter", "focus"]) word.addEventListener(event, () => mark(true));
    for (const event of ["mouseleave", "blur"]) word.addEventListener(event, () => mark(false));
    word.addEventListener("click", () => word.focus());
  }
}

function showAttention(lines) {
  const tables = [];
  for (const line of lines) {
    const from = [...line.source], to = [...line.candidates[0].text];
    for (const segment of line.segments) {
      if (segment.source.length > LARGEST_MAP || segment.target.length > LARGEST_MAP) continue;
      tables.push(heatMap(segment, segment.source.map((s) => slice(from, s)), segment.target.map((s) => slice(to, s))));
    }
  }
  $("attention").replaceChildren(...tables);
  $("attention-part").hidden = !tables.length;
}

function heatMap(segment, src, tgt) {
  const head = element("tr", {}, element("td", {}),
    ...src.map((word) => element("th", { scope: "col" }, word)));
  const rows = segment.attention.map((weights, t) => element("tr", {},
    element("th", { scope: "row" }, tgt[t]),
    ...weights.map((weight, s) => {
      const cell = element("td", { title: `${tgt[t]} → ${src[s]}: ${weight.toFixed(2)}` });
      cell.style.backgroundColor = `rgb(var(--heat) / ${Math.min(1, weight)})`;
      cell.setAttribute("aria-label", weight.toFixed(2));
      return cell;
    })));
  return element("table", {}, element("caption", {}, tgt.join(" ")), element("thead", {}, head),
    element("tbody", {}, ...rows));
}

start();
