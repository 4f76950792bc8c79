"""Hypotheses of segments put together: candidates of a segment, and the translation of a whole line."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.search.beam import Hypothesis, ranked
from transformer_mt.text.lines import CONTROL, control_characters
from transformer_mt.translation.planner import LONE_CR, Splitter
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import TranslatedLine, Unit

NOTHING = Candidate(translation="", score=0.0, log_prob=0.0, tokens=[])


def by_utility(
    samples: Sequence[Hypothesis], tokenizer: Tokenizer, utility: Literal["chrf", "bleu"], language: str
) -> list[Hypothesis]:
    """The samples, ranked by their likeness to the others."""
    from transformer_mt.search.sampling import expected_utilities  # NumPy takes time to import

    texts = [tokenizer.decode_tgt(sample.tokens[:-1]) for sample in samples]
    utilities = expected_utilities(texts, utility, language)
    return ranked([replace(sample, score=value) for sample, value in zip(samples, utilities)])


def candidates_of(
    hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, unit: Unit, stages: Sequence[Stage]
) -> list[Candidate]:
    """The hypotheses of a unit as text, each text once."""
    by_text: dict[str, Candidate] = {}
    for hypothesis in hypotheses:
        ids = hypothesis.tokens[:-1]
        text = tokenizer.decode_tgt(ids)
        for stage in stages:
            text = stage.text(unit, text)
        if text not in by_text:
            by_text[text] = Candidate(
                translation=text,
                score=hypothesis.score,
                log_prob=hypothesis.log_prob,
                tokens=tokenizer.pieces_tgt(ids),
            )
    return list(by_text.values())


def joined(line: TranslatedLine, n_best: int, splitter: Splitter) -> list[Candidate]:
    """The line's n best translations: the k-th joins the k-th best of each unit. Their number is the
    smallest over the units.
    """
    if not line.units:
        return [NOTHING]
    before, after = line.line.before, line.line.after
    if len(line.units) == 1 and not before and not after:
        return line.units[0].candidates[:n_best]
    gaps = [translated.unit.segment.gap for translated in line.units]
    ranks = [len(translated.candidates) for translated in line.units if not translated.unit.is_fixed]
    lines = []
    for rank in range(min([n_best, *ranks]) if ranks else 1):
        candidates = [translated.candidate(rank) for translated in line.units]
        text = splitter.join(gaps, [candidate.translation for candidate in candidates])
        searched = [c for c, translated in zip(candidates, line.units) if not translated.unit.is_fixed]
        lines.append(replace(merge_candidates(searched), translation=f"{before}{text}{after}"))
    return lines


def line_result(
    line: TranslatedLine, n_best: int, splitter: Splitter, stages: Sequence[Stage]
) -> Translation:
    """A line's translation, put together from those of its units and finished by the stages."""
    source = line.line.source
    has_control = CONTROL.search(source) is not None
    if not line.units:
        return Translation(
            source=source, translation="", score=0.0, log_prob=0.0, tokens=[], n_best=[NOTHING],
            problems=["there is nothing to translate"], flags=["empty"],
        )  # fmt: skip
    if line.line.is_fixed:
        same = replace(NOTHING, translation=LONE_CR.sub(" ", source))
        return Translation(
            source=source, translation=same.translation, score=0.0, log_prob=0.0, tokens=[], n_best=[same],
            problems=[*control_characters(source)], flags=["unchanged", *["control_character"] * has_control],
        )  # fmt: skip
    problems = [*control_characters(source), *(p for unit in line.units for p in unit.problems)]
    flags = [*["control_character"] * has_control, *(flag for unit in line.units for flag in unit.flags)]
    if len(line.units) > 1:
        flags.insert(0, "split")
    if line.line.is_too_long:
        problems.insert(0, f"the source was translated in {len(line.units)} parts: it is too long for one")
    candidates = joined(line, n_best, splitter)
    best = candidates[0]
    result = Translation(
        source=source,
        translation=best.translation,
        score=best.score,
        log_prob=best.log_prob,
        tokens=best.tokens,
        problems=list(dict.fromkeys(problems)),
        flags=list(dict.fromkeys(flags)),
        n_best=candidates,
        segments=_segments(line) if _was_changed(line) else [],
    )
    for stage in stages:
        result = stage.finish(line, result)
    return result


def each_once(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each text."""
    by_text: dict[str, Candidate] = {}
    for candidate in candidates:
        by_text.setdefault(candidate.translation, candidate)
    return list(by_text.values())


def merge_candidates(candidates: Sequence[Candidate]) -> Candidate:
    """One candidate for consecutive segments: mean score, summed log_prob, all tokens, and no text."""
    return Candidate(
        translation="",
        score=sum(c.score for c in candidates) / max(1, len(candidates)),
        log_prob=sum(c.log_prob for c in candidates),
        tokens=[token for c in candidates for token in c.tokens],
    )


def _was_changed(line: TranslatedLine) -> bool:
    """True if the searched texts differ from the line itself, as after a split. `score` needs them then."""
    return [unit.segment.searched for unit in line.line.units] != [line.line.source.strip()]


def _segments(line: TranslatedLine) -> list[dict[str, Any]]:
    return [
        {"source": translated.unit.segment.searched, "tokens": len(translated.candidates[0].tokens)}
        for translated in line.units
        if not translated.unit.is_fixed
    ]
