"""Pictures: learning curves and attention. They need the extra `plot` (matplotlib)."""

import math
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError, Setting

# Families with Chinese, Japanese and Korean characters; matplotlib's own has none.
_CJK = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei",
        "WenQuanYi Micro Hei",
        "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Droid Sans Fallback")  # fmt: skip


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'transformer-mt[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _plain(axes: Any) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def learning_curve(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss above, BLEU below, against updates, from the entries of one metrics.jsonl."""
    figure = _figure(7, 6)
    train = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid"]
    losses, bleus = figure.subplots(2, 1, sharex=True)
    losses.plot(
        [e["step"] for e in train],
        [e["loss"] for e in train],
        label="training (smoothed labels)",
        color="tab:blue",
    )
    losses.plot(
        [e["step"] for e in valid],
        [e["loss"] for e in valid],
        label="validation",
        color="tab:orange",
        marker="o",
        ms=3,
    )
    losses.set_ylabel("loss per target token (nats)")
    if train or valid:
        losses.legend(frameon=False)
    bleus.plot(
        [e["step"] for e in valid],
        [e["scores"][0]["value"] for e in valid],
        color="tab:green",
        marker="o",
        ms=3,
    )
    bleus.set_ylabel("validation BLEU (greedy)")
    bleus.set_xlabel("updates")
    for axes in (losses, bleus):
        _plain(axes)
    figure.savefig(path, dpi=110)


# Names of more runs than these would hide the curves.
_MOST_INSIDE = 6


def curves(runs: Sequence[tuple[str, Sequence[dict[str, Any]]]], against: str, path: Path) -> None:
    """Validation loss, BLEU and learning rate of several runs, (name, entries of its metrics.jsonl) each, in
    one picture.

    Runs of one name, such as the seeds of a variant, are drawn alike.
    """
    names = list(dict.fromkeys(name for name, _ in runs))
    beside = len(names) > _MOST_INSIDE
    figure = _figure(8 + 2.5 * beside, 9)
    losses, bleus, rates = figure.subplots(3, 1, sharex=True)
    named: set[str] = set()
    for name, entries in runs:
        number = names.index(name)
        style: dict[str, Any] = {
            "color": f"C{number % 10}",
            "linestyle": ("-", "--", ":", "-.")[number // 10 % 4],
            "lw": 1.2,
        }
        style["label"] = None if name in named else name
        named.add(name)
        valid = [entry for entry in entries if entry["event"] == "valid"]
        train = [entry for entry in entries if entry["event"] == "train"]
        losses.plot(
            [_place(e, against) for e in valid], [e["loss"] for e in valid], marker="o", ms=3, **style
        )
        bleus.plot([_place(e, against) for e in valid], [_bleu(e) for e in valid], marker="o", ms=3, **style)
        rates.plot([_place(e, against) for e in train], [e["learning_rate"] for e in train], **style)
    losses.set_ylabel("validation loss per token (nats)")
    bleus.set_ylabel("validation BLEU (greedy)")
    rates.set_ylabel("learning rate")
    rates.set_xlabel(
        {"tokens": "target tokens", "minutes": "minutes of training", "hours": "hours of training"}.get(
            against, against
        )
    )
    if beside:
        figure.legend(
            *losses.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8
        )
    else:
        losses.legend(frameon=False, fontsize=8)
    for axes in (losses, bleus, rates):
        _plain(axes)
    figure.savefig(path, dpi=110)


def _place(entry: dict[str, Any], against: str) -> float:
    divisor = {"minutes": 60.0, "hours": 3600.0}.get(against, 1.0)
    return entry[{"updates": "step", "tokens": "tokens"}.get(against, "seconds")] / divisor


def _bleu(entry: dict[str, Any]) -> float:
    return next(score["value"] for score in entry["scores"] if score["name"] == "BLEU")


# Some 400 MB while it is drawn; a viewer's patience ends earlier.
_MOST_DOTS = 100_000_000


def heat_maps(
    maps: Sequence[tuple[str, Any]], rows: Sequence[str], columns: Sequence[str], path: Path
) -> str | None:
    """Draw attention maps, each (title, weights (rows, columns)): queries are the rows, keys the columns.

    The size of a map grows with its number of tokens. Returns a warning if a font is missing, else None.
    """
    cell = 0.24  # inches: a line of 8 points with space around it
    width = 1.3 + cell * len(columns)
    height = 1.6 + cell * len(rows)
    across = max(1, min(len(maps), math.ceil(math.sqrt(len(maps) * height / width))))
    down = math.ceil(len(maps) / across)
    dots = 130 if path.suffix == ".png" else 72  # an inch; .svg and .pdf have none
    if width * across * height * down * dots**2 > _MOST_DOTS:
        raise InputError(
            f"a picture of {len(maps)} maps of {len(rows)} x {len(columns)} tokens must be smaller; choose ",
            "one ", Setting("layer"), " or ", Setting("head"),
        )  # fmt: skip
    figure = _figure(width * across, height * down)
    fonts, missing = _fonts([*rows, *columns])
    text = {"fontsize": 8, "fontfamily": fonts, "parse_math": False}  # a piece may be $
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for ax, (title, weights) in zip(axes, maps):
        ax.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        ax.xaxis.tick_top()
        ax.set_xticks(range(len(columns)), columns, rotation=90, **text)
        ax.set_yticks(range(len(rows)), rows, **text)
        ax.tick_params(length=0)
        ax.set_xticks([i - 0.5 for i in range(1, len(columns))], minor=True)
        ax.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
        ax.grid(which="minor", color="0.9", linewidth=0.5)
        ax.tick_params(which="minor", length=0)
        ax.set_xlabel(title, fontsize=8)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the caller reports it in one sentence
        figure.savefig(path, dpi=dots)
    return missing


def _fonts(texts: Sequence[str]) -> tuple[list[str], str | None]:
    """Families for the texts, and a sentence if characters of theirs have none here."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    there = {font.name: font.fname for font in reversed(font_manager.fontManager.ttflist)}
    fonts = ["DejaVu Sans", *[name for name in _CJK if name in there][:1]]
    drawn: set[int] = set()
    for name in fonts:
        drawn |= FT2Font(there[name]).get_charmap().keys()
    missing = sorted({c for text in texts for c in text if ord(c) not in drawn and c.isprintable()})
    if not missing:
        return fonts, None
    wide = any(unicodedata.east_asian_width(c) in "WF" for c in missing) and len(fonts) == 1
    advice = ", install Noto Sans CJK" if wide else ""
    return fonts, f"no font here has {''.join(missing[:5])}; they are drawn as boxes{advice}"
