"""The YAML's `data.augment`: how often training pairs are changed to how people also write."""

from collections.abc import Iterator

from transformer_mt.settings.section import Conflict, Probability, Section


class AugmentConfig(Section):
    """Probabilities of changes, sampled again for each pair and epoch. A pair may get several changes."""

    upper: Probability = 0.0
    """Both sides in capitals."""
    title: Probability = 0.0
    """Both sides in title case."""
    lower: Probability = 0.0
    """The source in lower case."""
    punctuation: Probability = 0.0
    """Both sides without the final mark, or with it doubled or tripled."""
    typos: Probability = 0.0
    """The source with misspelled words."""

    def conflicts(self) -> Iterator[Conflict]:
        if (total := self.upper + self.title + self.lower) > 1:
            yield (
                "data.augment.upper, title and lower must sum to at most 1, as a pair gets one of them, "
                f"but are {total:g}"
            )

    @property
    def is_on(self) -> bool:
        """True if anything is changed."""
        return any(self.model_dump().values())
