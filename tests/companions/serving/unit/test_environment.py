"""The options of `serve` as variables of the environment."""

import pytest

from transformer_mt.cli import build_parser
from transformer_mt.cli.arguments import subcommands
from transformer_mt.companions.serving.commands import words_of_environment


def parsed(words, **variables):
    parser = subcommands(build_parser())["serve"]
    variables = {f"TRANSFORMER_MT_{name}": value for name, value in variables.items()}
    return parser.parse_intermixed_args([*words_of_environment(parser, variables), *words])


def test_each_option_has_a_variable():
    found = parsed(
        [], MODELS="runs/a 'runs/b c'", PORT="8000", METRICS="true", BEHIND_PROXY="0", BEAM="2",
        CORS="https://a.org https://b.org", API_KEYS="", CACHE="/cache",
    )  # fmt: skip
    assert found.models == ["runs/a", "runs/b c"] and found.port == 8000 and vars(found)["decode.beam"] == 2
    assert found.metrics and not found.behind_proxy and found.api_keys is None
    assert found.cors == ["https://a.org", "https://b.org"]


def test_the_command_line_wins():
    found = parsed(
        ["runs/b", "--port", "1", "--cors", "*"], MODELS="runs/a", PORT="8000", CORS="https://a.org"
    )
    assert found.port == 1 and found.models == ["runs/a", "runs/b"] and found.cors == ["https://a.org", "*"]


@pytest.mark.parametrize(
    "variables, told",
    [
        ({"PORT": "high"}, "must be a whole number from 0 to 65535, but is high (TRANSFORMER_MT_PORT)"),
        ({"METRICS": "perhaps"}, "TRANSFORMER_MT_METRICS must be true or false, but is perhaps"),
        ({"MODELS": "'a"}, "TRANSFORMER_MT_MODELS must be words with closed quotations, but is 'a"),
    ],
)
def test_a_wrong_value_is_named_with_its_variable(variables, told, capsys):
    with pytest.raises(SystemExit):
        parsed([], **variables)
    assert told in capsys.readouterr().err


def test_a_variable_that_is_no_setting_is_named_but_those_of_kubernetes_are_not(capsys):
    variables = {"PORT": "tcp://10.0.0.1:80", "SERVICE_HOST": "10.0.0.1", "PORT_80_TCP": "tcp://10.0.0.1:80"}
    assert parsed([], **variables).port == 5000
    assert capsys.readouterr().err == ""
    parsed([], PROT="8000")
    told = "note: TRANSFORMER_MT_PROT is unknown; did you mean TRANSFORMER_MT_PORT?\n"
    assert capsys.readouterr().err == told
