"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const [SOURCE, REFERENCES, TRANSLATIONS, SCORES, FLAGS] = [0, 1, 2, 3, 4];
const PAGE = 50;
const at = (id) => document.getElementById(id);
let shown = PAGE;

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function options(id, names, chosen = 0) {
  names.forEach((name, i) => at(id).add(new Option(name, i)));
  at(id).selectedIndex = Math.min(chosen, names.length - 1);
}

function chosen() {
  const numbers = Object.fromEntries(["test", "metric", "first", "second"].map((id) => [id, Number(at(id).value)]));
  return { ...numbers, facts: data.tests[numbers.test], measure: data.metrics[numbers.metric] };
}

/* Words and the marks between them; in scripts without spaces single characters. */
function words(text) {
  return text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]|[\p{L}\p{M}\p{N}]+|\s+|[^\s]/gu) || [];
}

/* Which of the words are not in the longest common subsequence with the others. */
function differing(own, others) {
  const rows = own.length + 1, columns = others.length + 1;
  if (rows * columns > 1e6) return own.map((word) => !others.includes(word));
  const length = new Uint16Array(rows * columns);
  for (let i = rows - 2; i >= 0; i--)
    for (let j = columns - 2; j >= 0; j--)
      length[i * columns + j] = own[i] === others[j]
        ? length[(i + 1) * columns + j + 1] + 1
        : Math.max(length[(i + 1) * columns + j], length[i * columns + j + 1]);
  const found = own.map(() => true);
  for (let i = 0, j = 0; i < own.length && j < others.length;) {
    if (own[i] === others[j]) { found[i] = false; i++; j++; }
    else if (length[(i + 1) * columns + j] >= length[i * columns + j + 1]) i++;
    else j++;
  }
  return found;
}

function marked(text, other) {
  const place = element("dd");
  place.dir = "auto";
  const own = words(text), isOther = differing(own, words(other));
  own.forEach((word, i) => place.append(isOther[i] && word.trim() ? element("mark", word) : word));
  return place;
}

function partTable(caption, head, rows) {
  const table = element("table");
  table.append(element("caption", caption));
  const top = table.insertRow();
  head.forEach((name) => { const cell = element("th", name); cell.scope = "col"; top.append(cell); });
  for (const [label, ...cells] of rows) {
    const row = table.insertRow(), name = element("th", label);
    name.scope = "row";
    row.append(name, ...cells.map((text) => element("td", text)));
  }
  return table;
}

function showParts() {
  const { facts, measure } = chosen();
  const rows = (parts) => parts.map((part) => [part.label, part.sentences.toLocaleString("en"),
    ...part.scores[measure.name].map((score) => score.toFixed(measure.digits))]);
  const flags = Object.entries(data.flags).map(([key, name]) => [name, ...data.systems.map((_, system) =>
    String(facts.rows.filter((row) => row[FLAGS][system].includes(key)).length))]);
  at("parts").replaceChildren(
    partTable(`${measure.name} by words of the source`, ["words", "sentences", ...data.systems], rows(facts.parts.length)),
    partTable(`${measure.name} by the count of the source's rarest word in ${data.counted}`,
      ["count", "sentences", ...data.systems], rows(facts.parts.rarest)),
    partTable("Words per word of the reference", ["", ...data.systems],
      [["ratio", ...facts.ratios.map((ratio) => ratio.toFixed(3))]]),
    partTable("What looks wrong", ["sentences with", ...data.systems], flags),
  );
}

/* How much better the second system is than the first; where nobody said what is better, higher is. */
function gain(row, { metric, measure, first, second }) {
  const scores = row[SCORES][metric];
  return (scores[second] - scores[first]) * (measure.higherIsBetter === false ? -1 : 1);
}

function rowsInOrder() {
  const now = chosen(), { facts, metric, measure, first, second } = now;
  const sought = at("search").value.trim().toLowerCase(), only = at("only").value;
  const keeps = (row) => {
    const { [first]: one, [second]: two } = row[TRANSLATIONS];
    if (only === "different" && one === two) return false;
    if (only.startsWith("flag:") && ![first, second].some((i) => row[FLAGS][i].includes(only.slice(5)))) return false;
    return !sought || [row[SOURCE], ...row[REFERENCES], one, two].some((text) => text.toLowerCase().includes(sought));
  };
  const rows = facts.rows.map((row, number) => ({ row, number })).filter(({ row }) => keeps(row));
  const sign = measure.higherIsBetter === false ? -1 : 1;
  const lowest = ({ row }) => sign * row[SCORES][metric][second];
  const orders = {
    worse: (a, b) => gain(a.row, now) - gain(b.row, now),
    better: (a, b) => gain(b.row, now) - gain(a.row, now),
    low: (a, b) => lowest(a) - lowest(b),
    text: () => 0,
  };
  return rows.sort((a, b) => orders[at("order").value](a, b) || a.number - b.number);
}

function sentence({ row, number }, now) {
  const { metric, measure, first, second } = now;
  const list = element("dl"), item = element("li");
  const add = (name, content) => list.append(element("dt", name), content);
  const plain = (text) => { const place = element("dd", text); place.dir = "auto"; return place; };
  add(`${(number + 1).toLocaleString("en")} source`, plain(row[SOURCE]));
  row[REFERENCES].forEach((reference) => add("reference", plain(reference)));
  for (const system of first === second ? [first] : [first, second]) {
    const text = row[TRANSLATIONS][system];
    const against = at("against").value === "first" ? row[TRANSLATIONS][first] : row[REFERENCES][0];
    const place = marked(text, against), score = element("span", ` ${measure.name} ${row[SCORES][metric][system].toFixed(measure.digits - 1)}`);
    const difference = gain(row, now);
    if (system === second && first !== second && difference && measure.higherIsBetter !== null)
      score.className = difference > 0 ? "better" : "worse";
    const name = element("dt", data.systems[system]);
    name.append(score);
    row[FLAGS][system].forEach((flag) => place.append(" ", element("span", `(${data.flags[flag]})`, "flag")));
    list.append(name, place);
  }
  item.append(list);
  return item;
}

function showSentences() {
  const now = chosen(), rows = rowsInOrder();
  at("sentences").replaceChildren(...rows.slice(0, shown).map((each) => sentence(each, now)));
  at("count").textContent = `${rows.length.toLocaleString("en")} of ${now.facts.rows.length.toLocaleString("en")} sentences`;
  at("more").hidden = rows.length <= shown;
}

options("test", data.tests.map((test) => test.corpus));
options("metric", data.metrics.map((metric) => metric.name));
options("first", data.systems);
options("second", data.systems, 1);
at("only").add(new Option("all", "all"));
at("only").add(new Option("different translations", "different"));
for (const [key, name] of Object.entries(data.flags)) at("only").add(new Option(`with ${name}`, `flag:${key}`));
for (const id of ["test", "metric"]) at(id).addEventListener("change", showParts);
for (const id of ["test", "metric", "first", "second", "order", "against", "only", "search"])
  at(id).addEventListener("input", () => { shown = PAGE; showSentences(); });
at("more").addEventListener("click", () => { shown += PAGE; showSentences(); });
showParts();
showSentences();
