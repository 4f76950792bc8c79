"""Translation memories: the same text, and the most similar one."""

import pytest

from transformer_mt import Translator
from transformer_mt.companions.terms.memory import TranslationMemory, read_memory
from transformer_mt.errors import InputError

PAIRS = [
    ("Press the green button.", "Drücken Sie die grüne Taste."),
    ("Press the red  button.", "Drücken Sie die rote Taste."),
    ("Close the door.", "Schließen Sie die Tür."),
    ("", "nichts"),
    ("Close the door.", "Tür schließen."),
]


@pytest.fixture(scope="module")
def memory():
    return TranslationMemory(PAIRS, ("en", "de"))


def test_the_same_text_has_its_last_translation_whatever_the_white_space(memory):
    assert len(memory) == 3
    assert memory.exact("Press the red button.") == "Drücken Sie die rote Taste."
    assert memory.exact(" Close the  door. ") == "Tür schließen."
    assert memory.exact("close the door.") is None  # capitals count
    assert memory.exact("") is None


TMX = """<?xml version="1.0"?><tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>Close the door.</seg></tuv><tuv xml:lang="de"><seg>Tür zu.</seg></tuv></tu>
</body></tmx>"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tmx", TMX),
        ("a.tsv", "en\tde\nClose the door.\tTür zu.\n"),
        ("b.tsv", "Close the door.\tTür zu.\n"),
    ],
)
def test_files_of_corpora_are_memories(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_memory(tmp_path / name, ("en", "de")).exact("Close the door.") == "Tür zu."


def test_a_file_that_is_no_memory_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_memory(tmp_path / "no.tmx", ("en", "de"))
    (tmp_path / "bad.tmx").write_text("<tmx>", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.tmx: must be a TMX file"):
        read_memory(tmp_path / "bad.tmx", ("en", "de"))


# Translations that were made before.


REMEMBERED = [
    ("The dog sleeps in the garden.", "Im Garten schläft der Hund!"),
    ("A dog. A cat.", "Hund; Katze."),
]
MEMORY_OF_PAIRS = TranslationMemory(REMEMBERED, ("en", "de"))


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
    (result,) = remembering.translate([REMEMBERED[0][0]], prefixes=["Der"])
    assert result.translation.startswith("Der") and "memory" not in result.flags


def test_what_a_memory_had_is_aligned_as_a_whole(remembering):
    (result,) = remembering.translate([REMEMBERED[0][0]], align=True)
    (segment,) = result.n_best[0].aligned
    assert (segment.source, segment.target) == ([(0, 29)], [(0, 27)])


def test_another_direction_has_no_memory(plain):
    other = plain.with_resources(memory=TranslationMemory(REMEMBERED, ("de", "en")))
    assert other.translate([REMEMBERED[0][0]]) == plain.translate([REMEMBERED[0][0]])
