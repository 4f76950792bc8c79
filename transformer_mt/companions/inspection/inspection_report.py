"""An inspection as Markdown and as a self-contained HTML page, with a verdict and the keys to add."""

from collections.abc import Sequence
from html import escape
from typing import Any

import yaml

from transformer_mt.companions.inspection.finding import Finding
from transformer_mt.companions.inspection.inspect import CorpusReport, Inspection
from transformer_mt.config.load import flow
from transformer_mt.messages import table

# A finding in this share of a corpus should be corrected; one in this share of all pairs must be.
_SHOULD, _MUST = 0.01, 0.1
# From this share of a validation or test set on, its scores say little.
_SCORES_SUFFER = 0.1
_FEW = 10_000
_NAMED = 6
_DATA = "data."


def assessment(inspection: Inspection) -> str:
    """Two or three sentences."""
    training = [report for report in inspection.corpora if report.is_training]
    total = sum(report.rows for report in training)
    usable = round(sum(usable_pairs(report) for report in training))
    if not usable:
        return "Not good enough: no pair is left for training. First, look at the table of each corpus."
    few = f"; about {usable:,} usable pairs are few" if usable < _FEW else ""
    findings = [
        (report, finding) for report in inspection.corpora for finding in report.shown if finding.weight
    ]
    serious = [
        (finding.must_be_corrected, finding.weight * finding.pairs, report, finding)
        for report, finding in findings
        if finding.must_be_corrected
        or finding.weight * report.share(finding) >= (_SHOULD if report.is_training else _SCORES_SUFFER)
    ]
    if not serious:
        first = "get more data" if few else "train"
        advice = "no other setting needs to change"
        if findings and keys_to_add(inspection):
            first, advice = f"add the keys below, then {first}", "they act on some of these pairs"
        elif findings:
            first, advice = f"look at the examples, then {first}", "no key acts on such pairs"
        start = f"Good enough{few or f': about {usable:,} usable pairs'}."
        return f"{start}{_named(inspection, findings, 'Found')} First, {first}; {advice}."
    _, pairs, report, finding = max(serious, key=lambda entry: entry[:2])
    is_bad = finding.must_be_corrected or pairs >= _MUST * (total if report.is_training else report.rows)
    grade = "Not good enough yet" if is_bad else "Good enough after a correction"
    action = f"set {finding.action}" if finding.is_setting else finding.action
    return (
        f"{grade}{few or f': about {usable:,} pairs are usable as they are'}. First, for {report.name}: "
        f"{action if report.is_training or finding.stops else 'look at the examples'} ({finding.what}, about "
        f"{finding.pairs:,} pairs, {report.share(finding):.1%})."
        + _named(inspection, [entry for entry in findings if entry[1] is not finding], "Also found")
    )


def _named(inspection: Inspection, findings: list[tuple[CorpusReport, Finding]], start: str) -> str:
    """A sentence that names the findings, those with most pairs first."""
    ordered = sorted(findings, key=lambda entry: -entry[1].pairs)
    several = len(inspection.corpora) > 1
    names = [
        f"{finding.what} (about {finding.pairs:,} pairs{f' of {report.name}' if several else ''})"
        for report, finding in ordered[:_NAMED]
    ]
    more = f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else ""
    return f" {start}: {', '.join(names)}{more}." if names else ""


def keys_to_add(inspection: Inspection) -> str:
    """YAML with the keys that act on the findings, to paste into the config; empty if there are none. If
    there are several corpora, or the corpus has its own rules, the rules are in comments, because they belong
    in the entry of the corpus.
    """
    training = [report for report in inspection.corpora if report.is_training]
    keys: dict[str, Any] = {}
    comments = []
    for report in training:
        rules: dict[str, Any] = {}
        for finding in report.shown:
            if finding.is_setting and finding.weight:
                key, value = next(iter(yaml.safe_load(finding.action).items()))
                key = key.removeprefix(_DATA)
                if key == "filter":
                    rules |= value
                elif keys.get(key) != "near":  # which includes exact duplicates
                    keys[key] = value
        if rules and len(training) == 1 and not report.has_own_rules:
            keys["filter"] = report.rules | rules
        elif rules:
            comments.append(f"# in the entry of {report.name}: filter: {flow(report.rules | rules)}")
    lines = ["data:"] if keys else []
    lines += [f"  {key}: {flow(value)}" for key, value in keys.items()]
    return "".join(f"{line}\n" for line in [*lines, *comments])


def usable_pairs(report: CorpusReport) -> float:
    """An estimate of the pairs that can be used, assuming that the findings are independent."""
    share = 1.0 - report.empty / max(1, report.rows)
    for finding in report.findings:
        if finding.drops and finding.weight in (0.0, 1.0) and not finding.stops:
            share *= 1.0 - min(1.0, report.share(finding))
    return report.rows * share


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
    """The first 160 characters; control characters are escaped, because a terminal would obey them."""
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
