"""What a translation keeps: lines and sentences without words, the edges of a line, usual placeholders."""

import pytest

from transformer_mt.run_folder import RunFolder
from transformer_mt.text.sentences import match_end
from transformer_mt.translator import Translator

FIXED = [
    "...", "42", "🌷🌷🌷🌷 🌷", "!?", "-", " * * *", "https://example.org/x?y=1", "a@b.cd", "{name}", "5 kg ",
    "\t%1$s",
]  # fmt: skip


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.load(tiny_run, device="cpu")


def changed(translator, **decode):
    return Translator(
        translator.engine,
        translator.tokenizer,
        translator.configs[0],
        translator.decode.model_copy(update=decode),
    )


@pytest.mark.parametrize("options", [{}, {"n_best": 3}, {"align": True}, {"protect": r"\d+"}])
def test_what_has_no_words_is_not_translated(translator, options):
    mixed = [*FIXED, "The dog sleeps."]
    results = translator.translate(mixed, **options)
    for line, result in zip(FIXED, results):
        assert result.translation == line and result.flags == ["unchanged"] and not result.problems
        assert [candidate.translation for candidate in result.n_best] == [line]
    assert results[-1].translation == translator.translate(["The dog sleeps."])[0].translation
    assert "unchanged" not in results[-1].flags


def test_a_sentence_without_words_stays_between_others(translator):
    first, second = (
        result.translation for result in translator.translate(["The dog sleeps.", "A cat sings."])
    )
    (line,) = changed(translator, split_sentences=True).translate(
        ["The dog sleeps. {name} A cat sings."], align=True, n_best=2
    )
    assert line.translation.startswith(first) and "{name}" in line.translation
    assert len(line.n_best) == 2 and line.n_best[0].aligned


@pytest.mark.parametrize(
    "before, after", [("  ", ""), ("\t- ", ""), ("• ", "  "), ("2) ", ""), ("12. ", " ")]
)
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
