"""A translator whose model writes its source in capitals: what comes out of a document is what went in."""

from functools import lru_cache

from tests.conftest import TINY
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.root import TokenizerConfig
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translator import Translator


class UpperCaseEngine:
    """Each piece is a character or a byte, and is aligned to its capital."""

    name, dtype, is_on_cpu = "upper case", "float32", True
    max_positions = None
    selects = False

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def check(self, settings):
        pass

    def search(self, requests, settings, n_best):
        for i, request in enumerate(requests):
            text = capitals(self.tokenizer.src.decode(request.src))
            yield i, [Hypothesis([*self.tokenizer.encode_tgt([text])[0], EOS], -1.0, -1.0)]

    def token_log_probs(self, pairs):
        return [[-0.1] * (len(tgt) + 1) for _, tgt in pairs]

    def cross_attention(self, pairs):
        return [[[float(s == t) for s in range(len(src))] for t in range(len(tgt))] for src, tgt in pairs]


def capitals(text):
    """In capitals, letters whose capital is several characters as they are."""
    return "".join(c.upper() if len(c.upper()) == 1 else c for c in text)


@lru_cache
def upper_case_translator(split_sentences=True, engine=UpperCaseEngine):
    letters = "abcdefghijklmnopqrstuvwxyzäöüéABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÜÉ0123456789.,;:!?-'\"()&<>/…–"
    pairs = [(letters, letters), (" ".join(letters), " ".join(letters))]
    settings = TokenizerConfig(
        kind="char", vocab_size=400, normalization="identity", character_coverage=1.0, byte_fallback=True
    )
    tokenizer = Tokenizer.train(pairs, settings)
    data = {**TINY["data"], "max_length": 4000}
    config = Config.model_validate({**TINY, "data": data, "train": {**TINY["train"], "batch_tokens": 4000}})
    decode = DecodeConfig(split_sentences=split_sentences, lowercase_capitals=False)
    return Translator(engine(tokenizer), tokenizer, config, decode)
