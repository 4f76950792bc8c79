"""transformer-mt serve, and its options as variables of the environment: TRANSFORMER_MT_PORT is --port."""

import argparse
import difflib
import ipaddress
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser, given, positive
from transformer_mt.cli.model_options import (
    RESOURCE,
    FileOf,
    ModelRequest,
    add_engine,
    add_resources_by_direction,
    add_search,
    direction_of,
    load_translator,
)
from transformer_mt.companions.serving.http.limits import ApiKeys, Limits
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say
from transformer_mt.run_folder import after_training

if TYPE_CHECKING:
    from transformer_mt.translator import Translator

_USUAL = Limits()

_PREFIX = "TRANSFORMER_MT_"
_OTHERS = ("CACHE", "OPUS")
"""Variables that do not stand for an option."""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def words_of_environment(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> list[str]:
    """The environment variables as command-line words. They go before the words of the command line, so that
    the latter win. The value of a repeatable option is split into several values as a shell would.
    """
    actions = {_variable(action): action for action in parser._actions if action.dest != "help"}
    words: list[str] = []
    for name, value in environment.items():
        # Kubernetes sets these for a service that is called transformer-mt
        is_of_kubernetes = "_SERVICE_" in name or "_PORT_" in name or value.startswith("tcp://")
        if not name.startswith(_PREFIX) or name[len(_PREFIX) :] in _OTHERS or is_of_kubernetes or not value:
            continue
        if action := actions.get(name):
            try:
                words += _words(action, value)
            except ValueError as error:
                parser.error(f"{name} must be {error}, but is {value}")
            if action.option_strings and isinstance(parser, Parser):
                parser.variables[action.option_strings[-1]] = name
        else:
            near = difflib.get_close_matches(name, actions, n=1)
            say(f"note: {name} is unknown{f'; did you mean {near[0]}?' if near else ''}")
    return words


def _variable(action: argparse.Action) -> str:
    name = action.option_strings[-1].lstrip("-") if action.option_strings else action.dest
    return _PREFIX + name.replace("-", "_").upper()


def _words(action: argparse.Action, value: str) -> Iterator[str]:
    option = action.option_strings[-1] if action.option_strings else None
    if action.nargs == 0:
        if value.lower() not in (*_TRUE, *_FALSE):
            raise ValueError("true or false")
        if value.lower() in _TRUE and option:
            yield option
        return
    is_list = option is None or isinstance(action, argparse._AppendAction)
    try:
        values = shlex.split(value) if is_list else [value]
    except ValueError:
        raise ValueError("words with closed quotations") from None
    for item in values:
        yield f"{option}={item}" if option else item


_ABOUT = (
    "Serve models over HTTP with the LibreTranslate API: POST /translate and /detect, GET /languages and "
    "/health. Only this machine can reach it unless --host is given. Each option can also be an environment "
    "variable: TRANSFORMER_MT_PORT is --port."
)

_LOCAL = ["127.0.0.1", "::1"]
# A model of many languages has tens of thousands, and each that is served has the model in its memory.
_MOST_DIRECTIONS = 50


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help="a run's folder, an export or a public model"
    )
    add_engine(parser)
    parser.add_argument(
        "--direction", metavar="FROM:TO", action="append", default=[], type=direction_of,
        help="serve only these directions of multilingual models; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--watch", metavar="FOLDER",
        help="serve each model in FOLDER; follow additions, changes and removals",
    )  # fmt: skip
    parser.add_argument(
        "--unload-after", metavar="SECONDS", type=_not_negative, default=0,
        help="load models on demand, and unload those that were unused for this long; 0 is never "
        "(default: 0)",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=5000, help="port to listen on (default: 5000)")
    parser.add_argument(
        "--api-keys", metavar="FILE", help="valid keys, one per line: KEY [REQUESTS PER MINUTE]"
    )
    limits = parser.add_argument_group("limits", "Limits for clients.")
    limits.add_argument("--characters", metavar="N", type=_not_negative, default=_USUAL.characters,
                        help="characters per request; 0 is no limit (default: %(default)s)")  # fmt: skip
    limits.add_argument("--requests-per-minute", metavar="N", type=_not_negative,
                        default=_USUAL.requests_per_minute,
                        help="requests per key or address; 0 is no limit (default: %(default)s)")  # fmt: skip
    limits.add_argument("--queue", metavar="N", type=positive, default=_USUAL.queue_lines,
                        help="lines that may wait for a model (default: %(default)s)")  # fmt: skip
    limits.add_argument("--seconds", metavar="N", type=_not_negative, default=_USUAL.seconds,
                        help="timeout of a request; 0 is no limit (default: %(default)s)")  # fmt: skip
    limits.add_argument("--file-bytes", metavar="N", type=_not_negative, default=_USUAL.file_bytes,
                        help="bytes per file; 0 rejects all files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--metrics", action="store_true", help="serve GET /metrics in Prometheus format")
    parser.add_argument(
        "--suggestions", metavar="FILE", help="append suggested translations to FILE, as JSON lines"
    )
    parser.add_argument(
        "--cors", metavar="ORIGIN", action="append", default=[], type=_origin,
        help="allow requests from this origin, such as https://example.org, or * for all; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--behind-proxy", action="store_true",
        help="read clients' addresses from X-Forwarded-For of a proxy on this machine",
    )  # fmt: skip
    parser.add_argument(
        "--trusted-proxy", metavar="ADDRESS", action="append", default=[], type=_network,
        help="trust X-Forwarded-For of a proxy in this network, such as 10.0.0.0/8; repeatable",
    )  # fmt: skip
    add_search(parser)
    # Last, so that of two options with one name the resource is left out.
    resources = add_resources_by_direction(parser)
    parser.show(
        address=("--host", "--port", "--api-keys", "--cors"),
        models=("--direction", "--watch", "--unload-after", *resources, "--engine", "--device"),
        limits=("--characters", "--requests-per-minute"),
        others=("--set", "--help-all"),
    )
    parser.words_before = lambda parser: words_of_environment(parser, os.environ)
    parser.set_defaults(command=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        from transformer_mt.companions.serving.http.server import Service, serve
        from transformer_mt.companions.serving.models import Offer
    except ImportError as error:
        raise InputError(f"this needs a web server: pip install 'transformer-mt[serve]' ({error})") from None

    limits = Limits(
        characters=arguments.characters,
        requests_per_minute=arguments.requests_per_minute,
        queue_lines=arguments.queue,
        seconds=arguments.seconds,
        file_bytes=arguments.file_bytes,
    )

    def offers_of(model: Path) -> list[Offer]:
        offers = []
        for options in _directions(model, arguments.direction):
            languages = {"source_lang": options.get("from"), "target_lang": options.get("to")}
            request = ModelRequest.of(arguments, str(model), **languages)
            name = model.resolve().name
            offers.append(Offer(name, _direction_served(model, options), partial(_load, request)))
        return offers

    if not (arguments.models or arguments.watch):
        raise InputError("MODEL or --watch FOLDER must be given, but neither is")
    if arguments.watch and not Path(arguments.watch).is_dir():
        raise InputError(f"--watch {arguments.watch}: must be a folder with one folder per model")
    if arguments.suggestions:
        try:
            open(arguments.suggestions, "ab").close()
        except OSError as error:
            raise InputError(
                f"--suggestions {arguments.suggestions}: must be a file that can be written "
                f"({error.strerror})"
            ) from None
    offers = [offer for model in arguments.models for offer in offers_of(Path(model))]
    known = None if arguments.watch else [offer.direction for offer in offers]
    if known is not None:
        _check_served(arguments.direction, known)
    service = Service(
        offers,
        limits,
        keys=ApiKeys.read(Path(arguments.api_keys)) if arguments.api_keys else None,
        origins=arguments.cors,
        proxies=[*arguments.trusted_proxy, *_LOCAL * arguments.behind_proxy],
        equip=_Equipment(given(arguments, RESOURCE), known),
        suggestions=Path(arguments.suggestions) if arguments.suggestions else None,
        metrics=arguments.metrics,
        watched=Path(arguments.watch) if arguments.watch else None,
        offers_of=offers_of,
        unload_after=arguments.unload_after,
    )
    serve(service, arguments.host, arguments.port)
    return 0


def _load(request: ModelRequest) -> "Translator":
    """The model to serve; with --engine ctranslate2 a run is exported once."""
    if request.engine.engine == "ctranslate2" and not (run := request.run()).is_export:
        after_training(run.path, is_asked=True)
    return load_translator(request)


def _check_served(wanted: list[tuple[str, str]], served: list[tuple[str, str]]) -> None:
    """InputError for a direction that no model translates."""
    for direction in wanted:
        if direction not in served:
            names = ", ".join(map(":".join, dict.fromkeys(served)))
            raise InputError(
                Setting("direction"), f" must be one of the models' ({names}), but is {':'.join(direction)}"
            )


def _directions(model: Path, wanted: list[tuple[str, str]]) -> list[dict[str, str]]:
    """The options for each direction of a multilingual model, or only for the `wanted` ones. Any other model
    has one entry, which is empty unless the model does not name its languages.
    """
    from transformer_mt.run_folder import UnknownLanguageError, check_translates, open_model

    named: dict[str, str] = {}  # of a model that does not say its languages
    try:
        config = open_model(model).config()
    except UnknownLanguageError:
        if not wanted:
            raise InputError(
                f"{model}: names no languages; give them with ", Setting("direction"), " FROM:TO"
            ) from None
        named = dict(zip(("from", "to"), wanted[0]))
        config = open_model(model, *wanted[0]).config()
    check_translates(config, model)
    data = config.data
    if len(data.directions) == 1:
        return [named]
    served = [direction for direction in data.directions if not wanted or direction in wanted]
    if not served or len(served) > _MOST_DIRECTIONS:
        count = "none" if not served else f"{len(served):,}"
        raise InputError(
            f"{model}: must serve 1 to {_MOST_DIRECTIONS} of its {len(data.directions):,} directions, but "
            f"would serve {count}; name them with ",
            Setting("direction"),
        )
    return [{"from": source, "to": target} for source, target in served]


class _Equipment:
    """Gives the translator of a direction its resources, such as a glossary."""

    def __init__(
        self, resources: Mapping[str, Sequence[FileOf]], served: list[tuple[str, str]] | None
    ) -> None:
        """InputError if a file is for a direction not in `served` (None: any direction may be served)."""
        self._files = {name: dict(named) for name, named in resources.items()}
        for name, named in resources.items():
            setting = Setting(f"{RESOURCE}{name}")
            files = [direction for direction, _ in named]
            if len(set(files)) < len(files):
                raise InputError(setting, " must be one file per direction, but there are more")
            if served is None and None in files:
                raise InputError(
                    setting, " must be FROM:TO=FILE with --watch, as models may come, but names no direction"
                )
            if not files or served is None or (len(served) == 1 and files == [None]):
                continue
            if (wrong := next((direction for direction in files if direction not in served), ())) != ():
                known = ", ".join(map(":".join, served))
                raise InputError(
                    setting,
                    f" must be FROM:TO=FILE with a direction that is served ({known}), but names "
                    f"{'none' if wrong is None else ':'.join(wrong)}",
                )

    def __call__(self, translator: "Translator") -> "Translator":
        direction = translator.source_lang, translator.target_lang
        files = {name: files.get(direction, files.get(None)) for name, files in self._files.items()}
        return translator.with_files(**files)


def _direction_served(model: Path, options: dict[str, str]) -> tuple[str, str]:
    from transformer_mt.run_folder import open_model

    data = open_model(model, options.get("from"), options.get("to")).config().data
    return options.get("from", data.source_lang), options.get("to", data.target_lang)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65535, but is {text}")
    return int(text)


def _network(text: str) -> str:
    try:
        return (
            str(ipaddress.ip_network(text, strict=False)) if "/" in text else str(ipaddress.ip_address(text))
        )
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be an address or a network, such as 10.0.0.0/8, but is {text}"
        ) from None


def _origin(text: str) -> str:
    if text != "*" and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"must begin with http:// or https://, or be *, but is {text}")
    return text


def _not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, but is {text}")
    return int(text)
