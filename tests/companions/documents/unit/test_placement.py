"""Markup is put around the words that stand for those it was around, by the alignment alone."""

import numpy as np
import pytest

from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.placement import place
from transformer_mt.companions.documents.strings.placeholders import pieces_of_string
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.alignment import AlignedSegment, sharpen
from transformer_mt.translation.result import Candidate


def candidate(source, target, links):
    """A translation whose k-th word stands for the words `links[k]` of the source."""
    src, tgt = find_words(source), find_words(target)
    weights = np.zeros((len(tgt), len(src)), np.float32)
    for t, sources in enumerate(links):
        weights[t, list(sources)] = 1 / max(1, len(sources))
    return Candidate(target, 0.0, 0.0, [], [AlignedSegment(src, tgt, weights, weights)])


def placed(html, target, links):
    pieces = parse_html(html)
    (text,) = [piece for piece in pieces if isinstance(piece, MarkedText)]
    result = place(text, candidate(text.text, target, links))
    written = "".join(piece if isinstance(piece, str) else result.text.render() for piece in pieces)
    return written, [mark.opening for mark in result.unplaced]


@pytest.mark.parametrize(
    "html, target, links, expected",
    [
        # Words change their order.
        ("I <b>see</b> you", "Dich sehe ich", [[2], [1], [0]], "Dich <b>sehe</b> ich"),
        # One word becomes two.
        ("The <i>teacher</i> sings", "Die Frau Lehrerin singt", [[0], [1], [1], [2]],
         "Die <i>Frau Lehrerin</i> singt"),
        # Markup within markup stays within it.
        ("<a href=x>old <b>trees</b></a> fall", "es fallen alte Bäume", [[2], [2], [0], [1]],
         'es fallen <a href=x>alte <b>Bäume</b></a>'),
        # Neighbours do not overlap.
        ("<b>red</b> <i>car</i>", "voiture rouge", [[1], [0]], "<i>voiture</i> <b>rouge</b>"),
        # Punctuation goes with the words where it did in the source.
        ("He says <b>no</b>!", "Er sagt nein!", [[0], [1], [2], [3]], "Er sagt <b>nein</b>!"),
        ("Say <b>“no”</b> now", "Jetzt „nein“ sagen", [[4], [1], [2], [3], [0]],
         "Jetzt <b>„nein“</b> sagen"),
        # A part of a word is the whole word.
        ("un<b>believ</b>able news", "unglaubliche Nachrichten", [[0], [1]],
         "<b>unglaubliche</b> Nachrichten"),
        # The number of a footnote follows its word.
        ("The dog<sup>3</sup> saw it.", "Es sah der Hund.", [[3], [2], [0], [1], [4]],
         "Es sah der Hund<sup>3</sup>."),
        # The number of a footnote within a word that stands within other words of a mark.
        ("The <b>new iPhone</b><sup>1</sup>'s screen", "THE IPHONE'S NEW SCREEN", [[0], [2], [1], [3]],
         "THE <b>IPHONE'S NEW</b><sup>1</sup> SCREEN"),
        # An image between words stays between their translations.
        ("one <img src=a> two", "eins zwei", [[0], [1]], 'eins <img src=a> zwei'),
        # Code is where its text is.
        ("run <code>x</code> now", "jetzt x ausführen", [[2], [1], [0]], "jetzt <code>x</code> ausführen"),
        ("使用<code>git</code>命令", "use the git command", [[0, 1], [2], [2], [3, 4]],
         "use the <code>git</code> command"),
        ("<code>x</code> or <code>x</code>", "x oder x", [[0], [1], [2]],
         "<code>x</code> oder <code>x</code>"),
        ("see <code>git</code> here", "hier git-artig", [[2], [1]], "hier <code>git</code>-artig"),
        # Code is never found within a word.
        ("code <var>e</var> here", "der Code e hier", [[], [0], [1], [2]], "der Code <var>e</var> hier"),
        # The whole text.
        ("<b>All of it.</b>", "Alles davon.", [[0, 1], [2], [3]], "<b>Alles davon.</b>"),
    ],
)  # fmt: skip
def test_markup_goes_around_the_words_it_was_around(html, target, links, expected):
    assert placed(html, target, links) == (expected, [])


def test_markup_whose_words_are_not_found_is_around_all_and_reported():
    assert placed("a <b>word</b> more", "ein mehr", [[0], [2]]) == ("<b>ein mehr</b>", ["<b>"])


def test_code_that_is_lost_is_written_where_it_was_and_replaces_nothing():
    assert placed("see <code>git</code> here", "schau hier", [[0], [2]]) == (
        "schau <code>git</code>hier",
        [""],
    )


def test_next_to_other_markup_it_is_empty_at_the_end_and_reported():
    html, unplaced = placed("a <b>word</b> <i>more</i>", "ein mehr", [[0], [2]])
    assert (html, unplaced) == ("ein <i>mehr</i><b></b>", ["<b>"])


def test_spans_across_sentences_are_placed_in_each():
    (text,) = [piece for piece in parse_html("A <b>b. C</b> d.") if isinstance(piece, MarkedText)]
    spans, eye = [(0, 1), (2, 3), (3, 4)], np.eye(3, dtype=np.float32)
    one = AlignedSegment(spans, spans, eye, eye)
    whole = Candidate("X y. Z w.", 0.0, 0.0, [], [one, one.moved(5, 5)])
    assert place(text, whole).text.render() == "X <b>y. Z</b> w."


def test_an_empty_translation_keeps_the_markup():
    assert placed("a <b>word</b>", "", []) == ("<b></b>", ["<b>"])


def test_sharpened_weights_agree_in_both_directions():
    """A source word that every target word attends to a little loses to the one that has it alone."""
    weights = np.array([[0.6, 0.4], [0.5, 0.5]], np.float32)
    assert sharpen(weights)[1].argmax() == 1
    assert sharpen(weights).sum(1) == pytest.approx([1.0, 1.0])


def test_a_line_break_stays_where_the_translation_has_no_spaces():
    (text,) = (piece for piece in pieces_of_string(r"First.\n\nSecond.") if isinstance(piece, MarkedText))
    target = "第一。第二。"
    half = len(find_words(target)) // 2
    result = place(text, candidate(text.text, target, [[0]] * half + [[2]] * half))
    assert result.text.render() == r"第一。\n\n第二。"
    assert placed("one\ntwo", target, [[0]] * half + [[1]] * half)[0] == target  # white space is no break
