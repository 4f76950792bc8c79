"""An inspection as Markdown and as a self-contained HTML page."""

from collections.abc import Sequence
from html import escape

from transformer_mt.companions.inspection.assessment import assessment, keys_to_add
from transformer_mt.companions.inspection.finding import Finding
from transformer_mt.companions.inspection.inspect import CorpusReport, Inspection
from transformer_mt.messages import table

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #bbb; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #f2f2f2; }
.assessment { border-left: .3rem solid #2a6; padding: .5rem 1rem; background: #f4faf6; font-size: 1.1em; }
code, pre { background: #f2f2f2; padding: 0 .2rem; }
summary { cursor: pointer; font-weight: 600; margin-top: .8rem; }
td.text { max-width: 30rem; overflow-wrap: anywhere; }
"""


def markdown(inspection: Inspection) -> str:
    """The report for the terminal and for inspect.md."""
    parts = [f"# Inspection of {inspection.name}", assessment(inspection)]
    if keys := keys_to_add(inspection):
        parts.append(f"```yaml\n{keys}```")
    parts += inspection.notes
    parts.append(table(_overview(inspection), _head(inspection)))
    for report in inspection.corpora:
        parts.append(f"## {report.name}")
        if not report.shown:
            parts.append("Nothing suspicious.")
            continue
        rows = [_row(report, finding) for finding in report.shown]
        parts.append(table(rows, _FINDINGS))
        parts += [_example_lines(finding) for finding in report.shown]
    return "\n\n".join(parts) + "\n"


def html_page(inspection: Inspection) -> str:
    """One page without scripts, pictures or links to elsewhere."""
    body = [f"<h1>Inspection of {escape(inspection.name)}</h1>"]
    body.append(f'<p class="assessment">{escape(assessment(inspection))}</p>')
    if keys := keys_to_add(inspection):
        body.append(f"<pre>{escape(keys)}</pre>")
    body += [f"<p>{escape(note)}</p>" for note in inspection.notes]
    body.append(_html_table(_head(inspection), _overview(inspection)))
    for report in inspection.corpora:
        body.append(f"<h2>{escape(report.name)}</h2>")
        if not report.shown:
            body.append("<p>Nothing suspicious.</p>")
            continue
        body.append(_html_table(_FINDINGS, [_row(report, finding) for finding in report.shown]))
        for finding in report.shown:
            rows = [[_row_label(e.row), *e.pair] for e in finding.examples]
            body.append(f"<details><summary>{escape(finding.what)}: examples</summary>")
            body.append(_html_table(["row", *report.languages], rows, texts=(1, 2)) + "</details>")
    title = f"<title>Inspection of {escape(inspection.name)}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


_FINDINGS = ["finding", "pairs, about", "share", "setting or action", "note"]


def _head(inspection: Inspection) -> list[str]:
    size = f" (vocabulary of {inspection.vocab_size:,})" if inspection.vocab_size else ""
    lengths = "characters (5 %, 50 %, 95 %, max)"
    return ["corpus", "pairs", "empty", lengths, f"tokens per pair{size}", "scripts"]


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


def _row(report: CorpusReport, finding: Finding) -> list[str]:
    share = f"{report.share(finding):.2%}"
    return [finding.what, f"{finding.pairs:,}", share, finding.action, finding.note]


def _row_label(row: int) -> str:
    return f"{row:,}" if row else ""


def _example_lines(finding: Finding) -> str:
    """The examples as a list; line feeds cannot occur in them."""
    lines = [f"Examples of {finding.what}:", ""]
    for example in finding.examples:
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
