"""A training computes what an own Transformer computes: plain torch in float64, written from the paper, with
the weights of the run before each update."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.faults import before_each_update
from tests.helpers.golden_losses import FOLDER, NAMES, UPDATES, kind, losses
from transformer_mt.checkpoint import load
from transformer_mt.config import load_config
from transformer_mt.files import read_objects
from transformer_mt.preparation import prepare
from transformer_mt.training import train

HEADS, EOS, BOS, SMOOTHING, WARMUP, PEAK = 2, 3, 2, 0.1, 3, 0.01


class OwnTransformer:
    """Vaswani et al. 2017, one sentence pair at a time, in float64."""

    def __init__(self, weights, norm):
        self.w = {name: weight.double().requires_grad_() for name, weight in weights.items()}
        self.norm = norm
        self.d_model = self.w["src_embedding.tokens.weight"].size(1)

    def linear(self, x, name):
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def normed(self, x, name):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attention(self, q, kv, name, mask):
        sides = [self.linear(x, f"{name}.{part}") for x, part in ((q, "query"), (kv, "key"), (kv, "value"))]
        query, key, value = (side.view(len(side), HEADS, -1).transpose(0, 1) for side in sides)
        scores = query @ key.transpose(1, 2) / math.sqrt(query.size(-1))
        heads = scores.masked_fill(~mask, -math.inf).softmax(-1) @ value
        return self.linear(heads.transpose(0, 1).flatten(1), f"{name}.output")

    def sublayer(self, x, name, function):
        if self.norm == "pre":
            return x + function(self.normed(x, f"{name}.norm"))
        return self.normed(x + function(x), f"{name}.norm")

    def feed_forward(self, x, name):
        return self.linear(self.linear(x, f"{name}.inner").relu(), f"{name}.outer")

    def embedded(self, ids):
        position = torch.arange(len(ids), dtype=torch.float64)[:, None]
        angle = position / 10_000 ** (torch.arange(0, self.d_model, 2, dtype=torch.float64) / self.d_model)
        sinusoids = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        return self.w["src_embedding.tokens.weight"][ids] * math.sqrt(self.d_model) + sinusoids

    def ended(self, x, name):
        return self.normed(x, f"{name}.final_norm") if self.norm == "pre" else x

    def log_probs(self, src, tgt_in):
        memory, everything = self.embedded(src), torch.ones(len(src), len(src), dtype=torch.bool)
        for i in range(2):
            layer = f"encoder.layers.{i}"
            memory = self.sublayer(
                memory, f"{layer}.self_residual",
                lambda x, at=layer: self.attention(x, x, f"{at}.self_attention", everything),
            )  # fmt: skip
            memory = self.sublayer(
                memory,
                f"{layer}.ffn_residual",
                lambda x, at=layer: self.feed_forward(x, f"{at}.feed_forward"),
            )
        memory, x = self.ended(memory, "encoder"), self.embedded(tgt_in)
        causal = torch.ones(len(tgt_in), len(tgt_in), dtype=torch.bool).tril()
        across = torch.ones(len(tgt_in), len(src), dtype=torch.bool)
        for i in range(2):
            layer = f"decoder.layers.{i}"
            x = self.sublayer(
                x, f"{layer}.self_residual",
                lambda y, at=layer: self.attention(y, y, f"{at}.self_attention", causal),
            )  # fmt: skip
            x = self.sublayer(
                x, f"{layer}.cross_residual",
                lambda y, at=layer: self.attention(y, memory, f"{at}.cross_attention", across),
            )  # fmt: skip
            x = self.sublayer(
                x, f"{layer}.ffn_residual", lambda y, at=layer: self.feed_forward(y, f"{at}.feed_forward")
            )
        return (self.ended(x, "decoder") @ self.w["src_embedding.tokens.weight"].T).log_softmax(-1)


def pairs_of(batch):
    for src, mask, tgt_in, tgt_out in zip(batch.src, batch.src_mask, batch.tgt_in, batch.tgt_out):
        length = int((tgt_out != 0).sum())
        yield src[mask], tgt_in[:length], tgt_out[:length]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_losses_gradients_rates_tokens_and_the_average_are_those_of_an_own_transformer(
    norm, write_config, tmp_path
):
    model = {"num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.0, "norm": norm}
    settings = {
        "max_updates": 6, "validate_every": 3, "save_every": 3, "log_every": 1, "accumulate": 2,
        "learning_rate": PEAK, "schedule": "inverse_sqrt", "warmup": WARMUP,
        "label_smoothing": SMOOTHING, "average_checkpoints": 2,
    }  # fmt: skip
    data = {"train": {"toy": "train", "size": 200}, "valid": {"toy": "valid", "size": 20}}
    config = load_config(write_config(data=data, model=model, train=settings))
    seen = []

    def record(number, model, batches, rate):
        seen.append(
            ({name: value.clone() for name, value in model.state_dict().items()}, list(batches), rate)
        )

    with before_each_update(record):
        run = train(config, tmp_path / "run")
    entries = read_objects(run / "metrics.jsonl")
    logged = [entry for entry in entries if entry["event"] == "train"]
    tokens = 0
    for step, ((weights, batches, rate), entry) in enumerate(zip(seen, logged, strict=True), start=1):
        reference = OwnTransformer(weights, norm)
        loss, count = torch.zeros((), dtype=torch.float64), 0
        for src, tgt_in, tgt_out in (pair for batch in batches for pair in pairs_of(batch)):
            log_p = reference.log_probs(src, tgt_in)
            nll = -log_p.gather(1, tgt_out[:, None]).sum()
            loss, count = (
                loss + (1 - SMOOTHING) * nll - SMOOTHING * log_p.mean(-1).sum(),
                count + len(tgt_out),
            )
        (loss / count).backward()
        gradients = [weight.grad for weight in reference.w.values() if weight.grad is not None]
        norm_of_all = math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        tokens += count
        assert entry["loss"] == pytest.approx(loss.item() / count, rel=1e-5)
        assert entry["grad_norm"] == pytest.approx(norm_of_all, rel=1e-4)
        assert entry["tokens"] == tokens
        expected = PEAK * step / WARMUP if step < WARMUP else PEAK * math.sqrt(WARMUP / step)
        assert (entry["learning_rate"], rate) == pytest.approx((expected, expected))
    third = seen[3][0]  # the weights before the fourth update
    last = load(run / "checkpoints" / "step-00000006").tensors["model"]
    final = load_file(run / "model.safetensors")
    averaged = {name: (third[name].double() + last[name].double()) / 2 for name in final}
    losses = {"average": averaged, "valid": last}
    for name, value in final.items():  # the better of the two
        assert torch.equal(value, last[name]) or torch.allclose(value.double(), averaged[name], rtol=1e-6)
    (validation,) = prepare(config).valid
    for event, weights in losses.items():
        reference, nll, count = OwnTransformer(weights, norm), 0.0, 0
        for row in range(len(validation.pairs)):
            src, tgt = (torch.tensor([*of(row), EOS]) for of in (validation.pairs.src, validation.pairs.tgt))
            log_p = reference.log_probs(src, torch.cat([torch.tensor([BOS]), tgt[:-1]]))
            nll, count = nll - float(log_p.gather(1, tgt[:, None]).sum()), count + len(tgt)
        (*_, entry) = (entry for entry in entries if entry["event"] == event)
        assert entry["loss"] == pytest.approx(nll / count, rel=1e-5)


# The first updates of tiny trainings have the losses they had: a change of the arithmetic is seen.


# Products are summed in another order by other CPUs: AVX2 and AVX-512 of one differ by 5e-5.
TOLERANCE = 2e-4


@pytest.mark.parametrize("name", NAMES)
def test_the_first_losses_are_those_of_before(name, tmp_path):
    file = FOLDER / f"{kind()}.json"
    if not file.exists():
        pytest.skip(f"no {file}: `python -m tests.helpers.golden_losses` writes it")
    expected = json.loads(file.read_text(encoding="utf-8"))[name]
    assert len(expected) == UPDATES
    assert losses(name, tmp_path / "run") == pytest.approx(expected, rel=TOLERANCE), f"compared with {file}"
