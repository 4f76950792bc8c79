"""What of HTML is text, and that all else stays as it is."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html as lxml_html

from transformer_mt.documents.html import parse_html
from transformer_mt.documents.marked_text import MarkedText
from transformer_mt.errors import InputError


def texts(html):
    return [piece.text for piece in parse_html(html) if isinstance(piece, MarkedText)]


def unchanged(html):
    """As it is written when each text is its own translation."""
    return "".join(piece if isinstance(piece, str) else piece.render() for piece in parse_html(html))


@pytest.mark.parametrize(
    "html, expected",
    [
        ("just text", ["just text"]),
        ("<p>One <b>two</b> three.</p><p>Four.</p>", ["One two three.", "Four."]),
        ("<h1>A</h1>loose<div>b</div>tail", ["A", "loose", "b", "tail"]),
        ("line one<br>line two", ["line one", "line two"]),
        ("<p>white\n   space</p>", ["white space"]),
        ("<td>12.5</td><td>EUR</td><p>!?</p>", ["EUR"]),
        ("<pre>int x;</pre><script>var a</script><style>p {}</style>words", ["words"]),
        ('<p translate="no">Brand</p><p class="a notranslate">Name</p><p>text</p>', ["text"]),
        ("<p>call <code>f(x)</code> now</p>", ["call f(x) now"]),
        ("<p><code>f(x)</code></p>", []),
        ("<p>see note<sup>12</sup>, the 1<sup>st</sup></p>", ["see note, the 1st"]),
        ("a &amp; b &lt;c&gt; &eacute;&nbsp;d", ["a & b <c> é\u00a0d"]),
        ("<ul><li>one<ul><li>two</ul></ul>", ["one", "two"]),
        ("<a href=x><div>block</div></a>", ["block"]),
        ("<title>T</title><option>O</option><button>B</button>", ["T", "O", "B"]),
        ("", []),
        ("   ", []),
        ("<p>a</div>b</p></body> c", ["ab", "c"]),
        ("a</html> b <p>c", ["a", "b", "c"]),
        ("<p>dog<wbr>cat sleeps</p><embed src=a> cat", ["dogcat sleeps", "cat"]),
        # Code is apart from the words around it, so that it can be found again.
        ("<p>The pre<code>dog</code>s<code> x </code>y.</p>", ["The pre dog s x y."]),
        ("<p>使用<code>git</code>命令</p>", ["使用git命令"]),
        ("\ufeff<!-- a --><!doctype html><p>x", ["x"]),
    ],
)
def test_texts_are_what_a_reader_sees_as_one(html, expected):
    assert texts(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        '<p class="x">One <b>two</b> <img src="a.png" alt="A"> three.</p>\n<hr>\n<p>4 &amp; &lt;5&gt;.</p>',
        "<!-- note --><p>a<!-- b --> c</p>",
        "plain &amp; simple",
        '<p>  <a href="https://x.org/?a=1&amp;b=2#c">link</a>  </p>',
        "<p>run <code>a  &lt; b</code> twice</p>",
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>T</title>\n'
        "<script>if (a<b && c) {}</script>\n</head>\n<body>\n<p>x</p>\n</body>\n</html>\n",
        "<p>a&nbsp;b</p>",
        '<p>w <script>w.write("<html><head></head><body></body></html>")</script> x</p>',
        "<html><body><p>dog</p><!-- <!DOCTYPE html> --><p>cat</p></body></html>\n",
        "<!-- before -->\n<!DOCTYPE html>\n<!-- x --><html><body>dog</body></html>\n",
        '<picture><source srcset="a"><img src="b"></picture> dog',
        "dog<wbr>cat",
        '<script>v.innerHTML = "<video><source src=a></source></video>"</script><p>dog</p>',
        "<p>dog</p><!-- <video><source src=a></source></video> --><style>/* <wbr></wbr> */</style>",
        "<svg><path d='M0 0'></path></svg> after".replace("'", '"'),
        "<p>a <iframe><b>x</b> &amp;</iframe> c</p><xmp>&lt;<i>y</i></xmp><noembed><hr> &amp;</noembed>",
    ],
)
def test_all_that_is_not_text_stays(html):
    assert unchanged(html) == html


def test_a_page_keeps_its_declaration_and_gets_no_other():
    assert not unchanged("<html><body>x</body></html>").startswith("<!")
    assert unchanged("<!doctype html><p>x").startswith("<!doctype html><html>")


def test_no_entity_of_the_document_is_expanded():
    bomb = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/hostname">]><html><body>&x; text</body></html>'
    assert "&amp;x;" in unchanged(bomb)


def test_characters_that_mark_positions_are_taken_from_no_document():
    """Character references once put text into attributes, with what it had of markup."""
    mark, end = "&#xfdd0;", "&#xfdd1;"
    html = f'<p title="{mark}0{end}"><a title="{mark}">dog</a> <code>"x</code></p><pre>{mark}0{end}</pre>'
    assert unchanged(html) == '<p title="0"><a title="">dog</a> <code>"x</code></p><pre>0</pre>'


def test_many_comments_take_no_time():
    """A pattern once tried all 2^n ways to divide them."""
    html = "<!-- a -->\n" * 500 + "<p>dog</p>"
    assert texts(html) == ["dog"] and unchanged(html) == html


_TAG = re.compile(r"<[^>]*>")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab &;<>/'\"!-=p\n\x00\x0b\ud7ff\ufdd0é"), max_size=60))
def test_any_text_can_be_parsed_and_written(text):
    """Never an error; what is written parses to the same texts."""
    written = unchanged(text)
    assert texts(written) == texts(unchanged(written))


@settings(max_examples=200, deadline=None)
@given(st.recursive(
    st.sampled_from(["word ", "two words", " &amp; ", "1", "<img src=a>", "<code>x</code>", "<!-- c -->"]),
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{''.join(parts)}</{tag}>",
        st.sampled_from(["b", "i", "a", "div", "p", "section", "span"]), st.lists(inner, max_size=4),
    ),
    max_leaves=12,
))  # fmt: skip
def test_elements_and_words_stay_in_their_order(html):
    before = lxml_html.document_fromstring(f"<html><body>{html}</body></html>")
    after = lxml_html.document_fromstring(f"<html><body>{unchanged(html)}</body></html>")
    assert [e.tag for e in before.iter()] == [e.tag for e in after.iter()]
    # A space is put between a word and code.
    assert "".join("".join(before.itertext()).split()) == "".join("".join(after.itertext()).split())


def test_what_is_nested_too_deeply_is_refused():
    """The parser leaves out what is deeper: text would be lost."""
    assert texts("<div>" * 250 + "x") == ["x"]
    with pytest.raises(
        InputError, match="a.html: must be HTML with elements at most 256 deep, but has deeper"
    ):
        parse_html("<div>" * 3000 + "x", "a.html")


def test_a_form_feed_is_a_space_and_joins_no_words():
    assert unchanged("<p>one\ftwo\vthree</p>") == "<p>one two three</p>"
