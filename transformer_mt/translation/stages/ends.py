"""`decode.match_ends`: a translation ends with a full stop exactly if its source does."""

from dataclasses import replace

from transformer_mt.text.edges import match_end
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import TranslatedLine


class MatchingEnds(Stage):
    """Changes the ends of translations."""

    def __init__(self, target_lang: str) -> None:
        self._target_lang = target_lang

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        texts = [match_end(result.source, one.translation, self._target_lang) for one in result.n_best]
        candidates = [replace(one, translation=text) for one, text in zip(result.n_best, texts)]
        return replace(result, translation=candidates[0].translation, n_best=candidates)
