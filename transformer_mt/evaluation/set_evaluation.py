"""Alignment error rate of a model's attention on pairs that were aligned by hand."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.config import Config, DecodeConfig, EvaluateConfig
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.corpora.seen_sentences import Sentences, keys_of
from transformer_mt.errors import InputError, WorkError, advice_on
from transformer_mt.evaluation.metrics import Metric, Score, build_metrics, corpus_scores, tokenised_note
from transformer_mt.evaluation.scoring import Expected, ExpectedQuality
from transformer_mt.files import digest, to_json, write_text
from transformer_mt.messages import say, show_progress
from transformer_mt.run_folder import RunFolder, facts_of
from transformer_mt.text.hashes import near_text, pair_key, sentence_key
from transformer_mt.text.languages import LanguageIdentifier, is_natural, script_share
from transformer_mt.text.lines import Pair, read_lines
from transformer_mt.translation.alignment import align_segment, words_between_spaces
from transformer_mt.translation.result import Options
from transformer_mt.translator import Translator
from transformer_mt.version import RESULTS

Link = tuple[int, int]
"""(source word, target word), words between white space counted from 0."""
_LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})")


@dataclass(frozen=True)
class HandLinks:
    """The links of a pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """Includes the sure links."""


def read_hand_links(file: str | Path, pairs: int) -> list[HandLinks]:
    """A line for each of the pairs: `0-0 1?2`, the second a possible link (also `1p2`). InputError for
    anything else.
    """
    sentences = []
    for number, line in enumerate(read_lines(file), start=1):
        matches = [_LINK.fullmatch(link) for link in line.split()]
        if None in matches:
            raise InputError(
                f"{file}: each line must have links such as 0-0 1?2, but line {number} is "
                f"{line.strip()[:60]!r}"
            )
        links = [(match[2], (int(match[1]), int(match[3]))) for match in matches if match]
        sure = frozenset(link for kind, link in links if kind == "-")
        sentences.append(HandLinks(sure, frozenset(link for _, link in links)))
    if len(sentences) != pairs:
        raise InputError(
            f"{file}: must have a line for each of the {pairs:,} pairs, but has {len(sentences):,}"
        )
    return sentences


def alignment_error(translator: Translator, pairs: Sequence[Pair], hand: Sequence[HandLinks]) -> Score:
    """The alignment error rate in percent (Och and Ney 2003, section 6.1) of the links that the attention
    gives the words of each pair: 1 - (|A and S| + |A and P|) / (|A| + |S|).
    """
    num_links = sure = in_sure = in_possible = 0
    for links, given in zip(_links(translator, pairs), hand):
        num_links, sure = num_links + len(links), sure + len(given.sure)
        in_sure += len(links & given.sure)
        in_possible += len(links & given.possible)
    rate = 100 * (1 - (in_sure + in_possible) / max(1, num_links + sure))
    precision, recall = 100 * in_possible / max(1, num_links), 100 * in_sure / max(1, sure)
    return Score("AER", rate, f"precision {precision:.1f}, recall {recall:.1f}, of {len(pairs):,} pairs")


def _links(translator: Translator, pairs: Sequence[Pair]) -> Iterator[set[Link]]:
    tokenizer = translator.tokenizer
    sources = translator.encode_src([src for src, _ in pairs])
    targets = tokenizer.encode_tgt([tgt for _, tgt in pairs])
    attentions = translator.cross_attention(list(zip(sources, targets)))
    for (text, _), src, tgt, attention in zip(pairs, sources, targets, attentions):
        aligned = align_segment(tokenizer, text, src, tgt, attention, words_between_spaces)
        number = [{span: i for i, span in enumerate(side)} for side in (aligned.source, aligned.target)]
        yield {(number[0][source], number[1][target]) for source, target in aligned.links()}


_FEW, _MANY = 0.05, 0.3
"""A note is given above these shares of a set: of copies or repetitions, and of text in another language."""
_LEAST_OF_SCRIPT = 0.3
_LOOKED_AT = 200
"""Sentences whose language is identified, which takes a millisecond each."""


def notes_on_set(test: EvaluationSet, languages: tuple[str, str]) -> Iterator[str]:
    """A line for each thing that is wrong with the set; `languages` are its source and its target."""
    total = len(test.sentences)

    def note(count: int, what: str) -> str:
        return f"note: {test.corpus}: {count:,} of {total:,} {what}"

    empty = {
        "sources": sum(not src.strip() for src in test.sources),
        "references": sum(not any(text.strip() for text in texts) for texts in test.references),
    }
    yield from (note(count, f"{side} are empty") for side, count in empty.items() if count)
    pairs = [(src, "\n".join(references)) for src, references in test.sentences if src.strip()]
    repeated = len(pairs) - len({pair_key(pair) for pair in pairs})
    if repeated > _FEW * total:
        yield note(repeated, "sentences are repeated, with the same references")
    copies = sum(near_text(src) == near_text(reference) for src, reference in pairs)
    if copies > _FEW * total and all(map(is_natural, languages)):
        yield note(copies, "references copy the source")
    for side, language in zip(("sources", "references"), languages):
        texts = [text for pair in pairs if (text := pair[side == "references"]).strip()]
        texts = texts[:: -(-len(texts) // _LOOKED_AT) or 1]
        wrong = sum(_is_in_another(text, language) for text in texts)
        if wrong > _MANY * len(texts):
            yield f"note: {test.corpus}: {wrong / len(texts):.0%} of the {side} are likely not {language}"


def _is_in_another(text: str, language: str) -> bool:
    """True if the text is clearly in another language, judged by its script and, if py3langid is installed
    (extra `clean`), its words.
    """
    share = script_share(text, language)
    if share is not None and share < _LEAST_OF_SCRIPT:
        return True
    try:
        identifier = LanguageIdentifier()
        return identifier.knows(language) and identifier.is_other(text, language)
    except InputError:  # not installed
        return False


NOT_ITS_OWN = "other-"
"""Prefix of the names of test sets that were not translated by the model alone, or with another tag."""


def is_of_search(scores: dict[str, Any], decode: DecodeConfig) -> bool:
    """True if the scores kept with a model were made with this search; `auto` in `decode` matches any value.
    Scores that `evaluate --beam 1` keeps, for example, were made with another search.
    """
    wanted = decode.model_dump(mode="json")
    used = scores.get("decode", wanted)
    return all(value in ("auto", used.get(key)) for key, value in wanted.items())


def keep_table(folder: RunFolder, name: str, title: str, table: str, weights: str) -> None:
    """Write a table about the run's model into its folder, so that the run's report shows it. `weights` is
    the digest of the model's weights. WorkError if the folder cannot be written to.
    """
    try:
        folder.evaluation.mkdir(exist_ok=True)
        write_text(folder.evaluation / name, table)
        facts = {"weights": weights, "title": title}
        write_text(_facts_file(folder, name), to_json(facts) + "\n")
    except OSError as error:
        raise WorkError(f"{folder}: the table could not be written: {error.strerror}") from None


def kept_tables(folder: RunFolder) -> list[tuple[str, str]]:
    """Title and text of the tables kept with the run's present model."""
    tables = []
    for file in sorted(folder.evaluation.glob("*.md")):
        facts = _facts_file(folder, file.name)
        if matches_model(facts, folder):
            title = str(facts_of(facts).get("title", file.stem))
            tables.append((title, file.read_text(encoding="utf-8")))
    return tables


def _facts_file(folder: RunFolder, name: str) -> Path:
    return folder.evaluation / f"{name}.json"


def matches_model(file: Path, folder: RunFolder) -> bool:
    """True if a JSON file about a model was written for the weights that the run's folder has now. Compares
    the digest in the file, which is None where another model translated, too, as in an ensemble.
    """
    weights = folder.weights_digest()
    return weights is not None and facts_of(file).get("weights") == weights


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of translations."""
    for number, line in enumerate(read_lines(str(file)), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("translation"), str):
            raise InputError(
                f"{file}:{number}: must be a JSON object with a translation, but is {line[:60]!r}"
            )
        if "\\ud" in line.lower() and _has_lone_surrogate(row):
            raise InputError(
                f"{file}:{number}: must be text, but has half of a surrogate pair; write it again"
            )
        yield row


def _has_lone_surrogate(row: dict[str, Any]) -> bool:
    try:
        to_json(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


SEEN_NOTE = (
    "seen: the share of sentences that the system, or a model it derives from, was trained or validated on; "
    "?: not recorded"
)


UNKNOWN = "?"
"""Shown as the share of a system that has no full record and is not known to have seen any sentence."""


@dataclass(frozen=True)
class SeenShare:
    """The part of a test set that is known to a system."""

    count: int
    total: int
    is_complete: bool
    """False where the system, or a model it is made of, has not recorded all that it was trained on."""

    def __str__(self) -> str:
        if not self.count:
            return "0 %" if self.is_complete else UNKNOWN
        return f"{'' if self.is_complete else '≥ '}{max(0.1, 100 * self.count / self.total):.1f} %"

    @property
    def to_keep(self) -> str:
        """The text for a file of scores; empty if the system certainly knows nothing of the set."""
        return "" if self.is_complete and not self.count else str(self)

    @property
    def in_words(self) -> str:
        """The text for a line about a set; empty if nothing of it is known to the system."""
        return (
            f"{self.count:,} of {self.total:,} sentences seen before, in training, validation or a memory"
            if self.count
            else ""
        )


class SystemRecord:
    """The sentences that one system was trained on: a run, or several that translate together."""

    def __init__(self, runs: Sequence[RunFolder], texts: Iterable[str] = ()) -> None:
        """`texts` are those that the system looks up while it translates, such as a memory's."""
        records = [run.seen() for run in runs]
        known = [record for record in records if record is not None]
        self._sentences = [part for record in known for part in (record.own, record.inherited)]
        self._sentences.append(Sentences(trained=keys_of(texts)))
        self.is_complete = len(known) == len(runs) and all(record.is_complete for record in known)

    def share(self, test: EvaluationSet) -> SeenShare:
        """The share of the test set's sentences that the system knows."""
        keys = [sentence_key(src) for src in test.sources]
        knows = [part.knows(test.sentences) | part.validated.has(keys) for part in self._sentences]
        known = np.any(knows, axis=0)
        return SeenShare(int(known.sum()), len(test.sentences), self.is_complete)


_SHOWN_PROBLEMS = 10
"""Problems of a test set that are shown; a model that has learnt little has one in many lines."""


@dataclass(frozen=True)
class Evaluation:
    """A translated and scored test set."""

    scores: list[Score]
    rows: list[dict[str, Any]]
    """For each sentence its source, reference (or list of references), translation and the translation's
    score.
    """
    search: str
    """The search in a few words."""
    decode: dict[str, Any]
    """The settings of the search."""
    tag: str | None
    """The tag before each source."""
    languages: tuple[str, str]
    """Source and target, as the test set calls them."""
    weights: str | None
    """A digest of the model's weights; None unless this model alone translated, in float32 or as it was
    exported.
    """
    expected: Expected | None = None
    """The chrF estimated from the model's own confidence, without the references."""
    withheld: str | None = None
    """Why no chrF is estimated although the translations have a confidence."""
    seen: SeenShare | None = None
    """The part of the set that is known to the translating system."""

    def scored_by(self, metrics: Sequence[Metric], test: EvaluationSet) -> "Evaluation":
        """The same with the scores of further metrics."""
        translations = [row["translation"] for row in self.rows]
        more = corpus_scores(metrics, test.sources, translations, test.references)
        return replace(self, scores=[*self.scores, *more])

    def save(self, folder: RunFolder, test: EvaluationSet) -> None:
        """Write the rows and the scores into the folder. WorkError where it takes none."""
        rows = "".join(to_json(row, ensure_ascii=False) + "\n" for row in self.rows)
        scores = [asdict(score) for score in self.scores]
        summary = {
            "corpus": test.corpus, "sentences": len(self.rows), "search": self.search, "scores": scores,
            "decode": self.decode, "tag": self.tag, "languages": self.languages, "weights": self.weights,
            "results": RESULTS, "seen": self.seen.to_keep if self.seen else "",
        }  # fmt: skip
        try:
            folder.evaluation.mkdir(parents=True, exist_ok=True)
            write_text(file := folder.translations_file(test.name), rows)
            summary["rows"] = digest(file)
            write_text(folder.scores_file(test.name), to_json(summary, indent=1) + "\n")
        except OSError as error:
            raise WorkError(
                f"{folder.evaluation}: the translations could not be written: {error.strerror}; "
                f"{advice_on(error)}"
            ) from None


def evaluate(
    translator: Translator,
    test: EvaluationSet,
    rules: EvaluateConfig,
    tag: str | None = None,
    weights: str | None = None,
) -> Evaluation:
    """Translate a test set and score it with the metrics of `evaluate.metrics`. `tag` is used instead of the
    test set's tag; `weights`, a digest, is kept with the result.
    """
    if test.languages:
        translator = translator.for_set(test.languages)
    metrics = build_metrics(rules, translator.target_lang)  # before any work
    tag = tag or test.tag
    sources, references = test.sources, test.references
    stream = translator.stream(sources, Options(tag=tag))
    results = list(show_progress(stream, "translating", len(sources), unit="sentences"))
    problems = [
        f"line {number}: {problem}"
        for number, result in enumerate(results, start=1)
        for problem in result.problems
    ]
    for problem in problems[:_SHOWN_PROBLEMS]:
        say(problem)
    if len(problems) > _SHOWN_PROBLEMS:
        say(f"and {len(problems) - _SHOWN_PROBLEMS:,} more such lines")
    quality = ExpectedQuality(translator.resources.calibration)
    for result in results:
        quality.add(result)
    translations = [result.translation for result in results]
    scores = corpus_scores(metrics, sources, translations, references)
    languages = translator.source_lang, translator.target_lang
    for resource in translator.resources.of(languages).by_name.values():
        scores += [Score(*score) for score in resource.scores(sources, translations, references)]
    for note in notes_on_set(test, (translator.source_lang, translator.target_lang)):
        say(note)
    if tokenised := tokenised_note([targets[0] for targets in references], rules.tokenize):
        say(tokenised)
    rows = [
        {
            "source": src,
            **({"reference": targets[0]} if len(targets) == 1 else {"references": list(targets)}),
            "translation": result.translation,
            "score": result.score,
        }
        for (src, targets), result in zip(test.sentences, results)
    ]
    languages = test.languages or languages
    decode = translator.decode.model_dump(mode="json")
    search = translator.decode.in_words
    expected, withheld = quality.expected, quality.withheld
    return Evaluation(scores, rows, search, decode, tag, languages, weights, expected, withheld)


@dataclass
class RunEvaluation:
    """A translator of a run's model, and what its scores are kept as."""

    folder: RunFolder
    config: Config
    translator: Translator
    weights: str | None
    """A digest of the model's."""
    tag: str | None = None
    """Instead of the test sets' own."""
    others: Sequence[RunFolder] = ()
    """The models that translate with it."""
    is_plain: bool = True
    """Whether the model alone translates, in its usual way."""
    not_saved: WorkError | None = field(default=None, init=False)
    """The error if the folder, such as a shared model's, is not writable; raised after all is printed."""

    def __post_init__(self) -> None:
        resources = self.translator.resources.by_name.values()
        texts = [text for resource in resources for text in resource.texts()]
        self.record = SystemRecord([self.folder, *self.others], texts)
        if not self.record.is_complete:
            say(
                f"note: {self.folder}, or a model it derives from, has no record of its training data: "
                "the sentences it has seen are not counted"
            )

    def evaluations(
        self, tests: Sequence[EvaluationSet], external: Sequence[Metric], hand: list[HandLinks] | None
    ) -> Iterator[tuple[EvaluationSet, Evaluation]]:
        """Each set with its scores, which are kept; `hand` are the links of the words of the only set."""
        for test in tests:
            weights = self.weights if self.is_plain else None
            evaluation = evaluate(self.translator, test, self.config.evaluate, self.tag, weights)
            evaluation = replace(evaluation, seen=self.record.share(test))
            # The report and the card of an export show only translations by this model alone, as configured.
            is_own = self.is_plain and not self.tag
            kept_as = test if is_own else replace(test, name=f"{NOT_ITS_OWN}{test.name}")
            if external:
                self._save(evaluation, kept_as)  # not lost with a command that fails
                evaluation = evaluation.scored_by(external, test)
            if hand is not None:
                pairs = [(src, targets[0]) for src, targets in test.sentences]
                scores = [*evaluation.scores, alignment_error(self.translator, pairs, hand)]
                yield test, replace(evaluation, scores=scores)
            else:
                yield test, evaluation
            self._save(evaluation, kept_as)

    def _save(self, evaluation: Evaluation, test: EvaluationSet) -> None:
        try:
            evaluation.save(self.folder, test)
        except WorkError as error:
            self.not_saved = error

    @property
    def is_usual(self) -> bool:
        """True if the model's own search translates, without anything else."""
        return self.is_plain and not self.tag and self.translator.decode == self.config.decode

    def keep_table(self, name: str, title: str, table: str) -> None:
        """Keep a table with the model; the report shows it below the title."""
        if self.weights and not self.not_saved:
            keep_table(self.folder, name, title, table, self.weights)
