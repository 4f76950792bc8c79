"""An engine: `translate RUN --engine copy`."""

from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine


class Copy(Engine):
    """Writes the source, as a baseline of models with one vocabulary for both sides."""

    name, dtype = "copy", "int64"

    @classmethod
    def open(cls, run, config, request):
        return cls() if request.engine == "copy" else None

    def search(self, requests, settings, n_best):
        for number, request in enumerate(requests):
            tokens = [*request.src[: request.limit - 1], EOS]
            yield number, [Hypothesis(tokens=tokens, log_prob=0.0, score=0.0)]
