"""The options of a model and of its search, shared by several commands."""

import argparse
import gc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.options.flags import add_flags, check_searches, given, value_of
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say
from transformer_mt.translation.engines.engine import USUAL_ENGINE, EngineRequest

if TYPE_CHECKING:
    from transformer_mt.run_folder import RunFolder
    from transformer_mt.translation.result import Options
    from transformer_mt.translation.translator import Translator

_DECODE = "decode."


@dataclass(frozen=True)
class ModelRequest:
    """The model of a command, what computes it, and the settings of its search."""

    model: str
    ensemble: tuple[str, ...] = ()
    source_lang: str | None = None
    target_lang: str | None = None
    engine: EngineRequest = USUAL_ENGINE
    decode: Mapping[str, Any] = field(default_factory=dict)
    """The keys of `decode` that were given."""
    glossary: str | None = None
    memory: str | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace, model: str | None = None, **changes: Any) -> "ModelRequest":
        """The request of a command line; `model` where it is not the argument of this name."""
        values = vars(arguments)
        engine = EngineRequest(
            arguments.engine,
            arguments.device,
            arguments.dtype,
            has_rules=bool(values.get("glossary") or values.get("retry")),
            has_prefixes=bool(values.get("prefix") or values.get("prefixes")),
        )
        request = cls(
            model=model or arguments.model,
            ensemble=tuple(values.get("ensemble", ())),
            source_lang=values.get("from"),
            target_lang=values.get("to"),
            engine=engine,
            decode=given(arguments, _DECODE) | _assigned(values.get("set", [])),
            glossary=values.get("glossary"),
            memory=values.get("memory"),
        )
        return replace(request, **changes)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        return self.source_lang, self.target_lang

    @property
    def is_usual(self) -> bool:
        """True if the model alone translates, on the engine that is usual for it."""
        is_plain = not (self.ensemble or self.glossary or self.memory)
        return self.engine.engine == "auto" and self.engine.dtype is None and is_plain

    def run(self) -> "RunFolder":
        """The run of the model."""
        from transformer_mt.run_folder import open_model

        return open_model(self.model, *self.languages)

    def other_runs(self) -> "list[RunFolder]":
        """The runs of the rest of an ensemble."""
        from transformer_mt.run_folder import open_model

        return [open_model(model, *self.languages) for model in self.ensemble]


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and what computes it."""
    parser.add_argument(
        "model", metavar="MODEL", help="a run's folder, such as runs/demo, an export or a public model"
    )
    add_engine(parser)
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        action="append",
        default=[],
        help="another run of an ensemble; repeatable",
    )
    parser.add_argument("--to", metavar="LANG", help="target language, if the model has several")
    parser.add_argument(
        "--from", dest="from", metavar="LANG", help="source language, if the model has several"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The engine and device that compute a model."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16", "float16", "int16", "int8"],
        help="number format (default: float32, or the export's)",
    )
    parser.add_argument(
        "--engine",
        choices=["auto", "torch", "ctranslate2"],
        default="auto",
        help="inference engine (default: ctranslate2 for exports and, on a CPU, for runs that contain one; "
        "else torch)",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """The settings of the search; what is not given is the config's."""
    group = parser.add_argument_group("search", "Settings that override `decode` in the model's config.")
    add_flags(group, DecodeConfig, _DECODE, [key for key in DecodeConfig.model_fields if key != "stages"])
    group.add_argument(
        "--set", metavar="decode.KEY=VALUE", action="append", default=[],
        help="a search setting, as named by `transformer-mt config show`; repeatable",
    )  # fmt: skip


def load_translator(
    request: ModelRequest, options: "Options | None" = None, any_direction: bool = False
) -> "Translator":
    """The translator of a request.

    Settings and `options` without effect raise InputError before it is loaded. So does a model with several
    target languages of which none is named, unless `any_direction` will do.
    """
    run, others = request.run(), request.other_runs()
    from transformer_mt.translation.translator import Translator

    def check(settings: DecodeConfig) -> None:
        # A config may have settings for other searches; one that is given must have an effect.
        check_searches(DecodeConfig, _DECODE, dict(request.decode), settings.search)
        if options is not None:
            options.check(settings)

    translator = Translator.of_run(run, request.engine, request.decode, others, check)
    if translator.engine.name == "torch" and translator.engine.is_on_cpu:
        from transformer_mt.device import keep_freed_memory

        keep_freed_memory(one_heap=True)  # decodes faster; this process only translates
    # The work on lines makes many objects and few cycles: to look for these took a third of its time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    translator = _in_direction(translator, *request.languages, any_direction)
    return translator.with_files(request.glossary, request.memory)


def _assigned(words: list[str]) -> dict[str, Any]:
    """The settings of --set decode.KEY=VALUE."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key.startswith(_DECODE) or not equals:
            raise InputError(f"--set must be decode.KEY=VALUE, but is {word}")
        settings[key.removeprefix(_DECODE)] = value_of(value)
    return settings


def _in_direction(
    translator: "Translator", source: str | None, target: str | None, any_direction: bool
) -> "Translator":
    """The translator between the languages of --from and --to."""
    targets = list(dict.fromkeys(target for _, target in translator.directions))
    if target is None and len(targets) > 1 and not any_direction:
        raise InputError(Setting("to"), f" must be one of {', '.join(targets)}, the model's target languages")
    if target is None and source is None:
        return translator
    translator = translator.towards(target, source)
    direction = translator.source_lang, translator.target_lang
    if direction not in translator.directions:
        say(f"note: the model was not trained to translate {direction[0]} to {direction[1]}")
    return translator
