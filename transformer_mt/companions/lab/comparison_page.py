"""A comparison as one HTML page that needs nothing else: the table, and all sentences side by side."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from html import escape
from importlib.resources import files
from statistics import stdev
from typing import Any

from tabulate import tabulate

from transformer_mt.companions.lab.comparison import (
    FLAGS,
    NOT_KNOWN,
    Cell,
    Comparison,
    count_words,
    flags_of,
    length_ratio,
    part_scores,
    parts_by_length,
    parts_by_rarest_word,
)
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.evaluation.set_evaluation import SEEN_NOTE
from transformer_mt.files import to_json
from transformer_mt.messages import with_names

_FEW = 20  # sentences; with 10, 9 % of equal systems are called different
_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
          "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}  # fmt: skip


def as_text(comparison: Comparison) -> str:
    """For a terminal: a table for each test set, the notes below."""
    return _tables(comparison, "simple", lambda title: title) + "\n"


def as_markdown(comparison: Comparison) -> str:
    """The same tables for Markdown."""
    return _tables(comparison, "github", lambda title: f"**{title}**\n") + "\n"


def as_latex(comparison: Comparison) -> str:
    """One table for a paper, with the rules of booktabs."""
    head = ["$p$" if name == "p" else _escaped(name) for name in _head(comparison)]
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", " & ".join(head) + r" \\"]
    for test in comparison.tests:
        title = _escaped(test.title)
        lines += [r"\midrule", rf"\multicolumn{{{len(head)}}}{{l}}{{{title}}} \\"]
        for row in _rows(comparison, test.name):
            lines.append(" & ".join(_escaped(cell).replace("±", r"$\pm$") for cell in row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {note}" for note in notes(comparison))]) + "\n"


def as_json(comparison: Comparison) -> str:
    """All numbers."""
    cells = [{**vars(cell), "value": cell.value} for cell in comparison.cells]
    facts: dict[str, Any] = {
        "tests": [
            {"name": test.name, "corpus": test.corpus, "sentences": len(test.sentences)}
            for test in comparison.tests
        ],
        "systems": [
            {
                "name": system.name,
                "runs": len(system.runs),
                "search": system.search if system.search != NOT_KNOWN else "",
                "seen": {test.name: vars(share) for test, share in zip(comparison.tests, system.seen)},
            }
            for system in comparison.systems
        ],
        "cells": cells,
        "signatures": [{"metric": name, "signature": text} for name, text in comparison.signatures],
        "significance": {"test": comparison.test, "samples": comparison.samples},
    }
    return to_json(facts, indent=1, ensure_ascii=False) + "\n"


def notes(comparison: Comparison) -> list[str]:
    """The lines that explain the numbers."""
    several = any(len(system.runs) > 1 for system in comparison.systems)
    lines = [f"{name}: {signature}" for name, signature in comparison.signatures]
    searches = with_names((system.name, system.search) for system in comparison.systems)
    if searches != NOT_KNOWN:
        lines.append(f"search: {searches}")
    varied = "sentences and other seeds" if several else "sentences"
    lines.append(f"[ ]: 95 % interval of scores with other {varied} of this kind")
    if several:
        lines.append("±: deviation of the runs of a system")
    if len(comparison.systems) > 1:
        lines.append(f"p: p-value against {comparison.systems[0].name}, {_test(comparison)}")
    if comparison.is_marked:
        lines.append(SEEN_NOTE)
    if small := [test.corpus for test in comparison.tests if len(test.sentences) < _FEW]:
        lines.append(f"fewer than {_FEW} sentences say little about significance: {', '.join(small)}")
    if any(cell.runs_disagree for cell in comparison.cells):
        lines.append("†: better with some seeds, worse with others")
    return lines


def _test(comparison: Comparison) -> str:
    text = {
        "bootstrap": f"paired bootstrap resampling, {comparison.samples:,} samples",
        "randomisation": f"paired approximate randomisation, {comparison.samples:,} samples",
    }[comparison.test]
    if any(len(system.runs) > 1 for system in comparison.systems):
        text += ", the deviation over the seeds by Student's t"
    if len(comparison.systems) > 2:
        text += f", corrected for {len(comparison.systems) - 1} comparisons (Holm)"
    return text


def _tables(comparison: Comparison, form: str, titled: Callable[[str], str]) -> str:
    parts = []
    for test in comparison.tests:
        rows = _rows(comparison, test.name)
        table = tabulate(rows, _head(comparison), tablefmt=form, disable_numparse=True)
        parts.append(f"{titled(test.title)}\n{table}")
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes(comparison))])


def _head(comparison: Comparison) -> list[str]:
    columns = ["", "p"] if len(comparison.systems) > 1 else [""]
    seen = ["seen"] if comparison.is_marked else []
    return ["system", *seen, *(column or metric.name for metric in comparison.metrics for column in columns)]


def _rows(comparison: Comparison, test: str) -> list[list[str]]:
    rows = []
    for system in comparison.systems:
        row = [system.name, *([comparison.seen(test, system.name)] if comparison.is_marked else [])]
        for metric in comparison.metrics:
            cell = comparison.cell(test, system.name, metric.name)
            row.append(score_text(cell, metric.digits))
            row += [p_text(cell)] if len(comparison.systems) > 1 else []
        rows.append(row)
    return rows


def score_text(cell: Cell, digits: int) -> str:
    """The score in `digits` decimal digits, its deviation over the runs, and its interval in one less."""
    spread = f" ± {stdev(cell.values):.{digits}f}" if len(cell.values) > 1 else ""
    low, high = (f"{bound:.{digits - 1}f}" for bound in (cell.low, cell.high))
    return f"{cell.value:.{digits}f}{spread} [{low}, {high}]"


def p_text(cell: Cell) -> str:
    """p, and whether the seeds disagree; empty for the first system."""
    if cell.p is None:
        return ""
    return f"{cell.p:.3f}{' †' if cell.runs_disagree else ''}"


def _escaped(text: str) -> str:
    return re.sub(r"[&%$#_{}~^\\]", lambda match: _LATEX[match[0]], text).replace("†", r"\dag{}")


def as_html(comparison: Comparison, word_counts: Counter[str] | None = None, is_natural: bool = True) -> str:
    """The page. `word_counts` are counts in the sources of the training corpora; if None, words are counted
    in the test sets. Flags of suspicious translations are shown only if both sides are natural languages.
    """
    style, script, body = (_asset(f"comparison.{ending}") for ending in ("css", "js", "html"))
    # Only this script may run and nothing is loaded from elsewhere: the sentences come from many hands.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = escape(f"Comparison of {', '.join(system.name for system in comparison.systems)}")
    data = to_json(_facts(comparison, word_counts, is_natural), ensure_ascii=False).replace("<", "\\u003c")
    body = body.replace("<!-- title -->", title).replace("<!-- table -->", _table(comparison))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}"
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n'
        "</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("transformer_mt.companions.lab").joinpath("page", name).read_text(encoding="utf-8")


def _table(comparison: Comparison) -> str:
    columns = [metric.name for metric in comparison.metrics]
    several = len(comparison.systems) > 1
    seen = ["seen"] if comparison.is_marked else []
    head = "".join(f"<th>{mark}</th>" for mark in seen) + "".join(
        f'<th scope="col">{escape(name)}</th>' + "<th>p</th>" * several for name in columns
    )
    lines = []
    for test in comparison.tests:
        title = escape(test.title)
        width = 1 + len(seen) + len(columns) * (1 + several)
        lines.append(f'<tr><th class="test" colspan="{width}" scope="rowgroup">{title}</th></tr>')
        for system in comparison.systems:
            texts = [f"<td>{escape(comparison.seen(test.name, system.name))}</td>" for _ in seen]
            for metric in comparison.metrics:
                cell = comparison.cell(test.name, system.name, metric.name)
                texts.append(f"<td>{escape(score_text(cell, metric.digits))}</td>")
                texts += [f"<td>{escape(p_text(cell))}</td>"] if several else []
            lines.append(f'<tr><th scope="row">{escape(system.name)}</th>{"".join(texts)}</tr>')
    below = "".join(f"<li>{escape(note)}</li>" for note in notes(comparison))
    return f'<table><tr><th scope="col">system</th>{head}</tr>{"".join(lines)}</table><ul>{below}</ul>'


def _facts(comparison: Comparison, word_counts: Counter[str] | None, is_natural: bool) -> dict[str, Any]:
    """The data that the script shows; texts are only ever inserted as text."""
    return {
        "systems": [system.name for system in comparison.systems],
        "metrics": [
            {"name": m.name, "higherIsBetter": m.higher_is_better, "digits": m.digits}
            for m in comparison.metrics
        ],
        "flags": FLAGS if is_natural else {},
        "counted": "the training corpora" if word_counts else "the test set",
        "tests": [
            _test_facts(comparison, number, test, word_counts, is_natural)
            for number, test in enumerate(comparison.tests)
        ],
    }


def _test_facts(
    comparison: Comparison,
    number: int,
    test: EvaluationSet,
    word_counts: Counter[str] | None,
    is_natural: bool,
) -> dict[str, Any]:
    outputs = [system.runs[0][number] for system in comparison.systems]
    counts = word_counts or count_words(test.sources)
    parts = {"length": parts_by_length(test), "rarest": parts_by_rarest_word(test, counts)}
    rows = []
    for i, (source, references) in enumerate(test.sentences):
        translations = [output[i] for output in outputs]
        scores = [
            [
                round(
                    metric.sentence_value(
                        comparison.statistics[test.name, system.name, metric.name][0][i].tolist()
                    ),
                    metric.digits,
                )
                for system in comparison.systems
            ]
            for metric in comparison.metrics
        ]
        flags = [flags_of(source, translation) if is_natural else [] for translation in translations]
        rows.append([source, list(references), translations, scores, flags])
    return {
        "corpus": test.corpus,
        "rows": rows,
        "parts": {
            name: [
                {
                    "label": part.label,
                    "sentences": len(part.rows),
                    "scores": part_scores(comparison, test, part),
                }
                for part in of_part
            ]
            for name, of_part in parts.items()
        },
        "ratios": [length_ratio(test, output) for output in outputs],
    }
