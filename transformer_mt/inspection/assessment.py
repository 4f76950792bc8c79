"""The assessment on all corpora in two sentences: are they good enough, and what comes first?"""

from transformer_mt.inspection.inspect import CorpusReport, Inspection

# From this share of a corpus on, something should be done; from this share of all pairs on, it must be.
_SHOULD, _MUST = 0.01, 0.1
# From this share of a validation or test set on, its scores say little.
_SCORES_SUFFER = 0.1
_FEW = 10_000


def assessment(inspection: Inspection) -> str:
    """Two sentences."""
    total = sum(report.rows for report in inspection.corpora if report.is_training)
    usable = round(sum(usable_pairs(report) for report in inspection.corpora if report.is_training))
    if not usable:
        return "Not good enough: no pair is left for training. First, look at the table of each corpus."
    few = f"; about {usable:,} usable pairs are few" if usable < _FEW else ""
    serious = [
        (finding.weight * finding.pairs, report, finding)
        for report in inspection.corpora
        for finding in report.findings
        if finding.must_be_corrected
        or finding.weight * report.share(finding) >= (_SHOULD if report.is_training else _SCORES_SUFFER)
    ]
    if not serious:
        first = "get more data" if few else "train"
        return (
            f"Good enough{few or f': about {usable:,} usable pairs'}. First, {first}; no other setting needs "
            "to change."
        )
    pairs, report, finding = max(serious, key=lambda entry: (entry[2].must_be_corrected, entry[0]))
    total_rows = total if report.is_training else report.rows
    is_bad = finding.must_be_corrected or pairs >= _MUST * total_rows
    grade = "Not good enough yet" if is_bad else "Good enough after a correction"
    is_setting = finding.action.startswith(("filter:", "data."))
    action = f"set {finding.action}" if is_setting else finding.action
    return (
        f"{grade}{few or f': about {usable:,} pairs are usable as they are'}. First, for {report.name}: "
        f"{action if report.is_training or finding.stops else 'look at the examples'} ({finding.what}, about "
        f"{finding.pairs:,} pairs, {report.share(finding):.1%})."
    )


def usable_pairs(report: CorpusReport) -> float:
    """An estimate of the pairs that nothing speaks against, if the findings are independent."""
    share = 1.0 - report.empty / max(1, report.rows)
    for finding in report.findings:
        if finding.drops and finding.weight in (0.0, 1.0) and not finding.stops:
            share *= 1.0 - min(1.0, report.share(finding))
    return report.rows * share
