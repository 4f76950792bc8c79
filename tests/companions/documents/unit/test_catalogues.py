"""Catalogues of translators stay what their programs read, and only what is not finished is translated."""

import gettext
import io
import json
import random
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.helpers.upper_case import UpperCaseEngine, upper_case_translator
from transformer_mt.companions.documents.document_translation import parse, translate_pieces
from transformer_mt.companions.documents.read import read_document
from transformer_mt.companions.documents.strings.placeholders import without_accelerator
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.errors import InputError
from transformer_mt.search.hypothesis import Hypothesis

UNIT = '<xliff version="1.2"><file target-language="de"><body>{}</body></file></xliff>'
SEGMENTS = '<mrk mtype="seg" mid="1">a dog.</mrk> <mrk mtype="seg" mid="2">a cat.</mrk>'
DIVIDED = f"<source>a dog. a cat.</source><seg-source>{SEGMENTS}</seg-source>"


def in_capitals(raw, format, target="de"):
    """(the translation, what stays)"""
    document = read_document(raw, format, ("en", target), "x")
    parts = translate_pieces(upper_case_translator(), document.pieces)
    return document.written("".join(part.written for part in parts)), dict(document.stay)


def translated_unit(unit):
    raw, stay = in_capitals(UNIT.format(f"<trans-unit>{unit}</trans-unit>").encode(), "xliff")
    return re.search(r"<target.*</target>", raw.decode())[0], stay.get("texts with finished translations", 0)


CAPITALS = SEGMENTS.replace("a dog", "A DOG").replace("a cat", "A CAT")


@pytest.mark.parametrize("target", [
    "", '<target><mrk mtype="seg" mid="1"/> <mrk mtype="seg" mid="2"></mrk></target>', "<target/>",
    f'<target state="new">{SEGMENTS}</target>', f'<target state="needs-translation">{SEGMENTS}</target>',
])  # fmt: skip
def test_each_segment_has_a_translation_of_its_own(target):
    written, finished = translated_unit(DIVIDED + target)
    assert re.sub(r"<target[^>]*>", "<target>", written) == f"<target>{CAPITALS}</target>" and not finished


def test_a_finished_segment_stays_and_is_counted():
    half = '<target><mrk mtype="seg" mid="1">Ein Hund.</mrk> <mrk mtype="seg" mid="2"/></target>'
    written, finished = translated_unit(DIVIDED + half)
    assert written == half.replace('mid="2"/>', 'mid="2">A CAT.</mrk>') and finished == 1
    whole = "<source>a dog</source><target>Ein Hund</target>"
    assert translated_unit(whole) == ("<target>Ein Hund</target>", 1)


@pytest.mark.parametrize("version, state, expected", [
    ("1.2", "new", "A DOG"), ("1.2", "needs-translation", "A DOG"), ("1.2", "translated", "Ein Hund"),
    ("2.0", "initial", "A DOG"), ("2.0", "final", "Ein Hund"),
])  # fmt: skip
def test_a_segment_is_finished_by_its_state(version, state, expected):
    of_target, of_segment = (f' state="{state}"', "") if version == "1.2" else ("", f' state="{state}"')
    name = "trans-unit" if version == "1.2" else "segment"
    raw = (
        f'<xliff version="{version}" trgLang="de"><{name}{of_segment}><source>a dog</source>'
        f"<target{of_target}>Ein Hund</target></{name}></xliff>"
    )
    assert f">{expected}</target>" in in_capitals(raw.encode(), "xliff")[0].decode()


TEMPLATE = """#, fuzzy
msgid ""
msgstr ""
"Language: \\n"
"Content-Type: text/plain; charset=CHARSET\\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"

msgid "one dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""

msgid "%d cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1] ""
"""


@pytest.mark.parametrize("language, forms", [
    ("de", [["ONE DOG", "%d DOGS"], ["%d CAT", "%d CATS"]]),
    ("fr", [["%d DOGS", "%d DOGS"], ["%d CAT", "%d CATS"]]),  # none is one, too
    ("ja", [["%d DOGS"], ["%d CATS"]]),
    ("ru", [["%d DOGS"] * 3, ["%d CAT", "%d CATS", "%d CATS"]]),  # as of 21
])  # fmt: skip
def test_a_template_becomes_a_catalogue_of_the_language(tmp_path, language, forms):
    written, _ = in_capitals(TEMPLATE.encode(), "po", language)
    text = written.decode()
    assert "fuzzy" not in text and "charset=UTF-8" in text and f'"Language: {language}\\n"' in text
    entries = [re.findall(r'msgstr\[\d\] "(.*)"', entry) for entry in text.split("\n\n")[1:]]
    assert entries == forms
    if shutil.which("msgfmt"):
        (tmp_path / "a.po").write_bytes(written)
        subprocess.run(["msgfmt", "-c", tmp_path / "a.po", "-o", tmp_path / "a.mo"], check=True)
        catalogue = gettext.GNUTranslations(io.BytesIO((tmp_path / "a.mo").read_bytes()))
        assert catalogue.ngettext("%d cat", "%d cats", 1) == forms[1][0]


def test_catalogues_are_read_in_the_charset_that_they_declare():
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\n'
    body = 'domain "a"\n\nmsgid "café"\nmsgstr ""\n'
    for charset in ("ISO-8859-1", "UTF-16"):
        written, _ = in_capitals((header.format(charset) + body).encode(charset), "po")
        assert written.decode() == (header.format("UTF-8") + body).replace('msgstr ""', 'msgstr "CAFÉ"')


def test_the_locale_of_a_catalogue_of_flutter_is_that_of_the_target():
    raw = b'{"@@locale": "en_US", "a": "a dog", "@a": {"description": "an animal"}}'
    expected = b'{"@@locale": "de", "a": "A DOG", "@a": {"description": "an animal"}}'
    assert in_capitals(raw, "json")[0] == expected


def test_subtitles_are_read_as_windows_wrote_them(capsys):
    cue = "1\n00:00:01,000 --> 00:00:02,000\n{}\n"
    for language, page, words in (("en", "cp1252", "“café”"), ("ru", "cp1251", "гусь")):
        document = read_document(cue.format(words).encode(page), "srt", (language, "de"), "x")
        assert [text.text for text in document.texts] == [words]
        assert f"x: is not UTF-8, and is read as windows-{page[2:]}" in capsys.readouterr().err
    raw = cue.format("a dog").encode("utf-16")
    assert in_capitals(raw, "srt")[0].decode("utf-16") == cue.format("A DOG")
    with pytest.raises(InputError, match="must be UTF-8, but byte 0xe9 is not"):
        read_document(b"WEBVTT\n\ncaf\xe9", "vtt", ("en", "de"), "x")


def test_what_a_divided_unit_has_already_is_not_overwritten():
    """A target without segments is a translation of the whole; messages that choose between forms stay."""
    whole = DIVIDED + "<target>Ein Hund. Eine Katze.</target>"
    assert translated_unit(whole) == ("<target>Ein Hund. Eine Katze.</target>", 1)
    choice = "{n, plural, one {a dog} other {dogs}}"
    written, _ = translated_unit(DIVIDED.replace("a cat.", choice))
    assert "A DOG." in written and '<mrk mtype="seg" mid="2">' + choice in written


def test_text_beside_a_section_of_cdata_stays_and_is_counted():
    raw = UNIT.format("<trans-unit><source>a dog <![CDATA[a cat]]></source></trans-unit>").encode()
    assert in_capitals(raw, "xliff") == (raw, {"texts that are CDATA in part": 1})


@pytest.mark.parametrize(
    "source, text, target, written",
    [
        ("&File", "File", "Datei", "&Datei"),
        ("_File", "File", "Eine Feile", "Eine _Feile"),
        ("Fi~le", "File", "Datei öffnen", "~Datei öffnen"),
        ("E&xit…", "Exit…", "Beenden…", "&Beenden…"),
        ("Save _as", "Save as", "\\n sichern als", "\\n sichern _als"),
        ("R&D", "R&D", "F", "F"),
        ("a_name of it", "a_name of it", "x", "x"),
        ("Tom & Jerry", "Tom & Jerry", "x", "x"),
        ("see ?a=1&b=2 now", "see ?a=1&b=2 now", "x", "x"),
        ("&amp; you", "&amp; you", "x", "x"),
    ],
)
def test_an_accelerator_is_taken_out_and_set_on_a_letter_of_the_translation(source, text, target, written):
    raw, marked = without_accelerator(source)
    assert raw == text and marked(target) == written


def test_an_accelerator_of_a_catalogue_is_no_part_of_the_text():
    raw = b'msgid "The &dog\\n"\nmsgstr ""\n'
    (text,) = read_document(raw, "po", ("en", "de"), "f").texts
    assert text.text == "The dog"
    assert b'msgstr "THE &DOG' in in_capitals(raw, "po")[0]


def test_an_accelerator_of_xliff_is_no_part_of_the_text():
    raw = UNIT.format("<trans-unit><source>The &amp;dog &lt; cat</source></trans-unit>").encode()
    (text,) = read_document(raw, "xliff", ("en", "de"), "f").texts
    assert text.text == "The dog < cat"
    assert b"<target>THE &amp;DOG &lt; CAT</target>" in in_capitals(raw, "xliff")[0]


@pytest.mark.parametrize("language, forms", [
    ("de", "one other"), ("ja", "other"), ("pl", "one other few many"), ("xx", "one other")
])  # fmt: skip
def test_plurals_of_android_have_the_forms_of_the_language(language, forms):
    item = '  <item quantity="{}">{}</item>\n'
    raw = f'<plurals name="n">\n{item.format("one", "a dog")}{item.format("other", "dogs")}</plurals>'
    texts = {"one": "A DOG"}
    items = "".join(item.format(form, texts.get(form, "DOGS")) for form in forms.split())
    written = f'<resources><plurals name="n">\n{items}</plurals></resources>'
    assert in_capitals(f"<resources>{raw}</resources>".encode(), "android", language)[0].decode() == written


def test_an_item_outside_of_plurals_is_a_text():
    raw = b'<resources><array><item quantity="other">a dog</item></array></resources>'
    assert in_capitals(raw, "android", "pl")[0] == raw.replace(b"a dog", b"A DOG")
    alone = b'<resources><plurals name="n"><item quantity="one">a dog</item></plurals></resources>'
    assert in_capitals(alone, "android", "ja")[0] == alone.replace(b"a dog", b"A DOG")


def test_plurals_of_i18next_have_the_forms_of_the_language():
    raw = '{\n  "a_one": "a dog",\n  "a_other" : "dogs",\n  "b_ordinal_one": "x", "b_ordinal_other": "y"}'
    expected = raw.replace("a dog", "A DOG").replace('"dogs"', '"DOGS"').replace('"x"', '"X"')
    expected = expected.replace('"y"', '"Y"')
    assert in_capitals(raw.encode(), "json", "de")[0].decode() == expected
    more = '"DOGS",\n  "a_few" : "DOGS",\n  "a_many" : "DOGS"'
    assert in_capitals(raw.encode(), "json", "pl")[0].decode() == expected.replace('"DOGS"', more)


CODES_THAT_STAY = (
    "#ff0000", "rgb(1, 2, 3)", "12px", "en-US", "zh_Hans_CN", "/about/us", "./a.b", "img/logo.svg",
    "README.md", "text/html", "yyyy-MM-dd", "dd.MM.yyyy", "HH:mm", "MMM d, y", "fa-home",
    "fas fa-home", "mdi-account", ":smile:", "@user", "user_name", "btnPrimary",
    "app.title.main", "ltr", "utf-8",
)  # fmt: skip
WORDS = (
    "Home", "No", "OK", "Madam", "well-known", "and/or", "e.g.", "U.S.", "The dog sleeps.",
    "state-of-the-art",
    "d. h.", "Email", "a.m.", "#1 hit", "Hello @user", "Save as: {name}",
)  # fmt: skip


@pytest.mark.parametrize("value", CODES_THAT_STAY)
def test_a_value_that_is_no_language_stays_and_is_counted(value):
    written = f'{{"a": "{value}"}}'
    document = read_document(written.encode(), "json", ("en", "de"), "f")
    assert "".join(document.pieces) == written and document.stay == {"values that are no language": 1}


@pytest.mark.parametrize("value", WORDS)
def test_words_are_no_such_values(value):
    assert read_document(f'{{"a": "{value}"}}'.encode(), "json", ("en", "de"), "f").texts


def test_several_strings_may_stand_on_a_line_of_a_catalogue():
    raw = b'msgid "The dog " "sleeps."\nmsgstr "" ""\n'
    (text,) = read_document(raw, "po", ("en", "de"), "f").texts
    assert text.text == "The dog sleeps."


@pytest.mark.parametrize("begin", ["?", "@"])
def test_a_translation_that_begins_as_a_reference_of_android_is_escaped(begin):
    raw = b'<resources><string name="a">a dog</string></resources>'
    (text,) = read_document(raw, "android", ("en", "de"), "f").texts
    assert replace(text, text=f"{begin} Hund").render() == f"\\{begin} Hund"
    assert replace(text, text=f"Hund {begin}").render() == f"Hund {begin}"


def test_a_value_of_no_language_keeps_its_mark():
    written, stay = in_capitals(b'msgid "&user_name"\nmsgstr ""\n', "po")
    assert b'msgstr "&user_name"' in written and stay == {"values that are no language": 1}


# Placeholders of programs come through a model that drops, doubles and changes words, or are reported.


GRAMMARS = {
    "printf": ("%s", "%1$s", "%-5.2f", "%%", "%@", "%ld", "%*d", "%2$@"),
    "Python": ("{}", "{name}", "{total:,.2f}", "{pct:.1%}", "{n:>10}", "{user.name!r}", "%(count)d"),
    ".NET": ("{0}", "{0:N2}", "{1,10:yyyy}"),
    "ICU": ("{count, number}", "{when, date, short}"),
    "templates": ("{{name}}", "{{ n, number }}", "${name}", "#{name}", "%{name}", "%<total>.2f", "%name%"),
    "i18next": ("$t(common.woman)", "__name__"),
    "Laravel": (":name", ":attribute"),
    "extensions": ("$USER$", "$1"),
    "Vue": ("@:common.woman", "@.lower:common.woman"),
    "tags": ("<0/>", "<br/>", "&nbsp;"),
    "dates": ("%Y-%m-%d", "%H:%M"),
    "Fluent": ("{ $user }", "{ -brand }"),
}
PLACEHOLDER_WORDS = ("a", "dog", "runs", "in", "the", "garden", "and", "Sees", "half")


class CarelessEngine(UpperCaseEngine):
    """Writes the words of its source in capitals; some it drops, some it writes twice."""

    def search(self, requests, settings, n_best):
        for i, request in enumerate(requests):
            text = self.tokenizer.src.decode(request.src)
            rng = random.Random(text)
            words = [word.upper() for word in text.split() for _ in range(rng.choice((0, 1, 1, 1, 2)))]
            ids = self.tokenizer.encode_tgt([" ".join(words) or "X"])[0]
            yield i, [Hypothesis([*ids, EOS], -1.0, -1.0)]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_each_is_in_the_translation_once_or_reported(grammar):
    rng = random.Random(grammar)
    for _ in range(15):
        words = [rng.choice(PLACEHOLDER_WORDS) for _ in range(rng.randint(1, 6))]
        placeholders = rng.sample(GRAMMARS[grammar], rng.randint(1, min(3, len(GRAMMARS[grammar]))))
        for placeholder in placeholders:
            words.insert(rng.randint(0, len(words)), placeholder)
        source = " ".join(words) + rng.choice((".", "", "!"))
        pieces = parse(json.dumps({"a": source}), "json", ("en", "de"), "x")
        parts = list(translate_pieces(upper_case_translator(engine=CarelessEngine), pieces))
        translation = json.loads("".join(part.written for part in parts))["a"]
        for placeholder in placeholders:
            is_kept = translation.count(placeholder) == source.count(placeholder)
            assert is_kept or any(part.problems for part in parts), (source, translation)
