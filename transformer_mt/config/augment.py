"""The YAML's `data.augment`: how often training pairs are changed to how people also write."""

from pydantic import model_validator

from transformer_mt.settings.section import Probability, Section


class AugmentConfig(Section):
    """Probabilities with which a pair is changed, in each epoch again. A pair may have several changes."""

    upper: Probability = 0.0
    """Both sides in capitals."""
    title: Probability = 0.0
    """Both sides with a capital at each word."""
    lower: Probability = 0.0
    """The source without capitals."""
    punctuation: Probability = 0.0
    """Both sides without the mark at their end, or with two or three of it."""
    typos: Probability = 0.0
    """The source with misspelled words."""

    @model_validator(mode="after")
    def _one_case(self) -> "AugmentConfig":
        if (total := self.upper + self.title + self.lower) > 1:
            raise ValueError(
                "data.augment.upper, title and lower must be at most 1 together, as a pair has one of them, "
                f"but are {total:g}"
            )
        return self

    @property
    def is_on(self) -> bool:
        """Whether anything is changed."""
        return any(self.model_dump().values())
