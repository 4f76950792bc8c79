import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.text.sentences import split_sentences
from transformer_mt.translation.planner import Splitter


def words(texts):
    """A count for tests: a piece a word, and one for each four letters more."""
    return [sum(1 + len(word) // 5 for word in text.split()) for text in texts]


def splitter(most, source="en", target="de", count=words):
    return Splitter(source, target, most, count)


def texts(segments):
    return [segment.text for segment in segments]


@pytest.mark.parametrize(
    "lang, text, sentences",
    [
        ("en", "The dog sleeps. A cat sings.", ["The dog sleeps. ", "A cat sings."]),
        ("en", "Mr. Smith met Dr. Hill. They ran.", ["Mr. Smith met Dr. Hill. ", "They ran."]),
        ("en", "It costs 3.50 a day. Fine.", ["It costs 3.50 a day. ", "Fine."]),
        ("en", "1. First. 2. Second.", ["1. First. ", "2. Second."]),
        ("en", "Really?  Yes ... 12.", ["Really?  ", "Yes ... 12."]),
        ("en", "...", ["..."]),
        ("en", "", []),
        ("zh_Hans", "他们跑了。她睡了！好。", ["他们跑了。", "她睡了！", "好。"]),
        ("de", "Am 3. Mai kam er z.B. her. Er ging.", ["Am 3. Mai kam er z.B. her. ", "Er ging."]),
    ],
)
def test_sentences_end_where_their_language_ends_them(lang, text, sentences):
    assert split_sentences(text, lang) == sentences


@given(st.text(alphabet="abA1 .,!?\u3002“\n\t", max_size=60), st.sampled_from(["en", "zh", "xx"]))
def test_no_character_is_lost_between_sentences(text, lang):
    sentences = split_sentences(text, lang)
    assert "".join(sentences) == text
    assert len(sentences) < 2 or all(any(map(str.isalpha, sentence)) for sentence in sentences)


def test_a_text_of_several_blocks_is_segmented_as_a_whole():
    text = "The dog sees a bird in the garden, and it sings. " * 200
    assert len(split_sentences(text, "en")) == 200
    assert len(split_sentences("word " * 5000, "en")) == 1


@pytest.mark.parametrize("unit", ["12! ", ".", "A. ", "word ", "“", "“a”. "])
def test_an_endless_line_takes_time_in_proportion(unit):
    text = unit * (200_000 // len(unit))  # an hour, if time grew with the square of the length
    parts = splitter(100, count=lambda texts: [len(each) for each in texts]).fit(text)
    assert "".join("".join(texts(parts)).split()) == "".join(text.split())


def test_no_line_end_gets_into_a_translation():
    """A lone carriage return ends a line for many readers; \\r\\n is the end of a line of a document."""
    splitter = Splitter("en", "de", 10, lambda texts: [len(text.split()) for text in texts])
    assert splitter.join(["\r", " \r\n", ""], ["A.", "B.", "C."]) == "A. B. \r\nC."


def test_text_that_fits_is_left_alone():
    assert texts(splitter(5).fit("One. Two. Three.")) == ["One. Two. Three."]


@pytest.mark.parametrize(
    "text, most, parts",
    [
        ("One dog. Two dogs! Three?", 3, ["One dog.", "Two dogs!", "Three?"]),
        ("one two, six ten, ace", 4, ["one two, six ten,", "ace"]),
        ("a b c d e f g", 3, ["a b c", "d e f", "g"]),
        ("他们跑了。她睡了！好。", 2, ["他们跑了。", "她睡了！", "好。"]),
        ("abcdefghijklmnop", 2, ["abcdefgh", "ijklmnop"]),
    ],
)
def test_long_text_is_divided_at_the_best_positions(text, most, parts):
    assert texts(splitter(most).fit(text)) == parts


def test_what_is_whole_is_divided_only_where_it_is_too_long_alone():
    text = "see now <a b, c. D> and go, one <e f g h i> two"
    whole = [(text.index("<"), text.index(">") + 1), (text.rindex("<"), text.rindex(">") + 1)]
    parts = ["see now", "<a b, c. D>", "and go,", "one", "<e f g", "h i>", "two"]
    assert texts(splitter(4).fit(text, whole)) == parts
    assert texts(splitter(4).fit(text))[:2] == ["see now <a b,", "c. D> and go,"]


def supermodular(texts):
    """A count in which a text has more pieces than its parts have: pieces that a boundary had made possible
    are gone.
    """
    return [len(text.split()) + max(0, len(text.split()) - 1) for text in texts]


@given(
    st.text(alphabet="ab .,!?\u3002\n", max_size=60),
    st.integers(1, 6),
    st.sampled_from([words, supermodular]),
)
def test_nothing_but_space_is_lost_and_every_part_fits(text, most, count):
    """Also where the pieces of two neighbours do not add up."""
    parts = texts(splitter(most, count=count).fit(text))
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(size <= most for size in count(parts))


@pytest.mark.parametrize(
    "source, target, text, translations, joined",
    [
        ("en", "de", "He ran.  She sat.\tWe left.", ["X.", "Y.", "Z."], "X.  Y.\tZ."),
        ("en", "zh", "He ran. She sat.", ["甲。", "乙。"], "甲。乙。"),
        ("zh", "en", "甲。乙。", ["A.", "B."], "A. B."),
        ("en", "th", "He ran. She sat.", ["เขาวิ่ง", "เธอนั่ง"], "เขาวิ่ง เธอนั่ง"),
        ("zh", "my", "甲。乙。", ["A", "B"], "A B"),
        ("en", "de", "He ran. She sat.", ["", "Y."], "Y."),
        ("en", "de", "He ran. She sat.", ["X.", ""], "X."),
    ],
)
def test_translations_are_joined_with_the_spacing_of_the_source(source, target, text, translations, joined):
    each = splitter(100, source, target)
    assert each.join([segment.gap for segment in each.sentences(text)], translations) == joined
