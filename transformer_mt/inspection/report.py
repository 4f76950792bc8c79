"""An inspection as Markdown and as a self-contained HTML page."""

from collections.abc import Sequence
from html import escape

from transformer_mt.inspection.inspect import CorpusReport, Inspection
from transformer_mt.inspection.suspicion import Suspicion
from transformer_mt.inspection.verdict import verdict
from transformer_mt.markdown import table

_LEAST = 0.0005
"""Suspicions of a smaller share of a corpus are left out, unless they concern at least ten pairs."""

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #bbb; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #f2f2f2; }
.verdict { border-left: .3rem solid #2a6; padding: .5rem 1rem; background: #f4faf6; font-size: 1.1em; }
code { background: #f2f2f2; padding: 0 .2rem; }
summary { cursor: pointer; font-weight: 600; margin-top: .8rem; }
td.text { max-width: 30rem; overflow-wrap: anywhere; }
"""


def shown(report: CorpusReport) -> list[Suspicion]:
    """The suspicions worth a line."""
    return [s for s in report.suspicions if s.pairs >= 10 or report.share(s) >= _LEAST]


def markdown(inspection: Inspection) -> str:
    """The report for the terminal and for inspect.md."""
    parts = [f"# Inspection of {inspection.name}", verdict(inspection), *inspection.notes]
    parts.append(table(_overview(inspection), _head(inspection)))
    for report in inspection.corpora:
        parts.append(f"## {report.name}")
        if not (suspicions := shown(report)):
            parts.append("Nothing suspicious.")
            continue
        rows = [_row(report, suspicion) for suspicion in suspicions]
        parts.append(table(rows, _SUSPICIONS))
        parts += [_example_lines(suspicion) for suspicion in suspicions]
    return "\n\n".join(parts) + "\n"


def html_page(inspection: Inspection) -> str:
    """One page without scripts, pictures or links to elsewhere."""
    body = [f"<h1>Inspection of {escape(inspection.name)}</h1>"]
    body.append(f'<p class="verdict">{escape(verdict(inspection))}</p>')
    body += [f"<p>{escape(note)}</p>" for note in inspection.notes]
    body.append(_html_table(_head(inspection), _overview(inspection)))
    for report in inspection.corpora:
        body.append(f"<h2>{escape(report.name)}</h2>")
        if not (suspicions := shown(report)):
            body.append("<p>Nothing suspicious.</p>")
            continue
        body.append(_html_table(_SUSPICIONS, [_row(report, suspicion) for suspicion in suspicions]))
        for suspicion in suspicions:
            rows = [[_row_label(e.row), *e.pair] for e in suspicion.examples]
            body.append(f"<details><summary>{escape(suspicion.what)}: examples</summary>")
            body.append(_html_table(["row", *report.languages], rows, texts=(1, 2)) + "</details>")
    title = f"<title>Inspection of {escape(inspection.name)}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


_SUSPICIONS = ["suspicion", "pairs, about", "share", "setting or action", "note"]


def _head(inspection: Inspection) -> list[str]:
    pieces = f" ({inspection.vocab_size:,} pieces)" if inspection.vocab_size else ""
    lengths = "characters (5 %, 50 %, 95 %, most)"
    return ["corpus", "pairs", "empty", lengths, f"tokens per pair{pieces}", "scripts"]


def _overview(inspection: Inspection) -> list[list[str]]:
    rows = []
    for report in inspection.corpora:
        tokens = "–" if report.tokens is None else f"{report.tokens[0]:.1f} + {report.tokens[1]:.1f}"
        lengths = " / ".join(", ".join(f"{value:,}" for value in side) for side in report.lengths)
        scripts = " / ".join(
            ", ".join(f"{name} {share:.0%}" for name, share in side.items() if share >= 0.01) or "none"
            for side in report.scripts
        )
        rows.append([report.name, f"{report.rows:,}", f"{report.empty:,}", lengths, tokens, scripts])
    return rows


def _row(report: CorpusReport, suspicion: Suspicion) -> list[str]:
    share = f"{report.share(suspicion):.2%}"
    return [suspicion.what, f"{suspicion.pairs:,}", share, suspicion.action, suspicion.note]


def _row_label(row: int) -> str:
    return f"{row:,}" if row else ""


def _example_lines(suspicion: Suspicion) -> str:
    """The examples as a list; line feeds cannot occur in them."""
    lines = [f"Examples of {suspicion.what}:", ""]
    for example in suspicion.examples:
        label = f"row {example.row:,}: " if example.row else ""
        lines.append(f"- {label}{_short(example.pair[0])}  \n  → {_short(example.pair[1])}")
    return "\n".join(lines)


def _short(text: str) -> str:
    """At most 160 characters, control characters as escapes: a terminal would obey them."""
    cut = text if len(text) <= 160 else f"{text[:160]}…"
    return "".join(c if c.isprintable() or (c.isspace() and c != "\r") else repr(c)[1:-1] for c in cut)


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[int] = ()) -> str:
    """A table; the columns in `texts` hold sentences, which may run from right to left."""

    def cell(column: int, text: str) -> str:
        kind = ' class="text" dir="auto"' if column in texts else ""
        return f"<td{kind}>{escape(text)}</td>"

    lines = ["<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>"]
    lines += ["<tr>" + "".join(cell(i, text) for i, text in enumerate(row)) + "</tr>" for row in rows]
    return "<table>" + "\n".join(lines) + "</table>"
