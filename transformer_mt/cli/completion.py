"""transformer-mt completion"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from transformer_mt.errors import InputError

_ABOUT = """\
Print a shell completion script for the shell's start-up file:

  bash   eval "$(transformer-mt completion bash)"
  zsh    eval "$(transformer-mt completion zsh)"
  fish   transformer-mt completion fish | source"""


def add_command(commands: Any, parsers: Callable[[], Sequence[argparse.ArgumentParser]]) -> None:
    """`parsers` returns the parsers of the commands to complete."""
    parser = commands.add_parser(
        "completion", help="print a shell's completion", description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")
    parser.set_defaults(command=_completion, parsers=parsers)


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise InputError("this needs shtab: pip install 'transformer-mt[completion]'") from None
    for parser in arguments.parsers():
        print(shtab.complete(parser, arguments.shell))
    return 0
