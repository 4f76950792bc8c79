"""Pictures of several runs' curves, and of attention."""

import math
import textwrap
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from transformer_mt.config import TrainConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.run.report import ERRORS, events_of, metric_of, new_figure, value_of, without_frame
from transformer_mt.update.schedule import build_schedule

# Families with Chinese, Japanese and Korean characters; matplotlib's own has none.
_CJK = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei",
        "WenQuanYi Micro Hei",
        "PingFang SC", "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Droid Sans Fallback")  # fmt: skip

# More coloured curves than these cannot be told apart.
_MOST_COLOURED = 6
_MOST_POINTS = 2000


def curves(runs: Sequence[tuple[str, Sequence[dict[str, Any]]]], against: str, path: Path) -> None:
    """Draw validation loss, metric and learning rate of several runs in one picture. Each run is given as
    (name, entries of its metrics.jsonl). The metric is BLEU or, if it was not measured, the first one.

    Runs with the same name, such as the seeds of a variant, are drawn alike. If there are many names, only
    the first and the best are coloured, and a separate panel ranks all of them by their best validation
    score. A single run that logged its gradients gets two more panels: the gradient and the change of each
    layer.
    """
    best: dict[str, list[float]] = {}
    metric = metric_of([entry for _, entries in runs for entry in events_of(entries, "valid")])
    is_error = metric in ERRORS
    choose: Any = min if is_error else max
    for name, entries in runs:
        values = [value_of(entry, metric) for entry in events_of(entries, "valid")]
        measured = [value for value in values if math.isfinite(value)]
        best.setdefault(name, []).extend([choose(measured)] if measured else [])
    names = list(best)
    is_ranked = len(names) > _MOST_COLOURED
    measured_names = [name for name in names if best[name]]
    ranking = sorted(measured_names, key=lambda name: mean(best[name]), reverse=not is_error)
    coloured = list(dict.fromkeys([names[0], *ranking, *names]))[:_MOST_COLOURED]
    colours = {name: f"C{number}" for number, name in enumerate(coloured)}
    has_layers = len(runs) == 1 and any("change_by_layer" in entry for entry in runs[0][1])
    rows = 6 if has_layers else 4
    figure = new_figure(8 + 5 * is_ranked, max(9, 0.2 * len(names)) if is_ranked else 3 * rows)
    grid = figure.add_gridspec(rows, 1 + is_ranked, width_ratios=[3, 1][: 1 + is_ranked])
    losses = figure.add_subplot(grid[0, 0])
    trained, metrics, rates = (figure.add_subplot(grid[row, 0], sharex=losses) for row in (1, 2, 3))
    named: set[str] = set()
    for name, entries in sorted(runs, key=lambda run: run[0] in colours):  # coloured ones above the others
        style: dict[str, Any] = {"color": colours.get(name, "0.8"), "lw": 1.2 if name in colours else 0.8}
        style["label"] = name if name in colours and name not in named else None
        named.add(name)
        valid, train = events_of(entries, "valid"), events_of(entries, "train")
        x = [_x_of(entry, against) for entry in valid]
        losses.plot(x, [entry["loss"] for entry in valid], marker="o", ms=2, **style)
        metrics.plot(x, [value_of(entry, metric) for entry in valid], marker="o", ms=2, **style)
        x = [_x_of(entry, against) for entry in train]
        dots = {"marker": "o", "ms": 2} if len(train) == 1 else {}  # one value is no line
        trained.plot(x, [entry.get("loss", math.nan) for entry in train], **dots, **style)
        rates.plot(x, [entry["learning_rate"] for entry in train], **dots, **style)
    losses.set_ylabel("validation loss per token (nats)")
    trained.set_ylabel("training loss per token (nats)")
    metrics.set_ylabel(f"validation {metric} (greedy)")
    rates.set_ylabel("learning rate")
    units = {"tokens": "target tokens", "minutes": "minutes of training", "hours": "hours of training"}
    losses.legend(frameon=False, fontsize=8)
    panels = [losses, trained, metrics, rates]
    if has_layers:
        panels += [figure.add_subplot(grid[row, 0], sharex=losses) for row in (4, 5)]
        _layers(panels[4:], events_of(runs[0][1], "train"), against)
    panels[-1].set_xlabel(units.get(against, against))
    if is_ranked:
        panels.append(_ranking(figure.add_subplot(grid[:, 1]), ranking, best, colours, metric))
    for axes in panels:
        without_frame(axes)
    figure.savefig(path, dpi=110)


def schedules(configs: Sequence[tuple[str, TrainConfig]], path: Path) -> None:
    """Draw the learning rate of each update of the (name, config) pairs."""
    figure = new_figure(8, 4)
    axes = figure.add_subplot()
    for name, config in configs:
        every = max(1, config.max_updates // _MOST_POINTS)
        steps = sorted({*range(1, config.max_updates + 1, every), config.warmup or 1, config.max_updates})
        schedule = build_schedule(config)
        axes.plot(steps, list(map(schedule.rate, steps)), label=f"{name}: {config.schedule}")
    axes.set_xlabel("updates")
    axes.set_ylabel("learning rate")
    axes.legend(frameon=False, fontsize=8)
    without_frame(axes)
    figure.savefig(path, dpi=110)


def _layers(panels: Sequence[Any], entries: Sequence[dict[str, Any]], against: str) -> None:
    """Draw the norm of each layer's gradient, and each layer's change as a share of its weights."""
    from matplotlib import colormaps

    logged = [entry for entry in entries if "change_by_layer" in entry]
    x, layers = [_x_of(entry, against) for entry in logged], list(logged[0]["change_by_layer"])
    for axes, key, label in zip(
        panels, ("grad_norm", "change"), ("gradient by layer", "change by layer (share of its weights)")
    ):
        for number, layer in enumerate(layers):
            values = [entry[f"{key}_by_layer"].get(layer, math.nan) for entry in logged]
            axes.plot(x, values, color=colormaps["turbo"](number / len(layers)), lw=0.9, label=layer)
        axes.set_yscale("log")
        axes.set_ylabel(label)
    panels[0].legend(frameon=False, fontsize=6, ncols=2)


def _ranking(
    axes: Any, ranking: Sequence[str], best: dict[str, list[float]], colours: dict[str, str], metric: str
) -> Any:
    """A row for each name, the best on top, and a dot for each of its runs."""
    for row, name in enumerate(ranking):
        axes.plot(best[name], [row] * len(best[name]), "o", ms=4, color=colours.get(name, "0.5"))
    axes.set_yticks(range(len(ranking)), ranking, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"best validation {metric} (greedy)")
    return axes


def _x_of(entry: dict[str, Any], against: str) -> float:
    divisor = {"minutes": 60.0, "hours": 3600.0}.get(against, 1.0)
    return entry[{"updates": "step", "tokens": "tokens"}.get(against, "seconds")] / divisor


# The most dots that a picture may have; drawing that many takes some 400 MB.
_MOST_DOTS = 100_000_000


def heat_maps(
    maps: Sequence[tuple[str, Any]], rows: Sequence[str], columns: Sequence[str], path: Path, title: str = ""
) -> str | None:
    """Draw attention maps. Each map is (name, weights); the weights are (rows, columns), with queries as rows
    and keys as columns. `title` holds the sentences.

    The size of a map grows with its number of tokens. Returns a warning if a font is missing, else None.
    """
    cell = 0.24  # inches: a line of 8 points with space around it
    width = 1.3 + cell * len(columns)
    height = 1.6 + cell * len(rows)
    heads = sum(name.rpartition(",")[0] == maps[0][0].rpartition(",")[0] for name, _ in maps)
    across = max(1, min(len(maps), math.ceil(math.sqrt(len(maps) * height / width))))
    across = heads if 1 < heads < len(maps) else across  # a row for each layer
    down = math.ceil(len(maps) / across)
    dots = 130 if path.suffix == ".png" else 72  # dots per inch; .svg and .pdf have no dots
    if width * across * height * down * dots**2 > _MOST_DOTS:
        raise InputError(
            f"{len(maps)} maps of {len(rows)} x {len(columns)} tokens make too large a picture; choose one ",
             Setting("layer"), " or ", Setting("head"),
        )  # fmt: skip
    figure = new_figure(width * across + 0.6, height * down + 0.5)
    fonts, missing = _fonts([*rows, *columns, title])
    text = {"fontsize": 8, "fontfamily": fonts, "parse_math": False}  # a token may be $
    axes = figure.subplots(down, across, squeeze=False).flatten()
    image = None
    for ax, (name, weights) in zip(axes, maps):
        image = ax.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
        ax.xaxis.tick_top()
        ax.set_xticks(range(len(columns)), columns, rotation=90, **text)
        ax.set_yticks(range(len(rows)), rows, **text)
        ax.tick_params(length=0)
        ax.set_xticks([i - 0.5 for i in range(1, len(columns))], minor=True)
        ax.set_yticks([i - 0.5 for i in range(1, len(rows))], minor=True)
        ax.grid(which="minor", color="0.9", linewidth=0.5)
        ax.tick_params(which="minor", length=0)
        ax.set_xlabel(name, fontsize=8)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    bar = figure.colorbar(image, ax=list(axes), shrink=min(1.0, 3 / (height * down)), aspect=15)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    # As wide as the picture: about 14 characters of 9 points an inch.
    most = max(20, int(14 * width * across))
    lines = [part for line in title.splitlines() for part in textwrap.wrap(line, most)]
    figure.suptitle("\n".join(lines), fontsize=9, fontfamily=fonts, parse_math=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the caller reports it in one sentence
        figure.savefig(path, dpi=dots)
    return missing


def _fonts(texts: Sequence[str]) -> tuple[list[str], str | None]:
    """Returns font families for the texts, and a warning if they lack some of the characters, else None."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    installed = {font.name: font.fname for font in reversed(font_manager.fontManager.ttflist)}
    fonts = ["DejaVu Sans", *[name for name in _CJK if name in installed][:1]]
    drawn: set[int] = set()
    for name in fonts:
        drawn |= FT2Font(installed[name]).get_charmap().keys()
    missing = sorted({c for text in texts for c in text if ord(c) not in drawn and c.isprintable()})
    if not missing:
        return fonts, None
    wide = any(unicodedata.east_asian_width(c) in "WF" for c in missing) and len(fonts) == 1
    advice = ", install Noto Sans CJK" if wide else ""
    return fonts, f"no font here has {''.join(missing[:5])}; they are drawn as boxes{advice}"
