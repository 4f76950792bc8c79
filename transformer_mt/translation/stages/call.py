"""A call of a translator: its stages, and the files that it follows.

Imports nothing slow, because `translate --help` needs this module to list each resource as an option.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.parts import load_part, names_of
from transformer_mt.text.languages import is_natural
from transformer_mt.translation.stages.stage import BroughtStage, Stage

if TYPE_CHECKING:
    from transformer_mt.translation.planner import Planner
    from transformer_mt.translation.result import Options
    from transformer_mt.translation.stages.confidence import Calibration

Direction = tuple[str, str]
"""Source and target language."""


class Resource:
    """A file that translations follow, such as a glossary: `translate --NAME FILE`, or
    `Translator.load(run, NAME=file)`, for the part that is registered as `NAME`.
    """

    help: ClassVar[str]
    """What the file holds, for `--help`."""
    before: ClassVar[str]
    """The stage of ours (parts.py) that this resource's own stage precedes."""
    needs_selection: ClassVar[bool] = False
    """True if its stage asks for a selection in the search, which only torch can do."""
    languages: Direction
    """The languages of the file; in another direction it is not used."""

    @classmethod
    def read(cls, file: str | Path, languages: Direction) -> "Resource":
        """InputError names what cannot be read."""
        raise NotImplementedError

    def stage(self, call: "Call") -> Stage:
        """The stage that makes translations follow it."""
        raise NotImplementedError

    def texts(self) -> Iterable[str]:
        """Its texts: a test set that holds them is not new to the system."""
        return ()

    def scores(
        self, sources: Sequence[str], translations: Sequence[str], references: Sequence[Sequence[str]]
    ) -> list[tuple[str, float, str]]:
        """Further scores of a test set, how well translations follow it: (name, score, what was counted)."""
        return []


def resource_class(name: str) -> type[Resource]:
    """The class of the resources of a name. InputError if nothing brings it."""
    return part_class("resource", name, "resource", Resource)


@dataclass(frozen=True)
class Resources:
    """The things that stages need besides the model and its settings."""

    calibration: "Calibration | None" = None
    """The map from probabilities to confidence."""
    by_name: Mapping[str, Resource] = field(default_factory=dict)

    def with_files(self, direction: Direction, **files: str | Path | None) -> "Resources":
        """These and the resources of the files, for this direction. InputError for a name that nothing
        brings.
        """
        named = {name: file for name, file in files.items() if file is not None}
        return self.and_these(
            {name: resource_class(name).read(file, direction) for name, file in named.items()}
        )

    def and_these(self, resources: Mapping[str, Resource]) -> "Resources":
        """A copy to which `resources` are added; they replace resources of the same name."""
        return Resources(self.calibration, {**self.by_name, **resources})

    def of(self, direction: Direction) -> "Resources":
        """The resources for this direction."""
        fitting = {name: one for name, one in self.by_name.items() if one.languages == direction}
        return Resources(self.calibration, fitting)


NO_RESOURCES = Resources()


@dataclass(frozen=True)
class Call:
    """One call. A stage takes part if its classmethod `of_call` makes one."""

    planner: "Planner"
    settings: DecodeConfig
    options: "Options"
    resources: Resources
    """Those for the direction."""

    @classmethod
    def of(
        cls, resources: Resources, planner: "Planner", settings: DecodeConfig, options: "Options"
    ) -> "Call":
        direction = planner.source_lang, planner.target_lang
        return cls(planner, settings, options, resources.of(direction))

    @property
    def direction(self) -> Direction:
        return self.planner.source_lang, self.planner.target_lang

    @property
    def is_natural(self) -> bool:
        """True if both languages are natural ones, not tasks such as spelling to sounds."""
        return all(map(is_natural, self.direction))


def build_stages(call: Call) -> list[Stage]:
    """The stages of a call in their order: our own, each after the stages of the resources that come before
    it, then the stages that `decode.stages` names. Our own stages decide in `of_call` whether they take part.
    InputError for a resource whose `before` is not one of our own stages.
    """
    ours, _ = names_of("stage")
    before: dict[str, list[Stage]] = {name: [] for name in ours}
    for name, resource in call.resources.by_name.items():
        if resource.before not in before:
            raise InputError(
                f"the resource {name}: `before` must be a stage ({', '.join(ours)}), but is {resource.before}"
            )
        before[resource.before].append(BroughtStage(resource.stage(call), name))
    stages: list[Stage] = []
    for name in ours:
        own = load_part("stage", name).of_call(call)
        stages += [*before[name], *([] if own is None else [own])]
    return [*stages, *map(brought_stage, call.settings.stages)]


def brought_stage(name: str) -> Stage:
    """The stage of others that `decode.stages` names. InputError if it is none."""
    kind = load_part("stage", name)
    return BroughtStage(kind(**part_settings(kind, name, "decode.stages")), name)
