"""Options of `transformer-mt export` for pages in a browser."""

from transformer_mt.cli.arguments import Parser


def add_options(parser: Parser) -> None:
    """Add --runtime."""
    parser.add_argument(
        "--runtime",
        metavar="FOLDER",
        default="node_modules",
        help="for --to browser: a node_modules folder with the JavaScript libraries (default: node_modules)",
    )
