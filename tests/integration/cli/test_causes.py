"""Messages that name the cause of what went wrong outside of the program."""

import os
import subprocess
import sys

import pytest

from tests.helpers.companions import needs


@pytest.fixture
def dangling(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    return link


@pytest.mark.parametrize("words", [["train", "LINK"], ["translate", "RUN", "-i", "LINK"],
                                   ["translate", "RUN", "A dog.", "-o", "LINK/x"]])  # fmt: skip
def test_a_link_to_nothing(tiny_run, dangling, cli, words):
    words = [{"RUN": str(tiny_run), "LINK": str(dangling)}.get(word, word) for word in words]
    if words[-1].endswith("LINK/x"):
        words[-1] = str(dangling)
        dangling.unlink()
        dangling.symlink_to(dangling.parent / "no" / "folder")
    status, _, err = cli(*words)
    assert (
        status == 2 and f"{dangling}: must be a file, but is a link to {dangling.readlink()}, which is" in err
    )


def test_a_config_in_utf_16(write_config, cli):
    path = write_config()
    path.write_bytes(path.read_text(encoding="utf-8").encode("utf-16"))
    status, _, err = cli("train", path)
    assert status == 2 and "a config must be in UTF-8, but is UTF-16; save it as UTF-8" in err


def test_a_config_whose_file_name_can_be_no_run(write_config, cli):
    path = write_config("my config (1).yaml")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("name: tiny\n", ""), encoding="utf-8")
    status, _, err = cli("train", path)
    assert status == 2 and "but is 'my config (1)'; set `name`, or rename the file" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_and_a_limit_of_the_size_of_files(tiny_run, tmp_path):
    command = [sys.executable, "-m", "transformer_mt", "translate", str(tiny_run), "A dog."]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "standard output: No space left on device; free some space, then run it again" in result.stderr
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("A dog sleeps.\n" * 2000, encoding="utf-8")
    words = f"translate {tiny_run} -i {source} -o {out} --beam 1"
    limited = f"ulimit -f 8; exec {sys.executable} -m transformer_mt {words}"
    result = subprocess.run(["bash", "-c", limited], stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert f"{out}: File too large; raise the limit on the size of files (ulimit -f)" in result.stderr


@needs("exchange")
def test_an_export_to_something_that_is_there(tiny_run, tmp_path, cli):
    (tmp_path / "there").write_text("", encoding="utf-8")
    status, _, err = cli("export", tiny_run, tmp_path / "there")
    assert (
        status == 2 and "there: must be a new folder, but a file is there; remove it or name another" in err
    )
