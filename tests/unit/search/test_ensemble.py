import torch

from tests.helpers.table import search
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.search.beam import SpecialIds
from transformer_mt.search.sampling import Ensemble

CONFIG = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2)


def models(count):
    for seed in range(count):
        torch.manual_seed(seed)
        yield build_model(CONFIG, 20, 20, True, 32).eval()


@torch.inference_mode()
def test_an_ensemble_is_the_mean_of_probabilities():
    a, b = models(2)
    src, tgt = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 4))
    mean = (a(src, src != 0, tgt).softmax(-1) + b(src, src != 0, tgt).softmax(-1)) / 2
    both = Ensemble([a, b])
    torch.testing.assert_close(both(src, src != 0, tgt).exp(), mean)
    state = both.start(both.encode(src, src != 0), src != 0)
    for t in range(4):
        logits, state = both.step(tgt[:, t], state)
        torch.testing.assert_close(logits.exp(), mean[:, t])


@torch.inference_mode()
def test_a_model_with_itself_translates_as_alone():
    (a,) = models(1)
    src = torch.randint(4, 20, (3, 6))
    ids = SpecialIds(2, 3, (0, 2))
    found = []
    for model in (a, Ensemble([a, a])):
        state = model.start(model.encode(src, src != 0), src != 0)
        found.append(search(model.step, state, [9, 9, 9], ids, beam=3))
    assert [[h.tokens for h in hs] for hs in found[0]] == [[h.tokens for h in hs] for hs in found[1]]
