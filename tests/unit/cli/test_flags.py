"""Flags are the keys of a section; errors name the flag where there is one."""

import argparse
from typing import Annotated, Literal

import pytest
from pydantic import Field

from transformer_mt.cli.arguments import Parser, add_flags, check_searches, given, name_by_flags
from transformer_mt.errors import InputError, Setting
from transformer_mt.settings.section import OnlyForSearches, Section


class Example(Section):
    """A section with a key of each kind."""

    search: Literal["beam", "sample"] = "beam"
    """How."""
    width_of_beam: Annotated[int, OnlyForSearches(("beam",))] = Field(5, gt=0)
    """Hypotheses, 100% of them."""
    rate: float | None = None
    """A number."""
    names: list[str] = Field([])
    """Names."""
    split: Literal["auto"] | bool = "auto"
    """Or not."""


def parse(*words):
    parser = Parser(prog="x")
    add_flags(parser.add_argument_group("g"), Example, "example.")
    return parser, parser.parse_args(words)


def test_each_key_of_a_section_is_a_flag_with_its_values_and_meaning():
    parser, _ = parse()
    shown = parser.format_help()
    for text in (
        "--search beam|sample", "--width-of-beam N", "Hypotheses, 100% of them", "--rate X", "--names WORD",
        "--split auto|true|false",
    ):  # fmt: skip
        assert text in shown


def test_a_flag_has_the_value_that_yaml_reads():
    _, arguments = parse("--width-of-beam", "7", "--rate", "1e-1", "--names", "no", "--names", "7")
    _, other = parse("--split", "false", "--search", "sample", "--rate", "[")
    found = given(arguments, "example.")
    assert found == {"width_of_beam": 7, "rate": 0.1, "names": ["no", "7"]}
    assert given(other, "example.") == {"split": False, "search": "sample", "rate": "["}


def test_a_setting_without_effect_on_the_search_is_refused():
    parser, _ = parse()
    check_searches(Example, "example.", {"width_of_beam": 3, "rate": 1}, "beam")
    with pytest.raises(InputError) as error:
        check_searches(Example, "example.", {"width_of_beam": 3}, "sample")
    assert error.value.text(name_by_flags(parser)) == (
        "--width-of-beam requires --search beam, but the search is sample"
    )


def test_an_error_names_the_flag_of_a_setting_and_else_its_key():
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", "--out")
    parser.add_argument("--fresh", action="store_true")
    error = InputError(
        "give ", Setting("out"), ", ", Setting("fresh", True), ", ", Setting("decode.beam", 3),
        " or ", Setting("x"),
    )  # fmt: skip
    assert str(error) == "give `out`, `fresh=True`, `decode.beam=3` or `x`"
    assert error.text(name_by_flags(parser)) == "give --out, --fresh, `decode.beam=3` or `x`"
