"""Random office documents through a model that writes capitals come back as they were, member by member, but
for the words.
"""

import re
import zipfile
from io import BytesIO

import pytest

from tests.companions.documents.unit.office_files import FILES, random_file
from tests.helpers.upper_case import capitals, upper_case_translator
from transformer_mt.companions.documents.document_translation import translate_pieces
from transformer_mt.companions.documents.office.documents import OfficeDocument

_STAYS = re.compile(r"\{name\}|https:\S+|\d* ?kg|&[^;\s]+;")
"""What no translation changes."""


def translated(raw, format, translator):
    document = OfficeDocument.read(raw, format, "en", "the file")
    return document.written("".join(p.written for p in translate_pieces(translator, document.pieces())))


def members(raw):
    with zipfile.ZipFile(BytesIO(raw)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("format", FILES)
def test_only_the_words_change(format, count):
    translator = upper_case_translator(split_sentences=False)
    for seed in range(count):
        raw, texts = random_file(format, seed)
        before, after = members(raw), members(translated(raw, format, translator))
        assert list(after) == list(before)
        for name, content in after.items():
            if name in texts:
                assert capitals(content) == capitals(before[name]), f"seed {seed}, {name}"
                words = _STAYS.sub("", re.sub(r"<[^>]*>", "", content))
                assert words == capitals(words), f"seed {seed}, {name}"
            else:
                assert content == before[name]
