"""The two ONNX graphs compute what the model does, whatever its kinds of positions, norms and attention."""

import pytest
import torch

from transformer_mt.companions.browser.to_onnx import OnnxModel, write_graphs
from transformer_mt.config.load import load_config
from transformer_mt.model.build_model import build_model

SMALL = ["model.d_model=16", "model.d_ff=32", "model.num_heads=2", "model.num_encoder_layers=1"]
SMALL += ["model.num_decoder_layers=1"]
V = 40


def compared(tmp_path, *words):
    """The largest difference of log-probabilities over the steps of a beam that is reordered and shrinks."""
    config = load_config("demo", [*SMALL, *words])
    torch.manual_seed(1)
    model = build_model(config.model, V, V, config.tokenizer.shared, 64, None).eval()
    for parameter in model.parameters():  # biases and norms begin with zeros and ones
        torch.nn.init.normal_(parameter, std=0.3)
    write_graphs(model, tmp_path, 64 if config.model.position == "learned" else 200)
    exported = OnnxModel(tmp_path)
    src = torch.randint(4, V, (3, 9))
    src[1, 4:], src[2, 1:] = 0, 0
    states = [one.start(one.encode(src, src != 0), src != 0) for one in (model, exported)]
    tokens, worst = torch.full((3,), 2), 0.0
    beams = [[[0, 0], [1, 1], [2, 2]], [[1, 0], [2, 2], [5, 4]], [[0, 1], [5, 4]], [[1, 1], [2, 3]]]
    with torch.inference_mode():
        for rows in map(torch.tensor, beams):
            (ours, theirs), states = zip(
                *(one.step(tokens, state) for one, state in zip((model, exported), states))
            )
            assert ours.std() > 0.1
            worst = max(worst, (ours.log_softmax(-1) - theirs).abs().max().item())
            states, tokens = [state.select(rows) for state in states], torch.randint(4, V, (rows.numel(),))
    return worst


@pytest.mark.parametrize(
    "words",
    [
        ["model.position=rotary", "model.norm_kind=rms", "model.qk_norm=true", "model.num_kv_heads=1",
         "model.num_decoder_layers=2"],
        ["model.position=relative", "model.norm=post", "model.feed_forward=swiglu",
         "model.attention.window=2", "tokenizer.shared=false"],
        ["model.position=learned", "model.embedding_norm=true", "model.decoder_start=eos",
         "model.attention.cross=local_p", "model.attention.cross_window=2", "model.attention.score=additive"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_the_graphs_compute_what_the_model_does(tmp_path, words):
    assert compared(tmp_path, *words) < 2e-5


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["model.position=sinusoidal_fairseq", "model.share_layers=true"],
        ["model.position=none", "model.attention.cross=local_m", "model.attention.cross_window=2"],
        ["model.attention.hard=true", "model.output_bias=true"],
        ["model.position=alibi"],
        ["model.attention.window=2", "model.position=rotary"],
        *([f"model.attention.score={score}"] for score in ("dot", "general", "cosine", "euclidean")),
    ],
    ids=lambda words: words[0],
)
def test_the_graphs_of_other_kinds_compute_it_too(tmp_path, words):
    assert compared(tmp_path, *words) < 2e-5


@torch.inference_mode()
def test_a_translation_can_be_scored_and_a_source_be_as_long_as_the_graph_allows(tmp_path):
    """A line that was stopped at its length limit is scored: the end of it may be near. The model's own table
    of sinusoids grows; that of a graph is as long as it was written.
    """
    config = load_config("demo", [*SMALL, "model.position=sinusoidal"])
    model = build_model(config.model, V, V, True, 64, None).eval()
    write_graphs(model, tmp_path, 700)
    models = model, OnnxModel(tmp_path)
    src, tgt_in = torch.randint(4, V, (2, 9)), torch.randint(4, V, (2, 7))
    ours, theirs = (one(src, src != 0, tgt_in).log_softmax(-1) for one in models)
    assert ours.shape == theirs.shape and (ours - theirs).abs().max() < 2e-5
    src = torch.randint(4, V, (1, 650))
    ours, theirs = (
        one.step(torch.tensor([2]), one.start(one.encode(src, src != 0), src != 0))[0].log_softmax(-1)
        for one in models
    )
    assert (ours - theirs).abs().max() < 2e-5
