"""Something that may be wrong with pairs of a corpus, and what acts on it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from transformer_mt.config import DataConfig
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.lines import Pair

_EXAMPLES = 5


@dataclass(frozen=True)
class Example:
    """A pair that shows a finding."""

    row: int
    """From 1 on."""
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
    """Whether a training ends at a single such row, which is not among the pairs that are looked at."""
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
