"""transformer-mt inspect"""

import argparse
from pathlib import Path

from transformer_mt.cli.arguments import Parser


def add_arguments(parser: Parser) -> None:
    about = (
        "Inspect the corpora of a config before training: their content, possible problems, and the keys "
        "that handle them."
    )
    parser.description = about
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="settings that override the file"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="folder for inspect.md and inspect.html (default: the run's folder, runs/NAME)",
    )
    parser.set_defaults(command=_inspect)


def _inspect(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.inspection.inspect import inspect
    from transformer_mt.companions.inspection.inspection_report import html_page, markdown
    from transformer_mt.config.load import load_config
    from transformer_mt.files import write_text
    from transformer_mt.messages import say

    config = load_config(arguments.config, arguments.overrides)
    inspection = inspect(config)
    report = markdown(inspection)
    print(report, end="", flush=True)
    folder = Path(arguments.out or Path("runs") / config.name)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "inspect.md", report)
    write_text(folder / "inspect.html", html_page(inspection))
    say(f"written: {folder / 'inspect.md'}, {folder / 'inspect.html'}")
    return 0
