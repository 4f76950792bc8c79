"""An engine that answers from a table, to test what the Translator makes of an engine's answers."""

from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.planner import Plan
from transformer_mt.translation.result import Options
from transformer_mt.translation.stages.call import Call, build_stages
from transformer_mt.translation.units import SourceLine


class TableEngine:
    """Gives each source the listed target texts, best first; a source it does not know is an
    AssertionError.
    """

    name = "table"
    max_positions = None
    selects = False

    def __init__(self, tokenizer, answers):
        self.tokenizer = tokenizer
        self.answers = {tuple(tokenizer.encode_src([source])[0]): texts for source, texts in answers.items()}
        self.calls = []
        """The sources of each call of `search`."""
        self.prefixes = []
        """Those of all requests."""

    def check(self, settings):
        pass

    def search(self, requests, settings, n_best):
        self.calls.append([self.tokenizer.src.decode(request.src) for request in requests])
        self.prefixes += [request.prefix for request in requests]
        for i, request in enumerate(requests):
            assert tuple(request.src) in self.answers, f"asked for {self.calls[-1][i]!r}"
            targets = self.tokenizer.encode_tgt(self.answers[tuple(request.src)])
            found = [Hypothesis([*ids, EOS], -1.0 - rank, -1.0 - rank) for rank, ids in enumerate(targets)]
            yield i, found[:n_best]

    def token_log_probs(self, pairs):
        return [[-0.1] * (len(tgt) + 1) for _, tgt in pairs]

    def cross_attention(self, pairs):
        return [[[1.0] + [0.0] * (len(src) - 1)] * len(tgt) for src, tgt in pairs]


def planned_lines(translator, line, prefix="", protect=None):
    """The line with its units, as a call with these options would search for it."""
    decode = translator.decode
    stages = build_stages(Call.of(translator.resources, translator.planner, decode, Options(protect=protect)))
    lines = [SourceLine.of(line, 0, prefix)]
    translator.planner.plan_lines(lines, Plan(stages, decode))
    return lines
