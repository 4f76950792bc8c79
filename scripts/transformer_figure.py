"""Draw figure 1 of *Attention Is All You Need* for this code; each box is a link to the lines for it."""

from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "transformer_mt"
PICTURE = ROOT / "docs/pictures/transformer.svg"
CODE = "https://example.org/transformer-mt/blob/main/transformer_mt"


class Box(NamedTuple):
    """A box of the figure; `y` is its middle."""

    x: int
    y: int
    label: str
    kind: str
    file: str
    line: str
    """The beginning of the line of code that the box links to."""


_MODEL = "model/transformer.py"
_LEFT, _RIGHT, _WIDTH, _HEIGHT = 190, 470, 170, 32
_ATTENTION, _NORM, _FORWARD = "attention", "norm", "forward"


def _attention(x: int, y: int, label: str, line: str) -> Box:
    return Box(x, y, label, _ATTENTION, _MODEL, line)


BOXES = [
    Box(_LEFT, 690, "source embedding", "embedding", _MODEL, "class Embedding"),
    Box(_LEFT, 640, "plus positions", "position", "model/positions.py", "class SinusoidalPositions"),
    _attention(
        _LEFT, 560, "self-attention", "return self.self_attention(x, *self.self_attention.keys_values(x)"
    ),
    Box(_LEFT, 514, "add and norm", _NORM, _MODEL, "class PostNorm"),
    Box(_LEFT, 468, "feed-forward", _FORWARD, _MODEL, "class FeedForward"),
    Box(_LEFT, 422, "add and norm", _NORM, _MODEL, "class PostNorm"),
    Box(_RIGHT, 690, "target embedding", "embedding", _MODEL, "class Embedding"),
    Box(_RIGHT, 640, "plus positions", "position", "model/positions.py", "class SinusoidalPositions"),
    _attention(_RIGHT, 560, "masked self-attention", "def see_target(x: Tensor)"),
    Box(_RIGHT, 514, "add and norm", _NORM, _MODEL, "class PostNorm"),
    _attention(_RIGHT, 430, "attention to the source", "def attend_to_source(x: Tensor)"),
    Box(_RIGHT, 384, "add and norm", _NORM, _MODEL, "class PostNorm"),
    Box(_RIGHT, 300, "feed-forward", _FORWARD, _MODEL, "class FeedForward"),
    Box(_RIGHT, 254, "add and norm", _NORM, _MODEL, "class PostNorm"),
    Box(_RIGHT, 176, "output projection", "output", _MODEL, "self.output = output"),
    Box(_RIGHT, 130, "softmax, cross-entropy", "output", "update/loss.py", "def plain_cross_entropy"),
    Box(_LEFT, 222, "projections: Q, K, V", _ATTENTION, "model/attention.py", "def queries"),
    Box(_LEFT, 176, "scaled dot-product", _ATTENTION, "model/attention.py", "def plain_attention"),
    Box(_LEFT, 130, "heads joined, projected", _ATTENTION, "model/attention.py", "def _project"),
]
_FRAMES = [
    (_LEFT, 396, 586, "encoder layer", "class EncoderLayer"),
    (_RIGHT, 228, 586, "decoder layer", "class DecoderLayer"),
]
_TEXTS = [
    (_LEFT, 738, "The dog sleeps . </s>"), (_RIGHT, 738, "<s> Der Hund schläft ."),
    (_RIGHT, 84, "Der Hund schläft . </s>"), (_LEFT, 262, "every attention is:"),
]  # fmt: skip
_COLOURS = {
    "embedding": "#fde2e4", "position": "#fff3cd", _ATTENTION: "#fde8cd", _NORM: "#f3f6c9",
    _FORWARD: "#d6ecf5", "output": "#e2e0f4",
}  # fmt: skip


def figure() -> str:
    """The SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-40 66 690 690" font-family="sans-serif" '
        'font-size="13" fill="#222" text-anchor="middle">',
        "<title>Figure 1 of the paper: each box is a link to its code</title>",
        "<style>a:hover rect { stroke-width: 2.5; } .flow { fill: none; stroke: #444; stroke-width: 1.3; }"
        " .turn { fill: none; stroke: #999; stroke-width: 1.2; } .note { font-style: italic; fill: #555; } "
        ".frame { text-anchor: end; fill: #555; }</style>",
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>',
        '<rect x="-40" y="66" width="690" height="690" fill="#fff"/>',
    ]
    for x, top, bottom, label, line in _FRAMES:
        left = x - _WIDTH // 2 - 30
        parts.append(
            f'<rect x="{left}" y="{top}" width="{_WIDTH + 60}" height="{bottom - top}" rx="10" '
            'fill="#fafafa" stroke="#bbb"/>'
            + _link(
                _MODEL,
                line,
                f'<text class="frame" x="{left - 8}" y="{top + 20}">{label}</text>'
                f'<text class="frame" x="{left - 8}" y="{top + 38}">N times</text>',
            )
        )
    parts += [_flow(x, low, high) for x, low, high in _flows()]
    parts += [_residual(x, start, end) for x, start, end in _residuals()]
    # The memory goes to every layer of the decoder.
    parts.append(
        f'<path class="flow" marker-end="url(#head)" d="M{_LEFT} 406 V380 H{_LEFT + 145} V430 '
        f'H{_RIGHT - _WIDTH // 2}"/><text class="note" x="{_LEFT + 60}" y="374">memory</text>'
    )
    for box in BOXES:
        left, top = box.x - _WIDTH // 2, box.y - _HEIGHT // 2
        parts.append(
            _link(
                box.file,
                box.line,
                f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
                f'fill="{_COLOURS[box.kind]}" stroke="#666"/>'
                f'<text x="{box.x}" y="{box.y + 5}">{box.label}</text>',
            )
        )
    parts += [
        f'<text class="note" x="{x}" y="{y}">{text.replace("<", "&lt;")}</text>' for x, y, text in _TEXTS
    ]
    return "\n".join([*parts, "</svg>", ""])


def _link(file: str, line: str, drawn: str) -> str:
    """What is drawn, as a link to the line of the file."""
    lines = (PACKAGE / file).read_text(encoding="utf-8").splitlines()
    number = next(n for n, code in enumerate(lines, start=1) if code.strip().startswith(line))
    return f'<a href="{CODE}/{file}#L{number}" target="_top"><title>{file}, line {number}</title>{drawn}</a>'


def _flows() -> list[tuple[int, int, int]]:
    """(x, below, above): arrows from one box to the next, bottom to top."""
    arrows = []
    for x in (_LEFT, _RIGHT):
        heights = sorted(
            (box.y for box in BOXES if box.x == x and not (x == _LEFT and box.y < 400)), reverse=True
        )
        arrows.append((x, 738, heights[0]))
        arrows += [(x, low, high) for low, high in pairwise(heights)]
    return [*arrows, (_RIGHT, 130, 74), (_LEFT, 222, 176), (_LEFT, 176, 130)]


def _flow(x: int, low: int, high: int) -> str:
    return (
        f'<path class="flow" marker-end="url(#head)" d="M{x} {low - _HEIGHT // 2} V{high + _HEIGHT // 2}"/>'
    )


def _residuals() -> list[tuple[int, int, int]]:
    """(x, start, end): lines around a sublayer to its `add and norm`."""
    sublayers = [
        box
        for box in BOXES
        if box.kind in (_ATTENTION, _FORWARD) and box.y > (400 if box.x == _LEFT else 200)
    ]
    return [(box.x, box.y + 25, box.y - 46) for box in sublayers]


def _residual(x: int, start: int, end: int) -> str:
    edge = x + _WIDTH // 2
    return f'<path class="turn" marker-end="url(#head)" d="M{x} {start} H{edge + 16} V{end} H{edge}"/>'


if __name__ == "__main__":
    PICTURE.write_text(figure(), encoding="utf-8")
