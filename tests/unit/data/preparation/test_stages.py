"""The stages of a preparation: the same bytes whatever the blocks, the workers, and what died."""

import hashlib
import multiprocessing
import os
import shutil
import signal
import time
from functools import partialmethod
from pathlib import Path

import pytest

from tests.helpers.faults import cores, small_blocks
from transformer_mt.config.load import load_config
from transformer_mt.errors import WorkError
from transformer_mt.files import cache_root
from transformer_mt.preparation import prepare


@pytest.fixture
def config(tmp_path, write_config, monkeypatch):
    """Two corpora and plain text, with duplicates, held-out sets, and texts that are the target of a held-out
    pair, in blocks of 100 rows, keys in shares of two blocks, and one process.
    """
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    small_blocks(monkeypatch, rows=100, share=2)
    cores(monkeypatch, 1)
    pairs = [(f"the dog {i % 150} sees {i} cats", f"der Hund {i % 150} sieht {i} Katzen") for i in range(220)]
    others = [*pairs[50:120], *((f"a bird {i}", f"ein Vogel {i}") for i in range(60)), *pairs[:30]]
    files = {}
    for name, rows in (("a", pairs), ("b", others)):
        for side, column in (("en", 0), ("de", 1)):
            file = tmp_path / f"{name}.{side}"
            file.write_text("".join(row[column] + "\n" for row in rows), encoding="utf-8")
            files[f"{name}.{side}"] = str(file)
    (tmp_path / "c.de").write_text("".join(row[1] + ".\n" + row[1] + "\n" for row in pairs), encoding="utf-8")
    data = {
        "train": [
            {"source": files["a.en"], "target": files["a.de"], "name": "a"},
            {"source": files["b.en"], "target": files["b.de"], "name": "b"},
            {"text": str(tmp_path / "c.de"), "objective": "denoise", "language": "de", "name": "c"},
        ],
        "valid": {"from_train": {"share": 0.1, "max": 20}},
        "test": [{"from_train": {"share": 0.05}}],
    }
    return load_config(write_config(data=data, tokenizer={"vocab_size": 320}))


def files_of(config):
    """The digest of each file of the prepared data; they are removed."""
    folder = prepare(config).seen_file.parent
    digests = {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }
    shutil.rmtree(folder)
    return digests


def contents(data):
    pairs = [(data.train.src(i).tolist(), data.train.tgt(i).tolist()) for i in range(len(data.train))]
    corpora = [(c.name, sorted(c.counts.items()), c.source_tokens, c.target_tokens) for c in data.corpora]
    return pairs, corpora, data.held_out, data.several_sentences, data.tokenizer.fingerprint


def test_blocks_and_shares_change_nothing(config, monkeypatch):
    in_blocks = contents(prepare(config))
    shutil.rmtree(cache_root())
    small_blocks(monkeypatch, rows=10_000)
    whole = contents(prepare(config))
    assert in_blocks == whole
    counts = [dict(counts) for _, counts, _, _ in whole[1]]
    assert [c["read"] for c in counts] == [220, 160, 440]
    assert counts[1]["duplicate"] > 60 and all(c["held out"] > 5 for c in counts)
    # What is held out as a pair is not trained on as a text alone.
    tokenizer = prepare(config).tokenizer
    texts = {tokenizer.decode_tgt(tgt) for _, tgt in whole[0]}
    assert not any(tgt in texts for pairs in whole[2].values() for _, tgt in pairs)


def test_the_vocabulary_is_learnt_of_evenly_spaced_rows(config, tmp_path, monkeypatch):
    """Of a letter in the middle of a corpus, too; whatever the blocks."""
    file = tmp_path / "b.de"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines[:80], *(line.replace("Vogel", "Ŷogel") for line in lines[80:])]), "utf-8")
    small_blocks(monkeypatch, sample=150)
    in_blocks = prepare(config).tokenizer
    shutil.rmtree(cache_root())
    small_blocks(monkeypatch, rows=10_000)
    assert prepare(config).tokenizer.models == in_blocks.models
    shutil.rmtree(cache_root())
    small_blocks(monkeypatch, sample=100_000)
    assert prepare(config).tokenizer.models != in_blocks.models
    assert any("Ŷ" in in_blocks.tgt.id_to_piece(i) for i in range(in_blocks.tgt.vocab_size()))


@pytest.mark.parametrize(("count", "tenths"), [(1, (0, 1, 3, 5, 7, 9)), (2, (2, 5, 8))])
def test_killed_at_any_write_it_goes_on_where_it_was(config, monkeypatch, tmp_path, count, tenths):
    """By SIGKILL, again and again, alone or with two workers, which end with it and write the same bytes."""
    log = tmp_path / "written"
    log.touch()

    def written():
        return log.read_text().splitlines()

    def replace(path, target, replace=Path.replace, most=10_000):
        """The end of each write."""
        with log.open("a") as file:
            file.write(f"{target}\n")
        if len(set(written())) > most:
            os.kill(os.getpgrp(), signal.SIGKILL)  # the driver
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    whole = files_of(config)
    total, files = len(written()), len(set(written()))
    log.write_text("")
    cores(monkeypatch, count)
    for tenth in tenths:  # of the files, over all attempts
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", partialmethod(replace, most=files * tenth // 10))
            driver = multiprocessing.get_context("fork").Process(target=in_group, args=(prepare, config))
            driver.start()
            driver.join(60)
        assert driver.exitcode == -signal.SIGKILL
        deadline = time.monotonic() + 20
        while is_running(driver.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_running(driver.pid)
    assert files_of(config) == whole
    assert not multiprocessing.active_children()
    # What tasks had written before their last file is written again.
    assert len(written()) <= total + 6 * count * len(tenths)


def in_group(work, *arguments):
    os.setpgid(0, 0)
    work(*arguments)


def is_running(group):
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_end_of_a_worker_or_a_full_disk_is_one_line_and_costs_its_block(config, monkeypatch, said):
    """Nothing half written is taken."""
    whole = files_of(config)
    cores(monkeypatch, 2)

    def killed(path, target, replace=Path.replace):
        replace(path, target)
        if target.name == "train-00003.arrow":
            os.kill(os.getpid(), signal.SIGKILL)

    def full(path, target, replace=Path.replace):
        if path.name.endswith(".tmp") and target.name == "train-00002.arrow":
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(28, "No space left on device", str(path), None, str(target))
        return replace(path, target)

    for fault, message in (
        (killed, "worker process has ended with status -9; run the same command"),
        (full, r"could not write .*: .*No space left[^>]*; free .*it resumes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", fault)
            with pytest.raises(WorkError, match=message):
                prepare(config)
        said.clear()
        assert files_of(config) == whole
        assert not any(text.startswith("learning") for text in said)


def test_two_preparations_at_once_share_the_work(config, monkeypatch, tmp_path):
    whole = files_of(config)
    log = tmp_path / "log"

    def slow(path, target, replace=Path.replace):
        if target.name.startswith("train-") and target.suffix == ".arrow":
            with log.open("a") as file:
                file.write(f"{os.getpid()} {target.name}\n")
            time.sleep(0.2)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=prepare, args=(config,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert files_of(config) == whole
    done = [line.split() for line in log.read_text().splitlines()]
    by_process = [{number for pid, number in done if pid == str(process.pid)} for process in processes]
    assert all(by_process) and len(done) < 2 * 9
