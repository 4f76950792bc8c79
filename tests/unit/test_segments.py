import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.decoding.segments import joiner, split_text


def words(texts):
    """A count for tests: a piece a word, and one for each four letters more."""
    return [sum(1 + len(word) // 5 for word in text.split()) for text in texts]


def test_text_that_fits_is_left_alone():
    assert split_text("One. Two. Three.", 5, words) == ["One. Two. Three."]


@pytest.mark.parametrize(
    "text, most, parts",
    [
        ("One dog. Two dogs! Three?", 3, ["One dog.", "Two dogs!", "Three?"]),
        ('He said "no." She went on.', 4, ['He said "no."', "She went on."]),
        ("Dr. Who met Mr. J. Bond. They ran.", 7, ["Dr. Who met Mr. J. Bond.", "They ran."]),
        ("It costs 3.50 a day. Fine.", 6, ["It costs 3.50 a day.", "Fine."]),
        ("one two, six ten, ace", 4, ["one two, six ten,", "ace"]),
        ("a b c d e f g", 3, ["a b c", "d e f", "g"]),
        ("他们跑了。她睡了！好。", 2, ["他们跑了。", "她睡了！", "好。"]),
        ("abcdefghijklmnop", 2, ["abcdefgh", "ijklmnop"]),
    ],
)
def test_long_text_is_parted_at_the_best_places(text, most, parts):
    assert split_text(text, most, words) == parts


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab .,!?\u3002\n", max_size=60), st.integers(1, 6))
def test_nothing_but_space_is_lost_and_every_part_fits(text, most):
    parts = split_text(text, most, words)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(count <= most for count in words(parts))
    assert words([text])[0] <= most or all(part == part.strip() != "" for part in parts)


@pytest.mark.parametrize("unit", [".", "A. ", "?!", "x", "word "])
def test_an_endless_line_takes_time_in_proportion(unit):
    text = unit * (400_000 // len(unit))  # hours, if time grew with the square of the length
    parts = split_text(text, 100, lambda texts: [len(each) for each in texts])
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_sentences_are_joined_as_their_language_does():
    assert joiner("de") == " " and joiner("zh") == "" and joiner("zh_Hans") == "" and joiner("ja-JP") == ""
