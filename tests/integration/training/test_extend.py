"""A program's own parts: the example of docs/how_to/extend.md, and what a run keeps of them."""

import contextlib
import io
import re

import pytest

from tests.conftest import ROOT
from transformer_mt import Translator, load_config, register, train
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import MeanMetric
from transformer_mt.parts import unregister
from transformer_mt.update.loss import Loss

PAGE = (ROOT / "docs/how_to/extend.md").read_text(encoding="utf-8")
PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
SMALLER = (
    '"model.d_model=32", "model.d_ff=64", "train.max_updates=3", "train.batch_tokens=600", '
    '"tokenizer.vocab_size=450", "data.train.size=800", "data.valid.size=20", "train.export=false", '
)


@pytest.fixture
def registered():
    """Registers parts for one test."""
    names = []

    def add(kind, name, part):
        register(kind, name, part)
        names.append((kind, name))

    yield add
    for kind, name in names:
        unregister(kind, name)


@pytest.fixture
def laplace(tmp_path, monkeypatch):
    """The example as it stands on the page, with a smaller model: its class."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    variables, out = {}, io.StringIO()
    assert '["model.att' in PROGRAM
    program = PROGRAM.replace('["model.att', f'[{SMALLER}"model.att')
    with contextlib.redirect_stdout(out):
        exec(compile(program, "extend.md", "exec"), variables)
    assert out.getvalue().count("\n") == 1
    yield variables["Laplace"]
    with contextlib.suppress(KeyError):
        unregister("attention_score", "laplace")


def test_a_model_is_trained_with_a_score_of_the_program(laplace, cli):
    weights = Translator.load("runs/laplace").engine.model.state_dict()
    assert sum(name.endswith("score.scale") for name in weights) == 6  # encoder, decoder and cross, two each
    unregister("attention_score", "laplace")
    for words in (["evaluate", "runs/laplace"], ["translate", "runs/laplace", "x"]):
        status, _, err = cli(*words)
        assert status == 2 and "needs the attention score laplace, which is not here: " in err
        assert err.rstrip().endswith(".Laplace")
    with pytest.raises(InputError, match="needs the attention score laplace, which is not here"):
        Translator.load("runs/laplace")


class OneSentenceInARow(Loss):
    packed = False

    def __call__(self, batch, forward):
        return forward(batch).cross_entropy(0.0)


def test_a_loss_that_cannot_be_packed_gets_padded_batches(write_config, tmp_path, registered, cli):
    registered("loss", "padded", OneSentenceInARow)
    config = load_config(write_config(), ["train.max_updates=2", "train.loss=padded"])
    folder = train(config, tmp_path / "run")
    assert load_config(folder / "config.yaml").train.packed is False
    reason = "train.loss is padded, which reads one sentence in a row"
    assert config.why_padded() == reason
    with pytest.raises(InputError, match=f"train.packed must be auto or false where {reason}"):
        load_config(write_config(), ["train.loss=padded", "train.packed=true"])
    unregister("loss", "padded")
    assert cli("translate", folder, "x")[0] == 0  # it only trained the model
    status, _, err = cli("train", folder / "config.yaml", "--out", folder)
    assert status == 2 and "`train.loss` needs the loss padded, which is not here: " in err
    register("loss", "padded", OneSentenceInARow)


class Length(MeanMetric):
    name = "length"

    def __init__(self, evaluate_config, target_lang):
        pass

    def statistics(self, sources, translations, references):
        return [(float(len(translation)), 1.0) for translation in translations]

    def signature(self, references):
        return "letters"


def test_a_metric_of_the_program_chooses_the_best_checkpoint(write_config, tmp_path, registered):
    registered("metric", "length", Length)
    words = ["train.monitor=length", "train.max_updates=6", "train.validate_every=6"]
    folder = train(load_config(write_config(), words), tmp_path / "run")
    assert "length" in (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "part, message",
    [
        (("los", "mine", Length), "but is 'los'; did you mean loss?"),
        (("metric", "BLEU", Length), "there is a metric BLEU already; register yours under another name"),
        (("loss", "simcut", Length), "there is a loss simcut already"),
        (("loss", "mine", 5), "the loss mine must be a class, but is 5"),
    ],
)
def test_what_cannot_be_registered_is_said(part, message):
    with pytest.raises(InputError, match=re.escape(message)):
        register(*part)


def test_a_name_may_be_registered_again_as_in_a_notebook(registered, write_config):
    registered("loss", "mine", Length)
    register("loss", "mine", OneSentenceInARow)
    assert load_config(write_config(), ["train.loss=mine"]).train.loss == "mine"
