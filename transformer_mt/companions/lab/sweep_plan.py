"""The plan of a sweep: one base config, its variants, their seeds."""

import re
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from transformer_mt.config import Config
from transformer_mt.config.load import as_overrides, flow, load_config, load_yaml, shipped
from transformer_mt.config.root import NAME_PATTERN
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Section

Settings = dict[str, Any]
_ITS_OWN = {"seed", "name"}


class SweepConfig(Section):
    """The YAML of a sweep."""

    name: str = Field(pattern=NAME_PATTERN)
    """Its folder is runs/NAME; by default the name of the YAML file."""
    base: str
    """The config all variants change, a path seen from this file."""
    settings: Settings = Field({})
    """Dotted keys and their values, the same in all variants."""
    seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field([1, 2, 3], min_length=1)
    """Each variant is trained once with each."""
    variants: dict[str, Settings | None]
    """Name of each variant, with the dotted keys it sets; the others are compared with the first."""

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must differ, but are {seeds}")
        return seeds

    @field_validator("settings", "variants")
    @classmethod
    def _seed_and_name_are_its_own(cls, value: dict[str, Any]) -> dict[str, Any]:
        for settings in (value, *value.values()):
            if isinstance(settings, dict) and (wrong := _ITS_OWN & settings.keys()):
                raise ValueError(
                    f"a sweep sets {wrong.pop()} itself; use `seeds`, and the names of the variants"
                )
        return value

    @field_validator("variants")
    @classmethod
    def _folders_differ(cls, variants: dict[str, Settings | None]) -> dict[str, Settings | None]:
        if not variants:
            raise ValueError("variants must name at least one, but there are none")
        for name in variants:
            if not re.fullmatch(r"[^\W_][\w .+-]*", name):
                raise ValueError(
                    "the name of a variant must be letters, digits, spaces and .+-_, a letter or digit "
                    f"first, but is {name!r}"
                )
        if len({folder_name(name).lower() for name in variants}) < len(variants):
            raise ValueError(
                "the names of the variants must differ in more than spaces, underscores and capitals"
            )
        return variants


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a variant with a seed."""

    variant: str
    seed: int
    config: Config
    folder: Path
    """The run's folder."""


@dataclass(frozen=True)
class Sweep:
    """A sweep whose every config is valid."""

    name: str
    folder: Path
    jobs: tuple[Job, ...]
    """All variants with the first seed, then all with the second: a first table is soon there."""

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(job.variant for job in self.jobs))


def load_sweep(path: str | Path, overrides: list[str], out: str | Path | None = None) -> Sweep:
    """The sweep in the YAML file; `overrides` (key=value) go to every variant and win.

    InputError with a line for each thing that is wrong, in whichever variant.
    """
    path = shipped(Path(path))
    sweep = load_yaml(SweepConfig, path)
    base, folder = path.parent / sweep.base, Path(out) if out else Path("runs") / sweep.name
    for override in overrides:
        if override.split("=")[0].strip() in _ITS_OWN:
            raise InputError(
                f"{path}: a sweep sets {override.split('=')[0].strip()} itself; see its `seeds` and "
                "`variants`"
            )
    jobs: list[Job] = []
    problems: dict[str, dict[str, None]] = {}  # each with the variants that have it
    for seed in sweep.seeds:
        for variant, settings in sweep.variants.items():
            name = f"{sweep.name}-{folder_name(variant)}-{seed}"
            chosen = as_overrides({**sweep.settings, **(settings or {})})
            words = [*chosen, *overrides, f"seed={seed}", f"name={name}"]
            try:
                config = load_config(base, words)
            except InputError as error:
                for line in str(error).split("\n"):
                    problems.setdefault(line.removeprefix("command line: "), {})[variant] = None
                continue
            jobs.append(Job(variant, seed, config, folder / folder_name(variant) / f"seed-{seed}"))
    if problems:
        raise InputError(
            "\n".join(_problem(path, line, list(whose), sweep) for line, whose in problems.items())
        )
    for job in jobs:
        _check_comparable(path, jobs[0], job)
    return Sweep(sweep.name, folder, tuple(jobs))


def _problem(path: Path, line: str, whose: list[str], sweep: SweepConfig) -> str:
    """A problem of all variants is reported once, without naming a variant."""
    return (
        f"{path}: {line}"
        if len(whose) == len(sweep.variants) > 1
        else f"{path}: variant {', '.join(whose)}: {line}"
    )


def _check_comparable(path: Path, first: Job, job: Job) -> None:
    """Scores say something about one another only where they are of one text. Held-out sets are of one text
    where they are held out of the same pairs.
    """
    keys = ["data.source_lang", "data.target_lang", "data.valid", "data.test", "evaluate"]
    keys += ["train.validate_sentences", "train.monitor_set"]
    sets = [*first.config.data.valid_sets, *first.config.data.test]
    if any(corpus.is_held_out for corpus in sets):
        keys += ["data.train", "data.filter"]
    for key in keys:
        one, other = (attrgetter(key)(either.config) for either in (first, job))
        if one != other:
            raise InputError(
                f"{path}: variant {job.variant}: `{key}` must be as in {first.variant}, so that scores can "
                f"be compared, which is {flow(one)}, but is {flow(other)}"
            )


def folder_name(variant: str) -> str:
    """The name of a variant as that of a folder."""
    return variant.replace(" ", "_")
