"""Lines in capitals are translated in lower case."""

import pytest

from tests.helpers.engines import TableEngine, planned_lines
from transformer_mt import Translator
from transformer_mt.text.languages import to_capitals
from transformer_mt.translation.stages.text_stages import capitals_of, is_in_capitals, to_sentence_case


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A MAN IN A RED HAT.", True),
        ("INTRODUCTION", True),
        ("DO NOT RUN 24/7!", True),
        ("ПРАВИЛА ИГРЫ", True),
        ("NATO", False),  # acronyms are left as they are
        ("EU, NATO", False),
        ("ISO 9001:2015", False),
        ("Do NOT RUN INSIDE", False),
        ("请使用 ADOBE READER 软件", False),  # the letters of the language have no case
        ("12 345 678", False),
        ("", False),
    ],
)
def test_which_texts_are_in_capitals(text, expected):
    assert is_in_capitals(text) is expected


def test_protected_text_does_not_decide():
    text = "HELLO {name} AGAIN"
    assert not is_in_capitals(text)
    assert is_in_capitals(text, [(6, 12)])
    assert not is_in_capitals("{LONG_NAME} EU", [(0, 11)])


@pytest.mark.parametrize(
    "language, text, expected",
    [
        ("en", "(WHEN I SLEEP, I'M AT HOME)", "(When I sleep, I'm at home)"),
        ("de", "EIN HUND. I", "Ein hund. i"),
        ("tr", "ISPARTA VE İZMİR", "Isparta ve izmir"),
        ("en", "TO İZMİR", "To izmir"),
        ("el", "Ο ΔΡΟΜΟΣ ΕΙΝΑΙ", "Ο δρομος ειναι"),
        ("en", "¡123 GO!", "¡123 Go!"),
    ],
)
def test_sentence_case_has_the_same_length(language, text, expected):
    assert to_sentence_case(text, language) == expected
    assert len(expected) == len(text)


def test_capitals_follow_the_language():
    assert to_capitals("die Straße", "de") == list("DIE STRA") + ["SS", "E"]
    assert "".join(to_capitals("ılık izmir", "tr_TR")) == "ILIK İZMİR"


def test_spans_to_keep_stay():
    assert to_sentence_case("SEE {Ab} NOW", "en", [(4, 8)]) == "See {Ab} now"
    assert to_sentence_case("{Ab} NOW", "en", [(0, 4)]) == "{Ab} now"
    assert "".join(capitals_of("sieh {Ab} jetzt", "de", [(5, 9)])) == "SIEH {Ab} JETZT"


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.load(tiny_run, device="cpu")


def answering(translator, answers):
    """A translator with these answers for these sources, best first; it refuses others."""
    engine = TableEngine(translator.tokenizer, answers)
    return Translator(engine, translator.tokenizer, translator.configs[0])


STREET = {"The street is big.": ["Die Straße ist groß.", "Die Straße ist Groß."]}
CAT = {"The cat sings.": ["Die Katze singt."], "The dog sleeps.": ["Der Hund schläft."], "No.": ["Nein."]}


@pytest.mark.parametrize(
    "line, expected",
    [
        ("THE CAT SINGS.", "DIE KATZE SINGT."),
        ("  THE DOG SLEEPS.  THE CAT SINGS. ", "  DER HUND SCHLÄFT.  DIE KATZE SINGT. "),
        ("The dog sleeps. THE CAT SINGS.", "Der Hund schläft. DIE KATZE SINGT."),
        ("THE DOG SLEEPS. NO.", "DER HUND SCHLÄFT. NEIN."),  # short, but so is the line
    ],
)
def test_capitals_are_translated_in_lower_case_and_written_in_capitals(translator, line, expected):
    assert answering(translator, CAT).translate([line])[0].translation == expected


def test_the_n_best_list_has_each_text_in_capitals_once(translator):
    (result,) = answering(translator, STREET).translate(["THE STREET IS BIG."], n_best=2)
    assert [candidate.translation for candidate in result.n_best] == ["DIE STRASSE IST GROSS."]


def test_words_in_capitals_are_aligned(translator):
    """Their letters are counted as they are written: ß is one letter, its capitals SS are two."""
    table = answering(translator, STREET)
    plain, loud = table.translate(["The street is big.", "THE STREET IS BIG."], align=True)
    (mine,), (theirs,) = plain.n_best[0].aligned, loud.n_best[0].aligned
    words = [loud.translation[slice(*span)] for span in theirs.target]
    assert words == ["DIE", "STRASSE", "IST", "GROSS", "."]
    assert mine.source == theirs.source and (mine.weights == theirs.weights).all()


def test_protected_text_keeps_its_letters(translator):
    line = "THE DOG SEES {name} NOW."
    kept = answering(translator, {"The dog sees {name} now.": ["Jetzt sieht er {name}."]})
    assert kept.translate([line], protect=r"\{\w+\}")[0].translation == "JETZT SIEHT ER {name}."
    # What is around it is in capitals also where it is translated apart.
    answers = {"The dog sees {name} now.": ["Er."], "The dog sees": ["Er sieht"], "Now.": ["jetzt."]}
    (result,) = answering(translator, answers).translate([line], protect=r"\{\w+\}", align=True)
    assert result.translation == "ER SIEHT {name} JETZT."
    spans = [span for segment in result.n_best[0].aligned for span in segment.target]
    assert [result.translation[slice(*span)] for span in spans] == ["ER", "SIEHT", "{name}", "JETZT", "."]


def test_a_line_too_long_for_the_model_is_in_lower_case_in_all_its_parts(translator):
    (planned,) = planned_lines(translator, "THE DOG AND " * 60)
    assert len(planned.units) > 1
    assert all(unit.segment.searched.capitalize() == unit.segment.searched for unit in planned.units)


def test_it_can_be_turned_off_and_is_off_with_a_prefix(tiny_run, translator):
    line = "THE DOG SLEEPS."
    off = Translator.load(tiny_run, device="cpu", decode={"lowercase_capitals": False})
    (planned,) = planned_lines(off, line)
    assert planned.units[0].segment.searched == line
    (planned,) = planned_lines(translator, line, prefix="Der")
    assert planned.units[0].segment.searched == line


@pytest.mark.parametrize("direction", [("en", "en"), ("letters", "de")])
def test_capitals_may_matter_within_a_language_and_in_other_tasks(translator, direction):
    (planned,) = planned_lines(translator._with(direction=direction), "THE DOG SLEEPS.")
    assert planned.units[0].segment.searched == "THE DOG SLEEPS."


def test_what_was_translated_from_capitals_has_its_score(tiny_run, translator, tmp_path):
    """The file names the source in lower case, which the search had."""
    import json

    from transformer_mt.evaluation.scoring import pairs_of_json, score

    (result,) = translator.translate(["THE DOG SLEEPS."])
    names = ("source", "translation", "tokens", "segments", "flags")
    row = {name: getattr(result, name) for name in names}
    assert row["segments"] == [{"source": "The dog sleeps.", "tokens": len(result.tokens)}]
    (tmp_path / "out.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (pairs,) = pairs_of_json(translator, str(tmp_path / "out.jsonl"), 10)
    (scored,) = score(translator, pairs)
    assert scored.log_prob == pytest.approx(result.log_prob, abs=1e-3)
