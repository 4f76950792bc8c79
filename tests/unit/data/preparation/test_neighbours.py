"""Next sentences of plain text: those of one document."""

import re

import numpy as np
import pytest

from tests.helpers.faults import small_blocks
from transformer_mt.config import Config
from transformer_mt.data.changes.training_rows import held_out_rows
from transformer_mt.data.vocabulary.tokenizer import EOS, PAD
from transformer_mt.preparation import prepare
from transformer_mt.settings.corpus_keys import label_piece


def documents(numbers):
    """Documents of three lines with a blank line after each; in half of them a line is dropped: one that all
    have, or one that is too long.
    """
    return "".join(
        {0: "a line that all have\n", 1: text.replace("of", "of " * 60)}.get(number % 4, text)
        if line == 1
        else text
        for number in numbers
        for line in range(3)
        for text in [f"text {number} line {line} of it\n"]
    )


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    for name, numbers in (("train", range(80)), ("valid", range(80, 160))):
        text = re.sub(r"(line 2 of it\n)", r"\1\n", documents(numbers))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    text = {"text": str(tmp_path / "train.txt"), "language": "en", "objective": "masked_lm"}
    return Config.model_validate(
        {
            "name": "bert",
            "data": {
                "language": "en",
                "train": text,
                "valid": {**text, "text": str(tmp_path / "valid.txt")},
                "masked_lm": {"next_sentence": True, "mask": 0.01},
                "max_length": 60,
            },
            "tokenizer": {"vocab_size": 60, "byte_fallback": False},
            "model": {"kind": "encoder"},
        }
    )


def taught_as_next(config, rows, tokenizer, count):
    """The (document, line) pairs of texts that are taught as neighbours."""
    sources, targets = rows.rows(0, np.arange(count))
    pairs = []
    for src, tgt in zip(sources, targets):
        if int(tgt[0]) != tokenizer.control_id(label_piece("next")):
            continue
        whole = np.where((tgt != PAD) & (np.arange(len(tgt)) > 0), tgt, src)  # what is hidden, too
        controls = {*tokenizer.control_ids.values(), *range(EOS + 1)}
        text = tokenizer.src.decode([i for i in whole.tolist() if i not in controls])
        pairs.append(re.findall(r"text (\d+) line (\d)", text))
    return [pair for pair in pairs if len(pair) == 2]


@pytest.mark.parametrize("block", [50, 100_000])
def test_a_blank_line_or_a_dropped_text_parts_what_stands_around_it(config, monkeypatch, block):
    small_blocks(monkeypatch, rows=block)
    data = prepare(config)
    (valid,) = data.valid
    rows = data.rows(config, data.mixture(config))
    held_out = held_out_rows(config, valid.pairs, "masked_lm", data.tokenizer)
    for changed, texts in ((rows, len(data.train)), (held_out, len(valid.pairs))):
        pairs = taught_as_next(config, changed, data.tokenizer, texts)
        assert len(pairs) > 8
        for (document, line), (of_next, next_line) in pairs:
            assert document == of_next and int(next_line) == int(line) + 1


def test_texts_that_are_held_out_of_training_follow_none(config):
    settings = config.model_dump()
    settings["data"]["valid"] = {"from_train": {"share": 0.3}}
    data = prepare(Config.model_validate(settings))
    (valid,) = data.valid
    assert len(valid.pairs) > 20 and not valid.pairs.is_followed(np.arange(len(valid.pairs))).any()
    assert data.train.is_followed(np.arange(len(data.train))).any()


def test_another_blank_line_is_another_training(config, tmp_path):
    before = prepare(config)
    text = (tmp_path / "train.txt").read_text(encoding="utf-8")
    (tmp_path / "train.txt").write_text(
        text.replace("line 0 of it\n", "line 0 of it\n\n", 1), encoding="utf-8"
    )
    after = prepare(config)
    assert len(after.train) == len(before.train) and after.fingerprint != before.fingerprint
