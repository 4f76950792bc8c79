"""Random HTML through a model that writes capitals comes back as it was, but for the words."""

import random
import re

import pytest

from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.tokens import tokens_of

_WORDS = (
    "a",
    "dog",
    "runs",
    "fast",
    "über",
    "café",
    "don't",
    "the",
    "cat,",
    "(see",
    "there)",
    "x",
    "half-way",
)
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


@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_only_the_words_change(start):
    for seed in range(start, start + 100):
        html = document(random.Random(seed))
        out = translated(html)
        assert capitals(out) == capitals(html), f"seed {seed}"
        assert markup(out) == markup(html), f"seed {seed}"
