"""What of HTML is text, and that all else stays as it is."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import all_texts, translate_pieces
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.markup.tokens import Encoding, decode_page, tokens_of
from transformer_mt.errors import InputError


def texts(html):
    return [piece.text for piece in parse_html(html) if isinstance(piece, MarkedText)]


def unchanged(html):
    """As it is written when each text is its own translation."""
    return "".join(piece if isinstance(piece, str) else piece.render() for piece in parse_html(html))


@pytest.mark.parametrize(
    "html, expected",
    [
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
        ("a &amp; b &lt;c&gt; &eacute;&nbsp;d", ["a & b <c> é d"]),
        ("<ul><li>one<ul><li>two</ul></ul>", ["one", "two"]),
        ("<a href=x><div>block</div></a>", ["block"]),
        ("<title>T</title><option>O</option><button>B</button>", ["T", "O", "B"]),
        ("", []),
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
        "<p>run <code>a  &lt; b</code> twice</p>",
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>T</title>\n'
        "<script>if (a<b && c) {}</script>\n</head>\n<body>\n<p>x</p>\n</body>\n</html>\n",
        '<p>w <script>w.write("<html><head></head><body></body></html>")</script> x</p>',
        "<html><body><p>dog</p><!-- <!DOCTYPE html> --><p>cat</p></body></html>\n",
        "<!-- before -->\n<!DOCTYPE html>\n<!-- x --><html><body>dog</body></html>\n",
        '<script>v.innerHTML = "<video><source src=a></source></video>"</script><p>dog</p>',
        "<p>dog</p><!-- <video><source src=a></source></video> --><style>/* <wbr></wbr> */</style>",
        "<svg><path d='M0 0'></path></svg> after".replace("'", '"'),
        "<p>a <iframe><b>x</b> &amp;</iframe> c</p><xmp>&lt;<i>y</i></xmp><noembed><hr> &amp;</noembed>",
    ],
)
def test_all_that_is_not_text_stays(html):
    assert unchanged(html) == html


def test_no_entity_of_the_document_is_expanded():
    bomb = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/hostname">]><html><body>&x; text</body></html>'
    assert unchanged(bomb) == bomb


def test_characters_that_mark_positions_are_taken_from_no_document():
    """Character references once put text into attributes, with what it had of markup."""
    mark, end = "&#xfdd0;", "&#xfdd1;"
    html = f'<p title="{mark}0{end}"><a title="{mark}dog">dog</a> <code>"x</code></p><pre>{mark}0{end}</pre>'
    assert unchanged(html) == html
    raw = '<p><img alt="a dog">\ufdd00\ufdd1 runs</p>'
    assert unchanged(raw) == '<p><img alt="a dog">0 runs</p>'


@pytest.mark.parametrize(
    "html, expected",
    [
        ("<p>Dogs are <button>running</button> in it.</p>", ["Dogs are running in it."]),
        ("<div><button>Save</button> <button>Leave</button></div>", ["Save", "Leave"]),
        ("<label>Name <input></label><label>Age</label>", ["Name", "Age"]),
        ("<p>Choose <select><option>a dog<option>a cat</select> now", ["Choose now", "a dog", "a cat"]),
        ("<select><optgroup label='both'><option>a dog</select>", ["both", "a dog"]),
        ("<p>so <ruby>漢<rp>(<rt>kan<rp>)<rb>字<rt>ji</ruby> is", ["so 漢字 is"]),
        ("<input type='submit' value='Go on'><input value='mine'>", ["Go on"]),
        ("<p aria-description='a dog' aria-hidden='true'>b", ["a dog", "b"]),
        ("<select>" * 3000 + "a", ["a"]),
    ],
)
def test_phrasing_content_is_within_a_sentence(html, expected):
    """Buttons and labels with nothing around them are texts of their own."""
    pieces = [piece for piece in parse_html(html) if isinstance(piece, MarkedText)]
    assert [text.text for text in all_texts(pieces)] == expected and unchanged(html) == html


def test_many_comments_take_no_time():
    """A pattern once tried all 2^n ways to divide them."""
    html = "<!-- a -->\n" * 500 + "<p>dog</p>"
    assert texts(html) == ["dog"] and unchanged(html) == html


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("ab &;<>/'\"!-=p\n\x00\x0b\ud7ffé"), max_size=60))
def test_any_text_is_written_as_it_was(text):
    assert unchanged(text) == text


def test_depth_and_unfinished_markup_are_no_errors():
    assert texts("<div>" * 3000 + "x" + "<b>" * 3000 + "y") == ["xy"]
    for html in ("<p>a <b", "<p>a <!-- b", "<p>a <svg>b", "<script>a", "a </p", "<title>a", "<p title='a>b"):
        assert unchanged(html) == html


@pytest.mark.parametrize(
    "html, expected",
    [
        # The end of an element within a script's comment is not that of the script.
        ("<script><!-- <script>a</script> b --></script>c d", ["c d"]),
        ("<p>a <b>b<p>c</b> d", ["a b", "c d"]),
        ("<td translate=no>a<td>b", ["b"]),
        ("<div translate=no>a<p>b <b translate=yes>c</b></div>d", ["c", "d"]),
        ("<p>a<code>b<p>c", ["a", "c"]),
        ("<p>a</div> b</p>", ["a b"]),  # an end without a beginning
        ("<p>a{% if x > 1 %}b", ["ab"]),  # tags of templates stay in the text
        ("<p>one item{% if n > 1 %}s{% endif %} here", ["one items here"]),
        ("<p>one{% if u %} <b>{{ u }}</b>{% endif %}, two", ["one {{ u }}, two"]),
        ("<p>one <?php endurance(); ?> two", ["one two"]),
        ("<p><?php if ($a) { ?>one<?php } else { ?>two<?php } ?>", ["onetwo"]),
        ("<p><?php if ($a > 1) { echo '<b>'; } ?>a", ["a"]),
        ("<a href='{{ x > 1 }}'>a</a>", ["a"]),
        ("<p>a &nosuch; b &amp c &copy2 d", ["a &nosuch; b & c ©2 d"]),
        ("<plaintext>a <b>", []),
    ],
)
def test_wrong_markup_means_what_browsers_make_of_it(html, expected):
    assert texts(html) == expected
    assert unchanged(html) == html


@pytest.mark.parametrize(
    "html, expected",
    [
        ("<p>See <img alt='a dog'> here</p>", ["See here", "a dog"]),
        ("<input placeholder=Name title='Your name' value=x>", ["Name", "Your name"]),
        ('<button aria-label="Close &amp; go">x</button>', ["Close & go", "x"]),
        ('<meta name="description" content="A page">', ["A page"]),
        ('<meta name="keywords" content="a, b"><link title="News">', []),
        ("<p translate=no title='a dog'>b</p><img alt='{{ alt }}'><img alt=12>", []),
        ('<html lang="en-GB"><img alt="A dog">', ["A dog"]),
        ('<html lang="fr"><img alt="Un chien">', []),
        ("<svg><a title='t'>x</a></svg>", []),
    ],
)
def test_the_texts_of_attributes_are_translated(html, expected):
    pieces = parse_html(html, "en")
    found = [text.text for text in all_texts([piece for piece in pieces if isinstance(piece, MarkedText)])]
    assert found == expected
    assert unchanged(html) == html
    assert all(isinstance(piece, str) for piece in parse_html(html, "en", attributes=False)) or "<" in html


def test_quotes_in_a_value_are_written_safely():
    def write(html):
        pieces = parse_html(html)
        return "".join(
            piece if isinstance(piece, str) else replace(piece, text="a \"b' <c> & d").render()
            for piece in pieces
        )

    assert write('<img alt="x y">') == '<img alt="a &quot;b\' &lt;c&gt; &amp; d">'
    assert write("<img alt='x y'>") == "<img alt='a \"b&#39; &lt;c&gt; &amp; d'>"
    assert write("<img alt=dog>") == '<img alt="a &quot;b\' &lt;c&gt; &amp; d">'
    assert write("<p>x y") == "<p>a \"b' &lt;c&gt; &amp; d"


def test_a_special_character_that_stood_alone_stands_alone_only_where_it_is_safe():
    text = next(piece for piece in parse_html("a & b < c") if isinstance(piece, MarkedText))
    assert replace(text, text="A & B < C").render() == "A & B < C"
    assert replace(text, text="A &lt B <b>").render() == "A &amp;lt B &lt;b&gt;"


@pytest.mark.parametrize(
    "declaration, content, encoding, is_ascii",
    [
        ('<meta charset="iso-8859-1">', "e", "ascii", True),  # in ASCII: so are its translations
        ('<meta http-equiv="Content-Type" content="text/html; charset=latin1">', "e", "ascii", True),
        ("<meta charset=windows-1252>", "é", "utf-8", True),  # what it declares is wrong
    ],
)
def test_the_encoding_of_a_page(declaration, content, encoding, is_ascii):
    raw = f"{declaration}<p>{content}</p>".encode()
    assert decode_page(raw, "a.html")[1] == Encoding(encoding, is_ascii)


def test_a_page_is_read_in_the_encoding_that_it_declares():
    for name, codec in (("iso-8859-1", "cp1252"), ("gbk", "gb18030"), ("shift_jis", "cp932")):
        text = f'<meta charset="{name}"><p>' + {"cp1252": "é", "gb18030": "狗", "cp932": "犬"}[codec]
        assert decode_page(text.encode(codec), "a.html") == (text, Encoding(codec))
    text = "\ufeff<p>é"
    assert decode_page(text.encode("utf-16-le"), "a.html") == (text, Encoding("utf-16-le"))
    assert decode_page(text.encode(), "a.html") == (text, Encoding("utf-8"))
    with pytest.raises(InputError, match=r"a.html:2: must be UTF-8, but byte 0xe9 is not; convert the file"):
        decode_page(b"<p>\n\xe9", "a.html")
    with pytest.raises(
        InputError, match="must declare an encoding that this program knows, but declares x-none"
    ):
        decode_page(b"<meta charset=x-none>\xe9", "a.html")


def test_translations_of_such_a_page_are_ascii():
    pieces = parse_html('<meta charset="latin1"><p title="a b">c d', is_ascii=True)
    texts = [replace(piece, text="Männer") for piece in pieces if isinstance(piece, MarkedText)]
    assert [text.render() for text in texts] == ['"M&#228;nner"', "M&#228;nner"]


@pytest.mark.parametrize(
    "html, expected",
    [
        ("<p>A <code>&nbsp;</code> dog</p>", ["A dog"]),
        ("<p>A <code>x()</code><code>&#1;</code> dog</p>", ["A x() dog"]),
        ('<img alt="&nbsp"><img alt="&#xa0"><p>a', ["a"]),
        ("<p>a &#" + "9" * 5000 + "; b", ["a &#" + "9" * 5000 + "; b"]),
        ('<p>A dog <svg class="i"/> runs.</p><p>Two dogs.</p>', ["A dog runs.", "Two dogs."]),
        ("<p>Use {% to open.</p><p>Middle.</p><p>Use %} to close.</p>",
         ["Use {% to open.", "Middle.", "Use %} to close."]),
        ("<p>a — b &mdash; c, it's &#39;d&#39; “e” &ldquo;f&rdquo;", ["a — b — c, it's 'd' “e” “f”"]),
    ],
)  # fmt: skip
def test_odd_pages_are_read_and_written_as_they_are(html, expected):
    assert texts(html) == expected
    assert unchanged(html) == html


@pytest.mark.parametrize("part", ["{{", "{%", "<?x>", "<%", "<a ", "&#", '="', "<!--", "</p"])
def test_any_repetition_is_read_in_time(part):
    html = "<a " + part * (20_000 // len(part))  # its square would take minutes
    assert unchanged(html) == html


def test_an_empty_value_gets_quotes():
    (tag, text, rest) = [piece for piece in parse_html("<img alt=dog class=x>") if piece]
    assert tag + replace(text, text="").render() + rest == '<img alt="" class=x>'


def test_a_stray_end_of_a_button_divides_nothing():
    html = "<p></button>dogs are <button>running</button> in it</p>"
    assert texts(html) == ["dogs are running in it"] and unchanged(html) == html


# Random HTML through a model that writes capitals comes back as it was, but for the words.


_WORDS = (
    "a", "dog", "runs", "fast", "über", "café", "don't", "the", "cat,", "(see", "there)", "x", "half-way",
)  # fmt: skip
_OTHERS = (
    "42", "3.5 kg", "…", "&amp;", "&lt;", "&gt;", "&quot;", "&mdash;", "&#8211;", "&", "5 < 6", "a>b",
    "{name}",
    "{{ user }}", "%1$s", "https://x.example/a?b=c&d=e", "&nbsp;", "\u00a0", "&hearts;", "🌷",
)  # fmt: skip
_SPACES = (" ", " ", " ", "  ", "\n", "\r\n  ", "\t", " \u00a0", "&nbsp;", "\f")
_OBJECTS = (
    "<img src=a>", '<img src="b" alt="a dog">', "<!-- a comment -->", "<wbr>", "<?= $name ?>",
    "<% if x > 1 %>", "<input type=text placeholder='some words'>", "<svg><text>some text</text></svg>",
    "{% if a %}", "<![if !IE]>", "<script>if (a < b) { x = '</p>' }</script>", "<code>int i;</code>",
    "<kbd> Ctrl </kbd>",
    "<span translate=no>Acme Inc</span>", "<b class='notranslate'>Brand</b>", "<sup>1</sup>",
    "<picture><img alt=cat></picture>",
)  # fmt: skip
_INLINE = (
    "b", "i", "a href='{{ url }}'", "span class=x [ngClass]=c", "em", "EM", "font color=red",
    "u *ngFor='let a of b'",
)  # fmt: skip
_BLOCKS = ("p", "div", "h1", "li", "td", "section title='a title'", "P", "custom-part", "label", "blockquote")
_BETWEEN = (
    "<br>", "<hr/>", "<pre>  some\n text</pre>", "<textarea>text</textarea>", "</div>", "</p>", "<li>", "<p>",
    "<!--[if IE]><p>old</p><![endif]-->", "<style>p { color: red }</style>", "<td>", "\n\n", "<b>", "</i>",
    "<title>a &amp; title</title>", "<meta name=description content='a description &amp; more'>",
    "<noscript>text</noscript>", "<template><p>text</p></template>", "<p translate='no'>text</p>", "<", "</",
    "&", "<a", "<!",
)  # fmt: skip


def inline(draw, depth=0):
    parts = []
    for _ in range(draw.randint(1, 5)):
        kind = draw.random()
        if kind < 0.55:
            parts.append(draw.choice(_WORDS))
        elif kind < 0.7:
            parts.append(draw.choice(_OTHERS))
        elif kind < 0.8:
            parts.append(draw.choice(_OBJECTS))
        elif depth < 3:
            tag = draw.choice(_INLINE)
            parts.append(f"<{tag}>{inline(draw, depth + 1)}</{tag.split()[0]}>")
        if draw.random() < 0.85:
            parts.append(draw.choice(_SPACES))
    return "".join(parts)


def document(draw, depth=0):
    parts = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.5:
            tag = draw.choice(_BLOCKS)
            inner = document(draw, depth + 1) if depth < 3 and draw.random() < 0.3 else inline(draw)
            parts.append(f"<{tag}>{inner}" + f"</{tag.split()[0]}>" * (draw.random() < 0.9))
        elif kind < 0.8:
            parts.append(inline(draw))
        else:
            parts.append(draw.choice(_BETWEEN))
        parts.append(draw.choice(("", "\n", "\r\n", "  ")))
    return "".join(parts)


def translated(html):
    translator = upper_case_translator(split_sentences=False)
    return "".join(part.written for part in translate_pieces(translator, parse_html(html)))


def markup(html):
    """The tags and what else is not text, without the attributes that are translated."""
    found = [token.raw for token in tokens_of(html) if token.kind != "text"]
    return [re.sub(r"(alt|title|placeholder|content)=('[^']*'|\"[^\"]*\"|\w+)", r"\1", raw) for raw in found]


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_of_random_html_only_the_words_change(count):
    for seed in range(count):
        html = document(random.Random(seed))
        out = translated(html)
        assert capitals(out) == capitals(html), f"seed {seed}"
        assert markup(out) == markup(html), f"seed {seed}"
