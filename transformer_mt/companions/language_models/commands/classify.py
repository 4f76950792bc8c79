"""transformer-mt classify"""

import argparse
from dataclasses import asdict
from itertools import islice

from transformer_mt.cli.arguments import Parser
from transformer_mt.companions.language_models.commands.text_options import add_texts, texts_of
from transformer_mt.files import to_json

_ABOUT = (
    "Label texts with an encoder that was trained with objective: classification. Without TEXT, reads "
    "standard input."
)
_CHUNK = 1024


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
