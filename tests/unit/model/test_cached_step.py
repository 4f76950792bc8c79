"""One token at a time, with cached keys and values, gives what all at once gives."""

import itertools

import pytest
import torch

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.model.variants.recurrent import RecurrentState

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
SCORES = ("scaled_dot", "dot", "general", "additive", "cosine", "euclidean")
ONLY_RECURRENT = (*SCORES, "concat", "location")
POSITIONS = ("sinusoidal", "learned", "relative", "rotary", "alibi", "none")


LOOKS = ({"cross": "local_m", "cross_window": 2}, {"cross": "local_p", "cross_window": 2}, {"hard": True})


def kinds():
    """Every legal combination of score, position, norm and window, of self- and of cross-attention; then what
    else the YAML can exchange.
    """
    for norm, position, score, window in itertools.product(("pre", "post"), POSITIONS, SCORES, (0, 2)):
        yield {"norm": norm, "position": position, "attention": {"score": score, "window": window}}
    for norm, position, score, look in itertools.product(("pre", "post"), POSITIONS, SCORES, (*LOOKS, {})):
        attention = {**look, "score": {"cross": score}}
        position = {"relative": {"distance": 2}} if position == "relative" else position
        yield {"norm": norm, "position": position, "attention": attention}
    yield {"attention": {"hard": True, "cross": "local_m", "cross_window": 2}}
    yield {"attention": {"score": {"encoder": "additive", "decoder": "cosine", "cross": "general"}}}
    yield {"feed_forward": "swiglu"}
    yield {"feed_forward": "gelu"}
    for norm, position in itertools.product(("pre", "post"), POSITIONS):
        yield {"norm": norm, "position": position, "num_kv_heads": 1, "qk_norm": True, "norm_kind": "rms"}
    yield {"share_layers": True, "layer_drop": 0.3}
    for norm, start in itertools.product(("pre", "post"), ("bos", "eos", "zeros")):
        yield {
            "autoregression": "ssru",
            "norm": norm,
            "decoder_start": start,
            "position": "sinusoidal_marian",
        }
    for cell, decoder, score, look in itertools.product(
        ("lstm", "gru"), ("bahdanau", "luong"), ONLY_RECURRENT, (*LOOKS, {})
    ):
        recurrent = {"cell": cell, "decoder": decoder}
        yield {"kind": "recurrent", "recurrent": recurrent, "attention": {**look, "score": score}}


def legal(changes):
    try:
        return ModelConfig.model_validate({**SIZES, **changes})
    except ValueError:
        return None


def values(config):
    """What can differ between two configs, as (key, value) pairs."""
    a, scores = config.attention, config.attention.scores()
    keys = {
        key: getattr(config, key)
        for key in (
            "norm",
            "position",
            "feed_forward",
            "kind",
            "recurrent",
            "autoregression",
            "decoder_start",
        )
    }
    keys |= {"window": a.window, "cross": a.cross, "hard": a.hard}
    keys |= {side: getattr(scores, side) for side in ("encoder", "decoder", "cross")}
    return [(key, str(value)) for key, value in keys.items()]


def pairwise(configs):
    """Configs, chosen greedily, that together have each pair of values that any of `configs` has."""
    pairs = [set(itertools.combinations(values(config), 2)) for config in configs]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(configs)), key=lambda i: len(pairs[i] & missing))
        missing -= pairs[best]
        chosen.append(configs[best])
    return chosen


ALL = [config for changes in kinds() if (config := legal(changes))]
PAIRWISE = pairwise(ALL)
# What a selection does to the state has nothing to do with the norm, and little with the score.
SOME = [
    c
    for c in PAIRWISE
    if (c.attention.scores().cross == "scaled_dot" and c.feed_forward == "relu")
    or (c.kind == "transformer" and (c.attention.hard or c.attention.cross != "global"))
]


def all_but_pairwise_are_slow(configs):
    return [c if c in PAIRWISE else pytest.param(c, marks=pytest.mark.slow) for c in configs]


def test_the_pairwise_choice_has_every_value_and_few_configs():
    assert {value for c in ALL for value in values(c)} == {value for c in PAIRWISE for value in values(c)}
    assert len(PAIRWISE) < len(ALL) / 6


def built(config):
    torch.manual_seed(0)
    model = build_model(config, 30, 30, True, max_length=20).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that biases and distances have something to say
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@pytest.fixture(params=SOME, ids=lambda config: _name(config))
def model(request):
    return built(request.param)


def _name(config):
    a = config.attention
    score = a.score if isinstance(a.score, str) else a.score.cross
    if config.kind == "recurrent":
        return f"{config.recurrent.cell}-{config.recurrent.decoder}-{score}-{a.cross}-{a.hard}"
    return f"{config.norm}-{config.position}-{score}-{a.window}-{a.cross}-{a.hard}-{config.feed_forward}"


@pytest.fixture
def batch():
    torch.manual_seed(1)
    src = torch.randint(4, 30, (3, 7))
    src[1, 4:] = 0
    # Longer than the formula is for in a search (attention.py), and past the windows of the shortest source.
    return src, src != 0, torch.randint(4, 30, (3, 10))


@pytest.mark.parametrize("config", all_but_pairwise_are_slow(ALL), ids=lambda config: _name(config))
@torch.inference_mode()
def test_cached_step_equals_full_forward(config, batch):
    src, src_mask, tgt = batch
    model = built(config)
    full = model(src, src_mask, tgt)
    state = model.start(model.encode(src, src_mask), src_mask)
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t], state)
        torch.testing.assert_close(logits, full[:, t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("config", SOME, ids=lambda config: _name(config))
@torch.inference_mode()
def test_cached_steps_in_bfloat16_are_as_near_to_float32_as_the_full_forward(config, batch):
    src, src_mask, tgt = batch
    exact = built(config)(src, src_mask, tgt)
    model = built(config).bfloat16()
    full = model(src, src_mask, tgt)
    state, steps = model.start(model.encode(src, src_mask), src_mask), []
    for t in range(tgt.size(1)):
        logits, state = model.step(tgt[:, t], state)
        steps.append(logits)
    assert steps[0].dtype == torch.bfloat16
    if not config.attention.hard:  # of two keys that are almost equally good, one gets all the weight
        error, of_full = ((found - exact).abs().mean() for found in (torch.stack(steps, 1), full))
        assert error < 1.5 * of_full + 0.002


@torch.inference_mode()
def test_select_replicates_reorders_and_drops(model, batch):
    """After each selection every row goes on exactly as its own sentence and history would,
    computed afresh.
    """
    src, src_mask, tgt = batch
    state = model.start(model.encode(src, src_mask), src_mask)
    logits, state = model.step(tgt[:, 0], state)
    state = state.select(torch.tensor([[0, 0], [1, 1], [2, 2]]))  # one row a sentence -> two
    assert state.width == 2
    if isinstance(state, RecurrentState):
        kept = state.keys, state.values
    else:
        kept = state.layers[0].self_keys, state.layers[0].src_keys
    assert all(each.size(0) == 3 for each in kept)  # once a sentence
    second = torch.tensor([5, 6, 7, 8, 9, 10])
    logits, state = model.step(second, state)
    state = state.select(torch.tensor([[1, 0], [5, 5]]))  # sentence 1 leaves; 0 swaps its rows, 2 doubles one
    third = torch.tensor([11, 12, 13, 14])
    logits, state = model.step(third, state)
    histories = [(0, [6, 11]), (0, [5, 12]), (2, [10, 13]), (2, [10, 14])]
    for row, (sentence, rest) in enumerate(histories):
        prefix = torch.tensor([[tgt[sentence, 0].item(), *rest]])
        one = slice(sentence, sentence + 1)
        expected = model(src[one], src_mask[one], prefix)[0, -1]
        torch.testing.assert_close(logits[row], expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_a_search_may_outgrow_its_room(model, batch):
    """More hypotheses and positions than there was room for at first: each row still sees its own past and no
    other.
    """
    src, src_mask, tgt = batch
    state = model.start(model.encode(src, src_mask), src_mask)
    room = 0 if isinstance(state, RecurrentState) else state.past.size(2)
    torch.manual_seed(2)
    histories = [[] for _ in range(3)]
    for t in range(12):
        tokens = torch.randint(4, 30, (len(histories),))
        histories = [[*history, token] for history, token in zip(histories, tokens.tolist())]
        logits, state = model.step(tokens, state)
        if t < 11:
            rows = torch.stack([torch.randint(0, state.width, (8,)) + b * state.width for b in range(3)])
            state = state.select(rows)
            histories = [histories[row] for row in rows.flatten().tolist()]
    assert isinstance(state, RecurrentState) or state.num_entries > room
    for row, history in enumerate(histories):
        one = slice(row // 8, row // 8 + 1)
        expected = model(src[one], src_mask[one], torch.tensor([history]))[0, -1]
        torch.testing.assert_close(logits[row], expected, atol=1e-5, rtol=1e-4)
