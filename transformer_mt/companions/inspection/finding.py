"""Something that may be wrong with pairs of a corpus, what acts on it, and samples of rows in flat memory."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from transformer_mt.config import DataConfig
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.lines import Pair


def weight_of(row: int, all_of: int = 100_000) -> int:
    """The sampling weight of a row: how many rows it stands for, 0 if it is not in the sample.

    Rows below `all_of` all have weight 1. One in two of the next `all_of` rows is sampled, with weight 2, one
    in four of the next 2 x `all_of`, with weight 4, and so on. A hash chooses the rows, so that something
    that repeats every second row is neither missed nor counted twice.
    """
    bits = (row // all_of).bit_length()
    mixed = row * 0x9E3779B97F4A7C15 & (2**64 - 1)
    return 0 if mixed >> (64 - bits) else 1 << bits


UNCOUNTED = -1
"""Stands for all partners of a group after the first 100."""


@dataclass
class Group:
    """The pairs that have the same key."""

    partners: Counter[int] = field(default_factory=Counter)
    """How often each partner occurs; partners after the first 100 are counted as UNCOUNTED."""
    example: Pair = ("", "")

    def add(self, partner: int, pair: Pair) -> None:
        is_counted = partner in self.partners or len(self.partners) < 100
        self.partners[partner if is_counted else UNCOUNTED] += 1
        self.example = self.example if self.example[0] else pair

    @property
    def pairs(self) -> int:
        return self.partners.total()


class GroupSample:
    """All pairs of a sample of keys. Keys are sampled by their value, so that a key has all its pairs or
    none.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most, self._mask = most, 0
        self._groups: dict[int, Group] = {}

    def add(self, key: int, partner: int, pair: Pair) -> None:
        if key & self._mask:
            return
        self._groups.setdefault(key, Group()).add(partner, pair)
        if len(self._groups) > self._most:
            self._mask = 2 * self._mask + 1
            self._groups = {k: g for k, g in self._groups.items() if not k & self._mask}

    def groups(self) -> Iterator[Group]:
        return iter(self._groups.values())

    @property
    def weight(self) -> int:
        """Number of keys that each key of the sample represents."""
        return self._mask + 1


class FrequentKeys:
    """The keys that make up more than a share of 1/`most` of a stream (Misra and Gries 1982)."""

    def __init__(self, most: int = 2000) -> None:
        self._most, self._total = most, 0
        self._counts: dict[int, int] = {}
        self._firsts: dict[int, tuple[int, Pair]] = {}
        self._groups: dict[int, Group] = {}  # only for keys that repeat: most do not, and groups take time

    def add(self, key: int, partner: int, pair: Pair) -> None:
        self._total += 1
        if key in self._counts:
            self._counts[key] += 1
            if key not in self._groups:
                self._groups[key] = Group()
                self._groups[key].add(*self._firsts[key])
            self._groups[key].add(partner, pair)
            return
        self._counts[key], self._firsts[key] = 1, (partner, pair)
        if len(self._counts) > self._most:
            self._counts = {k: count - 1 for k, count in self._counts.items() if count > 1}
            self._firsts = {k: self._firsts[k] for k in self._counts}
            self._groups = {k: group for k, group in self._groups.items() if k in self._counts}

    def frequent(self, share: float) -> list[tuple[int, Group]]:
        """For each key with at least this share: (lower bound of its pairs, group of some of its pairs), the
        most frequent key first.
        """
        least = max(2.0, share * self._total)
        groups = [(count, self._groups[key]) for key, count in self._counts.items() if count >= least]
        return sorted(groups, key=lambda group: -group[0])


_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """A pair that shows a finding."""

    row: int
    """Counted from 1; 0 if it is not known."""
    pair: Pair


IsOn = Callable[[FilterConfig, DataConfig], bool]
"""Whether the rules of a corpus act on a finding already."""


def never(rules: FilterConfig, data: DataConfig) -> bool:
    return False


def always(rules: FilterConfig, data: DataConfig) -> bool:
    return True


@dataclass
class Finding:
    """Something that may be wrong with pairs of a corpus."""

    what: str
    """In a few words: `source equals target`."""
    action: str
    """The key that acts on it, or what to do."""
    pairs: int = 0
    """An estimate of the pairs concerned."""
    weight: float = 1.0
    """How much one of these pairs matters: 1 if it should not be trained on, 0 if nothing need be done."""
    is_on: IsOn = never
    drops: bool = True
    """Whether its key drops such pairs, instead of changing them."""
    stops: bool = False
    """Whether a single such row ends a training. These rows are not among the pairs that are inspected."""
    note: str = ""
    examples: list[Example] = field(default_factory=list)
    _seen: int = 0

    @property
    def must_be_corrected(self) -> bool:
        return self.stops and self.weight > 0.0

    @property
    def is_setting(self) -> bool:
        """The action is a key of the config."""
        return self.action.startswith(("filter:", "data."))

    def mark_if_handled(self, rules: FilterConfig, data: DataConfig) -> None:
        """If the config handles this already, say so in the action and set the weight to 0."""
        if self.is_on(rules, data):
            self.action, self.weight = f"already done ({self.action})", 0.0

    def add(self, row: int, pair: Pair, weight: int) -> None:
        """Count a pair, which stands for `weight` pairs; examples are spread over the corpus."""
        self.pairs += weight
        self._seen += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(Example(row + 1, pair))
        elif self._seen & (self._seen - 1) == 0:  # 8, 16, 32, ...
            self.examples[self._seen.bit_length() % _EXAMPLES] = Example(row + 1, pair)
