"""Notes on test sets, and the error of word alignments."""

import pytest

from tests.helpers.upper_case import upper_case_translator
from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import alignment_error, notes_on_set, read_hand_links

PAIRS = list(toy.generate("test", 40))


def notes(pairs, languages=("en", "de")):
    sentences = [(src, (tgt,)) for src, tgt in pairs]
    found = notes_on_set(EvaluationSet("t", "a set", sentences), languages)
    return [line.removeprefix("note: a set: ") for line in found]


def test_a_sound_set_has_no_notes():
    assert notes(PAIRS) == []
    assert notes([(src, "label") for src, _ in PAIRS], ("en", "label")) == []  # nothing is known of labels


def test_what_is_wrong_with_a_set_is_said_in_a_line_each():
    empty = ["2 of 42 sources are empty", "1 of 42 references are empty"]
    assert notes([("", "x"), (" ", ""), *PAIRS]) == empty
    assert notes([*PAIRS, *PAIRS]) == ["40 of 80 sentences are repeated, with the same references"]
    copies = [(f"{src} x", f"{src} x") for src, _ in PAIRS[30:]]
    assert notes([*PAIRS[:30], *copies]) == ["10 of 40 references copy the source"]
    swapped = notes([(tgt, src) for src, tgt in PAIRS])
    assert len(swapped) == 2 and swapped[0].endswith("of the sources are likely not en")
    (line,) = notes([(src, "今天第一只狗在房子里睡觉。" + str(i)) for i, (src, _) in enumerate(PAIRS)])
    assert line == "100% of the references are likely not de"


def test_several_references_are_one_sentence():
    sentences = [(src, (tgt, tgt + " ja")) for src, tgt in PAIRS]
    assert list(notes_on_set(EvaluationSet("t", "a set", sentences), ("en", "de"))) == []
    sentences[0] = (PAIRS[0][0], ("", "Ja."))
    assert list(notes_on_set(EvaluationSet("t", "a set", sentences), ("en", "de"))) == []


# The alignment error rate of a model's attention.


ALIGNED = [("ab, cd ef", "AB, CD EF"), ("x y", "X Y")]


@pytest.fixture
def hand(tmp_path):
    def hand(*lines):
        (tmp_path / "links").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_hand_links(tmp_path / "links", len(ALIGNED))

    return hand


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        (("0-0 1?1 2p2", "0-0 1-1"), 0.0),  # possible links may be there
        (("0-0 1-1 2-2 0-2", "0-0 1-1"), 100 * (1 - 10 / 11)),  # one is missing
        (("0-0 1-1", "0-0 1-1"), 100 * (1 - 8 / 9)),  # one is too many
        (("0-2", "0-1"), 100.0),
    ],
)
def test_the_rate_is_that_of_the_formula(hand, lines, rate):
    """The model aligns each word to itself: five links."""
    score = alignment_error(upper_case_translator(), ALIGNED, hand(*lines))
    assert score.value == pytest.approx(rate) and "of 2 pairs" in score.signature


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("0-0", "0:0"), "each line must have links such as 0-0 1.2, but line 2 is '0:0'"),
        (("0-0",), "must have a line for each of the 2 pairs, but has 1"),
    ],
)
def test_other_files_are_refused(hand, lines, said):
    with pytest.raises(InputError, match=said):
        hand(*lines)
