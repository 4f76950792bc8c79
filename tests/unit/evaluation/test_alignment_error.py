"""The alignment error rate of a model's attention."""

import pytest

from tests.helpers.upper_case import upper_case_translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import alignment_error, read_hand_links

PAIRS = [("ab, cd ef", "AB, CD EF"), ("x y", "X Y")]


@pytest.fixture
def hand(tmp_path):
    def hand(*lines):
        (tmp_path / "links").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return read_hand_links(tmp_path / "links", len(PAIRS))

    return hand


@pytest.mark.parametrize(
    ("lines", "rate"),
    [
        (("0-0 1-1 2-2", "0-0 1-1"), 0.0),
        (("0-0 1?1 2p2", "0-0 1-1"), 0.0),  # possible links may be there
        (("0-0 1-1 2-2 0-2", "0-0 1-1"), 100 * (1 - 10 / 11)),  # one is missing
        (("0-0 1-1", "0-0 1-1"), 100 * (1 - 8 / 9)),  # one is too many
        (("0-2", "0-1"), 100.0),
    ],
)
def test_the_rate_is_that_of_the_formula(hand, lines, rate):
    """The model aligns each word to itself: five links."""
    score = alignment_error(upper_case_translator(), PAIRS, hand(*lines))
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
