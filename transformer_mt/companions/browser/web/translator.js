// A model of transformer_mt in JavaScript: text -> tokens -> encoder.onnx, step.onnx -> beam search -> text.
// The search is that of transformer_mt/search/beam.py with stop_early.
//
// Letters as there: B sentences still searched, W hypotheses of each, N = B x W rows, V vocabulary.

const BATCH = 8; // sentences that are searched together
const PAUSE = 50; // milliseconds after which other messages are looked at: one of them may cancel
// After these a sentence goes on, although the next word has a capital.
const ABBREVIATED = /(^|\s)(Dr|Mr|Mrs|Ms|Prof|St|Jr|Sr|Jan|Feb|Aug|Sept?|Oct|Nov|Dec|No|Nr|Fig|vs|etc|\p{L})\.\s*$/u;
// The checksum of zlib, by which the files of an export know each other.
const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n;
});

export function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return (sum ^ 0xffffffff) >>> 0;
}

export class Translator {
  // `ort` is onnxruntime-web, `loadTokenizer(bytes)` gives a SentencePiece processor, `read(name)` the bytes
  // of a file of the export.
  static async load(ort, loadTokenizer, read) {
    const facts = JSON.parse(new TextDecoder().decode(await read("model.json")));
    const options = { graphOptimizationLevel: "all", logSeverityLevel: 3 };
    const sessions = [];
    for (const name of ["encoder.onnx", "step.onnx"]) {
      sessions.push(await ort.InferenceSession.create(await read(name), options));
    }
    const tokenizers = [];
    for (const name of facts.tokenizers) tokenizers.push(await loadTokenizer(await read(name)));
    return new Translator(ort, facts, sessions, tokenizers);
  }

  constructor(ort, facts, [encoder, step], tokenizers) {
    Object.assign(this, { ort, facts, encoder, step, src: tokenizers[0], tgt: tokenizers.at(-1) });
    this.never = new Set(facts.never);
    this.paused = 0;
  }

  // The text, translated sentence by sentence; white space, bullets, empty lines and what has no words stay.
  // `search` overrides the search's settings, `progress(done, all)` is told of sentences, `signal` can abort.
  async translate(text, { direction, tag, search, progress, signal } = {}) {
    direction ??= this.facts.directions[0];
    const rules = new Rules(direction.rules);
    const lines = this.lines(text, direction, tag, rules);
    const parts = lines.flatMap((line) => line.parts).filter((part) => part.ids);
    const results = await this.searched(parts.map((part) => part.ids), { direction, tag, search, progress, signal });
    parts.forEach((part, i) => (part.text = part.isLowered ? rules.capitals(results[i].text) : results[i].text));
    // Between sentences the target language decides: none in Chinese, one where the source had none.
    const between = (gap, isLast) => {
      if (!direction.target_has_spaces) return gap.replaceAll(" ", "");
      return gap || direction.source_has_spaces || isLast ? gap : " ";
    };
    const translated = ({ parts, words }) =>
      rules.matchEnd(words, parts.map(({ text, gap }, i) => text + between(gap, i === parts.length - 1)).join(""));
    return lines.map((line) => line.before + translated(line) + line.after).join("");
  }

  // [{before, words, after, parts}] of the lines: white space and bullets before the words, and after them the
  // end of the line; the words are in parts [{text, gap, ids, isLowered}], without ids where they stay.
  lines(text, direction, tag, rules = new Rules(direction.rules)) {
    const segmenter = sentenceSegmenter(direction.from);
    return (text.match(/[^\n]*\n|[^\n]+$/g) ?? []).map((line) => {
      const [before, words, after] = rules.edges(line);
      const segments = this.facts.split_sentences
        ? joined([...segmenter.segment(words)].map(({ segment }) => segment))
        : [words].filter(Boolean);
      const isWhole = rules.isInCapitals(words);
      const parts = segments.flatMap((segment) => {
        const isLowered = rules.hasWords(segment) && (isWhole || rules.isInCapitals(segment));
        const asRead = isLowered ? rules.sentenceCase(segment) : segment;
        return this.fitting(asRead, this.before(direction, tag).length).map((part) => {
          const body = part.trimEnd();
          const ids = rules.hasWords(body) ? this.encode(body, rules) : [];
          return { text: body, gap: part.slice(body.length), ids: ids.length ? ids : null, isLowered };
        });
      });
      return { before, words, after, parts };
    });
  }

  // The text, divided at the space nearest to its middle until each part fits the model.
  fitting(text, before) {
    if (this.encode(text).length + before < this.facts.max_source) return [text];
    const middle = text.length >> 1;
    const spaces = [...text.trimEnd().matchAll(/(?<=\S)\s+/g)].map((match) => match.index + match[0].length);
    const nearest = spaces.reduce((a, b) => (Math.abs(b - middle) < Math.abs(a - middle) ? b : a), Infinity);
    let cut = Number.isFinite(nearest) ? nearest : middle;
    if (/[\udc00-\udfff]/.test(text.charAt(cut))) cut++; // not between the halves of a character
    if (cut <= 0 || cut >= text.length) return [text];
    return [...this.fitting(text.slice(0, cut), before), ...this.fitting(text.slice(cut), before)];
  }

  encode(text, rules = new Rules(this.facts.directions[0].rules)) {
    return this.src.encodeIds(rules.asRead(text));
  }

  decode(ids) {
    const { pad, bos, eos } = this.facts;
    const written = ids.filter((id) => ![pad, bos, eos].includes(id));
    return this.tgt.decodeIds(written).replace(/\s*[\r\n]+\s*/g, " ").trim();
  }

  before(direction, tag) {
    return tag == null ? direction.before : [...direction.before, this.facts.tags[tag]];
  }

  // [{text, score, ids}] of the token ids of sentences, similar lengths together.
  async searched(sources, { direction, tag, search, progress, signal } = {}) {
    direction ??= this.facts.directions[0];
    const settings = { ...this.facts.search, ...search };
    const before = this.before(direction, tag);
    const order = sources.map((_, i) => i).sort((a, b) => sources[b].length - sources[a].length);
    const results = new Array(sources.length);
    let done = 0;
    for (let begin = 0; begin < order.length; begin += BATCH) {
      const rows = order.slice(begin, begin + BATCH);
      const best = await this.searchBatch(rows.map((i) => sources[i]), before, direction.prompt, settings, signal);
      rows.forEach((i, k) => (results[i] = { ...best[k], text: this.decode(best[k].ids) }));
      progress?.((done += rows.length), order.length);
    }
    return results;
  }

  limit(length, settings) {
    const most = Math.floor(settings.max_length_ratio * length) + 11;
    return Math.min(settings.max_length ? Math.min(most, settings.max_length + 1) : most, this.facts.max_target);
  }

  async searchBatch(sources, before, prompt, settings, signal) {
    const { bos, eos, max_source: longest } = this.facts;
    const src = sources.map((ids) => [...[...before, ...ids].slice(0, longest - 1), eos]);
    const limits = sources.map((ids) => this.limit(Math.min(ids.length, longest - 1), settings));
    const size = Math.max(...src.map((ids) => ids.length));
    const padded = src.flatMap((ids) => [...ids, ...new Array(size - ids.length).fill(this.facts.pad)]);
    const given = { src: this.whole(padded, [src.length, size]) };
    let { source } = await this.encoder.run(given);
    let past = new this.ort.Tensor("float32", new Float32Array(0), this.emptyShape(src.length));
    let rows = src.map((_, b) => b);
    const start = [bos, ...prompt];
    for (const token of start.slice(0, -1)) {
      past = (await this.stepped(src.map(() => token), rows, past, source, given.src)).present;
    }
    const beam = new Beam(limits, eos, start.at(-1), this.never, settings);
    let kept = given.src;
    for (let length = 1; !beam.isDone; length++) {
      if (performance.now() - this.paused > PAUSE) {
        await new Promise((resolve) => setTimeout(resolve));
        this.paused = performance.now();
      }
      if (signal?.aborted) throw signal.reason;
      const { log_probs, present } = await this.stepped(beam.tokens, rows, past, source, kept);
      const count = beam.active.length;
      rows = beam.extend(length, log_probs.data, log_probs.dims[1]);
      past = present;
      if (beam.active.length < count && !beam.isDone) {
        [source, kept] = [this.selected(source, 2, beam.kept), this.selected(kept, 0, beam.kept)];
      }
    }
    return beam.best();
  }

  stepped(tokens, rows, past, source, src) {
    const [t, r] = [tokens, rows].map((numbers) => this.whole(numbers, [numbers.length]));
    return this.step.run({ tokens: t, rows: r, past, source, src });
  }

  whole(numbers, shape) {
    return new this.ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), shape);
  }

  emptyShape(sentences) {
    const { layers, heads, width } = this.facts;
    return [layers, 2, sentences, heads, 0, width];
  }

  // The tensor with some of the entries of one dimension.
  selected(tensor, dim, entries) {
    const dims = [...tensor.dims];
    const outer = dims.slice(0, dim).reduce((a, b) => a * b, 1);
    const inner = dims.slice(dim + 1).reduce((a, b) => a * b, 1);
    const data = new tensor.data.constructor(outer * entries.length * inner);
    for (let o = 0, to = 0; o < outer; o++) {
      for (const entry of entries) {
        const from = (o * dims[dim] + entry) * inner;
        data.set(tensor.data.subarray(from, from + inner), to);
        to += inner;
      }
    }
    dims[dim] = entries.length;
    return new this.ort.Tensor(tensor.type, data, dims);
  }
}

// What `translate` does by rules before and after the search, from the same patterns (rules.py).
export class Rules {
  constructor({ control, invisible, before, kept, capitals, ends } = {}) {
    const pattern = (text, flags = "gu") => (text === undefined ? /(?!)/g : new RegExp(text, flags));
    Object.assign(this, { control: pattern(control), invisible: pattern(invisible), kept: pattern(kept) });
    this.start = new RegExp(before ?? "\\s*", "uy");
    this.letters = capitals && { ...capitals, word: pattern(capitals.word) };
    this.ends = ends && { ...ends, source: pattern(ends.source, "u"), target: pattern(ends.target, "u") };
  }

  asRead(text) {
    return text.replace(this.invisible, "").replace(this.control, " ");
  }

  // [white space and bullets, words, white space] of a line.
  edges(line) {
    this.start.lastIndex = 0;
    let begin = this.start.exec(line)?.[0].length ?? 0;
    if (!line.slice(begin).trim()) begin = line.length - line.trimStart().length;
    const words = line.slice(begin).trimEnd();
    return [line.slice(0, begin), words, line.slice(begin + words.length)];
  }

  // Whether there is a letter outside of addresses, placeholders and numbers with units.
  hasWords(text) {
    return /\p{L}/u.test(text.replace(this.kept, " "));
  }

  isInCapitals(text) {
    if (!this.letters) return false;
    const words = text.match(this.letters.word) ?? [];
    const { min_words, min_letters } = this.letters;
    if (words.length < min_words && !words.some((word) => [...word].length >= min_letters)) return false;
    return [...words.join("")].every((letter) => letter === letter.toUpperCase() && letter !== letter.toLowerCase());
  }

  // A text in capitals with only its first letter as a capital, and in English the word I.
  sentenceCase(text) {
    const { pairs = [] } = this.letters.source;
    const small = pairs.reduce((all, [small, capital]) => all.replaceAll(capital, small), text);
    let lower = small.replaceAll("İ", "i").toLowerCase();
    const word = /(?<![\p{L}\p{N}_])i(?![\p{L}\p{N}_])/gu;
    if (this.letters.keeps_i) lower = lower.replace(word, (_, place) => text[place]);
    const first = text.match(/\p{L}/u).index;
    const letter = String.fromCodePoint(text.codePointAt(first));
    return lower.slice(0, first) + letter + lower.slice(first + letter.length);
  }

  capitals(text) {
    const { pairs = [], without, capitals = true } = this.letters.target;
    if (!capitals) return text;
    const own = new Map(pairs);
    const written = [...text].map((letter) => own.get(letter) ?? letter.toUpperCase());
    return without ? written.map((all) => all.normalize("NFD").replaceAll(without, "").normalize("NFC")).join("") : written.join("");
  }

  // The translation with a final stop if the source has one, and without if it has none.
  matchEnd(source, translation) {
    if (!this.ends || !translation.trim()) return translation;
    const span = (pattern, text) => {
      const found = pattern.exec(text);
      return found && [found.index, found.index + found[1].length];
    };
    const end = span(this.ends.target, translation), wanted = span(this.ends.source, source);
    if (Boolean(end) === Boolean(wanted)) return translation;
    if (end) return translation.slice(0, end[0]) + translation.slice(end[1]);
    const own = this.ends.stops, words = translation.trimEnd(), usual = ".!?", wide = "。！？";
    let stop = source.slice(...wanted);
    if (own && usual.includes(stop[0])) stop = own[usual.indexOf(stop[0])];
    else if (wide.includes(stop[0]) && !own) stop = usual[wide.indexOf(stop[0])];
    return words + stop + translation.slice(words.length);
  }
}

// Browsers know fewer language codes than models: zh_yue, for example, is divided as zh.
function sentenceSegmenter(language) {
  for (const code of [language.replaceAll("_", "-"), language.split(/[_-]/)[0], "und"]) {
    try {
      return new Intl.Segmenter(code, { granularity: "sentence" });
    } catch {} // the next one
  }
}

// The segments, with what has no letter, or ends with an abbreviation, joined to the next one.
function joined(segments) {
  const parts = [];
  let open = "";
  segments.forEach((segment, i) => {
    open += segment;
    if ((/\p{L}/u.test(open) && !ABBREVIATED.test(open)) || i === segments.length - 1) {
      parts.push(open);
      open = "";
    }
  });
  if (parts.length > 1 && !/\p{L}/u.test(parts.at(-1))) parts.push(parts.splice(-2).join(""));
  return parts;
}

// The hypotheses of a batch of sentences.
class Beam {
  constructor(limits, eos, first, never, settings) {
    Object.assign(this, { limits, eos, never, settings });
    this.size = settings.beam;
    this.active = limits.map((_, b) => b); // sentences still searched
    this.kept = this.active; // their indices in the previous step
    this.hypotheses = limits.map(() => [{ score: 0, ids: [] }]);
    this.finished = limits.map(() => []);
    this.ends = limits.map(() => 0); // counts also those that are no longer among the best
    this.tokens = limits.map(() => first);
  }

  get isDone() {
    return this.active.length === 0;
  }

  penalty(length) {
    const { length_penalty: alpha, length_penalty_form: form } = this.settings;
    return (form === "gnmt" ? (5 + length) / 6 : length) ** alpha;
  }

  // Continue the hypotheses, which have `length` tokens after it. Returns the rows that the next step
  // continues.
  extend(length, logProbs, V) {
    const rows = [], stay = [];
    this.tokens = [];
    this.active.forEach((b, place) => {
      const W = this.hypotheses[b].length, atLimit = this.limits[b] <= length;
      const best = this.candidates(this.hypotheses[b], logProbs, place * W * V, V, atLimit);
      for (const { score, parent, token } of best.slice(0, this.size)) {
        if (token !== this.eos) continue;
        this.ends[b]++;
        this.finished[b].push({
          ids: [...this.hypotheses[b][parent].ids, token], score: score / this.penalty(length),
        });
      }
      this.finished[b].sort((x, y) => y.score - x.score).splice(this.size);
      if (atLimit || this.ends[b] >= this.size) return;
      const going = best.filter(({ token }) => token !== this.eos).slice(0, this.size);
      this.hypotheses[b] = going.map(({ score, parent, token }) => ({
        score, ids: [...this.hypotheses[b][parent].ids, token],
      }));
      for (const { parent, token } of going) {
        rows.push(place * W + parent);
        this.tokens.push(token);
      }
      stay.push(place);
    });
    this.kept = stay;
    this.active = stay.map((place) => this.active[place]);
    return rows;
  }

  // The 2 * beam best continuations, best first: at most `beam` of them are EOS.
  candidates(hypotheses, logProbs, offset, V, atLimit) {
    const most = 2 * this.size, best = [];
    hypotheses.forEach(({ score: total }, parent) => {
      const begin = offset + parent * V;
      for (let token = atLimit ? this.eos : 0; token < (atLimit ? this.eos + 1 : V); token++) {
        const score = total + logProbs[begin + token];
        if ((best.length === most && score <= best[most - 1].score) || this.never.has(token)) continue;
        let at = best.length;
        while (at > 0 && best[at - 1].score < score) at--;
        best.splice(at, 0, { score, parent, token });
        if (best.length > most) best.pop();
      }
    });
    return best;
  }

  best() {
    return this.finished.map((of_sentence) => of_sentence[0]);
  }
}
