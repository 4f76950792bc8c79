"""Searches on a GPU: the host reads a value at most once in eight steps, and a result once a batch."""

import numpy as np
import pytest

from tests.gpu_rehearsal.fake_gpu import on_gpu, rehearsal
from transformer_mt.config import DecodeConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.search.sampling import Ensemble
from transformer_mt.translation.engines.engine import Request
from transformer_mt.translation.engines.torch_engine import TorchEngine

SMALL = {"d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1}
RNG = np.random.default_rng(0)
SEARCHES = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4},
    "rules": {"beam": 4, "min_length": 3, "no_repeat_ngram": 3},
    "banned": {"beam": 2, "banned": ["p11", "p12 p13"]},
    "top_k": {"search": "sample", "samples": 4, "top_k": 10, "no_repeat_ngram": 2},
    "top_p": {"search": "sample", "samples": 2, "top_p": 0.9},
    "mbr": {"search": "mbr", "samples": 8},
}


class Pieces:
    """What a search asks of a tokenizer."""

    never_written = (7,)

    def __init__(self, count):
        self.all_pieces_tgt = [f"▁p{i}" for i in range(count)]

    def as_written(self, words):
        return ["▁" + word.replace(" ", "▁") for word in words]


def network(vocab_size=1000, **changes):
    return on_gpu(build_model(ModelConfig(**{**SMALL, **changes}), vocab_size, vocab_size, True, 64)).eval()


def requests(count, limit, prefix=()):
    sources = [RNG.integers(8, 1000, RNG.integers(5, 30)).tolist() for _ in range(count)]
    return [Request(src, limit, list(prefix)) for src in sources]


def waits_of(settings, steps, prefix=(), models=1, **changes):
    """How often the host waits in the search of a batch, of which no sentence ends before `steps`."""
    decode = DecodeConfig.model_validate(settings)
    with rehearsal() as watch:
        engine = TorchEngine(
            network(**changes) if models == 1 else Ensemble([network() for _ in range(models)]), Pieces(1000)
        )
        rules = engine._rules(decode)
        watch.clear()
        engine._search(requests(8, steps, prefix), decode, rules, n_best=1)
        return watch.num_waits, watch.num_kernels, watch.waits


def assert_reads_once_in_eight_steps(*search, **more):
    few, _, _ = waits_of(*search, 8, **more)
    many, _, waits = waits_of(*search, 24, **more)
    assert many - few <= 2, waits
    assert few <= 1 + 8, waits  # constants of the batch, and its results, are copied once


@pytest.mark.parametrize("name", SEARCHES)
def test_a_step_seldom_waits(name):
    assert_reads_once_in_eight_steps(SEARCHES[name])


# Kernels of a step of a model with six layers.
KERNELS = {"greedy": 196, "beam": 235}


@pytest.mark.parametrize("name", KERNELS)
def test_a_step_starts_no_more_kernels_than_recorded(name):
    (_, few, _), (_, many, found) = (
        waits_of(SEARCHES[name], steps, num_decoder_layers=6) for steps in (9, 17)
    )
    assert (many - few) / 8 <= KERNELS[name], found


def test_a_step_with_given_beginnings_seldom_waits():
    assert_reads_once_in_eight_steps(SEARCHES["beam"], prefix=(5, 6))


def test_a_step_of_several_models_seldom_waits():
    assert_reads_once_in_eight_steps(SEARCHES["beam"], models=2)


def test_scores_and_alignments_are_read_once_a_batch():
    pairs = [(r.src, r.src[:9]) for r in requests(8, 9)]
    with rehearsal() as watch:
        engine = TorchEngine(network(), Pieces(1000))
        for ask in (engine.token_log_probs, engine.cross_attention):
            watch.clear()
            ask(pairs)
            assert sum(n for wait, n in watch.waits.items() if "tolist" in wait) == 1
            assert watch.num_waits <= 4, watch.waits
