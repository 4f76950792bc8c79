"""The largest budget that fits the memory."""

import pytest
import torch

from tests.helpers.faults import budgets
from transformer_mt.config.load import load_config
from transformer_mt.run.batch_budget import largest_budget, longest_batch
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run


@pytest.mark.parametrize(
    "constant, per_token, limit", [(1e9, 1e5, 2.4e10), (1e9, 1e6, 9e9), (9e9, 1e4, 1e10)]
)
def test_it_fills_the_memory_and_never_asks_for_more(constant, per_token, limit):
    measured = []

    def measure(tokens):
        measured.append(tokens)
        return int(constant + per_token * tokens)

    tokens = largest_budget(measure, int(limit), least=1024)
    assert tokens % 512 == 0
    assert limit - 512 * per_token * 1.01 <= constant + per_token * tokens <= limit
    assert all(constant + per_token * tried <= limit for tried in measured)


def test_where_memory_does_not_grow_in_a_line_only_what_was_tried_counts():
    tried = {}

    def measure(tokens):  # from 150,000 tokens on, the device has no piece that is large enough
        tried[tokens] = 10**6 if tokens < 150_000 else 2 * 10**10
        return tried[tokens]

    tokens = largest_budget(measure, limit=10**10, least=1024)
    assert tried[tokens] == 10**6 and 130_000 < tokens < 150_000


def test_the_bounds_of_a_budget():
    assert largest_budget(lambda tokens: 10**10, limit=10**9, least=1024) == 1024  # less cannot be
    assert largest_budget(lambda tokens: tokens, limit=10**15, least=1024) == 2**19  # to learn from
    # A peak that was there before does not mislead.
    assert largest_budget(lambda tokens: int(max(3e9, 1e9 + 1e5 * tokens)), int(2.4e10), 1024) > 220_000


def test_no_more_is_tried_than_an_update_has():
    tried = []

    def measure(tokens):
        tried.append(tokens)
        return tokens

    assert largest_budget(measure, limit=10**9, least=1024, update_tokens=25_000) == 25_000
    assert max(tried) <= 25_000
    assert largest_budget(measure, limit=9_000, least=1024, update_tokens=25_000) == 8704
    assert largest_budget(measure, limit=10**9, least=1024, update_tokens=600) == 1024


def test_the_batch_tried_is_of_the_longest_sentences():
    batch = longest_batch(12, 600)
    assert tuple(batch.src.shape) == tuple(batch.tgt_in.shape) == (50, 12)
    assert batch.num_tokens == 600


def test_auto_is_found_once_and_written_down(write_config, tmp_path, monkeypatch, said):
    budgets(monkeypatch, 1536)
    config = load_config(write_config(train={"batch_tokens": "auto"}))
    opened = open_run(config, RunFolder(tmp_path / "run"))
    assert opened.config.train.batch_tokens == 1536
    assert any("train.batch_tokens: auto is 1,536 here" in text for text in said)
    assert "batch_tokens: 1536" in (tmp_path / "run" / "config.yaml").read_text(encoding="utf-8")
    opened.updater.update(opened.batches.next_update(), 0.001)
    opened.progress.step = 1
    opened.save()
    opened.close()
    budgets(monkeypatch, 2048)
    assert open_run(config, RunFolder(tmp_path / "run")).config.train.batch_tokens == 1536


def test_finding_it_changes_nothing_of_the_training(write_config, tmp_path, monkeypatch):
    budgets(monkeypatch, 600)
    given = open_run(load_config(write_config(train={"batch_tokens": 600})), RunFolder(tmp_path / "given"))
    found = open_run(load_config(write_config(train={"batch_tokens": "auto"})), RunFolder(tmp_path / "found"))
    for left, right in zip(given.model.parameters(), found.model.parameters()):
        assert torch.equal(left, right)
    assert torch.equal(given.batches.next_update()[0].src, found.batches.next_update()[0].src)
