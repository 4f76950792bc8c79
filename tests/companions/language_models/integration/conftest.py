"""Small encoders and decoders alone, trained once through the real command line."""

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.command import run_command

BERT = {"kind": "encoder", "norm": "post", "position": "learned", "embedding_norm": True}
GPT = {"kind": "decoder", "norm": "pre", "position": "learned", "feed_forward": "gelu"}


def train_on_text(folder, name, objective, model, languages=("en", "en"), **train):
    text = {"language": languages[0], "objective": objective}
    values = {
        **TINY,
        "name": name,
        "data": {
            "source_lang": "en",
            "target_lang": "de",
            "train": {"toy": "train", "size": 1500, **text},
            "valid": {"toy": "valid", "size": 40, **text},
            "test": [{"toy": "test", "size": 30, **text}],
            "max_length": 64,
        },
        "model": {**TINY["model"], **model},
        "train": {**TINY["train"], "max_updates": 120, "validate_every": 60, "save_every": 60, **train},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = run_command("train", f"{name}.yaml", cwd=folder)
    assert result.status == 0, result.err
    return folder / "runs" / name, result.err


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("halves")


@pytest.fixture(scope="package")
def bert(folder):
    run, said = train_on_text(folder, "bert", "masked_lm", BERT)
    assert 'try: transformer-mt fill runs/bert "... [MASK] ..."\n' in said
    return run


@pytest.fixture(scope="package")
def gpt(folder):
    run, said = train_on_text(folder, "gpt", "causal_lm", GPT, ("de", "de"))
    assert 'try: transformer-mt complete runs/gpt "..."\n' in said
    return run
