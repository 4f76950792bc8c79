"""The verbs. Only this file parses arguments, prints results or exits.

Results go to stdout, all else to stderr. Exit status: 0 done, 1 the work failed, 2 the command line, YAML or data is
wrong, 128 + N stopped by signal N. Nothing slow is imported before the arguments are understood.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from transformer_mt import __version__
from transformer_mt.errors import InputError, WorkError

if TYPE_CHECKING:
    from transformer_mt.decoding.translator import Translation, Translator

# Lines translated together when there are that many: enough to sort into full batches, few enough to see progress.
_CHUNK = 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Run `transformer-mt`; gives back the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser, verbs = _parsers()
    if words and words[0] in ("train", "translate"):
        # Intermixed: TEXT and key=value may stand before, between and after the options.
        return _run(verbs[words[0]].parse_intermixed_args(words[1:]))
    return _run(parser.parse_args(words))


def translate_main(argv: Sequence[str] | None = None) -> int:
    """Run `translate`, the same as `transformer-mt translate`."""
    parser = argparse.ArgumentParser(prog="translate", description=_TRANSLATE)
    _translate_arguments(parser)
    return _run(parser.parse_intermixed_args(argv))


def _run(arguments: argparse.Namespace) -> int:
    try:
        return arguments.verb(arguments) or 0
    except InputError as error:
        _say(str(error))
        return 2
    except WorkError as error:
        _say(str(error))
        return 1
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        # A full disk or a vanished folder, wherever it was met; what was whole before is whole still.
        _say(
            f"{error.filename or 'a file'}: {error.strerror or error}; make room or check the place, then run it again"
        )
        return 1
    except KeyboardInterrupt:
        _say("stopped")
        return 128 + signal.SIGINT


def _say(text: str) -> None:
    """A line on stderr; of several processes each says which it is."""
    rank = f"rank {os.environ['RANK']}: " if int(os.environ.get("WORLD_SIZE", 1)) > 1 else ""
    print(rank + text, file=sys.stderr, flush=True)


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of everything, and those of the verbs by name."""
    parser = argparse.ArgumentParser(
        prog="transformer-mt", description="Train Transformers to translate, and translate."
    )
    parser.add_argument("--version", action="version", version=f"transformer-mt {__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")

    train = verbs.add_parser("train", help="train a model, or go on training it", description=_TRAIN)
    train.add_argument("config", metavar="CONFIG", help="YAML file")
    train.add_argument(
        "overrides", metavar="key=value", nargs="*", help="settings that win over the file: train.max_updates=500"
    )
    train.add_argument("--out", metavar="DIR", help="the run's folder (default: runs/NAME)")
    train.add_argument(
        "--fresh", action="store_true", help="start over; the old run is moved aside, nothing is deleted"
    )
    train.add_argument(
        "--gpus",
        metavar="N",
        type=_positive,
        default=1,
        help="processes on this machine, one a GPU; started by torchrun",
    )
    train.set_defaults(verb=_train)

    _translate_arguments(verbs.add_parser("translate", help="translate text", description=_TRANSLATE))

    evaluate = verbs.add_parser("evaluate", help="score a model on test sets", description=_EVALUATE)
    evaluate.add_argument("model", metavar="MODEL", help="a run's folder")
    evaluate.add_argument(
        "--source", metavar="FILE", action="append", default=[], help="sentences to translate, one a line"
    )
    evaluate.add_argument(
        "--reference", metavar="FILE", action="append", default=[], help="their references, one a line"
    )
    evaluate.add_argument("--json", action="store_true", help="one JSON object a test set")
    _search_arguments(evaluate)
    evaluate.set_defaults(verb=_evaluate)

    config = verbs.add_parser("config", help="look at a config").add_subparsers(required=True, metavar="show|schema")
    show = config.add_parser("show", help="print the resolved file with each key's meaning")
    show.add_argument("config", metavar="CONFIG", help="YAML file")
    show.add_argument("overrides", metavar="key=value", nargs="*", help="settings that win over the file")
    show.set_defaults(verb=_config_show)
    config.add_parser("schema", help="print the JSON schema editors use").set_defaults(verb=_config_schema)
    return parser, verbs.choices


_TRAIN = "Train the model a YAML file describes. Run again, it goes on from the newest whole checkpoint."
_TRANSLATE = "Translate TEXT, or standard input line by line as it comes; a line in is a line out, in order."
_EVALUATE = "Translate the config's test sets, or the given files, and print BLEU, chrF and TER with their signatures."


def _translate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run's folder, such as runs/demo")
    parser.add_argument("text", metavar="TEXT", nargs="*", help="a sentence; without any, standard input is translated")
    parser.add_argument("-i", "--input", metavar="FILE", help="read sentences from FILE (.gz too)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write translations to FILE")
    parser.add_argument(
        "--n-best",
        metavar="N",
        type=_positive,
        default=1,
        help="print the N best of each line as SCORE<tab>TRANSLATION",
    )
    parser.add_argument("--max-length", metavar="N", type=_positive, help="most pieces of a translation")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    _search_arguments(parser)
    parser.set_defaults(verb=_translate)


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--beam", metavar="N", type=_positive, help="hypotheses kept (default: the config's)")
    parser.add_argument(
        "--length-penalty", metavar="X", type=float, help="exponent of the length that scores are divided by"
    )
    parser.add_argument("--batch-tokens", metavar="N", type=_positive, help="budget of a batch in source tokens x beam")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help="arithmetic")


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is {text}")
    return number


def _train(arguments: argparse.Namespace) -> int:
    from transformer_mt.config_file import load_config

    config = load_config(arguments.config, arguments.overrides)  # before torch: a typo is told at once
    if arguments.gpus > 1 and "WORLD_SIZE" not in os.environ:
        from transformer_mt.training.distributed import become_torchrun

        options = [f"--out={arguments.out}"] if arguments.out else []
        options += ["--fresh"] if arguments.fresh else []
        become_torchrun(arguments.gpus, ["train", arguments.config, *arguments.overrides, *options])
    from transformer_mt.training.loop import Interrupted, train

    try:
        train(config, arguments.out, arguments.fresh)
    except Interrupted as stop:
        if os.environ.get("RANK", "0") == "0":  # they all stop at the same update
            _say(str(stop))
        return 128 + stop.signal_number
    return 0


def _load_translator(arguments: argparse.Namespace) -> "Translator":
    settings = {
        "beam": arguments.beam,
        "length_penalty": arguments.length_penalty,
        "batch_tokens": arguments.batch_tokens,
    }
    from transformer_mt.decoding.translator import Translator

    decode: dict[str, object] = {key: value for key, value in settings.items() if value is not None}
    return Translator.load(arguments.model, arguments.device, arguments.dtype, decode)


def _translate(arguments: argparse.Namespace) -> int:
    from transformer_mt.data.lines import open_bytes, read_ready

    if arguments.text and arguments.input:
        raise InputError("give TEXT or --input, not both")
    with ExitStack() as files:
        chunks: Iterator[list[bytes]]
        if arguments.text:
            chunks = iter([[os.fsencode(text) for text in arguments.text]])
        else:
            if not arguments.input and sys.stdin is None:
                raise InputError("standard input is closed; give TEXT or --input FILE")
            source = files.enter_context(open_bytes(arguments.input)) if arguments.input else sys.stdin.buffer
            chunks = read_ready(source, arguments.input or "standard input", _CHUNK)
        translator = _load_translator(arguments)
        from transformer_mt.training.distributed import Ranks

        if arguments.n_best > translator.decode.beam:
            raise InputError(f"--n-best must be at most --beam ({translator.decode.beam}), but is {arguments.n_best}")
        ranks = Ranks.join(translator.device)
        files.callback(ranks.leave)
        to_file = arguments.output and ranks.is_first
        output: IO[bytes] = files.enter_context(_open_output(arguments)) if to_file else sys.stdout.buffer
        first = 1
        # The first rank reads and writes; each translates its share of the lines.
        while lines := ranks.from_first(_next_lines(chunks, first) if ranks.is_first else None):
            shares = range(ranks.rank, len(lines), ranks.size)
            results = translator.translate([lines[i] for i in shares], arguments.n_best, arguments.max_length)
            mine = [(_format(first + i, result, arguments), result.problems) for i, result in zip(shares, results)]
            everyones = ranks.gather(mine)
            for i in range(len(lines) if ranks.is_first else 0):
                text, problems = everyones[i % ranks.size][i // ranks.size]
                for problem in problems:
                    _say(f"line {first + i}: {problem}")
                output.write(text.encode() + b"\n")
            output.flush()
            first += len(lines)
    return 0


def _next_lines(chunks: Iterator[list[bytes]], first: int) -> list[str]:
    """The lines that are there now; none at the end."""
    return [_decode(line, number) for number, line in enumerate(next(chunks, []), start=first)]


def _open_output(arguments: argparse.Namespace) -> IO[bytes]:
    """The output file; opening it empties it, so it must not be what is being read."""
    try:
        if Path(arguments.output).exists():
            source = os.stat(arguments.input) if arguments.input else os.fstat(0)
            if not arguments.text and os.path.samestat(source, os.stat(arguments.output)):
                raise InputError(f"{arguments.output}: the output must not be the input")
        return Path(arguments.output).open("wb")
    except OSError as error:
        raise InputError(f"{arguments.output}: cannot be written: {error.strerror}") from None


def _decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        _say(f"line {number}: byte {line[error.start]:#04x} is not UTF-8; it was read as U+FFFD")
        return line.decode("utf-8", errors="replace")


def _format(number: int, result: "Translation", arguments: argparse.Namespace) -> str:
    if arguments.json:
        facts: dict[str, Any] = {
            "line": number,
            "source": result.source,
            "translation": result.translation,
            "score": result.score,
            "tokens": result.tokens,
            "problems": result.problems,
        }
        if arguments.n_best > 1:
            facts["n_best"] = [vars(candidate) for candidate in result.n_best]
        return json.dumps(facts, ensure_ascii=False)
    if arguments.n_best > 1:
        return "\n".join(f"{candidate.score:.4f}\t{candidate.translation}" for candidate in result.n_best)
    return result.translation


def _evaluate(arguments: argparse.Namespace) -> int:
    if len(arguments.source) != len(arguments.reference):
        raise InputError(
            f"each --source needs a --reference, but there are {len(arguments.source)} and {len(arguments.reference)}"
        )
    from transformer_mt.config import Corpus, FilesCorpus
    from transformer_mt.data.corpus import describe, read_corpus
    from transformer_mt.decoding.translator import load_run_config
    from transformer_mt.evaluation.evaluate import evaluate

    folder = Path(arguments.model)
    config = load_run_config(folder)
    sets: dict[str, Corpus] = {f"test-{i}": corpus for i, corpus in enumerate(config.data.test)}
    if arguments.source:
        files = zip(arguments.source, arguments.reference)
        sets = {f"{i}-{Path(src).name}": FilesCorpus(source=src, target=ref) for i, (src, ref) in enumerate(files)}
    if not sets:
        raise InputError(f"{folder}: its config has no data.test; give --source FILE --reference FILE")
    corpora = {name: list(read_corpus(corpus, config.data)) for name, corpus in sets.items()}  # before any work
    translator = _load_translator(arguments)
    for name, corpus in sets.items():
        scores = evaluate(translator, corpora[name], config, folder / "evaluation" / name, _say)
        if arguments.json:
            facts = {
                "test": name,
                "corpus": describe(corpus),
                "sentences": len(corpora[name]),
                "scores": [vars(s) for s in scores],
            }
            print(json.dumps(facts, ensure_ascii=False), flush=True)
        else:
            print(f"{name}: {describe(corpus)}, {len(corpora[name]):,} sentences, beam {translator.decode.beam}")
            print("\n".join(f"  {score}" for score in scores), flush=True)
    return 0


def _config_show(arguments: argparse.Namespace) -> int:
    from transformer_mt.config_file import dump_config, load_config

    print(dump_config(load_config(arguments.config, arguments.overrides), comments=True), end="")
    return 0


def _config_schema(arguments: argparse.Namespace) -> int:
    from transformer_mt.config_file import json_schema

    print(json_schema(), end="")
    return 0
