"""The stages of a translation, in their order."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.config import DecodeConfig
from transformer_mt.config.build_part import part_settings
from transformer_mt.parts import load_part
from transformer_mt.terms.glossary import Glossary
from transformer_mt.text.languages import is_natural
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.result import Options
from transformer_mt.translation.stages.confidence import Calibration, Confidence
from transformer_mt.translation.stages.protected_text import Protection
from transformer_mt.translation.stages.required_terms import Terms
from transformer_mt.translation.stages.stage import BroughtStage, Stage
from transformer_mt.translation.stages.text_stages import (
    Capitals,
    Edges,
    Flags,
    MatchingEnds,
    SentenceSplitting,
    Unchanged,
)

if TYPE_CHECKING:
    from transformer_mt.memories.translation_memory import TranslationMemory

Direction = tuple[str, str]
"""Source and target language."""


@dataclass(frozen=True)
class Resources:
    """The things that stages need besides the model and its settings."""

    calibration: Calibration | None = None
    """The map from probabilities to confidence."""
    glossary: Glossary | None = None
    """Terms that translations must have."""
    memory: "TranslationMemory | None" = None
    """Translations to use again."""

    def with_files(
        self, direction: Direction, glossary: str | Path | None = None, memory: str | Path | None = None
    ) -> "Resources":
        """The same with those of these files."""
        resources = self
        if glossary is not None:
            from transformer_mt.terms.glossary import read_glossary

            resources = replace(resources, glossary=read_glossary(glossary, direction))
        if memory is not None:
            from transformer_mt.memories.translation_memory import read_memory

            resources = replace(resources, memory=read_memory(memory, direction))
        return resources

    def of(self, direction: Direction) -> "Resources":
        """The resources for this direction."""
        glossary = self.glossary if self.glossary and self.glossary.languages == direction else None
        memory = self.memory if self.memory is not None and self.memory.languages == direction else None
        return Resources(self.calibration, glossary, memory)


NO_RESOURCES = Resources()


def build_stages(
    resources: Resources, planner: Planner, settings: DecodeConfig, options: Options
) -> list[Stage]:
    """The stages of a call. What is protected comes first: the others keep it whole. What a memory has, or
    has no words, is not searched for. The last ones see results: ends before flags, which judge them.
    """
    direction = planner.source_lang, planner.target_lang
    resources, natural = resources.of(direction), all(map(is_natural, direction))
    protects_usual = settings.protect_usual and natural
    stages: list[Stage] = []
    if options.protect or protects_usual:
        stages.append(Protection(options, protects_usual, planner.source_lang))
    if natural:
        stages.append(Edges(planner.source_lang))
    if settings.split_sentences is not False:
        stages.append(SentenceSplitting(planner.splitter, planner.target_lang))
    # Not within one language: there the task may be to change capitals.
    if settings.lowercase_capitals and natural and len(set(direction)) == 2:
        stages.append(Capitals(*direction))
    if resources.memory is not None:
        from transformer_mt.translation.stages.from_memory import FromMemory

        stages.append(FromMemory(resources.memory))
    if natural:
        stages.append(Unchanged())
    if resources.glossary:
        stages.append(Terms(resources.glossary, planner, settings))
    if settings.match_ends:
        stages.append(MatchingEnds(planner.target_lang))
    if natural:
        stages.append(Flags())
    if resources.calibration is not None:
        stages.append(Confidence(resources.calibration, planner.source_lang))
    return [*stages, *map(brought_stage, settings.stages)]


def brought_stage(name: str) -> Stage:
    """The stage of others that `decode.stages` names. InputError if it is none."""
    kind = load_part("stage", name)
    return BroughtStage(kind(**part_settings(kind, name, "decode.stages")), name)
