"""The law of words: each word of a document that a reader sees is translated, or what keeps it is counted.

Documents are made of places where the format's standard, or a generator of sites, has text. A place has a
word of its own; the law says what becomes of it, whatever stands around it.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.companions.documents.unit.office_files import zipped
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.read import read_document

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
CHOICES = "choices of drop-down lists"
ENTRIES = "entries of indexes"
NUMBERS = "texts of number formats"
ORDERS = "orders to generators of sites"
READING = "readings of words (ruby)"
FIELD = "texts of fields"
TAKEN_OUT = "texts that a tracked change takes out"
BOUND = "content controls that Word fills from other data"
NOTE = "<text:note><text:note-body>{}</text:note-body></text:note>"
RUN = "<w:r><w:t>{0}</w:t></w:r>"
B = "<w:r><w:t>b</w:t></w:r>"
BEGIN, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
INSTR = "<w:r><w:instrText>{}</w:instrText></w:r>"
DATA = "<w:sdtPr><w:dataBinding/></w:sdtPr>"
BASE, READ = ("<text:ruby-base>{}</text:ruby-base>", "<text:ruby-text>{}</text:ruby-text>")

# Each place, and the kind that counts its word; None for a word that is translated.
MARKDOWN = {
    "{0} here\n": None,
    "# {0} here\n": None,
    "- {0} here\n- other\n": None,
    "> {0} here\n": None,
    "| {0} | b |\n|---|---|\n| c | d |\n": None,
    "| a | b |\n|---|---|\n| x \\| {0} | d |\n": None,
    "See [{0}](https://a.b) now.\n": None,
    "![{0}](a.png) now\n": None,
    '!!! note "{0} title"\n\n    text\n': None,
    '!!! note "title"\n\n    text\n\n    {0} more\n': None,
    '??? tip "title"\n    {0} text\n': None,
    '=== "{0} tab"\n\n    text\n': None,
    '===+ "tab"\n\n    {0} text\n': None,
    "term\n: {0} definition\n": None,
    "{0} term\n:   definition\n": None,
    "::: tip {0} title\ntext\n:::\n": None,
    ":::note[{0} title]\n\ntext\n\n:::\n": None,
    "::: warning\n{0} text\n:::\n": None,
    "A ~~{0}~~ text.\n": None,
    "text[^1]\n\n[^1]: {0} note\n": None,
    "text[^1]\n\n[^1]: note\n\n    {0} more of it\n": None,
    "> [!NOTE]\n> {0} text\n": None,
    "> [!tip]- {0} title\n> text\n": None,
    "*[HTML]: {0} expansion\n": None,
    "```{{note}} {0} title\n:class: a\ntext\n```\n": None,
    "````{{tip}}\n```{{note}}\n{0} text\n```\n````\n": None,
    "{{{{< note >}}}}\n{0} text\n{{{{< /note >}}}}\n": None,
    "{{{{% tab name=\"a\" %}}}}{0} text{{{{% /tab %}}}}\n": None,
    "{{% raw %}}\n{0} text\n{{% endraw %}}\n": None,
    "{{{{< figure src=\"a.png\" title=\"{0} picture\" >}}}}\n": ORDERS,
    "{{% include a.html content=\"{0} text\" %}}\n": ORDERS,
    "<TabItem value=\"a\" label=\"{0} tab\">\n\ntext\n\n</TabItem>\n": "blocks of HTML",
    "<div>\n{0} text\n</div>\n": "blocks of HTML",
}  # fmt: skip
HTML = {
    "<p>{0} here</p>": None,
    "<p>a <b>{0}</b> word</p>": None,
    "<p>a <del>{0}</del> word</p>": None,
    "<p>a <s>{0}</s><ins>new</ins> word</p>": None,
    "<ul><li>{0} here</ul>": None,
    "<table><tr><td>{0}<td>b</table>": None,
    '<img alt="{0} here">': None,
    '<p>an <img alt="{0} here"> image</p>': None,
    "<select><option>{0} here</select>": None,
    "<dl><dt>{0} term<dd>b</dl>": None,
    "<button>{0} here</button>": None,
    "<details><summary>{0} here</summary>b</details>": None,
    "<p><ruby>{0}<rt>1</rt></ruby> here</p>": None,
    "<p><ruby>b<rt>{0}</rt></ruby> here</p>": READING,
    "<p>a <svg><style>a{{}}</style><text>{0}</text></svg></p>": "pictures with texts (SVG)",
}  # fmt: skip
WORD = {
    f"<w:p>{RUN}</w:p>": None,
    f"<w:p>{RUN}<w:r><w:tab/></w:r><w:r><w:t>b</w:t></w:r></w:p>": None,
    f"<w:p><w:r><w:t>a</w:t><w:tab/></w:r>{RUN}</w:p>": None,
    f'<w:p><w:hyperlink w:anchor="a">{RUN}<w:r><w:tab/></w:r></w:hyperlink></w:p>': None,
    f"<w:p><w:ins>{RUN}</w:ins></w:p>": None,
    f"<w:sdt><w:sdtContent><w:p>{RUN}</w:p></w:sdtContent></w:sdt>": None,
    f"<w:tbl><w:tr><w:tc><w:p>{RUN}</w:p></w:tc></w:tr></w:tbl>": None,
    '<w:p><w:r><w:drawing><wp:docPr xmlns:wp="P" descr="{0} picture"/></w:drawing></w:r></w:p>': None,
    '<w:p><w:sdt><w:sdtPr><w:listItem w:displayText="{0}"/></w:sdtPr></w:sdt></w:p>': CHOICES,
    '<w:p><w:hyperlink w:tooltip="{0}"><w:r><w:t>b</w:t></w:r></w:hyperlink></w:p>': "tooltips",
    f"<w:p><w:r><w:ruby><w:rubyBase>{RUN}</w:rubyBase></w:ruby></w:r></w:p>": None,
    f"<w:p><w:r><w:ruby><w:rt>{RUN}</w:rt><w:rubyBase>{B}</w:rubyBase></w:ruby></w:r></w:p>": READING,
    f"<w:p><w:moveFrom>{RUN}</w:moveFrom>{B}</w:p>": TAKEN_OUT,
    f"<w:p><w:del><w:r><w:delText>{{0}}</w:delText></w:r></w:del>{B}</w:p>": TAKEN_OUT,
    f"<w:p><w:sdt>{DATA}<w:sdtContent>{RUN}</w:sdtContent></w:sdt>{B}</w:p>": BOUND,
    f"<w:sdt>{DATA}<w:sdtContent><w:p>{RUN}</w:p></w:sdtContent></w:sdt>": BOUND,
    f"<w:p>{BEGIN}<w:r><w:t>1</w:t></w:r>{BEGIN}{RUN}{END}{END}{B}</w:p>": FIELD,
    '<w:p><m:oMath xmlns:m="M"><m:r><m:t>{0}</m:t></m:r></m:oMath></w:p>': "formulas",
    f'<w:p>{BEGIN}<w:r><w:instrText> XE "{{0}}" </w:instrText></w:r>{END}</w:p>': ENTRIES,
    f"<w:p>{BEGIN}{INSTR.format(' XE &quot;')}{INSTR.format('{0}')}{END}</w:p>": ENTRIES,
    f"<w:p>{BEGIN}{INSTR.format(' MACROBUTTON Nothing [{0} here]')}{END}</w:p>": "labels of forms",
    '<w:p><w:pict><v:oval xmlns:v="V" alt="{0}"/></w:pict></w:p>': "alternative texts of old pictures",
}  # fmt: skip
TEXT = {
    "<text:p>{0} here</text:p>": None,
    "<text:h>{0} here</text:h>": None,
    "<text:p>a<text:tab/>{0} here</text:p>": None,
    "<text:p><text:a>{0} here<text:tab/>12</text:a></text:p>": None,
    f"<text:p>a{NOTE.format('<text:p>{0} note</text:p>')}</text:p>": None,
    "<text:p><text:span>{0}</text:span> here</text:p>": None,
    f"<text:p><text:ruby>{BASE.format('{0}')}{READ.format('1')}</text:ruby></text:p>": None,
    f"<text:p>a<text:ruby>{BASE.format('b')}{READ.format('{0}')}</text:ruby></text:p>": READING,
    "<text:p>See <text:bookmark-ref>{0}</text:bookmark-ref></text:p>": FIELD,
    '<text:p>a <loext:content-control xmlns:loext="L">{0}</loext:content-control></text:p>': None,
    "<table:table><table:title>{0} here</table:title></table:table>": None,
    "<presentation:date-time-decl>{0} here</presentation:date-time-decl>": None,
    '<text:p>a<text:alphabetical-index-mark text:string-value="{0}"/></text:p>': ENTRIES,
    '<text:p>a<text:drop-down><text:label text:value="{0}"/></text:drop-down></text:p>': CHOICES,
    '<table:help-message table:title="{0}"/>': "prompts and messages of cells",
    "<number:number><number:embedded-text>{0}</number:embedded-text></number:number>": NUMBERS,
}  # fmt: skip
SUBTITLES = {
    "\n00:01.000 --> 00:02.000\n{0} here\n": None,
    "\n00:01.000 --> 00:02.000\n<v Roger><ruby>{0}<rt>1</rt></ruby> here\n": None,
    "\n00:01.000 --> 00:02.000\n<ruby>b<rt>{0}</rt></ruby> here\n": READING,
}  # fmt: skip
CATALOGUE = {
    'msgid "{0} here"\nmsgstr ""\n': None,
    'msgid "{0} " "here"\nmsgstr ""\n': None,
    'msgid "&{0} here"\nmsgstr ""\n': None,
    'msgid "{0}_x"\nmsgstr ""\n': "values that are no language",
    'msgid "{0} here"\nmsgstr "done"\n': "texts with finished translations",
    'msgid "{{n, plural, other {{{0}}}}}"\nmsgstr ""\n': "messages of ICU that choose between forms",
}  # fmt: skip


def word_file(body):
    return zipped({"word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'})


def text_file(body):
    prefixes = ("text", "table", "number", "presentation")
    names = " ".join(f'xmlns:{name}="{ODF}:{name}:1.0"' for name in prefixes)
    return zipped({"content.xml": f"<o {names}>{body}</o>"})


FORMATS = {
    "markdown": (MARKDOWN, "\n", str.encode),
    "html": (HTML, "", str.encode),
    "docx": (WORD, "", word_file),
    "odt": (TEXT, "", text_file),
    "vtt": (SUBTITLES, "\n", lambda body: f"WEBVTT\n{body}".encode()),
    "po": (CATALOGUE, "\n", str.encode),
}


def letters(number):
    """A word of its own for each number."""
    return "qx" + "".join("abcdefghij"[int(digit)] for digit in str(number))


def translated(document):
    def texts(piece):
        return [piece.text, *itertools.chain.from_iterable(map(texts, piece.inner))]

    pieces = (piece for piece in document.pieces if isinstance(piece, MarkedText))
    return " ".join(itertools.chain.from_iterable(map(texts, pieces)))


def test_code_of_a_generator_is_no_text():
    for tags in ("{% highlight a %}", "{% endhighlight %}"), ("{{< highlight a >}}", "{{< /highlight >}}"):
        document = read_document(f"{tags[0]}\na dog\n{tags[1]}\n".encode(), "markdown", ("en", "de"), "f")
        assert not document.texts


def test_what_is_struck_through_is_no_part_of_the_sentence():
    raw = b'The ~~big *old*~~ dog :smile: sleeps {{< ref "a.md" >}}.\n'
    (text,) = read_document(raw, "markdown", ("en", "de"), "f").texts
    assert text.text == 'The dog sleeps {{< ref "a.md" >}}.'
    assert text.literals() == ['{{< ref "a.md" >}}'] and [one.text for one in text.inner] == ["big old"]
    assert text.render() == raw.decode().rstrip()


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=60)
@given(data=st.data())
def test_each_word_is_translated_or_what_keeps_it_is_counted(format, data):
    places, between, file = FORMATS[format]
    chosen = data.draw(st.lists(st.sampled_from(list(places)), min_size=1, max_size=8))
    words = [letters(number) for number in range(len(chosen))]
    body = between.join(place.format(word) for place, word in zip(chosen, words))
    document = read_document(file(body), format, ("en", "de"), "f")
    text, expected = translated(document).split(), {}
    for place, word in zip(chosen, words):
        if (kind := places[place]) is None:
            assert any(word in part for part in text), (word, body)
        else:
            assert not any(word in part for part in text), (word, body)
            expected[kind] = expected.get(kind, 0) + 1
    assert dict(document.stay) == expected, body
