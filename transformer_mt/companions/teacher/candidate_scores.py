"""Scores of translations without references, by a command or by a run's calibrated confidence."""

from collections.abc import Callable, Sequence
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.evaluation.external_metric import StayingMetric
from transformer_mt.runs.folder import RunFolder
from transformer_mt.translation.scoring import Pair, score
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translation.translator import Translator

Scorer = Callable[[Sequence[tuple[str, str]]], list[float]]
"""The scores of pairs of a source and its translation, the higher the better."""


def scorer(metric: str, languages: tuple[str, str]) -> Scorer:
    """InputError if the command is not found, or the run is not calibrated or not of these languages."""
    return _by_run(Path(metric), languages) if Path(metric).is_dir() else _by_command(metric)


def _by_command(command: str) -> Scorer:
    metric = StayingMetric("teacher.metric", command)

    def scores(pairs: Sequence[tuple[str, str]]) -> list[float]:
        sources, translations = zip(*pairs)
        statistics = metric.statistics(sources, translations, [()] * len(pairs))
        return [metric.sentence_value(row) for row in statistics.tolist()]

    return scores


def _by_run(folder: Path, languages: tuple[str, str]) -> Scorer:
    calibration = Calibration.load(RunFolder(folder))
    if calibration is None:
        raise InputError(f"{folder}: must be a run with calibration.json to score translations, but is not")
    translator = Translator.load(folder, engine="torch").for_set(languages)

    def scores(pairs: Sequence[tuple[str, str]]) -> list[float]:
        sources, targets = zip(*pairs)
        ids = zip(translator.encode_src(sources), translator.tokenizer.encode_tgt(list(targets)))
        most = translator.max_positions
        fitting, values = {}, [0.0] * len(pairs)
        for i, (src, tgt) in enumerate(ids):
            if not most or max(len(src), len(tgt)) < most:  # what is longer than the model takes is the worst
                fitting[i] = Pair("", sources[i], targets[i], [(src, tgt)])
        for i, scored in zip(fitting, score(translator, list(fitting.values()))):
            values[i] = calibration.confidence(scored.log_prob, len(scored.token_log_probs))
        return values

    return scores
