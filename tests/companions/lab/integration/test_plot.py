"""Pictures through the real command line, and the numbers they show."""

import json
import math

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from transformer_mt import Translator
from transformer_mt.companions.lab import pictures
from transformer_mt.companions.lab.inside import look
from transformer_mt.companions.lab.pictures import heat_maps
from transformer_mt.errors import InputError

pytest.importorskip("matplotlib")


def size(path):
    header = path.read_bytes()
    assert header.startswith(b"\x89PNG")
    return int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")


def test_several_sentences_and_capitals_are_looked_at_as_they_are_translated(tiny_run):
    """In one forward pass: the translation shown is that of one segment."""
    translator = Translator.load(tiny_run, device="cpu")
    both, capitals = "The dog sleeps. A cat sings.", "THE DOG SLEEPS NOW."
    whole = translator.with_settings(split_sentences=False).translate([both])[0].tokens
    assert look(translator, both).target[:-1] == whole != translator.translate([both])[0].tokens
    plain = translator.with_settings(lowercase_capitals=False)
    assert look(translator, capitals).target[:-1] == plain.translate([capitals])[0].tokens


def test_one_head_is_looked_at_by_its_number(tiny_run, cli):
    def weights(*options):
        words = ("plot", "attention", tiny_run, "The dog sleeps.", "--json", *options)
        return [matrix["weights"] for matrix in json.loads(cli(*words).out)["maps"]]

    heads = weights("--head", "all")
    assert len(heads) == 2 and heads[0] != heads[1]
    assert [weights("--head", number) for number in ("1", "2")] == [[head] for head in heads]


def test_the_weights_are_those_the_formula_gives(tiny_run):
    """By NumPy in float64, from the model's own matrices, for the decoder's attention to the source."""
    translator = Translator.load(tiny_run, device="cpu")
    seen = look(translator, "The dog sleeps.", "Der Hund schläft.")
    model = translator.engine.model
    attention = model.decoder.layers[0].cross_attention
    kept = {}
    handle = attention.register_forward_hook(
        lambda module, inputs, output: kept.update(x=inputs[0], keys=inputs[1])
    )
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


def test_attention_as_picture_and_as_numbers(tiny_run, tmp_path, cli):
    picture = tmp_path / "a.png"
    status, out, _ = cli(
        "plot", "attention", tiny_run, "The dog sleeps.", "--target", "Der Hund.", "-o", picture, "--json"
    )
    facts = json.loads(out)
    assert status == 0 and facts["columns"][-1] == facts["rows"][-1] == "</s>"
    (one,) = facts["maps"]
    assert one["title"] == "cross attention, its one layer, mean of 2 heads"
    assert np.allclose(np.sum(one["weights"], axis=1), 1)
    small = size(picture)
    cli("plot", "attention", tiny_run, "The dog sleeps. " * 3, "-o", picture)
    assert size(picture)[0] > small[0]  # more tokens, more room


def test_wide_characters_are_drawn_with_a_font_that_has_them_or_it_is_told(tmp_path, monkeypatch):
    from matplotlib import font_manager

    weights = [("cross attention", torch.eye(2))]
    # It comes with matplotlib, and has a box with a number for every character there is.
    fonts = (font for font in font_manager.fontManager.ttflist if font.name.startswith("Last Resort"))
    if not (everything := next((font.fname for font in fonts), None)):
        pytest.skip("older versions do not bring it")
    for names, problem in (
        ([], "no font here has 狗; they are drawn as boxes, install Noto Sans CJK"),
        (["SimHei"], None),
    ):
        fonts = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
        fonts += [font_manager.FontEntry(fname=everything, name=name) for name in names]
        monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
        assert heat_maps(weights, ["狗", "</s>"], ["dog", "</s>"], tmp_path / "zh.png") == problem
        assert size(tmp_path / "zh.png")[0] > 100
    assert heat_maps(weights, ["a", "</s>"], ["dog", "</s>"], tmp_path / "en.png") is None
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts[:-1])
    problem = heat_maps(weights, ["न", "</s>"], ["dog", "</s>"], tmp_path / "hi.png")
    assert problem == "no font here has न; they are drawn as boxes"


def test_pieces_are_drawn_as_they_are(tmp_path):
    """`$` is no formula to matplotlib here."""
    assert heat_maps([("t", torch.eye(2))], ["$$", "$_$"], ["$\\frac$", "$"], tmp_path / "dollar.png") is None


def test_more_maps_than_a_picture_can_hold_are_told(tmp_path):
    with pytest.raises(
        InputError, match=r"48 maps of 250 x 250 tokens make too large a picture; choose one `layer`"
    ):
        heat_maps([("t", torch.zeros(250, 250))] * 48, ["a"] * 250, ["b"] * 250, tmp_path / "big.png")


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn in the test."""
    drawn, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *w, **k: (drawn.append(self), save(self, *w, **k))[1])
    return drawn


def test_both_losses_of_the_learning_curve_are_without_label_smoothing(tmp_path, figures, learning_curve):
    train = {"event": "train", "step": 1, "loss": 9.0, "ppl": math.exp(2.0)}
    valid = {"event": "valid", "step": 1, "loss": 3.0, "scores": [{"name": "BLEU", "value": 1.0}]}
    learning_curve([train, valid], tmp_path / "a.png")
    lines = {line.get_label(): line.get_ydata()[0] for line in figures[0].axes[0].lines}
    assert lines == pytest.approx({"training": 2.0, "validation": 3.0})


def test_a_heat_map_has_the_sentence_as_title_and_a_colour_bar(tiny_run, tmp_path, cli, figures):
    words = ["The $dog$ sleeps.", "--target", "Der Hund.", "-o", tmp_path / "a.png"]
    for kind, title in (
        ("cross", "The $dog$ sleeps.\nDer Hund."),
        ("encoder", "The $dog$ sleeps."),
        ("decoder", "Der Hund."),
    ):
        assert cli("plot", "attention", tiny_run, *words, "--kind", kind)[0] == 0
        assert figures[-1].get_suptitle() == title
        assert figures[-1].axes[-1].get_ylabel() == "attention weight"


def test_heat_maps_of_all_layers_and_heads_have_a_row_for_each_layer(tmp_path, figures):
    names = [f"cross attention, layer {layer}, head {head}" for layer in (1, 2) for head in range(6)]
    heat_maps([(name, torch.eye(2)) for name in names], ["a", "b"], ["c", "d"], tmp_path / "a.png")
    rows = [ax.get_position().y0 for ax in figures[-1].axes if ax.get_xlabel()]
    assert len(rows) == 12 and len({round(y, 3) for y in rows[:6]}) == 1 and rows[0] > rows[6]


def test_of_many_runs_the_first_and_the_best_are_coloured_and_all_are_ranked(tmp_path, figures):
    def entry(bleu):
        score = {"name": "BLEU", "value": bleu}
        return {"event": "valid", "step": 1, "tokens": 1, "seconds": 1.0, "loss": 1.0, "scores": [score]}

    runs = [(f"variant {i}", [entry(float(i)), entry(0.0)]) for i in range(10)]
    pictures.curves([*runs, *runs], "updates", tmp_path / "many.png")
    *_, rates, ranking = figures[0].axes
    best = [f"variant {i}" for i in (9, 8, 7, 6, 5)]
    coloured = [line.get_label() for line in rates.lines if line.get_color() != "0.8" and line.get_label()]
    assert {label for label in coloured if not label.startswith("_")} == {"variant 0", *best}
    assert [label.get_text() for label in ranking.get_yticklabels()][:5] == best
    assert len(ranking.get_yticklabels()) == 10


def test_runs_without_a_validation_are_not_ranked(tmp_path, figures):
    """They were the best where a lower score is better."""
    score = {"name": "WER", "value": 50.0}
    entry = {"event": "valid", "step": 1, "tokens": 1, "seconds": 1.0, "loss": 1.0, "scores": [score]}
    train = {"event": "train", "step": 1, "tokens": 1, "seconds": 1.0, "learning_rate": 0.1}
    runs = [("begun", [train]), *((f"variant {i}", [entry]) for i in range(9))]
    pictures.curves(runs, "updates", tmp_path / "many.png")
    labels = [label.get_text() for label in figures[0].axes[-1].get_yticklabels()]
    assert labels == [f"variant {i}" for i in range(9)]


def test_the_names_of_many_runs_stand_beside_the_curves(tmp_path):
    score = {"name": "BLEU", "value": 1.0}
    entry = {"event": "valid", "step": 1, "tokens": 1, "seconds": 1.0, "loss": 1.0, "scores": [score]}
    runs = [(f"a variant with a long name {i}", [entry]) for i in range(24)]
    pictures.curves(runs[:6], "updates", tmp_path / "few.png")
    pictures.curves(runs, "updates", tmp_path / "many.png")
    assert size(tmp_path / "many.png")[0] > size(tmp_path / "few.png")[0]


def test_a_target_too_long_for_the_model_is_told(untrained_run):
    translator = Translator.load(untrained_run(position="learned"), device="cpu")
    with pytest.raises(InputError, match=r"the target must have at most 63 tokens, but has \d+"):
        look(translator, "The dog sleeps.", "Der Hund schläft. " * 30)


def test_curves_bear_names_that_differ_and_leave_out_half_a_line(tiny_run, tmp_path, cli, figures):
    for variant in ("rotary", "alibi"):
        (tmp_path / variant / "seed-1").mkdir(parents=True)
        lines = (tiny_run / "metrics.jsonl").read_text(encoding="utf-8") + '{"event": "tra'
        (tmp_path / variant / "seed-1" / "metrics.jsonl").write_text(lines, encoding="utf-8")
    runs = [tmp_path / "rotary" / "seed-1", tmp_path / "alibi" / "seed-1"]
    assert cli("plot", "curves", *runs, "--against", "tokens", "-o", tmp_path / "x.png")[0] == 0
    assert cli("plot", "curves", runs[0], "--against", "minutes", "-o", tmp_path / "x.png")[0] == 0
    names = [[line.get_label() for line in figure.axes[0].lines] for figure in figures]
    assert names == [["rotary/seed-1", "alibi/seed-1"], ["seed-1"]]


def test_a_schedule_is_drawn_before_any_training(write_config, tmp_path, cli, figures):
    picture, file = tmp_path / "x.png", write_config()
    changed = ["train.learning_rate=0.5", "train.warmup=4", "train.schedule=constant"]
    assert cli("plot", "schedule", file, file, *changed, "-o", picture).status == 0 and size(picture)
    own, other = figures[0].axes[0].lines
    assert own.get_label() == "tiny: inverse_sqrt" and other.get_label().endswith("constant: constant")
    rates = dict(zip(other.get_xdata(), other.get_ydata()))
    assert rates[1] == 0.125 and rates[4] == max(rates.values()) == 0.5


def test_curves_of_a_run_that_logged_its_gradients_show_its_layers(tmp_path):
    valid = [{"event": "valid", "step": 2, "loss": 1.0, "scores": [{"name": "BLEU", "value": 1.0}]}]
    logged = {"grad_norm_by_layer": {"encoder.0": 0.1}, "change_by_layer": {"encoder.0": 0.01}}
    train = [{"event": "train", "step": step, "learning_rate": 0.1} for step in (1, 2)]
    for name, entries in (("a", train), ("b", [entry | logged for entry in train])):
        pictures.curves([("x", [*entries, *valid])], "updates", tmp_path / f"{name}.png")
    assert size(tmp_path / "b.png")[1] > 1.4 * size(tmp_path / "a.png")[1]


@pytest.mark.parametrize(
    "words, message",
    [
        (["attention", "RUN", "x"], "--output FILE must be given for a picture, or --json for the numbers"),
        (["attention", "RUN", "x", "-o", "a.gif"], "a.gif: a picture must end in .png, .svg or .pdf"),
        (["attention", "RUN", "x", "-o", "no/a.png"], "no: no such folder to write the picture into"),
        (["attention", "RUN", "x", "--json", "--layer", "2"], "--layer must be 1 to 1, all or mean, but"),
        (["attention", "RUN", "x", "--json", "--head", "no"], "--head must be 1 to 2, all or mean, but is"),
        (["attention", "RUN", "", "--json"], "the source must have 1 to 63 tokens, but has 0"),
        (["attention", "RUN", "dog " * 200, "--json"], "the source must have 1 to 63 tokens, but has"),
        (["attention", "RUN", "x", "--json", "--ensemble", "RUN"], "--engine torch and without an ensemble"),
        (["attention", "RUN", "x", "--json", "--engine", "ctranslate2"], "be plotted with --engine torch"),
        (["curves", "no/run", "-o", "a.png"], "no/run: must be a run's folder, but holds no metrics.jsonl"),
    ],
)
def test_mistakes_get_one_line(tiny_run, cli, words, message):
    status, out, err = cli("plot", *(tiny_run if word == "RUN" else word for word in words))
    assert status == 2 and out == "" and message in err.strip().split("\n")[-1]
