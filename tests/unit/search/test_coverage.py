import math

import torch

from transformer_mt.config.model import ModelConfig
from transformer_mt.model.build import build_model
from transformer_mt.model.recorder import AttentionRecorder
from transformer_mt.search.beam import SpecialIds, beam_search
from transformer_mt.search.coverage import Coverage

IDS = SpecialIds(2, 3, (0, 2))


@torch.inference_mode()
def test_the_penalty_is_what_a_whole_forward_says():
    """The score of each translation, computed afresh from the weights of one forward pass over it."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=3)
    model = build_model(config, 20, 20, True, 32).eval()
    src = torch.randint(4, 20, (3, 6))
    src[1, 4:] = 0
    coverage = Coverage(model, beta=0.4)
    start = model.start(model.encode(src, src != 0), src != 0)
    found = beam_search(coverage.step, coverage.start(start), [7, 7, 7], IDS, beam=4, bonus=coverage.penalty)
    assert all(
        [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypotheses in found
    )
    for b, hypotheses in enumerate(found):
        for h in hypotheses:
            one = src[b : b + 1, : 4 if b == 1 else 6]
            attention = model.decoder.layers[2].cross_attention
            recorder = AttentionRecorder(attention)
            model.hidden(one, one != 0, torch.tensor([[2, *h.tokens[:-1]]]), recorder)
            paid = recorder.of(attention)[0][0].mean(0).sum(0)  # (H, T, S) -> (S,)
            penalty = 0.4 * sum(math.log(min(p, 1.0)) for p in paid.tolist())
            assert abs(h.score - (h.log_prob / len(h.tokens) + penalty)) < 1e-4


@torch.inference_mode()
def test_recorded_weights_are_those_of_the_forward_pass():
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = build_model(config, 20, 20, True, 32).eval()
    src, tgt = torch.randint(4, 20, (2, 6)), torch.randint(4, 20, (2, 5))
    attention = model.decoder.layers[0].self_attention
    recorder = AttentionRecorder(attention)
    before = model.hidden(src, src != 0, tgt, recorder)
    (seen,) = recorder.of(attention)
    assert seen.shape == (2, 2, 5, 5)
    torch.testing.assert_close(seen.sum(-1), torch.ones(2, 2, 5))
    assert seen.triu(1).abs().max() == 0
    assert torch.equal(model.hidden(src, src != 0, tgt), before) and len(recorder.of(attention)) == 1
