"""A training corpus of text and a model's translations of it.

Back-translation (Sennrich et al. 2016): the text is of the target language, a backward model makes the
sources. Distillation (Kim and Rush 2016): the text is of the source language, teachers make the targets.
"""

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock, Timeout

from transformer_mt.companion import hooks
from transformer_mt.companions.lab.translated import check_origin, record_origin, set_other_aside
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import read_set
from transformer_mt.data.cleaning_rules import CleaningRule, rules_of
from transformer_mt.data.preparation.clean import training_pairs
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.files import FolderLock, digest, fsync, naming
from transformer_mt.messages import say, show_progress
from transformer_mt.ranks import Ranks
from transformer_mt.run_folder import RunFolder, origin_of
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.hashes import sentence_key, text_key
from transformer_mt.text.lines import count_lines, cut_to_whole_lines, read_lines
from transformer_mt.translation.result import Options
from transformer_mt.translator import ChunkSize, Translator
from transformer_mt.version import RESULTS

Languages = tuple[str, str]
Row = dict[str, Any]
"""A line and its translation, under their languages, with the `score` of the translation and its `flags`."""

EMPTY, REPEATED, LONG, LOW = "empty", "repeated", "over-long", "low score"
READ, KEPT = "read", "kept"
REJECTED_FLAGS = ("no_hypothesis", "truncated", "copied", "repeating", "length_ratio")
"""Flags of translations that a model should not learn from."""


class Teacher(Protocol):
    """Translates the lines of a corpus."""

    languages: Languages
    """Source and target of its translations."""
    models: Sequence[Path]
    """The models whose records of sentences its students inherit."""
    has_scores: bool
    """False if all translations have the score 0."""

    def facts(self, languages: Languages) -> dict[str, str]:
        """The facts that its translations depend on; `languages` are those of the pairs."""

    def takes(self, line: str) -> bool:
        """False for a line that is too long."""

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        """Say what will be done with the lines of the corpus, before the first of them is translated."""

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        """The rows of these lines, in order. If a row has no translation, its first flag is the reason."""

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """Called before the corpus is moved to `out`. `counts` has the number of lines for each outcome."""


class Runs:
    """A trained model, or several that translate together."""

    has_scores = True

    def __init__(self, translator: Translator, models: Sequence[Path], tag: str | None = None) -> None:
        """`models` are the folders of the translator; the tag is put before each line."""
        self.translator, self.models = translator, models
        self.languages = translator.source_lang, translator.target_lang
        self._tag = known_tag(tag, translator)

    def facts(self, languages: Languages) -> dict[str, str]:
        decode = self.translator.decode.model_dump(exclude={"batch_tokens"})
        return {
            "model": " ".join(str(RunFolder(model).weights_digest()) for model in self.models),
            "search": json.dumps([decode, self._tag, *languages], sort_keys=True),
            "engine": f"{self.translator.engine.name} {self.translator.engine.dtype}",
        }

    def takes(self, line: str) -> bool:
        """True unless it is longer than what the model was trained on."""
        translator = self.translator
        return len(translator.tokenizer.encode_src([line], num_threads=1)[0]) < translator.max_src_length

    def begin(self, lines: Callable[[], Iterable[str]]) -> None:
        say(f"{', '.join(map(str, self.models))} translates, {self.translator.decode.in_words}")

    def rows(self, lines: Sequence[str]) -> Iterator[Row]:
        source, target = self.languages
        for result in self.translator.stream(lines, Options(tag=self._tag)):
            yield {
                target: result.translation,
                source: result.source,
                "score": round(result.score, 4),
                "flags": result.flags,
            }

    def end(self, out: Path, lines: Callable[[], Iterable[str]], counts: Mapping[str, int]) -> None:
        """Prints nothing: the counts are reported elsewhere."""


def known_tag(tag: str | None, translator: Translator) -> str | None:
    """The tag if the model has it, else None: a model not trained on a corpus with it translates as usual."""
    return tag if tag in translator.tokenizer.control_ids else None


def is_described(model: Path) -> bool:
    """True if `model` is a YAML file that describes a teacher, not the folder of a run."""
    return model.suffix in (".yaml", ".yml")


def open_teacher(file: Path, languages: tuple[str | None, str | None]) -> Teacher | None:
    """The teacher that a YAML file describes, for this source and target language, which are None if the
    command does not name them. Returns None if the file has no key `teacher`.
    """
    teachers = (open_described(file, languages) for open_described in hooks("open_teacher"))
    return next((teacher for teacher in teachers if teacher is not None), None)


def must_open(file: Path, languages: Languages) -> Teacher:
    """Like `open_teacher`, but raises InputError if there is no teacher."""
    if teacher := open_teacher(file, languages):
        return teacher
    raise InputError(
        f"{file}: must be the folder of a run, or a YAML file whose key teacher an installed companion can "
        "open"
    )


@dataclass(frozen=True)
class PairSelection:
    """Rules that select pairs."""

    rules: FilterConfig
    """Cleaning rules."""
    keep: float = 1.0
    """The share to keep of the pairs that pass the rules: those with the best scores."""
    flags: tuple[str, ...] = REJECTED_FLAGS
    """Flags of the translation that a pair must not have."""


ALL = PairSelection(FilterConfig(), flags=())
"""Every pair with a translation."""


@dataclass(frozen=True)
class TextSource:
    """Lines that are translated."""

    read: Callable[[], Iterable[str]]
    """Returns the lines; each call starts again at the first."""
    content: str
    """A hash of the lines."""
    total: int | None = None
    """The number of lines, or None if it is not known."""

    @property
    def is_empty(self) -> bool:
        return next(iter(self.read()), None) is None

    @classmethod
    def of_files(cls, files: Sequence[Path]) -> "TextSource":
        """The lines of files, one after the other."""
        for file in files:  # what cannot be read is found before hours of work
            deque(read_lines(file), maxlen=0)
        sizes = [count_lines(str(file)) for file in files]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        return cls(lambda: chain.from_iterable(map(read_lines, files)), digest(*files), total)

    @classmethod
    def of_corpora(cls, data: DataConfig, entries: Sequence[Corpus], is_source: bool = True) -> "TextSource":
        """The sources (or the targets) of the pairs that pass the cleaning rules of their corpus."""
        kept: list[str] = []
        for entry in entries:
            rules = rules_of(data.filter_of(entry), data.languages_of(entry))
            kept += [
                src if is_source else tgt
                for src, tgt in training_pairs(entry, data)
                if not any(rule.drops(src.strip(), tgt.strip()) for rule in rules)
            ]
        return cls(lambda: kept, hashlib.sha256("\n".join(kept).encode()).hexdigest()[:24], len(kept))

    def without_sets(self, data: DataConfig) -> "TextSource":
        """The text without lines that are a source or a reference in a validation or test set. Sets held out
        of the training corpora do not count.
        """
        keys = {
            sentence_key(text)
            for corpus in (*data.valid_sets, *data.test)
            if not corpus.is_held_out
            for source, references in read_set(corpus, data.languages, None, "test")
            for text in (source, *references)
        }
        content = hashlib.sha256(f"{self.content} {sorted(keys)}".encode()).hexdigest()[:24]
        return TextSource(
            lambda: (line for line in self.read() if sentence_key(line) not in keys), content, self.total
        )


@dataclass(frozen=True)
class SyntheticCorpusTask:
    """Text becomes a corpus: who translates it, and which side of the pairs it is."""

    teacher: Teacher
    text: TextSource
    is_source: bool
    """True if the text is the source side of the pairs (distillation), False if it is the target side
    (back-translation).
    """
    choice: PairSelection

    @property
    def languages(self) -> tuple[str, str]:
        """The source and the target language of the pairs."""
        source, target = self.teacher.languages
        return (source, target) if self.is_source else (target, source)

    def facts(self) -> dict[str, str]:
        """The facts that the corpus is made from."""
        # Flags have the names that earlier versions used, so that corpora made by those stay valid.
        flags = [{"no_hypothesis": "none", "truncated": "cut"}.get(flag, flag) for flag in self.choice.flags]
        return {
            **self.teacher.facts(self.languages),
            "text": self.text.content,
            "program's results": str(RESULTS),
            "choice": json.dumps([self.choice.rules.model_dump(), self.choice.keep, flags]),
        }


def check_columns(languages: tuple[str, str]) -> None:
    """InputError unless the two languages can be columns of one file."""
    if len({*languages, "score", "flags"}) < 4:
        raise InputError(
            "the languages must have different codes, which name columns of a file, but are "
            f"{languages[0]} and {languages[1]}"
        )


def make_corpus(
    step: SyntheticCorpusTask, out: Path, ranks: Ranks | None = None, replaces: bool = False
) -> Counter[str]:
    """Write the lines with their translations to `out`, a corpus file in JSON lines. Returns the number of
    lines for each outcome; empty if the file already exists.

    An interrupted call is resumed by the next one. A file that was made from other facts is refused or, with
    `replaces`, moved aside and made again. With several ranks, each translates its share, and rank 0 reads
    and writes.
    """
    ranks = ranks or Ranks()
    counts: Counter[str] = Counter()
    check_columns(step.languages)
    if step.choice.keep < 1 and not step.teacher.has_scores:
        raise InputError(
            f"the share to keep must be 1 without teacher.metric, which scores, but is {step.choice.keep}"
        )
    if not ranks.is_rank_zero:
        while lines := ranks.broadcast(None):
            _translated(step, lines, ranks)
        return counts
    rules = rules_of(step.choice.rules, step.languages)  # an extra that is missing is found before any work
    part, origin = out.with_name(f".{out.name}.part"), origin_of(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        part.open("ab").close()
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    with lock_output(out), naming(out):
        facts = step.facts()
        if replaces:
            set_other_aside(out, facts, origin)
            set_other_aside(part, {name: facts[name] for name in facts if name != "choice"}, origin)
        if out.exists():
            check_origin(out, facts, origin)
            say(f"{out}: is done already")
            part.unlink(missing_ok=True)
        else:
            part.touch()
            if part.stat().st_size:  # the choice is made when all is translated: it may still change
                check_origin(part, {name: facts[name] for name in facts if name != "choice"}, origin)
            folders = [os.path.relpath(model, out.parent) for model in step.teacher.models]
            record_origin(origin, {**facts, "folders": folders})
            _translate_into(part, step, counts, ranks)
            _write_kept(part, out, step, rules, counts)
    ranks.broadcast(None)
    return counts


def _translate_into(part: Path, step: SyntheticCorpusTask, counts: Counter[str], ranks: Ranks) -> None:
    """All lines with their translations, one JSON object each; those in the file already stay."""
    if done := cut_to_whole_lines(part):
        say(f"{done:,} lines are translated already")
    step.teacher.begin(lambda: islice(_worth_translating(step, Counter()), done, None))
    lines = _worth_translating(step, counts)
    for line, row in zip(islice(lines, done), _rows(part)):
        if row[step.teacher.languages[0]] != line:
            raise InputError(
                f"{part}: must hold translations of these lines, but has another at {line!r}; remove it"
            )
    with (
        part.open("a", encoding="utf-8", newline="\n") as output,
        show_progress(None, "translating", step.text.total, counts[READ], unit="lines") as bar,
    ):
        size, before = ChunkSize(), counts[READ]
        while chunk := list(islice(lines, size.next())):
            ranks.broadcast(chunk)
            for row in _translated(step, chunk, ranks):
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
            output.flush()
            bar.update(counts[READ] - before)
            before = counts[READ]


def _worth_translating(step: SyntheticCorpusTask, counts: Counter[str]) -> Iterator[str]:
    """Lines that are not empty, not there before, and not too long."""
    seen: set[int] = set()  # about 70 MB for a million lines
    for line in map(str.strip, step.text.read()):
        counts[READ] += 1
        key = text_key(line)
        if not line:
            counts[EMPTY] += 1
        elif key in seen:
            counts[REPEATED] += 1
        elif not step.teacher.takes(line):
            counts[LONG] += 1
        else:
            seen.add(key)
            yield line


def _translated(step: SyntheticCorpusTask, lines: Sequence[str], ranks: Ranks) -> list[Row]:
    """The rows of these lines. Each rank translates its share and receives all rows."""
    share = lines[ranks.rank :: ranks.size]
    of_rank = list(step.teacher.rows(share))
    source = step.teacher.languages[0]
    if [row.get(source) for row in of_rank] != list(share):  # one too many or too few would shift the rest
        raise WorkError(
            f"{type(step.teacher).__module__}.{type(step.teacher).__qualname__} must give a row for each of "
            f"{len(share):,} lines, in their order and with the line as `{source}`"
        )
    shares = ranks.gather(of_rank)
    return [shares[i % ranks.size][i // ranks.size] for i in range(len(lines))]


def _write_kept(
    part: Path, out: Path, step: SyntheticCorpusTask, rules: Sequence[CleaningRule], counts: Counter[str]
) -> None:
    """The chosen rows of `part` as `out`, whole or not at all."""
    choice = step.choice
    scores: list[float] = []
    for row in _rows(part):
        reason = _reason(row, step, rules)
        counts[reason or KEPT] += 1
        scores += [] if reason else [row["score"]]
    if not counts[READ]:
        part.unlink()
        raise InputError("the text must have lines, but is empty")
    if not scores:
        raise WorkError(
            f"{out}: no translation is left after cleaning ({counts_in_words(counts)}); check that the model "
            f"translates from {step.teacher.languages[0]}, or run it again with other rules or another share "
            "(the translations are kept)"
        )
    least = float(np.quantile(scores, 1 - choice.keep)) if choice.keep < 1 else -np.inf
    temporary = out.with_name(f".{out.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="\n") as output:
        for row in _rows(part):
            if _reason(row, step, rules):
                continue
            if row["score"] < least:
                counts[LOW] += 1
                counts[KEPT] -= 1
                continue
            del row["flags"]
            output.write(json.dumps(row, ensure_ascii=False) + "\n")
    fsync(temporary)
    step.teacher.end(out, lambda: _worth_translating(step, Counter()), counts)
    temporary.replace(out)
    part.unlink()


def _rows(part: Path) -> Iterator[Row]:
    return map(json.loads, read_lines(part))


def _reason(row: Row, step: SyntheticCorpusTask, rules: Sequence[CleaningRule]) -> str | None:
    """Why the row is rejected; None if it is kept."""
    src, tgt = (row[language].strip() for language in step.languages)
    if wrong := next((flag for flag in row["flags"] if flag in step.choice.flags), None):
        return str(wrong)
    if not (src and tgt):
        return str(next(iter(row["flags"]), "no_hypothesis"))
    return next((rule.reason for rule in rules if rule.drops(src, tgt)), None)


def check_links(config: Config) -> None:
    """InputError, before any work, if the corpora that are added would need links of their own."""
    if config.train.guided_alignment.files:
        raise InputError(
            "train.guided_alignment.file must be left out where synthetic corpora are added, which have no "
            "links; without it an aligner aligns all corpora"
        )


def with_corpora(config: Config, corpora: Sequence[Corpus]) -> Config:
    """The config with these training corpora; a name that is there already gets a number."""
    named: list[Corpus] = []
    for corpus in corpora:
        names = {corpus.name for corpus in named}
        numbered = (f"{corpus.name} {number}" for number in count(2))
        name = corpus.name if corpus.name not in names else next(n for n in numbered if n not in names)
        named.append(corpus.model_copy(update={"name": corpus.name and name}))
    data = config.data.model_copy(update={"train": named})
    return config.model_copy(update={"data": data})


def counts_in_words(counts: Counter[str]) -> str:
    """The counts in a line: read 1,000, empty 3, kept 950."""
    others = sorted(set(counts) - {READ, KEPT})
    return ", ".join(f"{name} {counts[name]:,}" for name in (READ, *others, KEPT))


def lock_output(file: Path) -> FolderLock:
    """Keep others from writing the file. InputError if another process does."""
    lock = FileLock(file.with_name(f".{file.name}.lock"), thread_local=False)
    try:
        with naming(file):
            lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"{file}: another process writes it; wait for it, or name another file with ", Setting("out")
        ) from None
    return FolderLock(lock)
