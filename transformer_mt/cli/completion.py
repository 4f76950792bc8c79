"""transformer-mt completion"""

import argparse

from transformer_mt.cli.arguments import Parser
from transformer_mt.errors import InputError

_ABOUT = """\
Print a shell completion script for the shell's start-up file:

  bash   eval "$(transformer-mt completion bash)"
  zsh    eval "$(transformer-mt completion zsh)"
  fish   transformer-mt completion fish | source"""


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")
    parser.set_defaults(command=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise InputError("this needs shtab: pip install 'transformer-mt[completion]'") from None
    from transformer_mt.cli.parsers import build_parser, build_translate_parser

    for parser in (build_parser(), build_translate_parser()):
        print(shtab.complete(parser, arguments.shell))
    return 0
