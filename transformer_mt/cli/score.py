"""transformer-mt score"""

import argparse
import math

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import ModelRequest, add_model, load_translator
from transformer_mt.errors import InputError
from transformer_mt.files import to_json
from transformer_mt.messages import say

_ABOUT = (
    "Print the probability of each target line as a translation of its source line, as "
    "LOG_PROB<tab>SCORE<tab>TARGET, and finally, on stderr, the overall perplexity."
)

# Pairs scored together.
_CHUNK = 1024


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    add_model(parser)
    parser.add_argument("--source", metavar="FILE", help="sentences, one per line; may be compressed")
    parser.add_argument("--target", metavar="FILE", help="their translations, one per line")
    parser.add_argument(
        "--translations",
        metavar="FILE",
        help="instead of both: output of translate --json, scored in its own tokens",
    )
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag before each sentence of --source, as for translate"
    )
    parser.add_argument(
        "--length-penalty", metavar="X", type=float, dest="decode.length_penalty",
        help="length penalty of the score (default: the config's)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="a JSON object per line, with each token's log-probability"
    )
    parser.set_defaults(command=_score)


def _score(arguments: argparse.Namespace) -> int:
    from transformer_mt.evaluation.scoring import pairs_of_files, pairs_of_json, score

    if arguments.translations and (arguments.source or arguments.target):
        raise InputError("give --translations, or --source and --target, not both")
    if arguments.translations and arguments.tag:
        raise InputError("--tag requires --source; output of translate has its own")
    if not arguments.translations and not (arguments.source and arguments.target):
        raise InputError("--source FILE and --target FILE must be given, or --translations FILE")
    translator = load_translator(ModelRequest.of(arguments))
    if arguments.translations:
        pairs = pairs_of_json(translator, arguments.translations, _CHUNK)
    else:
        pairs = pairs_of_files(translator, arguments.source, arguments.target, _CHUNK, arguments.tag)
    total, tokens, lines = 0.0, 0, 0
    for chunk in pairs:
        for result in score(translator, chunk):
            lines += 1
            total += result.log_prob
            tokens += len(result.token_log_probs)
            if arguments.json:
                print(to_json({"line": lines, **vars(result), "ppl": result.ppl}, ensure_ascii=False))
            else:
                print(f"{result.log_prob:.4f}\t{result.score:.4f}\t{result.target}")
    if tokens:
        say(
            f"{lines:,} lines, {tokens:,} tokens, log P {total:.2f}, perplexity "
            f"{math.exp(-total / tokens):.4f}"
        )
    return 0
