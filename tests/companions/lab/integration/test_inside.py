"""Looking inside a model, against own hooks and own arithmetic."""

import contextlib
import io
import re

import pytest
import torch

from tests.conftest import ROOT
from transformer_mt import Translator
from transformer_mt.companions.lab.inside import beam_steps, gradients, look_inside
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model

PAGE = (ROOT / "docs/how_to/look_inside.md").read_text(encoding="utf-8")
SOURCE, TARGET = "The dog sleeps.", "Der Hund schläft."


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.load(tiny_run, engine="torch")


@pytest.fixture(scope="module")
def plain(tiny_run):
    """The model and the ids of the pair, as batches of one."""
    run = RunFolder(tiny_run)
    model, tokenizer = load_model(run, run.config())
    src, tgt = tokenizer.encode_src([SOURCE])[0], tokenizer.encode_tgt([TARGET])[0]
    ids = torch.tensor([[*src, EOS]]), torch.tensor([[BOS, *tgt]]), torch.tensor([[*tgt, EOS]])
    return model.eval(), *ids


def test_states_and_predictions_are_those_of_the_layers(translator, plain):
    model, src, tgt_in, tgt_out = plain
    seen = look_inside(translator, SOURCE, TARGET)
    with torch.no_grad():
        memory = [model.src_embedding(src)]
        for layer in model.encoder.layers:
            memory.append(layer(memory[-1], torch.ones(1, 1, 1, src.size(1), dtype=torch.bool)))
        log_probs = model(src, torch.ones_like(src, dtype=torch.bool), tgt_in).log_softmax(-1)[0]
    assert len(seen.hidden["encoder"]) == len(memory)
    for mine, own in zip(seen.hidden["encoder"], memory):
        torch.testing.assert_close(mine, own[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(seen.log_probs, log_probs, atol=1e-5, rtol=1e-4)
    assert [len(states) for states in seen.hidden["decoder"]] == [tgt_in.size(1)] * 2
    weights = seen.attention.weights["cross"][0]
    assert weights.shape[1:] == (len(seen.attention.target), len(seen.attention.source))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_a_trace_has_every_module_shape_and_choice(cli, tiny_run, plain):
    model, src, tgt_in, tgt_out = plain
    result = cli("trace", tiny_run, SOURCE, "--target", TARGET)
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in result.out.splitlines() if "|" in line
    ]
    traced = {row[0]: row[2:] for row in rows}
    S, T = src.size(1), tgt_in.size(1)
    D, V, H = 32, model.output.out_features, 2
    of = "decoder.layers.0"
    assert traced["src_embedding"] == [f"{S} x {D}", f"{V * D:,}"]
    assert traced[f"{of}.self_attention.key"] == [f"{T} x {D}", f"{D * D + D:,}"]
    assert traced[f"{of}.cross_attention.key"] == [f"{S} x {D}", f"{D * D + D:,}"]
    assert traced[f"{of}.cross_attention weights"] == [f"{H} x {T} x {S}", ""]
    assert traced["output"][0] == f"{T} x {V}"
    assert f"parameters: {sum(weight.numel() for weight in model.parameters()):,} " in result.out
    with torch.no_grad():
        predicted = model(src, torch.ones_like(src, dtype=torch.bool), tgt_in)[0].softmax(-1)
    for row, step, token in zip(rows[-T:], predicted, tgt_out[0]):
        assert float(row[3]) == pytest.approx(float(step[token]), abs=0.001)


def test_each_step_has_the_best_continuations_of_the_beam(translator, plain):
    model, src, *_ = plain
    steps = beam_steps(translator, SOURCE, beam=2)
    (best,) = translator.with_settings(beam=2, length_penalty=0.0).translate([SOURCE])
    ended = [one for step in steps for one in step if one[0][-1] == "</s>"]
    assert max(ended, key=lambda one: one[1])[0][:-1] == list(best.tokens)
    assert max(log_prob for _, log_prob in ended) == pytest.approx(best.log_prob, abs=1e-4)
    with torch.no_grad():
        log_probs = model(src, torch.ones_like(src, dtype=torch.bool), torch.tensor([[BOS]]))[0, 0]
        log_probs = log_probs.log_softmax(-1)
    assert steps[0][0][1] <= log_probs.max().item() + 1e-5
    for step in steps:
        assert [one[1] for one in step] == sorted((one[1] for one in step), reverse=True)
        assert 2 <= len(step) <= 4


def test_gradients_are_those_of_the_log_likelihood(tiny_run, plain):
    model, src, tgt_in, tgt_out = plain
    given = gradients(str(tiny_run), [(SOURCE, TARGET)] * 2)
    logits = model(src, torch.ones_like(src, dtype=torch.bool), tgt_in)[0]
    loss = 2 * torch.nn.functional.cross_entropy(logits, tgt_out[0], reduction="sum")
    names = dict(model.named_parameters())
    expected = torch.autograd.grad(loss, list(names.values()))
    assert given.keys() == names.keys()
    for name, gradient in zip(names, expected):
        torch.testing.assert_close(given[name], gradient, atol=1e-4, rtol=1e-3)


def test_what_cannot_be_looked_into_is_said(tiny_run, untrained_run):
    run = untrained_run(True, kind="recurrent")
    with pytest.raises(InputError, match="to look inside needs one Transformer, but the model is Recurrent"):
        look_inside(Translator.load(run, engine="torch"), "x")


def test_the_programs_of_the_page_run(tiny_run, tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(tiny_run)
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 3
    for program in programs:
        program = program.replace("[1][2]", "[0][1]").replace('["encoder"][2]', '["encoder"][1]')  # one layer
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(program, "look_inside.md", "exec"), {})
        assert out.getvalue()
