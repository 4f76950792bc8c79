"""The options of a model and of its search, shared by several commands."""

import argparse
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.options.flags import add_flags, check_searches, given, value_of
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.translation.result import Options
    from transformer_mt.translation.translator import Translator

_DECODE = "decode."
_NEEDS_TORCH = {
    "glossary": ("glossary", "has_terms"),
    "retry": ("retry",),
    "prefixes": ("prefix", "prefixes"),
}
"""Options that `needs_torch` asks about."""


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
    arguments: argparse.Namespace, options: "Options | None" = None, any_direction: bool = False
) -> "Translator":
    """The translator the arguments name.

    Settings and `options` without effect raise InputError before it is loaded. So does a model with several
    target languages of which none is named, unless `any_direction` will do.
    """
    decode = given(arguments, _DECODE) | _assigned(vars(arguments).get("set", []))
    from transformer_mt.runs.open_model import open_model

    languages = getattr(arguments, "from", None), getattr(arguments, "to", None)
    folder = open_model(arguments.model, *languages).path
    ensemble = [open_model(model, *languages).path for model in arguments.ensemble]
    settings = _settings(decode, folder)
    if options is not None:
        options.check(settings)
    from transformer_mt.runs.folder import RunFolder
    from transformer_mt.translation.engines.choice import needs_torch
    from transformer_mt.translation.translator import Translator

    engine, values = arguments.engine, vars(arguments)
    has = {name: any(map(values.get, keys)) for name, keys in _NEEDS_TORCH.items()}
    if engine == "auto" and not RunFolder(folder).is_export and needs_torch(settings, **has):
        engine = "torch"
    translator = Translator.load(folder, arguments.device, arguments.dtype, decode, engine, ensemble)
    if translator.engine.name == "torch" and translator.engine.is_on_cpu:
        from transformer_mt.device import keep_freed_memory

        keep_freed_memory(one_heap=True)  # decodes faster; this process only translates
    # The work on lines makes many objects and few cycles: to look for these took a third of its time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    translator = _in_direction(translator, arguments, any_direction)
    return translator.with_files(values.get("glossary"), values.get("memory"))


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
    translator: "Translator", arguments: argparse.Namespace, any_direction: bool
) -> "Translator":
    """The translator between the languages of --from and --to."""
    target, source = getattr(arguments, "to", None), getattr(arguments, "from", None)
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


def _settings(decode: dict[str, Any], folder: Path) -> DecodeConfig:
    """The model's settings, overridden by those given. InputError if a given setting has no effect with this
    search; the config may contain settings for other searches.
    """
    from transformer_mt.runs.folder import RunFolder

    settings = RunFolder(folder).config(decode).decode
    check_searches(DecodeConfig, _DECODE, decode, settings.search)
    return settings
