"""transformer-mt complete"""

import argparse

from transformer_mt.cli.arguments import Parser, add_flags, check_searches, given
from transformer_mt.companions.language_models.commands.text_options import add_texts, texts_of
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.files import to_json

_ABOUT = (
    "Continue texts with a decoder that was trained on plain text (model.kind: decoder). Without TEXT, reads "
    "standard input."
)
_SETTINGS = (
    "search", "beam", "length_penalty", "samples", "temperature", "top_k", "top_p", "seed", "min_length",
    "max_length", "no_repeat_ngram", "banned",
)  # fmt: skip


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
