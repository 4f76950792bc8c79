"""Completion in shells."""

import shutil
import subprocess

import pytest

from tests.helpers.companions import needs

pytest.importorskip("shtab")


@pytest.fixture
def script(cli, tmp_path):
    def written(shell):
        result = cli("completion", shell)
        assert result.status == 0
        (tmp_path / shell).write_text(result.out, encoding="utf-8")
        return tmp_path / shell

    return written


def completed(script, *words):
    """The words that bash offers for the last of these."""
    function = f'$(complete -p {words[0]} | sed -E "s/.*-F ([^ ]+).*/\\1/")'
    code = f"source '{script}'; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; {function}; "
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True).stdout.split()


@needs("serving")
def test_bash_completes_commands_and_options(script):
    bash = script("bash")
    assert completed(bash, "transformer-mt", "tra") == ["train", "translate", "trace"]
    assert "--unload-after" in completed(bash, "transformer-mt", "serve", "--un")
    assert completed(bash, "translate", "--glos") == ["--glossary"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_read_its_script(script, shell):
    written = script(shell)
    assert "translate" in written.read_text(encoding="utf-8")
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", written]).returncode == 0


def test_other_shells_are_refused(cli):
    result = cli("completion", "tcsh")
    assert result.status == 2 and "SHELL must be one of bash, zsh, fish, but is tcsh" in result.err
