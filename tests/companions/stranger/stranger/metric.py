"""A metric that is a mean over sentences."""

import numpy as np

from transformer_mt.evaluation.metrics import MeanMetric


class FirstWord(MeanMetric):
    """The share of translations that begin with the first word of a reference, in per cent."""

    name = "first word"

    def __init__(self, evaluate_config, target_lang):
        self.lowercase = evaluate_config.lowercase

    def statistics(self, sources, translations, references):
        right = [self.first(t) in map(self.first, refs) for t, refs in zip(translations, references)]
        return np.array([(float(value), 1.0) for value in right])

    def first(self, text):
        return (text.lower() if self.lowercase else text).split()[:1]

    def signature(self, references):
        return "lowercase" if self.lowercase else "cased"
