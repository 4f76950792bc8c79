"""The options of a model and of its search, shared by several commands."""

import argparse
import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.options.flags import add_flags, check_searches, given
from transformer_mt.cli.options.references import with_references
from transformer_mt.config.decode import DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.translation.result import Options
    from transformer_mt.translation.translator import Translator

_DECODE = "decode."


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and what computes it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a run's folder, such as runs/demo, an exported one or a public model's",
    )
    add_engine(parser)
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        action="append",
        default=[],
        help="another run that translates with it; repeatable",
    )
    parser.add_argument("--to", metavar="LANG", help="the target language, of a model with several")
    parser.add_argument(
        "--from", dest="from", metavar="LANG", help="the source language, of a model with several"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """What computes a model."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16", "float16", "int16", "int8"],
        help="arithmetic (default: float32, or what was exported)",
    )
    parser.add_argument(
        "--engine",
        choices=["auto", "torch", "ctranslate2"],
        default="auto",
        help="inference engine (default: ctranslate2 for exports and, on a CPU, for runs with one of their "
        "own; else torch)",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """The settings of the search; what is not given is the config's."""
    group = parser.add_argument_group("search", "Settings that win over `decode` in the model's config.")
    add_flags(group, DecodeConfig, _DECODE)


def load_translator(
    arguments: argparse.Namespace, options: "Options | None" = None, any_direction: bool = False
) -> "Translator":
    """The translator the arguments name. With --engine ctranslate2 a run's folder is exported first if
    necessary.

    Settings and `options` without effect raise InputError before that. So does a model with several target
    languages of which none is named, unless `any_direction` will do.
    """
    decode = given(arguments, _DECODE)
    from transformer_mt.importing.model_folder import run_of

    folder = run_of(arguments.model, getattr(arguments, "from", None), getattr(arguments, "to", None)).path
    settings = _settings(decode, folder)
    if options is not None:
        options.check(settings)
    from transformer_mt.runs.folder import RunFolder
    from transformer_mt.translation.engines.choice import export_to_search
    from transformer_mt.translation.translator import Translator

    if arguments.engine == "ctranslate2" and arguments.ensemble:
        raise InputError(
            Setting("ensemble"), " requires ", Setting("engine", "torch"),
            ", but the engine is ctranslate2",
        )  # fmt: skip
    if arguments.engine == "ctranslate2" and not RunFolder(folder).is_export:
        from transformer_mt.export.cache import exported
        from transformer_mt.translation.engines.ctranslate2_engine import check_settings, choose_device_name

        if "stop_early" not in decode:  # the export's search always ends so
            settings = settings.model_copy(update={"stop_early": True})
        check_settings(settings)
        choose_device_name(arguments.device, arguments.dtype)
        folder = exported(RunFolder(folder))
    engine = arguments.engine
    if engine == "auto" and not RunFolder(folder).is_export:
        # Only torch writes whatever phrase it must; a search again has rules. After a prefix a beam of
        # CTranslate2 may keep other hypotheses.
        prefixes = ("prefix", "prefixes") if settings.beam > 1 else ()
        needs_torch = any(
            getattr(arguments, name, None) for name in ("glossary", "has_terms", "retry", *prefixes)
        )
        export = export_to_search(RunFolder(folder), settings, arguments.device, arguments.dtype)
        engine = "torch" if needs_torch or arguments.ensemble or export is None else "auto"
    if engine == "torch" and arguments.device in ("auto", "cpu"):
        _keep_memory(folder)
    translator = Translator.load(
        folder, arguments.device, arguments.dtype, decode, engine, arguments.ensemble
    )
    # The work on lines makes many objects and few cycles: to look for these took a third of its time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    translator = _in_direction(translator, arguments, any_direction)
    references = (getattr(arguments, name, None) for name in ("glossary", "memory"))
    translator = with_references(translator, *references)
    # An option of `translate`
    return translator.retrying() if getattr(arguments, "retry", False) else translator


def _in_direction(
    translator: "Translator", arguments: argparse.Namespace, any_direction: bool
) -> "Translator":
    """The translator between the languages of --from and --to."""
    target, source = getattr(arguments, "to", None), getattr(arguments, "from", None)
    targets = list(dict.fromkeys(target for _, target in translator.directions))
    if target is None and len(targets) > 1 and not any_direction:
        raise InputError(
            Setting("to"), f" must be one of {', '.join(targets)}, the languages the model writes"
        )
    if target is None and source is None:
        return translator
    translator = translator.towards(target, source)
    asked = translator.source_lang, translator.target_lang
    if asked not in translator.directions:
        say(f"note: the model was not trained to translate {asked[0]} to {asked[1]}")
    return translator


def _settings(decode: dict[str, Any], folder: Path) -> DecodeConfig:
    """The model's settings, overridden by those given. InputError if a given setting has no effect with this
    search; the config may contain settings for other searches.
    """
    from transformer_mt.runs.folder import RunFolder

    settings = RunFolder(folder).config(decode).decode
    check_searches(DecodeConfig, _DECODE, decode, settings.search)
    return settings


def _keep_memory(folder: Path) -> None:
    """Keep freed memory in the process: faster decoding on glibc. Safe here because this process only
    translates.
    """
    if folder.is_dir():
        from transformer_mt.device import keep_freed_memory

        keep_freed_memory(one_heap=True)
