"""Translation memories: the same text, and the most similar one."""

import random

import pytest

from transformer_mt.data.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.memories.index import FuzzyIndex, words_of
from transformer_mt.memories.memory import Memory, read_memory

PAIRS = [
    ("Press the green button.", "Drücken Sie die grüne Taste."),
    ("Press the red  button.", "Drücken Sie die rote Taste."),
    ("Close the door.", "Schließen Sie die Tür."),
    ("", "nichts"),
    ("Close the door.", "Tür schließen."),
]


@pytest.fixture(scope="module")
def memory():
    return Memory(PAIRS, ("en", "de"))


def test_the_same_text_has_its_last_translation_whatever_the_white_space(memory):
    assert len(memory) == 3
    assert memory.exact("Press the red button.") == "Drücken Sie die rote Taste."
    assert memory.exact(" Close the  door. ") == "Tür schließen."
    assert memory.exact("close the door.") is None  # capitals count
    assert memory.exact("") is None


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("Press the blue button.", 0.6, ("Press the green button.", 0.8)),  # the first of two
        ("Press the red button", 0.6, ("Press the red  button.", 0.8)),
        ("press the RED button.", 0.6, ("Press the red  button.", 1.0)),
        ("Press the red button.", 0.6, ("Press the green button.", 0.8)),  # never the text itself
        ("Press the blue button.", 0.9, None),
        ("Something else", 0.1, None),
        ("", 0.1, None),
    ],
)
def test_the_most_similar_other_text_is_found(memory, text, least, expected):
    similar = memory.similar(text, least)
    assert (similar and (similar.source, similar.similarity)) == (
        expected and (" ".join(expected[0].split(" ")), pytest.approx(expected[1]))
    )


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, before = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def test_the_index_finds_what_comparing_with_every_text_finds():
    texts = [english for english, _ in toy.generate("train", 1500)]
    index, rng = FuzzyIndex(texts), random.Random(1)
    found = 0
    for text in rng.sample(texts, 60):
        words = text.split()
        words[rng.randrange(len(words))] = "xylophone"
        asked = words_of(" ".join(words))
        every = [1 - edit_distance(asked, own) / max(len(asked), len(own)) for own in map(words_of, texts)]
        best = index.most_similar(" ".join(words), 0.5)
        if max(every) >= 0.5:
            assert best is not None and best[1] == pytest.approx(every[best[0]])
            found += best[1] == pytest.approx(max(every))
    assert found > 55  # candidates are those with the most of the rare words: nearly always the best


def test_an_index_of_nothing_finds_nothing():
    assert FuzzyIndex([]).most_similar("a dog", 0.1) is None


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
