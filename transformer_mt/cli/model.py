"""The options of a model and of its search, shared by several commands."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.console import natural, positive, say
from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.config import DecodeConfig
    from transformer_mt.translation.result import Options
    from transformer_mt.translation.translator import Translator


def _auto(text: str) -> str | bool:
    """auto, true or false, for argparse."""
    if text not in ("auto", "true", "false"):
        raise argparse.ArgumentTypeError(f"must be auto, true or false, but is {text}")
    return text if text == "auto" else text == "true"


# Of `decode` in the YAML: key, type, metavar or choices, meaning. The flag is the key with dashes.
_SEARCH: tuple[tuple[str, Any, Any, str], ...] = (
    ("search", str, ("beam", "sample", "mbr"), "search method"),
    ("beam", positive, "N", "hypotheses kept"),
    ("length_penalty", float, "X", "exponent of the length that scores are divided by"),
    ("length_penalty_form", str, ("plain", "gnmt"), "the length, or (5 + length) / 6"),
    ("coverage_penalty", float, "X", "weight of GNMT's coverage penalty"),
    ("diversity", float, "X", "score penalty for each better continuation of the same hypothesis"),
    ("samples", positive, "N", "number of samples, with --search sample or mbr"),
    ("temperature", float, "X", "of sampling"),
    ("top_k", natural, "N", "sample from the N likeliest tokens"),
    ("top_p", float, "X", "sample from the likeliest tokens that together have probability X"),
    ("seed", natural, "N", "of sampling"),
    ("utility", str, ("chrf", "bleu"), "what --search mbr maximises"),
    ("min_length", natural, "N", "least pieces of a translation"),
    ("max_length", positive, "N", "most pieces of a translation"),
    ("max_length_ratio", float, "X", "most pieces of a translation for each of the source, plus ten"),
    ("no_repeat_ngram", natural, "N", "no N pieces in a row twice"),
    ("repetition_penalty", float, "X", "factor on the log-probability of pieces that were there before"),
    ("split_sentences", _auto, "auto|true|false", "translate each sentence of a line by itself"),
    ("batch_tokens", positive, "N", "budget of a batch in source tokens x hypotheses"),
)

# Settings that only apply to some searches.
_ONLY_FOR_SEARCHES = {
    "beam": ("beam",),
    "length_penalty": ("beam", "sample"),
    "length_penalty_form": ("beam", "sample"),
    "seed": ("sample", "mbr"),
    "utility": ("mbr",),
}

_SETTING = re.compile(r"(?:command line: )?`?decode\.(\w+)`?")


def _flag(key: str) -> str:
    return "--ban" if key == "banned" else f"--{key.replace('_', '-')}"


def add_model(parser: argparse.ArgumentParser) -> None:
    """MODEL, and what computes it."""
    parser.add_argument(
        "model", metavar="MODEL", help="a run's folder, such as runs/demo, or an exported one"
    )
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
        help="inference engine (default: chosen by the type of folder)",
    )
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        action="append",
        default=[],
        help="another run that translates with it; repeatable",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """The settings of the search; what is not given is the config's."""
    group = parser.add_argument_group("search", "Settings that win over `decode` in the model's config.")
    for key, kind, values, meaning in _SEARCH:
        shown: dict[str, Any] = {"metavar": values} if isinstance(values, str) else {"choices": values}
        group.add_argument(_flag(key), type=kind, help=meaning, **shown)
    group.add_argument(
        "--ban", metavar="WORD", action="append", help="a word that is never written; repeatable"
    )


def load_translator(arguments: argparse.Namespace, options: "Options | None" = None) -> "Translator":
    """The translator the arguments name. With --engine ctranslate2 a run's folder is exported first if
    necessary.

    Settings and `options` without effect raise InputError before that.
    """
    given = {key: getattr(arguments, key, None) for key, *_ in _SEARCH}
    given["banned"] = getattr(arguments, "ban", None)
    decode = {key: value for key, value in given.items() if value is not None}
    settings = _settings(decode, Path(arguments.model))
    if options is not None:
        options.check(settings)
    from transformer_mt.translation.model_folder import is_exported
    from transformer_mt.translation.translator import Translator

    folder = Path(arguments.model)
    if arguments.engine == "ctranslate2" and arguments.ensemble:
        raise InputError("--ensemble must stand with --engine torch, but the engine is ctranslate2")
    if arguments.engine == "ctranslate2" and not is_exported(folder):
        from transformer_mt.export.cache import exported
        from transformer_mt.translation.ctranslate2_engine import check_settings, choose_device_name

        check_settings(settings)
        choose_device_name(arguments.device, arguments.dtype)
        folder = exported(folder, say)
    elif arguments.device == "auto" or arguments.device == "cpu":
        _keep_memory(folder)
    return Translator.load(
        folder, arguments.device, arguments.dtype, decode, arguments.engine, arguments.ensemble
    )


def _settings(decode: dict[str, Any], folder: Path) -> "DecodeConfig":
    """The model's settings, overridden by those given. InputError if a given setting has no effect with this
    search; the config may contain settings for other searches.
    """
    from transformer_mt.translation.model_folder import load_run_config

    try:
        settings = load_run_config(folder, decode).decode
    except InputError as error:
        if "command line" not in str(error):
            raise
        # The setting was given as a flag: the message names the flag.
        raise InputError(_SETTING.sub(lambda setting: _flag(setting[1]), str(error))) from None
    for key, searches in _ONLY_FOR_SEARCHES.items():
        if key in decode and settings.search not in searches:
            raise InputError(
                f"{_flag(key)} must stand with --search {' or '.join(searches)}, but the search is "
                f"{settings.search}"
            )
    return settings


def _keep_memory(folder: Path) -> None:
    """Keep freed memory in the process: faster decoding on glibc. Safe here because this process only
    translates.
    """
    from transformer_mt.translation.model_folder import is_exported

    if folder.is_dir() and not is_exported(folder):
        from transformer_mt.device import keep_freed_memory

        keep_freed_memory(one_heap=True)
