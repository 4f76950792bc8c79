"""The languages a server translates from and to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_mt.companions.serving.aliases import known_code
from transformer_mt.companions.serving.served_model import Model
from transformer_mt.errors import InputError
from transformer_mt.text.languages import LanguageIdentifier, base_code, is_same_language, language_name
from transformer_mt.translation.planner import Direction

# Below this probability a text of at least so many letters is taken to be in another language.
_UNLIKELY, _LETTERS = 0.05, 20


@dataclass(frozen=True)
class Detected:
    """A language a text seems to be in."""

    language: str
    confidence: float
    """0 to 100."""


@dataclass(frozen=True)
class Chain:
    """The models that translate one after the other; none where there is nothing to translate."""

    models: tuple[Model, ...]
    pivot: str | None = None
    """The language between the first and the second model."""


class Directions:
    """A model for each pair of languages; languages have the codes of the models' configs."""

    def __init__(self, models: Mapping[Direction, Model]) -> None:
        self.models = models
        """The models by direction. The mapping is replaced when models come or go, but never changed."""
        self._identifier = LanguageIdentifier()

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(source for source, _ in self.models))

    def targets_of(self, source: str) -> list[str]:
        """The languages that one is translated to, by one model first."""
        targets = [target for known, target in self.models if known == source]
        targets += [target for pivot in targets for known, target in self.models if known == pivot]
        return [target for target in dict.fromkeys(targets) if target != source]

    def sources_of(self, target: str) -> list[str]:
        """The languages that are translated to one."""
        return [source for source in self.sources if target in self.targets_of(source)]

    def known(self, source: str, target: str) -> tuple[str, str]:
        """A source, or `auto`, and a target by the codes that the models have."""
        targets = [known for _, known in self.models]
        source = source if source == "auto" else known_code(source, [*self.sources, *targets])
        return source, known_code(target, [*targets, *self.sources])

    def languages(self) -> list[dict[str, Any]]:
        """Each language with its name and the languages it is translated to, as the API lists them."""
        codes = dict.fromkeys(code for pair in self.models for code in pair)
        return [
            {"code": code, "name": language_name(code), "targets": self.targets_of(code)} for code in codes
        ]

    def detect(self, text: str, among: Sequence[str] | None = None) -> list[Detected]:
        """The languages the server knows, the likeliest first."""
        codes = list(dict.fromkeys(among or [code for pair in self.models for code in pair]))
        probabilities = self._identifier.probabilities(text)
        guesses = [
            Detected(
                code,
                round(
                    100
                    * max(
                        (p for lang, p in probabilities.items() if is_same_language(code, lang)), default=0.0
                    ),
                    1,
                ),
            )
            for code in codes
        ]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def other_language(self, text: str, among: Sequence[str]) -> str | None:
        """The language of a text that is clearly in none of these; None for others, and for short ones."""
        if sum(map(str.isalpha, text)) < (_LETTERS if text.isascii() else _LETTERS // 2):
            return None
        probabilities = self._identifier.probabilities(text)
        wanted = sum(p for lang, p in probabilities.items() if any(is_same_language(c, lang) for c in among))
        return max(probabilities, key=probabilities.__getitem__) if wanted < _UNLIKELY else None

    def chain(self, source: str, target: str) -> Chain:
        """The model of this direction, or two with a language between: English if they allow it, else the
        first. InputError if there are none.
        """
        models = self.models  # the same for all questions below, whatever comes or goes
        if source == target and any(source in pair for pair in models):
            return Chain(())
        if (source, target) in models:
            return Chain((models[source, target],))
        between = [code for known, code in models if known == source and (code, target) in models]
        if between:
            pivot = min(between, key=lambda code: base_code(code) != "en")
            return Chain((models[source, pivot], models[pivot, target]), pivot)
        if source not in self.sources:
            every = list(dict.fromkeys(target for _, target in self.models))
            if target not in every:  # and `auto` found no source for it
                raise InputError(f"target must be one of {', '.join(every)}, but is {target}")
            raise InputError(f"source must be auto or one of {', '.join(self.sources)}, but is {source}")
        targets = self.targets_of(source)
        raise InputError(f"target must be one of {', '.join(targets)} with source {source}, but is {target}")
