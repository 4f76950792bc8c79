"""A call of a translator, as its stages see it: which of them have something to do there, and with what."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.config import DecodeConfig
from transformer_mt.terms.glossary import Glossary
from transformer_mt.text.languages import is_natural
from transformer_mt.translation.planner import Direction, Planner
from transformer_mt.translation.result import Options
from transformer_mt.translation.stages.confidence import Calibration

if TYPE_CHECKING:
    from transformer_mt.memories.translation_memory import TranslationMemory


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


@dataclass(frozen=True)
class Call:
    """One call. A stage takes part if its classmethod `of_call` makes one."""

    planner: Planner
    settings: DecodeConfig
    options: Options
    resources: Resources
    """Those for the direction."""

    @classmethod
    def of(cls, resources: Resources, planner: Planner, settings: DecodeConfig, options: Options) -> "Call":
        direction = planner.source_lang, planner.target_lang
        return cls(planner, settings, options, resources.of(direction))

    @property
    def direction(self) -> Direction:
        return self.planner.source_lang, self.planner.target_lang

    @property
    def is_natural(self) -> bool:
        """True if both languages are natural ones, not tasks such as spelling to sounds."""
        return all(map(is_natural, self.direction))
