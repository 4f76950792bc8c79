"""Glossaries: what terms a text has, and whether a translation has theirs."""

import pytest

from transformer_mt.companions.terms.glossary import Glossary, Term, read_glossary
from transformer_mt.errors import InputError

TERMS = [
    ("house", ["Haus"]),
    ("white house", ["Weißes Haus"]),
    ("company", ["Firma", "Unternehmen"]),
    ("IT", ["Informatik"]),
    ("Python", []),
    ("run", ["Lauf"]),
    ("running", ["laufend"]),
]


@pytest.fixture
def glossary():
    return Glossary([Term(source, tuple(targets)) for source, targets in TERMS], ("en", "de"))


def found(glossary, text):
    return [(text[match.begin : match.end], *match.targets) for match in glossary.find(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A house.", [("house", "Haus")]),
        ("Houses, houses!", [("Houses", "Haus"), ("houses", "Haus")]),  # plurals, and a sentence's capital
        ("the white houses", [("white houses", "Weißes Haus")]),  # the longest one
        ("two companies", [("companies", "Firma", "Unternehmen")]),
        ("it is about IT", [("IT", "Informatik")]),  # capitals make another word
        ("python and Python", [("python", "python"), ("Python", "Python")]),  # stays as it stands
        ("a running run", [("running", "laufend"), ("run", "Lauf")]),  # this very form, though of one stem
        ("the company’s house's roof", [("company’s", "Firma", "Unternehmen"), ("house's", "Haus")]),
        ("companion, houseful, ITS", []),  # other words, though like them
    ],
)
def test_terms_are_found_in_every_form_the_longest_first(glossary, text, expected):
    assert found(glossary, text) == expected


def test_terms_of_scripts_without_spaces_are_found_inside_text():
    glossary = Glossary(
        [Term("机器翻译", ("machine translation",)), Term("机器", ("machine",))], ("zh", "en")
    )
    assert found(glossary, "我们研究机器翻译。") == [("机器翻译", "machine translation")]
    assert found(glossary, "一台机器") == [("机器", "machine")]


@pytest.mark.parametrize(
    ("source", "translation", "rendered", "exactly"),
    [
        ("a house", "zwei Häuser.", True, False),  # inflected
        ("a house", "ein Gebäude.", False, False),
        ("a house", "ein haus", True, True),
        ("a company", "ein Unternehmen", True, True),  # the second target
        ("the white house", "das Haus ist weiß", False, False),
        ("Python", "Das Python", True, True),
    ],
)
def test_a_translation_has_a_term_in_any_form_or_exactly(glossary, source, translation, rendered, exactly):
    (match,) = glossary.find(source)
    assert glossary.is_rendered(match, translation) is rendered
    assert glossary.is_rendered(match, translation, exactly=True) is exactly


def test_capitals_of_turkish_do_not_count():
    there = Glossary([Term("ışık", ("light",))], ("tr", "en"))
    assert found(there, "Işık kapalı") == [("Işık", "light")] and not there.find("işik")
    back = Glossary([Term("light", ("ışık",))], ("en", "tr"))
    (match,) = back.find("light")
    assert back.is_rendered(match, "IŞIK", exactly=True) and back.is_rendered(match, "IŞIK")


def test_terms_in_both_sides_of_a_pair_have_the_target_that_is_there(glossary):
    both = glossary.in_both("a company in a house", "ein Unternehmen hier")
    assert [(match.begin, match.targets) for match in both] == [(2, ("Unternehmen",))]


TBX = """<?xml version="1.0"?>
<!DOCTYPE tbx SYSTEM "file:///etc/hostname">
<tbx xmlns="urn:iso:std:iso:30042:ed-2"><text><body>
<conceptEntry id="1"><langSec xml:lang="en-US"><termSec><term>house</term></termSec>
<termSec><term>home</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Haus</term></termSec></langSec></conceptEntry>
<conceptEntry id="2"><langSec xml:lang="fr"><termSec><term>chien</term></termSec></langSec></conceptEntry>
</body></text></tbx>
"""
MARTIF = """<martif><text><body><termEntry><langSet xml:lang="EN"><tig><term>house</term></tig></langSet>
<langSet xml:lang="DE"><ntig><termGrp><term>Haus</term></termGrp></ntig></langSet></termEntry>
</body></text></martif>
"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "house\tHaus\nPython\t\n\ncompany\tFirma|Unternehmen\n",
         [("house", ("Haus",)), ("Python", ()), ("company", ("Firma", "Unternehmen"))]),
        ("a.tsv", "note\tde\ten\n x\tHaus\thouse\n", [("house", ("Haus",))]),
        ("a.csv", 'source;target\n"house";"Haus; groß"\n', [("house", ("Haus; groß",))]),
        ("a.csv", "house,Haus\r\nhouse,Heim\r\n", [("house", ("Haus", "Heim"))]),
        ("a.tsv", '"the ""big"" one"\t"der ""Große"""\nhouse\tHaus\n',
         [('the "big" one', ('der "Große"',)), ("house", ("Haus",))]),
        ("a.tsv", '3" screw\tZollschraube\n', [('3" screw', ("Zollschraube",))]),
        ("a.tsv", "de-DE\ten-US\nHaus\thouse\nHund\t\n", [("house", ("Haus",))]),
        ("a.tsv", "Source Term\tTarget Term\nhouse\n", [("house", ())]),
        ("a.tsv", "cafe\u0301\tCafe\u0301\n", [("café", ("Café",))]),
        ("a.tbx", TBX, [("house", ("Haus",)), ("home", ("Haus",))]),
        ("a.tbx", MARTIF, [("house", ("Haus",))]),
    ],
)  # fmt: skip
def test_files_of_each_kind_are_read(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    terms = read_glossary(tmp_path / name, ("en", "de")).terms
    assert [(term.source, term.targets) for term in terms] == expected


def test_cells_keep_their_spaces_and_lines_are_one(tmp_path):
    (tmp_path / "a.csv").write_text('en,de\n10\xa0km,"zehn\nKilometer"\n', encoding="utf-8")
    (term,) = read_glossary(tmp_path / "a.csv", ("en", "de")).terms
    assert (term.source, term.targets) == ("10\xa0km", ("zehn Kilometer",))


def test_a_variant_of_the_language_counts_where_the_own_one_is_absent(tmp_path):
    of = '<langSet xml:lang="{}"><tig><term>{}</term></tig></langSet>'
    terms = of.format("en", "network") + of.format("zh-Hans", "网络") + of.format("zh-Hant", "網路")
    body = f"<martif><text><body><termEntry>{terms}</termEntry></body></text></martif>"
    (tmp_path / "a.tbx").write_text(body, encoding="utf-8")
    for language, expected in (("zh_Hant", "網路"), ("zh-Hans", "网络")):
        (term,) = read_glossary(tmp_path / "a.tbx", ("en", language)).terms
        assert term.targets == (expected,)
    (term,) = read_glossary(tmp_path / "a.tbx", ("en", "zh")).terms
    assert term.targets == ("网络", "網路")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "house\tHaus\nhome\n", "a source term and a target term with a tab .* 2 is 'home'"),
        ("a.csv", "house\n", "with a comma or semicolon between them, but line 1 is 'house'"),
        ("a.tsv", "\n", "must have terms of en and de, but has none"),
        ("a.tbx", "house\tHaus", "must be TBX, but is no XML"),
        (
            "a.tbx",
            TBX.replace('SYSTEM "file:', '[<!ENTITY a SYSTEM "file:').replace('name">', 'name">]>'),
            "must not define XML entities, but does",
        ),
        ("b.tsv", None, "b.tsv: no such file"),
        ("a.csv", 'house,"' + "x" * 140_000, "is not CSV: field larger"),
        ("a.csv", 'en,de\n"hard disk,Festplatte\nmouse,Maus\n', "is not CSV: unexpected end"),
    ],
)
def test_what_is_no_glossary_is_refused_in_one_line(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said) as error:
        read_glossary(tmp_path / name, ("en", "de"))
    assert "\n" not in str(error.value)
