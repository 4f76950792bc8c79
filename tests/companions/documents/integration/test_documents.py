"""translate --format html|srt, through the real command line and through the server's API."""

import gzip
import io
import json
import random
import re
import shutil

import pytest
from lxml import html as lxml_html
from starlette.testclient import TestClient

from tests.companions.serving.unit.models import directions_of
from tests.helpers.faults import killed_at_the_end
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.serving.batcher import Batcher
from transformer_mt.companions.serving.http.limits import Limits
from transformer_mt.companions.serving.http.server import build_app
from transformer_mt.corpora import toy
from transformer_mt.translator import Translator

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>The dog sleeps.</title></head>
<body>
<h1>The <em>king</em> dances.</h1>
<p>The old teacher sees <a href="https://x.org/?a=1&amp;b=2">a small bird</a>. A cat sings.</p>
<pre>code  stays</pre>
<p>See https://x.org/a_b now.</p>
</body></html>
"""

SUBTITLES = """1
00:00:01,000 --> 00:00:02,500
The old teacher

2
00:00:03,000 --> 00:00:04,000
sees a small bird.

3
00:00:05,000 --> 00:00:06,000
- The dog sleeps.
- A cat sings.

"""


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.load(tiny_run, device="cpu")


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "in.html"
    path.write_text(PAGE, encoding="utf-8")
    return path


def tags(text):
    return re.findall(r"<[^>]*>", text)


def test_a_page_keeps_its_tags_and_its_format_can_be_given(tiny_run, page, tmp_path, cli):
    assert cli("translate", tiny_run, "-i", page, "-o", tmp_path / "out.html")[:2] == (0, "")
    assert [p.name for p in tmp_path.iterdir() if "resume" in p.name] == []
    written = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert sorted(tags(written)) == sorted(tags(PAGE)) and "teacher" not in written
    assert "<pre>code  stays</pre>" in written and "https://x.org/a_b" in written
    other = tmp_path / "page.txt"
    other.write_text(PAGE, encoding="utf-8")
    assert cli("translate", tiny_run, "--format", "html", "-i", other).out == written
    _, as_text, _ = cli("translate", tiny_run, "--format", "text", "-i", page)
    assert as_text.count("\n") == PAGE.count("\n")
    fragment = cli("translate", tiny_run, "--format", "html", "The <b>dog</b> sleeps.")[1]
    assert tags(fragment) == ["<b>", "</b>"] and fragment.endswith("\n")


def test_subtitles_keep_their_times_and_line_ends(tiny_run, tmp_path, cli):
    source, out = tmp_path / "in.srt", tmp_path / "out.srt"
    source.write_bytes(SUBTITLES.replace("\n", "\r\n").encode("utf-8-sig"))
    assert cli("translate", tiny_run, "-i", source, "-o", out)[0] == 0
    written = out.read_bytes().decode()
    assert written.startswith("\ufeff")  # as the source does
    written = written[1:]
    assert written.count("\n") == written.count("\r\n")
    of = re.compile(r"^\d+\r?\n.* --> .*$", re.MULTILINE)
    assert [m.replace("\r", "") for m in of.findall(written)] == of.findall(SUBTITLES)
    blocks = written.replace("\r", "").strip().split("\n\n")
    assert len(blocks) == 3 and blocks[2].count("\n- ") == 2


@pytest.mark.parametrize("name, text", [("in.html", PAGE), ("in.srt", SUBTITLES)])
def test_an_interrupted_document_is_resumed_at_any_byte(tiny_run, name, text, tmp_path, cli, monkeypatch):
    source, out = tmp_path / name, tmp_path / f"out-{name}"
    source.write_text(text, encoding="utf-8")
    with monkeypatch.context() as killed:
        killed_at_the_end(killed)
        assert cli("translate", tiny_run, "-i", source, "-o", out)[0] == 0
    whole = out.read_bytes()
    sizes = tmp_path / f".out-{name}.resume.sizes"
    recorded = sizes.read_bytes()
    for kept in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1, len(whole)):
        with monkeypatch.context() as killed:
            killed_at_the_end(killed)
            out.write_bytes(whole[:kept])
            sizes.write_bytes(recorded)
            status, _, err = cli("translate", tiny_run, "-i", source, "-o", out, "--resume")
        assert (status, out.read_bytes()) == (0, whole), err
        assert kept == 0 or "resuming after" in err
    assert cli("translate", tiny_run, "-i", source, "-o", out, "--resume")[0] == 0
    assert out.read_bytes() == whole and not sizes.exists()


def test_another_document_is_not_resumed(tiny_run, page, tmp_path, cli, monkeypatch):
    out = tmp_path / "out.html"
    with monkeypatch.context() as killed:
        killed_at_the_end(killed)
        cli("translate", tiny_run, "-i", page, "-o", out)
    page.write_text(PAGE + "<p>more</p>", encoding="utf-8")
    status, _, err = cli("translate", tiny_run, "-i", page, "-o", out, "--resume")
    assert status == 2 and "was begun with another value of the input" in err


def test_another_standard_input_is_not_resumed(tiny_run, tmp_path, cli, monkeypatch):
    out = tmp_path / "out.html"

    def translate(page, *more):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(page.encode())))
        return cli("translate", tiny_run, "--format", "html", "-o", out, *more)

    with monkeypatch.context() as killed:
        killed_at_the_end(killed)
        assert translate(PAGE)[0] == 0
    whole = out.read_bytes()
    status, _, err = translate("<p>other</p>", "--resume")
    assert status == 2 and "was begun with another value of the input" in err
    sizes = tmp_path / ".out.html.resume.sizes"
    first = sizes.read_bytes().splitlines(keepends=True)[0]
    sizes.write_bytes(first + b"\0\0\0\n90\n")  # after a power failure
    assert translate(PAGE, "--resume")[0] == 0 and out.read_bytes() == whole


def test_a_file_is_written_as_one_of_another_format_only_if_the_format_is_given(tiny_run, tmp_path, cli):
    (tmp_path / "a.txt").write_text("The dog sleeps.\nA cat sings.\n", encoding="utf-8")
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nA dog.\n", encoding="utf-8")
    for source, target in (("a.txt", "b.docx"), ("a.txt", "b.html"), ("a.srt", "b.vtt"), ("a.srt", "b.html")):
        status, _, err = cli("translate", tiny_run, "-i", tmp_path / source, "-o", tmp_path / target)
        ending = target[1:]
        assert status == 2 and not (tmp_path / target).exists()
        assert f"{target}: must not end in {ending}, because the input is no {ending} document" in err
    status, _, err = cli("translate", tiny_run, "-i", tmp_path / "a.docx", "-o", tmp_path / "b.pdf")
    assert status == 2 and "b.pdf: must end in .docx, as the input does" in err
    out = tmp_path / "b.html"
    assert cli("translate", tiny_run, "-i", tmp_path / "a.txt", "-o", out, "--format", "text")[0] == 0
    assert out.read_text(encoding="utf-8").count("\n") == 2


def test_protect_takes_flags_as_with_lines(tiny_run, cli):
    words = ["--format", "html", "--protect", "(?i)foo", "See <b>FOO</b> now."]
    status, printed, err = cli("translate", tiny_run, *words)
    assert status == 0 and "FOO" in printed, err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--json"], "--json prints what is known about each text of a document: give --output FILE"),
        (["--json", "-o", "o.html", "--resume"], "give --output FILE for the document, and leave out --res"),
        (["--n-best", "2"], "--n-best requires --format text, but the format is html"),
    ],
)
def test_options_of_lines_are_refused(tiny_run, page, cli, words, message):
    status, printed, err = cli("translate", tiny_run, "-i", page, *words)
    assert (status, printed) == (2, "") and message in err


def test_json_tells_how_much_each_text_may_be_trusted(tiny_run, tmp_path, cli):
    """A JSON line for each text, and one for the document, with the expected chrF."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    facts = {"intercept": 1.0, "slope": 1.0, "low": 0.2}
    errors = {"shift": 0.01, "spread": 0.1, "drift": 0.02}
    (run / "calibration.json").write_text(json.dumps({**facts, "errors": errors}), encoding="utf-8")
    (tmp_path / "a.html").write_text(
        "<p>A dog.</p><p>A dog.</p><p>A <b>cat</b> sees it.</p>", encoding="utf-8"
    )
    words = ["translate", run, "-i", tmp_path / "a.html", "-o", tmp_path / "b.html", "--json"]
    status, printed, err = cli(*words)
    assert status == 0 and (tmp_path / "b.html").read_text(encoding="utf-8").count("<p>") == 3, err
    *texts, whole = [json.loads(line) for line in printed.splitlines()]
    assert [text["text"] for text in texts] == [1, 2, 3]
    confidence = [text["parts"][0]["confidence"] for text in texts]
    assert texts[0]["parts"][0]["source"] == "A dog." and confidence[0] == confidence[1]
    lengths = [len(text["parts"][0]["translation"]) for text in texts]
    mean = sum(of * length for of, length in zip(confidence, lengths)) / sum(lengths)
    assert whole["texts"] == 3 and whole["expected"]["sentences"] == 3
    assert whole["expected"]["chrf"] == pytest.approx(100 * mean + 1, abs=0.01)
    assert whole["expected"]["low"] < whole["expected"]["chrf"] < whole["expected"]["high"]
    (run / "calibration.json").unlink()
    assert json.loads(cli(*words)[1].splitlines()[-1])["expected"] is None


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.html", b"\xef\xbb\xbfab\ncd\xe9", "a.html:2: must be UTF-8, but byte 0xe9 is not"),
        ("a.html", b"%PDF-1.7", "a.html: must be text in UTF-8, but is a PDF file"),
        ("a.vtt", b"00:01.000 --> 00:02.000", "a.vtt: must be subtitles that begin with WEBVTT, but do not"),
        ("a.vtt", b"WEBVTT\n\n1:00 --> 2:00\nA", "must have times such as 00:01.000 --> 00:02.000 in line 3"),
        ("a.json", b'{"a": }', "a.json: must be JSON: Expecting value: line 1 column 7"),
        ("a.xml", b"<html></html>", "a.xml: must have the root <resources>, as Android's strings have"),
        ("a.xlf", b"<a>", "a.xlf:1: is not well-formed XML: no element found"),
    ],
)
def test_what_is_no_document_is_refused(tiny_run, tmp_path, cli, name, content, message):
    (tmp_path / name).write_bytes(content)
    status, _, err = cli("translate", tiny_run, "-i", tmp_path / name, "-o", tmp_path / "out")
    assert status == 2 and message in err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a.pdf", "a.xhtml", "a.tmx.GZ", "a.docm", "a.unknown"])
def test_a_format_that_is_not_read_is_refused(tiny_run, tmp_path, cli, name):
    """Its markup was translated as if it were text."""
    (tmp_path / name).write_text("WEBVTT\n", encoding="utf-8")
    status, out, err = cli("translate", tiny_run, "-i", tmp_path / name)
    assert status == 2 and out == ""
    assert "must be a text file (.txt) or end in .html, " in err and "or set --format text to" in err
    assert cli("translate", tiny_run, "A dog.", "--json", "-o", tmp_path / "o.jsonl")[0] == 0


def test_a_compressed_page_that_is_cut_is_refused_in_one_line(tiny_run, tmp_path, cli):
    (tmp_path / "a.html.gz").write_bytes(gzip.compress(b"<p>A dog sleeps.</p>")[:-9])
    status, _, err = cli("translate", tiny_run, "-i", tmp_path / "a.html.gz")
    assert status == 2 and "a.html.gz: cannot be read: Compressed file ended before" in err


@pytest.mark.parametrize("name", ["a.html", "a.srt"])
def test_an_empty_document_stays_empty(tiny_run, tmp_path, cli, name):
    (tmp_path / name).write_bytes(b"")
    assert cli("translate", tiny_run, "-i", tmp_path / name)[:2] == (0, "")


def test_a_document_of_many_codes_has_a_pattern_of_their_length():
    """The set of all letters was in it twice per code: a page of 1,000 codes took seconds."""
    from transformer_mt.companions.documents.document_translation import pattern_of

    texts = (" ".join(f"<code>c{i}</code>" for i in range(number)) + " end" for number in (1, 101))
    few, many = (pattern_of(next(p for p in parse_html(t) if not isinstance(p, str))) for t in texts)
    assert len(many) - len(few) < 100 * len("c100|")


def test_markup_misplaced_is_reported(tiny_run, cli, monkeypatch):
    monkeypatch.setattr("transformer_mt.companions.documents.placement._LEAST", 2.0)
    monkeypatch.setattr("transformer_mt.companions.documents.placement._SHARE", 2.0)
    words = ["--format", "html", "The <b>dog</b> sleeps."]
    _, printed, err = cli("translate", tiny_run, *words)
    assert printed.startswith("<b>") and printed.endswith("</b>\n")
    assert "text 1 ('The dog sleeps.'): <b> is not around the right words" in err


def planted(sentence, rng):
    """The sentence with one to three elements, next to each other or one within another."""
    words = sentence.split(" ")
    for name in rng.sample(["b", "i", "a", "u"], rng.randint(1, 3)):
        begin = rng.randrange(len(words))
        end = rng.randint(begin, len(words) - 1)
        inner = " ".join(words[begin : end + 1])
        if inner.count("<") % 2 == 0 and lxml_html.fromstring(f"<p>{inner}</p>") is not None:
            opened = re.findall(r"<(/?)(\w)>", inner)
            if [n for slash, n in opened if not slash] == [n for slash, n in reversed(opened) if slash]:
                words[begin] = f"<{name}>{words[begin]}"
                words[end] += f"</{name}>"
    return " ".join(words)


def test_markup_in_80_sentences_stays_whole(translator):
    """The same elements within the same elements, and the words of the plain translation."""
    rng = random.Random(1)
    sentences = [src for src, _ in toy.generate("test", 80)]
    documents = [planted(sentence, rng) for sentence in sentences]
    parts = [
        "".join(part.written for part in translate_pieces(translator, parse_html(document)))
        for document in documents
    ]
    plain = [str(result) for result in translator.translate(sentences)]
    for document, part, text in zip(documents, parts, plain):
        before, after = (lxml_html.fromstring(f"<div>{each}</div>") for each in (document, part))
        assert after.text_content() == text
        paths = [
            sorted("/".join(up.tag for up in each.iterancestors()) + each.tag for each in tree.iter())
            for tree in (before, after)
        ]
        assert paths[0] == paths[1] and len(tags(part)) == len(tags(document))


def test_a_document_is_translated_as_its_texts_are_alone(translator):
    """What else is in the document changes nothing, not even literal text."""
    document = "<p>The <code>dog</code> sleeps.</p><p>The dog sleeps.</p><p>A cat sings.</p>"
    parts = [part.written for part in translate_pieces(translator, parse_html(document))]
    alone = [str(result) for result in translator.translate(["The dog sleeps.", "A cat sings."])]
    assert parts[1:3] == [f"</p><p>{alone[0]}", f"</p><p>{alone[1]}"]


def test_the_server_translates_html_as_the_command_does(tiny_run, translator, cli):
    """A list of HTML as Mastodon sends it."""
    batcher = Batcher(translator)
    client = TestClient(build_app(directions_of({("en", "de"): batcher}), Limits()))
    links = '<p>The <b>dog</b> sleeps.</p><p>A cat <a href="https://x.org">sings</a>.</p>'
    posts = [links, "", "A &lt; <i>cat</i>"]
    body = {"q": posts, "source": "en", "target": "de", "format": "html", "alternatives": 1}
    answer = client.post("/translate", json=body).json()
    batcher.close()
    parts = [translate_pieces(translator, parse_html(post)) for post in posts]
    expected = ["".join(part.written for part in of_post) for of_post in parts]
    assert answer["translatedText"] == expected
    assert sorted(tags(answer["alternatives"][0][0])) == sorted(tags(posts[0]))
    assert answer["alternatives"][0][0] != expected[0]


SITES = {
    "charset.html": (
        b'<html><head><meta charset="iso-8859-1"></head><body><p>The dog sleeps.</p></body></html>\r\n',
        "iso-8859-1",
    ),
    "latin.html": (b'<meta charset="iso-8859-1"><p>caf\xe9</p><pre>\xe9</pre>\n', "iso-8859-1"),
    "utf16.html": ("\ufeff<p>The dog sleeps.</p>\n".encode("utf-16-le"), "utf-16-le"),
}


@pytest.mark.parametrize("name", SITES)
def test_a_browser_reads_the_translation_in_the_declared_encoding(tiny_run, tmp_path, cli, name):
    content, encoding = SITES[name]
    (tmp_path / name).write_bytes(content)
    assert cli("translate", tiny_run, "-i", tmp_path / name, "-o", tmp_path / "out.html")[0] == 0
    before, after = content.decode(encoding), (tmp_path / "out.html").read_bytes().decode(encoding)
    assert tags(after) == tags(before) and after.startswith(before[:3]) and after[-2:] == before[-2:]
    assert "\ufffd" not in after and ("<pre>é</pre>" in after) == ("<pre>é</pre>" in before)


def test_attributes_are_translated_unless_that_is_turned_off(tiny_run, cli):
    html = '<img alt="The dog sleeps."> <p title="A cat sings.">The dog sleeps.</p>'
    on = cli("translate", tiny_run, "--format", "html", html)[1]
    off = cli("translate", tiny_run, "--format", "html", "--no-attributes", html)[1]
    assert 'alt="The dog sleeps."' in off and "The dog" not in on and 'title="A cat sings."' in off


def test_a_number_that_is_lost_is_reported(tiny_run, cli):
    status, _, err = cli("translate", tiny_run, "--format", "html", "<p>The 77 dogs sleep.</p>")
    assert (
        status == 0
        and "text 1 ('The 77 dogs sleep.'): a number of the source is not in the translation" in err
    )


def test_what_was_translated_is_a_memory_for_the_next_time(tiny_run, tmp_path, cli):
    from transformer_mt.corpora.tmx import read_tmx

    page, memory = tmp_path / "a.html", tmp_path / "memory.tmx"
    page.write_text(
        "<p>The dog sleeps.<p>A <b>cat</b> &amp; a bird.<p>The dog sleeps.<p>42", encoding="utf-8"
    )
    result = cli("translate", tiny_run, "-i", page, "-o", tmp_path / "b.html", "--memory-out", memory)
    assert result.status == 0, result.err
    pairs = list(read_tmx(str(memory), ["en", "de"]))
    assert [source for source, _ in pairs] == ["The dog sleeps.", "A cat & a bird."]
    lines = [source for source, _ in pairs]
    again = cli("translate", tiny_run, *lines, "--memory", memory, "--memory-out", tmp_path / "again.tmx")
    assert again.out.splitlines() == [target for _, target in pairs]
    assert list(read_tmx(str(tmp_path / "again.tmx"), ["en", "de"])) == pairs
    before = memory.read_bytes()
    refused = cli("translate", tiny_run, "A dog.", "--memory", memory, "--memory-out", memory)
    assert refused.status == 2 and "--memory-out must be a separate file, but" in refused.err
    assert memory.read_bytes() == before
    refused = cli("translate", tiny_run, "A dog.", "--memory", memory, "-o", memory)
    assert refused.status == 2 and "the output must not be an input" in refused.err
    assert memory.read_bytes() == before


def test_messages_of_icu_that_stay_are_counted(tiny_run, tmp_path, cli):
    message = "{n, plural, one {# dog} other {# dogs}}"
    source = f'{{"a": "{message}", "b": "The dog sleeps.", "c": "{message}"}}'
    (tmp_path / "a.json").write_text(source, encoding="utf-8")
    result = cli("translate", tiny_run, "-i", tmp_path / "a.json")
    assert "a.json: not translated: 2 messages of ICU that choose between forms" in result.err
    assert result.out.count(message) == 2 and "The dog sleeps." not in result.out
