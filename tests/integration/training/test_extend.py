"""The programs of docs/how_to/extend.md run as they stand there, on a smaller model."""

import contextlib
import io
import re

import pytest

from tests.conftest import ROOT
from transformer_mt import Translator, load_config, train
from transformer_mt.config.custom_parts import using
from transformer_mt.config.packable import why_padded
from transformer_mt.errors import InputError
from transformer_mt.files import read_objects
from transformer_mt.training.update.loss_kinds import Loss

PAGE = (ROOT / "docs/how_to/extend.md").read_text(encoding="utf-8")
*_, SCORE, LOSS, METRIC, CORPUS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SMALLER = (
    '"model.d_model=32", "model.d_ff=64", "train.max_updates=3", "train.batch_tokens=600", '
    '"tokenizer.vocab_size=450", "data.train.size=800", '
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Runs a program in an empty folder, and returns its variables and what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")

    def run(code):
        variables, out = {}, io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "extend.md", "exec"), variables)
        return variables, out.getvalue()

    return run


def test_a_model_is_trained_with_a_score_of_the_program(program, cli, tmp_path):
    assert '["model.att' in SCORE
    variables, out = program(SCORE.replace('["model.att', f"[{SMALLER}" + '"model.att'))
    assert out.count("\n") == 1
    weights = Translator.load("runs/laplace", attention_score=variables["Laplace"]).engine.model.state_dict()
    assert sum(name.endswith("score.scale") for name in weights) == 6  # encoder, decoder and cross, two each
    with pytest.raises(InputError, match="`model.attention.score: custom` must be given its class in Python"):
        Translator.load("runs/laplace", engine="torch")
    for words in (["evaluate", "runs/laplace"], ["translate", "runs/laplace", "x"]):
        status, _, err = cli(*words, cwd=tmp_path)
        assert status == 2 and "must be given its class in Python" in err


def test_a_model_is_trained_with_a_loss_of_the_program(program, cli, tmp_path):
    code = LOSS.replace('["train.loss', f'[{SMALLER}"train.log_every=1", "train.loss')
    program(code)
    plain = code.replace('0.2"', '0.0", "train.label_smoothing=0.0"').replace(
        "runs/less_confident", "runs/plain"
    )
    usual = plain.replace(', "train.loss_settings.weight=0.0"', "").replace("=custom", "=cross_entropy")
    program(plain)
    program(usual.replace("runs/plain", "runs/usual").replace(", loss=LessConfident", ""))
    losses = [
        [
            entry["loss"]
            for entry in read_objects(tmp_path / f"runs/{name}/metrics.jsonl")
            if "grad_norm" in entry
        ]
        for name in ("less_confident", "plain", "usual")
    ]
    assert losses[1] == pytest.approx(losses[2], rel=1e-3) and losses[0] != pytest.approx(losses[1], rel=1e-3)
    assert cli("translate", "runs/less_confident", "x", cwd=tmp_path)[0] == 0
    status, _, err = cli(
        "train", "runs/less_confident/config.yaml", "--out", "runs/less_confident", cwd=tmp_path
    )
    assert (
        status == 2 and "`train.loss: custom` must be given its class in Python: train(config, loss=" in err
    )


class OneSentenceInARow(Loss):
    packed = False

    def __call__(self, batch, forward):
        return forward(batch).cross_entropy(0.0)


def test_a_loss_that_cannot_be_packed_gets_padded_batches(write_config, tmp_path):
    config = load_config(write_config(), ["train.max_updates=2", "train.loss=custom"])
    folder = train(config, tmp_path / "run", loss=OneSentenceInARow)
    assert load_config(folder / "config.yaml").train.packed is False
    sections = config.model, config.train, config.data
    assert why_padded(*sections) is None
    with using(loss=OneSentenceInARow):
        assert why_padded(*sections) == "train.loss is custom, which reads one sentence in a row"
    packed = load_config(write_config(), ["train.loss=custom", "train.packed=true"])  # that of a run, say
    wrong = pytest.raises(InputError, match="train.packed must be auto or false where train.loss is custom")
    with using(loss=OneSentenceInARow), wrong:
        load_config(write_config(), ["train.loss=custom", "train.packed=true"])
    assert packed.train.packed is True


def test_a_metric_of_the_program_scores(program, tiny_run, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/demo").symlink_to(tiny_run)
    _, out = program(METRIC)
    assert re.fullmatch(r"first word \d+\.00  cased\n", out)


def test_a_corpus_of_the_program_is_a_file(program, tmp_path):
    program(CORPUS)
    assert (tmp_path / "pairs.tsv").read_text(encoding="utf-8") == "The dog sleeps.\tDer Hund schläft.\n"
