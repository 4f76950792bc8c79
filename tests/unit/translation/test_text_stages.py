"""The stages of text: capitals, flags, and lines that have nothing to translate."""

import pytest

from tests.helpers.engines import TableEngine, planned_lines
from transformer_mt import Translator
from transformer_mt.run_folder import RunFolder
from transformer_mt.text.sentences import match_end
from transformer_mt.translation.stages.text_stages import (
    capitals_of,
    is_in_capitals,
    text_flags,
    to_sentence_case,
)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A MAN IN A RED HAT.", True),
        ("INTRODUCTION", True),
        ("DO NOT RUN 24/7!", True),
        ("ПРАВИЛА ИГРЫ", True),
        ("NATO", False),  # acronyms are left as they are
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


def test_capitals_stay_with_a_prefix_within_a_language_and_in_other_tasks(translator):
    """And where decode.lowercase_capitals is off: test_decode_keys.py."""
    line, same, task = "THE DOG SLEEPS.", ("en", "en"), ("letters", "de")
    for planned in (
        planned_lines(translator, line, prefix="Der"),
        *(planned_lines(translator._with(direction=direction), line) for direction in (same, task)),
    ):
        assert planned[0].units[0].segment.searched == line


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


#


@pytest.mark.parametrize(
    "source, translation, flags",
    [
        ("A dog sleeps.", "A dog sleeps.", ["copied"]),
        ("Berlin", "Berlin", []),
        ("It costs 1,250.50 in 2019", "Es kostet 1.250,50 im Jahr 2019", []),
        ("It costs 1,250.50 in 2019", "Es kostet 1.250,50", ["missing_number"]),
        ("I have 3 5 7", "Ich habe 3, 5 und 7", []),
        ("It is 3.5 high", "Es ist 35 hoch", ["missing_number"]),
        ("It is 3.5 high at 10:30", "Es ist 3,5 hoch um 10.30 Uhr", []),
        ("1 250 000 in 2019 300", "1.250.000 in 2019 300", []),
        ("他在北京看见一只狗", "他在北京看见一只狗", ["copied"]),
        ("5 dogs and 5 cats", "5 Hunde und Katzen", ["missing_number"]),
        ("See https://a.org/b?c=1.", "Siehe https://a.org/b?c=1!", []),
        ("See https://a.org/b.", "Siehe da.", ["missing_url"]),
        ("Write to x.y@z.org", "Schreib", ["missing_url"]),
        ("A dog", "der der der der", ["repeating"]),
        ("A dog at a ball", "Hund am Ball Hund am Ball Hund am Ball Hund am Ball", ["repeating"]),
        ("Wait ........", "Warte . . . . .", []),
        ("A dog", "Ein " + " ".join(f"Wort{i}" for i in range(20)), ["length_ratio"]),
    ],
)
def test_what_looks_wrong_is_flagged_and_nothing_else(source, translation, flags):
    tokens = [f"▁{word}" for word in translation.split()]
    assert list(text_flags(source, translation, len(source.split()), tokens)) == flags


@pytest.mark.parametrize("unit", ["q7", ".", "a.b-", "1,", "www."])
def test_an_endless_line_takes_time_in_proportion(unit):
    text = unit * (200_000 // len(unit))  # a quarter of an hour, if time grew with the square of the length
    assert "copied" not in list(text_flags(text, text + " x", 1000, ["x"] * 1000))


def test_nothing_is_suspected_where_a_side_is_no_natural_language(untrained_run):
    folder = untrained_run()
    line = "The dog sees 37 birds at www.example.org."
    assert "missing_number" in Translator.load(folder).translate([line])[0].flags
    file = folder / "config.yaml"
    text = file.read_text(encoding="utf-8")
    assert "target_lang: de" in text
    file.write_text(text.replace("target_lang: de", "target_lang: phonemes"), encoding="utf-8")
    assert "missing_number" not in Translator.load(folder).translate([line])[0].flags


# What a translation keeps: lines and sentences without words, the edges of a line, usual placeholders.


FIXED = [
    "...", "42", "🌷🌷🌷🌷 🌷", "!?", "-", " * * *", "https://example.org/x?y=1", "a@b.cd", "{name}", "5 kg ",
    "\t%1$s",
]  # fmt: skip


def changed(translator, **decode):
    settings = translator.decode.model_copy(update=decode)
    return Translator(translator.engine, translator.tokenizer, translator.configs[0], settings)


@pytest.mark.parametrize("options", [{}, {"n_best": 3, "align": True, "protect": r"\d+"}])
def test_what_has_no_words_is_not_translated(translator, options):
    mixed = [*FIXED, "The dog sleeps."]
    results = translator.translate(mixed, **options)
    for line, result in zip(FIXED, results):
        assert result.translation == line and result.flags == ["unchanged"] and not result.problems
        assert [candidate.translation for candidate in result.n_best] == [line]
    assert results[-1].translation == translator.translate(["The dog sleeps."])[0].translation
    assert "unchanged" not in results[-1].flags


def test_a_sentence_without_words_stays_between_others(translator):
    (first,) = translator.translate(["The dog sleeps."])
    (line,) = changed(translator, split_sentences=True).translate(
        ["The dog sleeps. {name} A cat sings."], align=True, n_best=2
    )
    assert line.translation.startswith(first.translation) and "{name}" in line.translation
    assert len(line.n_best) == 2 and line.n_best[0].aligned


@pytest.mark.parametrize("before, after", [("  ", ""), ("\t- ", "  "), ("12. ", " ")])
def test_the_edges_of_a_line_stay(translator, before, after):
    (plain,) = translator.translate(["The dog sleeps."], align=True, n_best=2)
    (result,) = translator.translate([f"{before}The dog sleeps.{after}"], align=True, n_best=2)
    assert result.translation == f"{before}{plain.translation}{after}"
    assert [c.translation for c in result.n_best] == [f"{before}{c.translation}{after}" for c in plain.n_best]
    assert result.tokens == plain.tokens and result.source_tokens == plain.source_tokens
    moved = plain.n_best[0].aligned[0].moved(len(before), len(before))
    aligned = result.n_best[0].aligned[-1]  # a bullet is a segment of its own
    assert (aligned.source, aligned.target) == (moved.source, moved.target)


def test_a_prefix_begins_the_line(translator):
    (result,) = translator.translate(["  - The dog sleeps."], prefixes=["Der"])
    assert result.translation.startswith("Der")


def test_placeholders_pass_unless_that_is_turned_off(translator):
    line = "The dog sees {name} and 5 kg of https://a.example/b today."
    (kept,) = translator.translate([line])
    assert all(part in kept.translation for part in ("{name}", "5 kg", "https://a.example/b"))
    (free,) = changed(translator, protect_usual=False).translate([line])
    assert "{name}" not in free.translation and {"missing_number", "missing_url"} <= set(free.flags)


def test_an_end_is_matched_where_that_is_asked_for(translator):
    menu = changed(translator, match_ends=True)
    for line in ("The dog sleeps", "The dog sleeps."):
        plain, matched = (one.translate([line], align=True)[0] for one in (translator, menu))
        assert matched.translation.rstrip(".!?") == plain.translation.rstrip(".!?")
        assert matched.translation.endswith((".", "!", "?")) is line.endswith(".")


def test_texts_that_become_the_same_at_their_ends_are_shown_once(translator):
    menu = changed(translator, match_ends=True, beam=4)
    (result,) = menu.translate(["The dog sleeps"], n_best=4, align=True)
    texts = [candidate.translation for candidate in result.n_best]
    (as_searched,) = changed(translator, beam=4).translate(["The dog sleeps"], n_best=4)
    ended = [match_end("a", candidate.translation, "de") for candidate in as_searched.n_best]
    assert texts == list(dict.fromkeys(ended)) and len(texts) < len(ended)
    for candidate in result.n_best:
        ends = [end for segment in candidate.aligned for _, end in segment.target]
        assert max(ends) == len(candidate.translation)


def test_a_control_character_is_a_space_with_a_flag(translator):
    damaged, plain = translator.translate(["The\0dog\x07sleeps.", "The dog sleeps."])
    assert damaged.translation == plain.translation
    assert damaged.flags == ["control_character", *plain.flags]
    assert damaged.problems[0] == "control character U+0000, U+0007 was read as a space"
    (number,) = translator.translate(["4\x002"])
    assert number.translation == "4\x002" and number.flags == ["unchanged", "control_character"]


def test_tasks_without_natural_languages_translate_everything(translator):
    config = translator.configs[0]
    task = config.model_copy(update={"data": config.data.model_copy(update={"source_lang": "digits"})})
    other = Translator(translator.engine, translator.tokenizer, task)
    (result,) = other.translate(["  42"])
    assert "unchanged" not in result.flags and result.tokens


def test_scores_of_fixed_and_bulleted_lines_are_those_of_their_words(tiny_run, tmp_path, cli):
    source = tmp_path / "in.txt"
    source.write_text("42\n- The dog sleeps.\nThe dog sleeps.\n", encoding="utf-8")
    assert cli("translate", tiny_run, "-i", source, "-o", tmp_path / "out.jsonl", "--json")[0] == 0
    status, out, _ = cli("score", tiny_run, "--translations", tmp_path / "out.jsonl")
    fixed, bulleted, plain = (line.split("\t")[0] for line in out.splitlines()[:3])
    assert status == 0 and bulleted == plain and float(fixed) == 0
    assert RunFolder(tiny_run).config().decode.protect_usual
