"""Scores of translations without references, by a command or by a run's calibrated confidence."""

from collections.abc import Sequence
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.evaluation.external_metric import StayingMetric
from transformer_mt.evaluation.scoring import Pair, score
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translator import Translator

Texts = tuple[str, str]
"""A source and its translation."""


class CommandScores:
    """The numbers of a command, the higher the better."""

    def __init__(self, command: str) -> None:
        """InputError if it is not found."""
        self._metric = StayingMetric("teacher.metric", command)
        self.fact = command

    def of(self, pairs: Sequence[Texts]) -> list[float]:
        sources, translations = zip(*pairs)
        statistics = self._metric.statistics(sources, translations, [()] * len(pairs))
        return [self._metric.sentence_value(row) for row in statistics.tolist()]


class RunScores:
    """The confidence that a run has in translations, from 0 to 1."""

    def __init__(self, folder: Path, languages: tuple[str, str]) -> None:
        """InputError if the run is not calibrated, or does not translate between these languages."""
        calibration = Calibration.load(RunFolder(folder))
        if calibration is None:
            raise InputError(
                f"{folder}: must be a run with calibration.json to score translations, but is not"
            )
        self._calibration = calibration
        self._translator = Translator.load(folder, engine="torch").for_set(languages)
        self.fact = str(RunFolder(folder).weights_digest())

    def of(self, pairs: Sequence[Texts]) -> list[float]:
        """A pair that is longer than the model takes has 0."""
        translator, values = self._translator, [0.0] * len(pairs)
        sources, targets = zip(*pairs)
        ids = zip(translator.encode_src(sources), translator.tokenizer.encode_tgt(targets))
        most = translator.max_positions or float("inf")
        fitting = {i: Pair("", *pairs[i], [both]) for i, both in enumerate(ids) if max(map(len, both)) < most}
        for i, scored in zip(fitting, score(translator, list(fitting.values()))):
            values[i] = self._calibration.confidence(scored.log_prob, len(scored.token_log_probs))
        return values
