"""An inspection of all corpora of a config before training: one pass over each, in flat memory."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np

from transformer_mt.companions.inspection.checks import (
    ChangeCheck,
    Check,
    LanguageCheck,
    LeakCheck,
    LengthCheck,
    RepetitionCheck,
    TokenisedCheck,
    all_findings,
    pair_checks,
)
from transformer_mt.companions.inspection.finding import Example, Finding, always, never
from transformer_mt.companions.inspection.shifted_lines import find_misaligned, find_shifts
from transformer_mt.companions.wizard.plan import weight_decay
from transformer_mt.config import Config, DataConfig
from transformer_mt.config.build_part import parts_of
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import Block, BlockSample, FromTrainCorpus
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.data.preparation.clean import evaluation_keys, training_pairs
from transformer_mt.data.preparation.training_links import import_thot
from transformer_mt.data.vocabulary.given_tokenizer import given_tokenizer, lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say, show_progress
from transformer_mt.run_folder import parent_of
from transformer_mt.settings.corpus_keys import FilterConfig, check_language
from transformer_mt.text.languages import LanguageIdentifier, count_scripts, is_natural, is_same_language
from transformer_mt.text.lines import Pair

_DAMAGED = 20  # rows that are named
_LEAST = 0.0005
"""Findings of a smaller share of a corpus are left out, unless they concern at least ten pairs."""
_FEW_FOR_DECAY = 130_000


@dataclass
class CorpusReport:
    """The findings in one corpus."""

    name: str
    languages: tuple[str, str]
    is_training: bool
    rows: int
    empty: int
    """Rows with an empty side."""
    lengths: tuple[list[int], list[int]]
    """For each side, the 5th, 50th, 95th and 100th percentile of the characters per text, in a sample."""
    scripts: tuple[dict[str, float], dict[str, float]]
    """For each side, the share of each script among the letters of a sample."""
    findings: list[Finding]
    sample: list[Pair]
    tokens: tuple[float, float] | None = None
    """Mean tokens of a source and of a target."""
    rules: dict[str, Any] = field(default_factory=dict)
    """The cleaning rules that are on."""
    has_own_rules: bool = False
    """True if the corpus has a `filter` instead of that of `data`."""

    @property
    def shown(self) -> list[Finding]:
        """The findings of a report: those of few pairs are left out."""
        return [f for f in self.findings if f.pairs >= 10 or self.share(f) >= _LEAST or f.must_be_corrected]

    def share(self, finding: Finding) -> float:
        return finding.pairs / max(1, self.rows)


@dataclass
class Inspection:
    """The findings in all corpora of a config."""

    name: str
    corpora: list[CorpusReport]
    notes: list[str]
    vocab_size: int | None
    """Size of the vocabulary that the tokens are counted with."""


def inspect(config: Config) -> Inspection:
    """Look at the training corpora, after the repairs of data.filter, and at the validation and test sets."""
    data, notes = config.data, []
    for code in data.languages_used:
        check_language(code)
    identifier: LanguageIdentifier | None = None
    try:
        identifier = LanguageIdentifier()
    except InputError as error:
        notes.append(f"Languages were not checked: {error}.")
    held_out = evaluation_keys(_with_readable_sets(data))
    made = [
        kind.inspection(config, **settings)
        for kind, settings in parts_of("change", data.changes, "data.changes")
    ]
    counted = [report for report in made if report is not None]
    try:
        import_thot()
    except InputError as error:
        notes.append(f"Misaligned pairs were not looked for: {error}.")
    reports = []
    for entry in data.entries:
        say(f"inspecting {entry.title}")
        languages = data.languages_of(entry)
        rules = data.filter_of(entry)
        targets = held_out.targets if entry.synthetic or entry.is_text else frozenset()
        checks = build_checks(languages, identifier, rules.detokenize, entry.is_text)
        checks.append(LeakCheck(held_out.sources, targets))
        if languages == data.languages:
            checks += [ChangeCheck(report) for report in counted]
        readable, damaged = _without_damaged(entry, data)
        report = inspect_corpus(
            entry.title, training_pairs(readable, data), languages, checks, is_training=True
        )
        report.findings[:0] = damaged
        report.rules, report.has_own_rules = rules.model_dump(exclude_defaults=True), entry.filter is not None
        for finding in report.findings:
            finding.mark_if_handled(rules, data)
        reports.append(report)
    pairs = sum(report.rows for report in reports)
    train, objectives = config.train, {entry.objective for entry in data.entries}
    # Measured only for new translation models, trained by Muon for a known number of updates.
    is_measured = config.init_from is None and objectives == {"translation"} and train.optimizer == "muon"
    if pairs <= _FEW_FOR_DECAY and is_measured and not (train.weight_decay or train.max_epochs):
        decay = weight_decay(train.learning_rate, train.max_updates)
        notes.append(
            f"With as few pairs as {pairs:,}, `train.weight_decay: {decay:g}` was worth two BLEU "
            "(docs/measurements/sizing.md)."
        )
    for corpus in (*data.valid_sets, *data.test):
        if isinstance(corpus, FromTrainCorpus):
            continue
        say(f"inspecting {corpus.title}")
        languages = data.languages_of(corpus)
        checks = build_checks(languages, identifier, is_text=corpus.is_text)
        readable, damaged = _without_damaged(corpus, data)
        try:
            report = inspect_corpus(corpus.title, readable.read(data.languages), languages, checks)
        except UnknownSplitError as error:
            notes.append(str(error))
            continue
        report.findings += damaged
        for finding in report.findings:
            finding.mark_if_handled(FilterConfig(), data)  # no rule is applied to such a set
            if not finding.stops:
                finding.action = "these pairs are scored as they are: look at the examples"
        reports.append(report)
    notes += [note for report in counted for note in report.notes()]
    vocab_size = _count_tokens(config, reports, notes)
    return Inspection(config.name, reports, notes, vocab_size)


def build_checks(
    languages: tuple[str, str],
    identifier: LanguageIdentifier | None,
    joined: bool | Literal["source", "target"] = False,
    is_text: bool = False,
) -> list[Check]:
    """New checks for a corpus. If `identifier` is None, languages are not checked. `joined` is the
    `filter.detokenize` of the corpus; `is_text` says that it is plain text.
    """
    checks: list[Check] = [
        *pair_checks(languages, is_text),
        TokenisedCheck(languages, joined),
        RepetitionCheck(languages),
    ]
    if all(map(is_natural, languages)):  # a label is short, whatever the text
        checks.append(LengthCheck())
    return [*checks, LanguageCheck(languages, identifier)] if identifier else checks


def inspect_corpus(
    name: str,
    pairs: Iterable[Pair],
    languages: tuple[str, str],
    checks: list[Check],
    is_training: bool = False,
) -> CorpusReport:
    """One pass over a corpus."""
    blocks, rows, empty = BlockSample(), 0, 0
    for row, (src, tgt) in enumerate(_stripped(show_progress(pairs, "reading", unit="pairs"))):
        rows += 1
        blocks.add(row, (src, tgt))
        if not src or not tgt:
            empty += 1
            continue
        for check in checks:
            check.add(row, (src, tgt))
    findings = [*_order(blocks, languages, rows - empty), *all_findings(checks)]
    sample = [pair for block in blocks.blocks() for pair in block.pairs if all(pair)]
    sides = tuple([pair[side] for pair in sample] for side in (0, 1))
    return CorpusReport(
        name=name,
        languages=languages,
        is_training=is_training,
        rows=rows,
        empty=empty,
        lengths=(_percentiles(sides[0]), _percentiles(sides[1])),
        scripts=(_scripts(sides[0]), _scripts(sides[1])),
        findings=sorted(findings, key=lambda finding: -finding.pairs),
        sample=sample,
    )


def _stripped(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return ((src.strip(), tgt.strip()) for src, tgt in pairs)


def _percentiles(texts: Sequence[str]) -> list[int]:
    lengths = [len(text) for text in texts] or [0]
    return [int(value) for value in np.percentile(lengths, [5, 50, 95, 100])]


def _scripts(texts: Sequence[str]) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(count_scripts(text))
    total = max(1, counts.total())
    return {name: count / total for name, count in counts.most_common(4)}


def _with_readable_sets(data: DataConfig) -> DataConfig:
    """The data with validation and test sets whose damaged rows are dropped."""
    drop = {"damaged_rows": "drop"}
    valid, test = (
        [corpus.model_copy(update=drop) if hasattr(corpus, "damaged_rows") else corpus for corpus in sets]
        for sets in (data.valid_sets, data.test)
    )
    return data.model_copy(update={"valid": valid, "test": test})


def _without_damaged(corpus: Corpus, data: DataConfig) -> tuple[Corpus, list[Finding]]:
    """Returns (corpus without its damaged rows, findings that list them); damaged rows hold no pair."""
    problems = corpus.damaged(data.languages)
    if not problems:
        return corpus, []
    shown = [f"row {number:,} {problem}" for number, problem in islice(problems.items(), _DAMAGED)]
    more = len(problems) - _DAMAGED
    finding = Finding(
        "damaged rows", "correct them, or damaged_rows: drop", len(problems),
        note="; ".join(shown) + (f"; and {more:,} more" if more > 0 else ""),
        is_on=always if getattr(corpus, "damaged_rows", None) == "drop" else never, stops=True,
    )  # fmt: skip
    return corpus.model_copy(update={"damaged_rows": "drop"}), [finding]


def _order(blocks: BlockSample, languages: tuple[str, str], rows: int) -> list[Finding]:
    """Findings of shifted lines; if there are none, of misaligned pairs."""
    findings = []
    for shift in find_shifts(blocks.blocks(), languages):
        pairs = min(rows, round(shift.lines * blocks.stride))
        first, last = shift.blocks[0].start, shift.blocks[-1].start + len(shift.blocks[-1].pairs)
        note = f"rows {first + 1:,} to {last:,}: target line N{shift.by:+d} matches source line N"
        finding = Finding("shifted lines", "add or remove lines in one of the files", pairs, note=note)
        finding.examples = _examples(shift.blocks)
        findings.append(finding)
    if not findings and all(map(is_natural, languages)) and not is_same_language(*languages):
        with suppress(InputError):  # without thot, as a note says
            misaligned = find_misaligned(blocks.blocks(), languages, rows)
            findings += [misaligned] if misaligned else []
    return findings


def _examples(blocks: Sequence[Block]) -> list[Example]:
    first = blocks[0]
    middle = len(first.pairs) // 2
    return [
        Example(first.start + i + 1, first.pairs[i]) for i in range(middle, min(middle + 3, len(first.pairs)))
    ]


def _count_tokens(config: Config, reports: Sequence[CorpusReport], notes: list[str]) -> int | None:
    """Set the mean tokens of each report, by the given vocabulary or one learnt from the samples. Returns
    the size of the vocabulary, or None if there is none.
    """
    text = [pair for report in reports if report.is_training for pair in report.sample]
    try:
        parent = parent_of(config) if config.init_from else None
        tokenizer = given_tokenizer(config, parent.tokenizer() if parent else None) or Tokenizer.train(
            text, config.tokenizer, config.data.control_pieces
        )
    except InputError as error:
        notes.append(f"Tokens were not counted: {error}")
        return None
    is_given = bool(config.init_from or config.tokenizer.file)
    for note in lost_letters_notes(tokenizer, text[:20_000], is_given):
        notes.append(note.removeprefix("note: ").capitalize())
    for report in reports:
        pairs = report.sample[:20_000] or [("", "")]
        src = tokenizer.encode_src([src for src, _ in pairs])
        tgt = tokenizer.encode_tgt([tgt for _, tgt in pairs])
        report.tokens = sum(map(len, src)) / len(pairs), sum(map(len, tgt)) / len(pairs)
    return len(tokenizer.all_pieces_tgt)
