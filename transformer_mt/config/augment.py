"""The YAML's `data.augment`: how often training pairs are changed to how people also write."""

from pydantic import model_validator

from transformer_mt.settings.section import Probability, Section


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

    @model_validator(mode="after")
    def _one_case(self) -> "AugmentConfig":
        if (total := self.upper + self.title + self.lower) > 1:
            raise ValueError(
                "data.augment.upper, title and lower must sum to at most 1, as a pair gets one of them, "
                f"but are {total:g}"
            )
        return self

    @property
    def is_on(self) -> bool:
        """True if anything is changed."""
        return any(self.model_dump().values())
