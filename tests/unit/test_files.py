"""Small files are written whole, whatever else happens."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from transformer_mt.files import lock_folder, write_text


def test_several_writers_of_a_file_do_not_disturb_each_other(tmp_path):
    """Two trainings that start at once keep what the hub answered in one file."""
    texts = [str(i) * 10_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            list(pool.map(lambda text: write_text(tmp_path / "a", text), texts))
            assert (tmp_path / "a").read_text() in texts
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    write_text(tmp_path / ("b" * 250), "a long name")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    write_text(tmp_path / "a", "old")

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=re.escape(str(tmp_path / "a"))):
        write_text(tmp_path / "a", "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a", "old")]


def test_a_locked_folder_loses_only_what_a_killed_training_left(tmp_path):
    left, others = tmp_path / ".0123456789abcdef.tmp", [tmp_path / ".mine.tmp", tmp_path / ".tmpAb12Cd"]
    for file in (left, *others):
        file.touch()
    with lock_folder(tmp_path):
        assert not left.exists() and all(file.exists() for file in others)
