import pytest

from transformer_mt.decoding.protect import compile_pattern, rejoin, spans, survived
from transformer_mt.errors import InputError

TAG = compile_pattern(r"</?\w+>|\{\w+\}")


def test_spans_are_the_whole_line():
    parts = spans("Hello <b>{name}</b>, come in", TAG)
    assert "".join(part.text for part in parts) == "Hello <b>{name}</b>, come in"
    assert [part.text for part in parts if part.protected] == ["<b>", "{name}", "</b>"]
    assert [part.text for part in parts if not part.protected] == ["Hello ", ", come in"]


def test_what_is_protected_must_be_there_as_often():
    assert survived("see {a} and {a}", "{a} und {a}", TAG)
    assert not survived("see {a} and {a}", "{a} und", TAG)
    assert not survived("see {a}", "{a} {b}", TAG)
    assert survived("no such thing", "nichts", TAG)


def test_spaces_around_protected_text_stay():
    parts = spans("Hello <b> big </b>world ", TAG)
    assert rejoin(parts, ["Hallo", "große", "Welt"]) == "Hallo <b> große </b>Welt "


def test_a_match_of_nothing_is_none():
    pattern = compile_pattern(r"\b\d*")
    assert [(part.text, part.protected) for part in spans("See 12 dogs", pattern)] == [
        ("See ", False),
        ("12", True),
        (" dogs", False),
    ]
    assert survived("See 12", "12 da", pattern)


@pytest.mark.parametrize(
    "pattern, message", [("(", "must be a regular expression"), ("x*", "must not match the empty text")]
)
def test_patterns_that_are_none_are_refused(pattern, message):
    with pytest.raises(InputError, match=message):
        compile_pattern(pattern)
