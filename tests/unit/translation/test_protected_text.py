import pytest

from transformer_mt.errors import InputError
from transformer_mt.translation.protected_text import ProtectedText

TAG = ProtectedText(r"</?\w+/?>|\{\w+\}")


def test_spans_are_the_whole_text():
    parts = TAG.spans("Hello <b>{name}</b>, come in")
    assert "".join(part.text for part in parts) == "Hello <b>{name}</b>, come in"
    assert [part.text for part in parts if part.protected] == ["<b>", "{name}", "</b>"]
    assert [part.text for part in parts if not part.protected] == ["Hello ", ", come in"]


@pytest.mark.parametrize(
    "source, translation, survived",
    [
        ("see {a} and {a}", "{a} und {a}", True),
        ("see {a} and {a}", "{a} und", False),
        ("see {a}", "{a} {b}", False),
        ("no such thing", "nichts", True),
        ("{a} sees {b}", "{b} von {a} gesehen", True),
        ("the <b>dog</b>", "der <b>Hund</b>", True),
        ("the <b>dog</b>", "der </b>Hund<b>", False),
        ("<b>a</b> <i>c</i>", "<i>c</i> <b>a</b>", True),
        ("<b><i>a</i></b>", "<b><i>a</b></i>", True),
        ("a <br/> c <br> d", "c <br> d <br/>", True),
        ("<b>a</b> <b>c</b>", "<b>a<b> c</b></b>", True),
    ],
)
def test_text_survives_as_often_and_in_an_order_that_means_the_same(source, translation, survived):
    assert TAG.survived(source, translation) is survived


def test_spaces_around_protected_text_stay():
    parts = TAG.spans("Hello <b> big </b>world ")
    assert TAG.rejoin(parts, ["Hallo", "große", "Welt"]) == "Hallo <b> große </b>Welt "


def test_a_match_of_nothing_is_none():
    numbers = ProtectedText(r"\b\d*")
    assert [(part.text, part.protected) for part in numbers.spans("See 12 dogs")] == [
        ("See ", False),
        ("12", True),
        (" dogs", False),
    ]
    assert numbers.survived("See 12", "12 da")
    assert numbers.is_in("See 12") and not numbers.is_in("See")


def test_a_match_over_a_boundary_is_found():
    quoted = ProtectedText(r"`[^`]*`")
    text = "Type `a. b` now."
    assert quoted.cuts(text, text.index(" b")) and not quoted.cuts(text, text.index("`"))


@pytest.mark.parametrize(
    "pattern, message", [("(", "must be a regular expression"), ("x*", "must not match the empty text")]
)
def test_patterns_that_are_none_are_refused(pattern, message):
    with pytest.raises(InputError, match=message):
        ProtectedText(pattern)
