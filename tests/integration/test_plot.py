"""Pictures through the real command line, and the numbers they show."""

import json

import numpy as np
import pytest
import torch

from tests.integration.test_cli import cli
from transformer_mt import Translator
from transformer_mt.decoding.look import look

pytest.importorskip("matplotlib")


def size(path):
    header = path.read_bytes()
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_the_weights_are_those_the_formula_gives(tiny_run):
    """By NumPy in float64, from the model's own matrices, for the decoder's attention to the source."""
    translator = Translator.load(tiny_run, device="cpu")
    seen = look(translator, "The dog sleeps.", "Der Hund schläft.")
    model = translator.engine.model
    attention = model.decoder.layers[0].src_attention
    kept = {}
    handle = attention.register_forward_hook(lambda module, inputs, output: kept.update(x=inputs[0], keys=inputs[1]))
    look(translator, "The dog sleeps.", "Der Hund schläft.")
    handle.remove()
    with torch.inference_mode():
        q = attention.query(kept["x"])[0].double().numpy().reshape(len(seen.target), 2, 16).transpose(1, 0, 2)
    k = kept["keys"][0].double().numpy()
    scores = q @ k.transpose(0, 2, 1) / 4
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(seen.weights["cross"][0].numpy(), weights, atol=1e-5)
    for kind in ("cross", "encoder", "decoder"):
        for layer in seen.weights[kind]:
            assert layer.shape[1:] == (len(seen.rows(kind)), len(seen.columns(kind)))
            torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:2]))
    assert seen.weights["decoder"][0].triu(1).abs().max() == 0


def test_attention_as_picture_and_as_numbers(tiny_run, tmp_path, capfdbinary):
    picture = tmp_path / "a.png"
    status, out, _ = cli(
        capfdbinary, "plot", "attention", tiny_run, "The dog sleeps.", "--target", "Der Hund.", "-o", picture, "--json"
    )
    facts = json.loads(out)
    assert status == 0 and facts["columns"][-1] == facts["rows"][-1] == "</s>"
    (one,) = facts["maps"]
    assert one["title"] == "cross attention, its one layer, mean of 2 heads"
    assert np.allclose(np.sum(one["weights"], axis=1), 1)
    small = size(picture)
    cli(capfdbinary, "plot", "attention", tiny_run, "The dog sleeps. " * 3, "-o", picture)
    assert size(picture)[0] > small[0]  # more tokens, more room
    for words in (
        ["--kind", "encoder"],
        ["--kind", "decoder", "--layer", "all", "--head", "all"],
        ["--layer", "1", "--head", "2"],
    ):
        assert cli(capfdbinary, "plot", "attention", tiny_run, "The dog sleeps.", "-o", picture, *words)[0] == 0


def test_characters_without_a_font_are_told_or_drawn(tiny_run, tmp_path, capfdbinary):
    status, _, err = cli(
        capfdbinary,
        "plot",
        "attention",
        tiny_run,
        "狗",
        "--target",
        "狗",
        "-o",
        tmp_path / "zh.png",
        "--kind",
        "encoder",
    )
    assert status == 0 and (err == "" or "no font here has" in err or "<0x" not in err)


def test_curves_of_several_runs(tiny_run, tmp_path, capfdbinary):
    for against in ("updates", "tokens", "minutes", "hours"):
        picture = tmp_path / f"{against}.png"
        assert cli(capfdbinary, "plot", "curves", tiny_run, tiny_run, "--against", against, "-o", picture)[0] == 0
        assert size(picture)[0] > 500


@pytest.mark.parametrize(
    "words, message",
    [
        (["attention", "RUN", "x"], "--output FILE must be given for a picture, or --json for the numbers"),
        (["attention", "RUN", "x", "-o", "a.gif"], "a.gif: a picture must end in .png, .svg or .pdf"),
        (["attention", "RUN", "x", "-o", "no/a.png"], "no: no such folder to write the picture into"),
        (["attention", "RUN", "x", "--json", "--layer", "2"], "--layer must be 1 to 1, all or mean, but is 2"),
        (["attention", "RUN", "x", "--json", "--head", "no"], "--head must be 1 to 2, all or mean, but is no"),
        (["attention", "RUN", "", "--json"], "the source must have 1 to 63 pieces, but has 0"),
        (["attention", "RUN", "dog " * 200, "--json"], "the source must have 1 to 63 pieces, but has"),
        (["attention", "RUN", "x", "--json", "--ensemble", "RUN"], "one model at a time"),
        (["curves", "no/run", "-o", "a.png"], "no/run: must be a run's folder, but holds no metrics.jsonl"),
    ],
)
def test_mistakes_get_one_line(tiny_run, tmp_path, monkeypatch, capfdbinary, words, message):
    monkeypatch.chdir(tmp_path)
    status, out, err = cli(capfdbinary, "plot", *(tiny_run if word == "RUN" else word for word in words))
    assert status == 2 and out == "" and message in err.strip().split("\n")[-1]
