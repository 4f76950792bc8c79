"""The verdict on all corpora: are they good enough, what was found, what comes first, and the keys to add."""

from typing import Any

import yaml

from transformer_mt.companions.inspection.finding import Finding
from transformer_mt.companions.inspection.inspect import CorpusReport, Inspection
from transformer_mt.config.load import flow

# From this share of a corpus on, something should be done; from this share of all pairs on, it must be.
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
    """YAML with the keys that act on the findings, to paste into the config; empty if there are none. Rules
    of a corpus that is one of several, or has rules of its own, stand in a comment: they belong into its
    entry.
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
    """An estimate of the pairs that nothing speaks against, if the findings are independent."""
    share = 1.0 - report.empty / max(1, report.rows)
    for finding in report.findings:
        if finding.drops and finding.weight in (0.0, 1.0) and not finding.stops:
            share *= 1.0 - min(1.0, report.share(finding))
    return report.rows * share
