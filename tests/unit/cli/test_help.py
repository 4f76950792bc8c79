"""The options that `--help` shows, and `--set` for the others."""

import pytest

from tests.helpers.companions import needs
from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands

COMMANDS = subcommands(build_parser())


@needs("lab", "serving")
@pytest.mark.parametrize("name", ["translate", "evaluate", "serve"])
def test_the_help_shows_few_options_and_help_all_every_one(name, capsys):
    parser = COMMANDS[name]
    every = {max(a.option_strings, key=len) for a in parser._actions if a.option_strings}
    shown = [option for options in parser.shown.values() for option in options]
    few = parser.format_help()
    assert all(option in few for option in shown) and "--length-penalty" not in few
    assert len(parser.shown) > 2 and {"--set", "--help-all"} <= set(shown) <= every
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--help-all"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and all(option in out for option in every - {"--help"})


def test_the_help_of_all_groups_every_command_once():
    parser = build_parser()
    grouped = [name for names in parser.shown.values() for name in names]
    assert sorted(grouped) == sorted(subcommands(parser)) and next(iter(parser.shown)) == "start"
    assert all(f"\n  {name} " in parser.format_help() for name in grouped)


def test_a_setting_by_its_name_is_that_of_its_flag(tiny_run, cli):
    words = ["translate", tiny_run, "The dog sleeps.", "--n-best", "2"]
    by_flag = cli(*words, "--beam", "2", "--length-penalty", "0.1")
    by_name = cli(*words, "--set", "decode.beam=2", "--set", "decode.length_penalty=0.1")
    assert by_flag == by_name and by_flag[0] == 0


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("beam=2", "--set must be decode.KEY=VALUE, but is beam=2"),
        ("decode.bem=2", "`decode.bem` is not a key; did you mean `decode.beam`?"),
        ("decode.beam=x", "--beam must be"),
        ("decode.top_k=3", "--top-k must be 0 with --search beam"),
    ],
)
def test_a_wrong_setting_is_one_line(tiny_run, cli, word, message):
    status, out, err = cli("translate", tiny_run, "A dog.", "--set", word)
    assert (status, out) == (2, "") and message in err and "Traceback" not in err
