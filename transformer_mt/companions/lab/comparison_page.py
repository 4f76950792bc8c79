"""A comparison as one HTML page that needs nothing else: the table, and all sentences side by side."""

import base64
import hashlib
from collections import Counter
from html import escape
from importlib.resources import files
from typing import Any

from transformer_mt.companions.lab.breakdown import (
    FLAGS,
    count_words,
    flags_of,
    length_ratio,
    part_scores,
    parts_by_length,
    parts_by_rarest_word,
)
from transformer_mt.companions.lab.comparison import Comparison
from transformer_mt.companions.lab.comparison_table import notes, p_text, score_text
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.files import to_json


def as_html(comparison: Comparison, word_counts: Counter[str] | None = None, is_natural: bool = True) -> str:
    """The page. `word_counts` are those of the training corpora's sources; without them words are counted in
    the test sets. What looks wrong is shown only if both sides are natural languages.
    """
    style, script, body = (_asset(f"comparison.{ending}") for ending in ("css", "js", "html"))
    # No script but this one, and nothing from elsewhere: the sentences are of many hands.
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
