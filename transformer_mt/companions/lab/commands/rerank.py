"""transformer-mt rerank"""

import argparse
from pathlib import Path

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import named_command
from transformer_mt.files import to_json


def add_arguments(parser: Parser) -> None:
    parser.description = "Choose one of the candidates of each line by a metric that a command computes."
    parser.add_argument(
        "candidates", metavar="FILE", nargs="+",
        help="candidates as `translate --json --n-best N` writes them, a file for each system",
    )  # fmt: skip
    parser.add_argument(
        "--external", metavar="NAME=COMMAND", required=True,
        help="the metric, the higher the better: a command that stays, as that of `train --monitor`",
    )  # fmt: skip
    parser.add_argument(
        "--mbr", action="store_true",
        help="the mean score with each other candidate as the reference, not the score without a reference",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object per line, with the score")
    parser.set_defaults(command=_rerank)


def _rerank(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.lab.reranking import choices, read_candidates
    from transformer_mt.evaluation.external_metric import StayingMetric

    metric = StayingMetric(*named_command("--external", arguments.external))
    for choice in choices(read_candidates(list(map(Path, arguments.candidates))), metric, arguments.mbr):
        print(
            to_json(choice._asdict(), ensure_ascii=False) if arguments.json else choice.translation,
            flush=True,
        )
    metric.close()
    return 0
