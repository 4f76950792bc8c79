"""transformer-mt fill"""

import argparse
from dataclasses import asdict

from transformer_mt.cli.arguments import Parser
from transformer_mt.companions.language_models.commands.text_options import add_texts, texts_of
from transformer_mt.errors import InputError
from transformer_mt.files import to_json

_ABOUT = (
    "Predict the words hidden by [MASK], with an encoder trained on plain text (model.kind: encoder). "
    "Without TEXT, reads standard input."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
