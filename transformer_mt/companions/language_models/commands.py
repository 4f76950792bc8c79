"""fill, complete and classify."""

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice

from transformer_mt.cli.arguments import Parser, add_flags, check_searches, given
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.files import to_json
from transformer_mt.text.lines import decoded_lines


def add_texts(parser: argparse.ArgumentParser) -> None:
    """MODEL, the texts and the device."""
    parser.add_argument("model", metavar="MODEL", help="a run's folder, such as runs/bert")
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", help="texts; default: the lines of standard input"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")


def texts_of(arguments: argparse.Namespace) -> Iterator[str]:
    """The texts that were given, or the lines of standard input."""
    if arguments.texts:  # bytes that are not UTF-8 are read as U+FFFD
        return (os.fsencode(text).decode(errors="replace") for text in arguments.texts)
    if sys.stdin is None:
        raise InputError("standard input is closed; give TEXT")
    return decoded_lines(sys.stdin.buffer, "standard input")


_FILL = (
    "Predict the words hidden by [MASK], with an encoder trained on plain text (model.kind: encoder). "
    "Without TEXT, reads standard input."
)


def add_fill(parser: Parser) -> None:
    parser.description = _FILL
    add_texts(parser)
    parser.add_argument(
        "--top", metavar="N", type=int, default=1, help="print the N most probable tokens of each mask"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object per text")
    parser.set_defaults(command=_fill)


def _fill(arguments: argparse.Namespace) -> int:
    if arguments.top < 1:
        raise InputError(f"--top must be at least 1, but is {arguments.top}")
    from transformer_mt.companions.language_models.text_models import MaskFiller, TextModel

    filler = MaskFiller(TextModel.load(arguments.model, ("encoder",), arguments.device))
    for number, text in enumerate(texts_of(arguments), start=1):
        try:
            filled = filler.fill(text, arguments.top)
        except InputError as error:
            raise InputError(f"text {number}: ", *error.parts) from None
        if arguments.json:
            print(to_json(asdict(filled), ensure_ascii=False), flush=True)
            continue
        print(filled.text, flush=True)
        if arguments.top > 1:
            for mask, guesses in enumerate(filled.guesses, start=1):
                for guess in guesses:
                    print(f"  {mask}\t{guess.probability:.4f}\t{guess.piece}")
    return 0


_COMPLETE = (
    "Continue texts with a decoder that was trained on plain text (model.kind: decoder). Without TEXT, reads "
    "standard input."
)
_SETTINGS = (
    "search", "beam", "length_penalty", "samples", "temperature", "top_k", "top_p", "seed", "min_length",
    "max_length", "no_repeat_ngram", "banned",
)  # fmt: skip


def add_complete(parser: Parser) -> None:
    parser.description = _COMPLETE
    add_texts(parser)
    parser.add_argument("--n-best", metavar="N", type=int, default=1, help="completions per text")
    parser.add_argument("--json", action="store_true", help="a JSON object per text")
    group = parser.add_argument_group("search", "Settings that override `decode` in the model's config.")
    add_flags(group, DecodeConfig, "decode.", _SETTINGS)
    parser.set_defaults(command=_complete)


def _complete(arguments: argparse.Namespace) -> int:
    keys = given(arguments, "decode.")
    from transformer_mt.run_folder import RunFolder

    decode = RunFolder(arguments.model).config(keys).decode
    check_searches(DecodeConfig, "decode.", keys, decode.search)
    if not 1 <= arguments.n_best <= decode.num_hypotheses:
        raise InputError(
            f"--n-best must be 1 to {decode.num_hypotheses}, the search's hypotheses, but is "
            f"{arguments.n_best}"
        )
    from transformer_mt.companions.language_models.text_models import Completer, TextModel

    completer = Completer(TextModel.load(arguments.model, ("decoder",), arguments.device), decode)
    for number, text in enumerate(texts_of(arguments), start=1):
        try:
            continuations = completer.complete(text)[: arguments.n_best]
        except InputError as error:
            raise InputError(f"text {number}: ", *error.parts) from None
        if arguments.json:
            print(to_json({"text": text, "completions": continuations}, ensure_ascii=False), flush=True)
        else:
            print("\n".join(continuations), flush=True)
    return 0


_CLASSIFY = (
    "Label texts with an encoder that was trained with objective: classification. Without TEXT, reads "
    "standard input."
)
_CHUNK = 1024


def add_classify(parser: Parser) -> None:
    parser.description = _CLASSIFY
    add_texts(parser)
    parser.add_argument("--json", action="store_true", help="a JSON object per text, with all probabilities")
    parser.set_defaults(command=_classify)


def _classify(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.language_models.text_models import TextModel
    from transformer_mt.evaluation.classifier import Classifier

    loaded = TextModel.load(arguments.model, ("encoder",), arguments.device)
    classifier = Classifier(loaded.model, loaded.tokenizer, loaded.config)
    texts = texts_of(arguments)
    while chunk := list(islice(texts, _CHUNK)):
        for text, labelled in zip(chunk, classifier.classify(chunk)):
            print(
                to_json({"text": text, **asdict(labelled)}, ensure_ascii=False)
                if arguments.json
                else labelled.label,
                flush=True,
            )
    return 0
