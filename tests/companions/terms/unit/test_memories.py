"""Translations that were made before."""

import pytest

from transformer_mt import Translator
from transformer_mt.companions.terms.memory import TranslationMemory

PAIRS = [("The dog sleeps in the garden.", "Im Garten schläft der Hund!"), ("A dog. A cat.", "Hund; Katze.")]
MEMORY_OF_PAIRS = TranslationMemory(PAIRS, ("en", "de"))


@pytest.fixture(scope="module")
def plain(tiny_run):
    return Translator.load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def remembering(plain):
    return plain.with_resources(memory=MEMORY_OF_PAIRS)


def test_the_same_text_is_translated_in_the_same_way_and_flagged(remembering, plain):
    lines = ["The dog sleeps in the garden.", " - The dog sleeps  in the garden.", "The bird sings."]
    results = remembering.translate(lines)
    assert results[0].translation == "Im Garten schläft der Hund!" and results[0].flags == ["memory"]
    assert results[1].translation == " - Im Garten schläft der Hund!"
    assert results[2].translation == plain.translate(lines[2:])[0].translation and results[2].flags == []


def test_a_line_is_looked_for_before_its_sentences(remembering, plain):
    both = remembering.translate(["A dog. A cat.", "The dog sleeps in the garden. The bird sings."])
    assert both[0].translation == "Hund; Katze."
    assert both[1].translation.startswith("Im Garten schläft der Hund! ")
    assert both[1].flags[:2] == ["split", "memory"]
    assert both[1].translation.endswith(plain.translate(["The bird sings."])[0].translation)


def test_a_bullet_of_the_memory_is_part_of_its_text(plain):
    pairs = [("- The dog sleeps.", "* Der Hund ruht."), ("1. The cat sleeps.", "1. Die Katze ruht.")]
    remembering = plain.with_resources(memory=TranslationMemory(pairs, ("en", "de")))
    results = remembering.translate([f" {source} " for source, _ in pairs])
    assert [result.translation for result in results] == [f" {target} " for _, target in pairs]
    assert all(result.flags == ["memory"] for result in results)


def test_the_score_of_a_line_is_that_of_what_was_searched(remembering, plain):
    """What the memory had, and what is no text, has no score."""
    (alone,) = plain.translate(["The bird sings."])
    for rest in ("The dog sleeps in the garden.", "www.example.com/abc"):
        (both,) = remembering.translate([f"The bird sings. {rest}"])
        assert both.score == pytest.approx(alone.score) and alone.score < 0


def test_a_given_prefix_is_kept(remembering):
    (result,) = remembering.translate([PAIRS[0][0]], prefixes=["Der"])
    assert result.translation.startswith("Der") and "memory" not in result.flags


def test_what_a_memory_had_is_aligned_as_a_whole(remembering):
    (result,) = remembering.translate([PAIRS[0][0]], align=True)
    (segment,) = result.n_best[0].aligned
    assert (segment.source, segment.target) == ([(0, 29)], [(0, 27)])


def test_another_direction_has_no_memory(plain):
    other = plain.with_resources(memory=TranslationMemory(PAIRS, ("de", "en")))
    assert other.translate([PAIRS[0][0]]) == plain.translate([PAIRS[0][0]])


def test_a_memory_file_is_a_setting_of_load(tiny_run, tmp_path):
    (tmp_path / "memory.tsv").write_text("en\tde\nA dog.\tEin Hündchen.\n", encoding="utf-8")
    translator = Translator.load(tiny_run, device="cpu", memory=tmp_path / "memory.tsv")
    assert translator.translate(["A dog."])[0].translation == "Ein Hündchen."
