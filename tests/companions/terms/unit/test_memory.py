"""Translation memories: the same text, and the most similar one."""

import pytest

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
