"""What tests share: a cache of their own, tiny configs, and one tiny trained run."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

from tests.helpers.command import Result, run_command
from transformer_mt.processes import usable_cores

ROOT = Path(__file__).parent.parent
with contextlib.suppress(ImportError):  # the core is tested without its companions, too
    from transformer_mt.companions.exchange.ctranslate2_engine import has_exact_int8_products

    if not has_exact_int8_products():
        os.environ["CT2_USE_MKL"] = "1"  # int8 products of such a CPU overflow: the proof refuses tiny models
# Who runs the tests in the background has SIGINT ignored, and the processes that they start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

TINY = {
    "name": "tiny",
    "data": {
        "source_lang": "en",
        "target_lang": "de",
        "train": {"toy": "train", "size": 1500},
        "valid": {"toy": "valid", "size": 40},
        "test": [{"toy": "test", "size": 30}],
        "max_length": 64,
    },
    "tokenizer": {"vocab_size": 450},
    "model": {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
    "train": {
        "max_updates": 24,
        "batch_tokens": 600,
        # Muon's model leaves ties after so few updates, and engines break them as they like
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "warmup": 5,
        "log_every": 4,
        "validate_every": 12,
        "save_every": 6,
        "average_checkpoints": 2,
        "precision": "fp32",
        "export": False,  # tests that are about it turn it on
    },
}


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: tests also wait, for processes they start."""
    return usable_cores() + 1


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """A test leaves torch's threads as they were: with others a later one has other dropout masks, and its
    forked children may wait for ever.
    """
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if torch and torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads or fills the user's cache, nor reaches for the network."""
    os.environ["TRANSFORMER_MT_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf"))
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what a user has trained in the checkout, nor writes into it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The messages of this process so far."""
    from transformer_mt.messages import messages_to

    messages: list[str] = []
    with messages_to(messages.append):
        yield messages


@pytest.fixture(scope="session", autouse=True)
def learning_curve() -> Iterator[Callable[..., Any]]:
    """Trainings in this process draw no learning curve: that takes as long as a tiny training. The value is
    the function that draws it.
    """
    from transformer_mt.run import report

    drawing = report.learning_curve
    report.learning_curve = lambda entries, path: None
    yield drawing
    report.learning_curve = drawing


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Writes TINY, changed by `section={key: value}`, to a file and gives back its path."""

    def write(file: str = "tiny.yaml", **sections: object) -> Path:
        values: dict = {key: dict(value) if isinstance(value, dict) else value for key, value in TINY.items()}
        for section, changes in sections.items():
            values[section] = (
                {**values[section], **changes} if isinstance(changes, dict) and section in values else changes
            )
        path = tmp_path / file
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return path

    return write


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    """Runs a command: `cli("translate", run, "The dog.")` gives its status, output and messages. It runs in
    this process, which imports torch once for all tests; in one of its own where the options of
    `tests.helpers.command.run_command` are given.
    """

    def call(*words: object, **options: Any) -> Result:
        if options:
            result = run_command(*words, **options)
        else:
            from transformer_mt.cli import main

            try:
                status = main([str(word) for word in words])
            except SystemExit as stop:
                status = stop.code
            out, err = capfdbinary.readouterr()
            result = Result(status, out.decode(), err.decode())
        assert "Traceback" not in result.err
        return result

    return call


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished tiny run, trained once through the command line."""
    folder = tmp_path_factory.mktemp("tiny")
    config = folder / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY), encoding="utf-8")
    result = run_command("train", config, cwd=folder, picture=True)
    assert result.status == 0, result.err
    return folder / "runs" / "tiny"


def train_interrupted(config: Any, folder: Path, updates: int) -> None:
    """Train up to an update that fails, as a killed process ends: without saving."""
    from tests.helpers.faults import before_each_update
    from transformer_mt.training import train

    def interrupted(number: int, *_: object) -> None:
        if number > updates:
            raise ZeroDivisionError

    with before_each_update(interrupted), pytest.raises(ZeroDivisionError):
        train(config, folder)


@pytest.fixture
def untrained_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes the run of an untrained model: TINY's, of this `vocab_size` and with these keys of `model`."""

    def write(shared: bool = True, byte_fallback: bool = True, **model: object) -> Path:
        import torch
        from safetensors.torch import save_file

        from transformer_mt.config import Config
        from transformer_mt.config.load import dump_config
        from transformer_mt.corpora import toy
        from transformer_mt.data.vocabulary.tokenizer import EOS, PAD, Tokenizer
        from transformer_mt.model.build_model import build_model

        values = {
            **TINY,
            "model": {**TINY["model"], **model},
            "tokenizer": {**TINY["tokenizer"], "shared": shared, "byte_fallback": byte_fallback},
        }
        config = Config.model_validate(values)
        tokenizer = Tokenizer.train(toy.generate("train", 400), config.tokenizer)
        torch.manual_seed(0)
        sizes = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
        network = build_model(config.model, *sizes, shared, config.data.max_length)
        with torch.no_grad():
            for parameter in network.parameters():  # biases and norms, too, must have something to say
                parameter.add_(torch.randn_like(parameter) * 0.1)
            # Its translations must end: the end is about as likely as the likeliest word.
            pairs = list(toy.generate("test", 20))
            most = config.data.max_length
            sides = (tokenizer.encode_src([a for a, _ in pairs]), tokenizer.encode_tgt([b for _, b in pairs]))
            src, tgt = (
                torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[:most]) for ids in side], batch_first=True)
                for side in sides
            )
            hidden = network.eval().hidden(src, src != PAD, tgt)[tgt != PAD]
            likeliest = network.output(hidden).amax(dim=1).mean()
            mean = hidden.mean(dim=0)
            network.output.weight[EOS] = mean * likeliest / mean.dot(mean)
        folder = tmp_path / "untrained"
        folder.mkdir()
        tokenizer.save(folder)
        weights = {name: tensor.detach() for name, tensor in network.named_parameters()}
        save_file(weights, folder / "model.safetensors")
        (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
        return folder

    return write
