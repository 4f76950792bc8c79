"""Checks of single pairs: one check per finding, each fed pair by pair, in flat memory. Misaligned pairs are
found in shifted_lines.py.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Literal

from transformer_mt.companions.inspection.finding import (
    UNCOUNTED,
    Finding,
    FrequentKeys,
    Group,
    GroupSample,
    IsOn,
    always,
    never,
    weight_of,
)
from transformer_mt.config import DataConfig
from transformer_mt.data.changes.change import PairsReport
from transformer_mt.data.cleaning_rules import (
    CopyRule,
    MarkupRule,
    NumbersRule,
    ScriptRule,
    has_one_sided_number,
)
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.hashes import near_text, sentence_key, text_key
from transformer_mt.text.languages import (
    LanguageIdentifier,
    has_no_spaces,
    has_spaces_within,
    is_natural,
    is_same_language,
)
from transformer_mt.text.lines import Pair
from transformer_mt.text.repairs import is_escaped, is_wrongly_decoded

_SHOWN = 5


class ChangeCheck:
    """Lets the report of a change of rows count the sampled pairs of all training corpora in the direction
    of `data.languages`. It has no findings of its own.
    """

    def __init__(self, report: PairsReport) -> None:
        self._report = report

    def add(self, row: int, pair: Pair) -> None:
        if weight_of(row):
            self._report.add(row, pair)

    def findings(self) -> list[Finding]:
        return []


class PairCheck:
    """A finding that one pair alone shows."""

    def __init__(
        self, what: str, action: str, is_suspect: Callable[[str, str], bool], is_on: IsOn, weight: float = 1.0
    ) -> None:
        self._finding = Finding(what, action, weight=weight, is_on=is_on)
        self._is_suspect = is_suspect

    def add(self, row: int, pair: Pair) -> None:
        weight = weight_of(row)
        if weight and self._is_suspect(*pair):
            self._finding.add(row, pair, weight)

    def findings(self) -> list[Finding]:
        return [self._finding]


# A full stop or comma after a space. Other marks do not count: French has a space before some of them.
_TOKENISED = re.compile(r"\w [.,](?: |$)|@-@|\w 's |\w n't |&apos;s ")


def is_tokenised(text: str, language: str) -> bool:
    """True if the text looks like output of the Moses tokeniser, or has spaces between characters although
    its language is written without spaces.
    """
    if has_no_spaces(language) and has_spaces_within(text):
        return True
    return bool(_TOKENISED.search(text))


_TOKENISED_SHARE = 0.01
"""A corpus counts as tokenised if at least this share of its pairs is."""


class TokenisedCheck:
    """Text that was tokenised, on one side or both."""

    def __init__(
        self, languages: tuple[str, str], joined: bool | Literal["source", "target"] = False
    ) -> None:
        """`joined` is the side whose text was already joined; True means both sides, False neither."""
        self._languages = languages
        self._joined = {"source", "target"} if joined is True else {joined} - {False}
        self._finding = Finding("tokenised text", "", weight=0.3, drops=False)
        self._sides = {"source": 0, "target": 0}
        self._pairs = 0

    def add(self, row: int, pair: Pair) -> None:
        weight = weight_of(row)
        if not weight:
            return
        self._pairs += weight
        is_split = [is_tokenised(text, language) for text, language in zip(pair, self._languages)]
        if any(is_split):
            self._finding.add(row, pair, weight)
            for side, is_found in zip(self._sides, is_split):
                self._sides[side] += is_found

    def findings(self) -> list[Finding]:
        # Joining also changes untokenised text, so a side with little tokenised text is left as it is.
        sides = {side for side, count in self._sides.items() if 20 * count > max(self._sides.values())}
        if self._finding.pairs < _TOKENISED_SHARE * self._pairs:  # joining would change more of the others
            self._finding.action = "too few to join; look at the examples"
            self._finding.weight = 0.0
        elif sides <= self._joined:
            self._finding.action = "left after joining; look at the examples"
            self._finding.weight = 0.0
        else:
            all_sides = sides | self._joined
            value = "true" if len(all_sides) > 1 else all_sides.pop()
            self._finding.action = f"filter: {{detokenize: {value}}}"
        return [self._finding]


def pair_checks(languages: tuple[str, str], is_text: bool = False) -> list[PairCheck]:
    """The checks that look at one pair at a time. Numbers are compared only between natural languages. Copies
    are not looked for in plain text, whose source and target are the same.
    """

    def either(is_suspect: Callable[[str], bool]) -> Callable[[str, str], bool]:
        return lambda src, tgt: is_suspect(src) or is_suspect(tgt)

    numbers = PairCheck(
        "numbers that differ",
        "filter: {numbers: true}",
        NumbersRule().drops,
        lambda rules, data: rules.numbers,
        weight=0.5,
    )
    one_sided = PairCheck(
        "number on one side only",
        "look at the examples; no key drops them",
        has_one_sided_number,
        never,
        weight=0.2,
    )
    copies = PairCheck(
        "source equals target", "filter: {copy: true}", CopyRule().drops, lambda rules, data: rules.copy
    )
    checks = [
        *([] if is_text else [copies]),
        PairCheck(
            "wrong script",
            "filter: {script: true}",
            ScriptRule(languages).drops,
            lambda rules, data: rules.script,
        ),
        PairCheck("damaged encoding", _REPAIR, either(is_wrongly_decoded), _looks_at_encoding),
        PairCheck("escaped text", _REPAIR, either(is_escaped), _looks_at_encoding, weight=0.5),
        PairCheck("markup", "filter: {markup: true}", MarkupRule().drops, lambda rules, data: rules.markup),
    ]
    return [*checks, numbers, one_sided] if all(map(is_natural, languages)) else checks


_REPAIR = "filter: {encoding: repair}"


def _looks_at_encoding(rules: FilterConfig, data: DataConfig) -> bool:
    return rules.encoding is not None


class LanguageCheck:
    """Finds sides in a wrong language, or in each other's language, in a sample of the pairs."""

    _ALL_OF = 5_000

    def __init__(self, languages: tuple[str, str], identifier: LanguageIdentifier) -> None:
        self._languages, self._identifier = languages, identifier
        self._wrong, self._swapped = (
            Finding(what, "filter: {language: true}", is_on=lambda rules, data: rules.language)
            for what in ("wrong language", "swapped languages")
        )
        if not all(map(identifier.knows, languages)):  # the rule refuses such a pair of languages
            unknown = next(language for language in languages if not identifier.knows(language))
            for finding in (self._wrong, self._swapped):
                finding.action = f"remove these pairs; filter.language does not know {unknown}"
        self._looked_at = 0
        self._found: Counter[str] = Counter()

    def add(self, row: int, pair: Pair) -> None:
        weight = weight_of(row, self._ALL_OF)
        if not weight:
            return
        self._looked_at += weight
        is_wrong = [
            self._identifier.knows(language) and self._identifier.is_other(text, language)
            for text, language in zip(pair, self._languages)
        ]
        if not any(is_wrong):
            return
        best = [self._identifier.best(text) for text in pair]
        is_swapped = all(map(is_same_language, best, reversed(self._languages)))
        if is_swapped:
            self._swapped.add(row, pair, weight)
        else:
            self._wrong.add(row, pair, weight)
            self._found.update({lang for lang, wrong in zip(best, is_wrong) if wrong})

    def findings(self) -> list[Finding]:
        if self._swapped.pairs > 0.5 * self._looked_at:
            self._swapped.action = "exchange source and target, or the columns, of this corpus"
            self._swapped.is_on = never
        self._wrong.note = "found: " + ", ".join(lang for lang, _ in self._found.most_common(5))
        return [self._swapped, self._wrong]


class LengthCheck:
    """Sides whose lengths are too different for this corpus, in characters."""

    _FIRST = 2000
    _FACTOR, _EXTRA = 2.2, 12

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Pair]] = []
        self._usual: float | None = None
        self._finding = Finding(
            "unbalanced lengths",
            "data.max_length_ratio: 2.0",
            is_on=lambda rules, data: data.max_length_ratio <= 2.0,
        )

    def add(self, row: int, pair: Pair) -> None:
        if self._usual is not None:
            self._judge(row, pair)
            return
        self._waiting.append((row, pair))
        if len(self._waiting) == self._FIRST:
            self._begin()

    def _begin(self) -> None:
        ratios = sorted(math.log(len(tgt) / len(src)) for _, (src, tgt) in self._waiting)
        self._usual = math.exp(ratios[len(ratios) // 2])
        for row, pair in self._waiting:
            self._judge(row, pair)
        self._waiting.clear()

    def _judge(self, row: int, pair: Pair) -> None:
        assert self._usual is not None
        expected, length = len(pair[0]) * self._usual, len(pair[1])
        # In a denser target script each character carries more, so fewer extra ones are allowed.
        extra = self._EXTRA * min(1.0, self._usual)
        shorter, longer = sorted((expected, length))
        if longer > self._FACTOR * shorter + extra:
            self._finding.add(row, pair, 1)

    def findings(self) -> list[Finding]:
        if self._waiting:
            self._begin()
        return [self._finding]


class RepetitionCheck:
    """Finds duplicate and near-duplicate pairs, and sentences with many translations."""

    MANY = 10
    """A sentence with at least this many different partners is suspicious."""
    _LARGE = 1 / 500
    """A group of equal sentences or pairs is large if it makes up at least this share of the corpus."""

    def __init__(self, languages: tuple[str, str]) -> None:
        """Many sources of one target are suspicious only between natural languages: a label has many."""
        self._many_sources = all(map(is_natural, languages))
        self._pairs, self._frequent_pairs = GroupSample(), FrequentKeys()
        self._sides = GroupSample(), GroupSample()
        self._frequent_sides = FrequentKeys(), FrequentKeys()
        self._row = 0

    def add(self, row: int, pair: Pair) -> None:
        self._row = row
        keys = [text_key(text) for text in pair]
        near = text_key("\0".join(map(near_text, pair)))
        exact = text_key("\0".join(pair))
        self._pairs.add(near, exact, pair)
        self._frequent_pairs.add(exact, 0, pair)
        for side in (0, 1):
            self._sides[side].add(keys[side], keys[1 - side], pair)
            self._frequent_sides[side].add(keys[side], keys[1 - side], pair)

    def findings(self) -> list[Finding]:
        exact = Finding(
            "exact duplicates",
            "data.remove_duplicates: true",
            is_on=lambda rules, data: data.remove_duplicates is not False,
        )
        near = Finding(
            "near-duplicates",
            "data.remove_duplicates: near",
            weight=0.1,
            is_on=lambda rules, data: data.remove_duplicates == "near",
        )
        for group in self._pairs.groups():
            variants = group.partners.keys() - {UNCOUNTED}
            others = len(variants) - 1 + group.partners[UNCOUNTED]
            if others:
                near.add(-1, group.example, others * self._pairs.weight)
            if self._is_represented(self._pairs, group):
                exact.pairs += (group.pairs - others - 1) * self._pairs.weight
                if group.pairs > 1 and not others:
                    exact.add(-1, group.example, 0)
        if self._pairs.weight > 1:
            for count, group in self._frequent_pairs.frequent(self._LARGE):
                exact.add(-1, group.example, count - 1)
        many = [self._many(0, "one source, many targets")]
        if self._many_sources:
            many.append(self._many(1, "one target, many sources"))
        return [exact, near, *many]

    def _many(self, side: int, what: str) -> Finding:
        action = "check that these are translations; no setting removes them"
        finding, sample = Finding(what, action, weight=0.2), self._sides[side]
        for group in sample.groups():
            if len(group.partners) >= self.MANY and self._is_represented(sample, group):
                finding.add(-1, group.example, group.pairs * sample.weight)
        if sample.weight > 1:
            for count, group in self._frequent_sides[side].frequent(self._LARGE):
                if len(group.partners) >= self.MANY:
                    finding.add(-1, group.example, count)
        return finding

    def _is_represented(self, sample: GroupSample, group: Group) -> bool:
        """True if the group may stand for groups outside the sample, too. A large group would be counted many
        times or missed, so it is counted by its frequency instead.
        """
        return sample.weight == 1 or group.pairs < self._LARGE * self._row


class LeakCheck:
    """Sentences that are in a validation or test set."""

    def __init__(self, sources: Set[int], targets: Set[int] = frozenset()) -> None:
        """`sources` and `targets` are keys of sentences that the pairs must not contain."""
        self._sources, self._targets = sources, targets
        self._finding = Finding("validation or test sentences", "training leaves them out", is_on=always)

    def add(self, row: int, pair: Pair) -> None:
        if sentence_key(pair[0]) in self._sources or (
            self._targets and sentence_key(pair[1]) in self._targets
        ):
            self._finding.add(row, pair, 1)

    def findings(self) -> list[Finding]:
        return [self._finding]


Check = PairCheck | TokenisedCheck | LanguageCheck | LengthCheck | RepetitionCheck | LeakCheck | ChangeCheck


def all_findings(checks: Sequence[Check]) -> list[Finding]:
    """The findings that concern pairs."""
    return [finding for check in checks for finding in check.findings() if finding.pairs]
