"""Characters that are not seen are not given to a model, but where a script needs them."""

import pytest

from transformer_mt.text.lines import as_read, seen_positions


@pytest.mark.parametrize(
    "text, read",
    [
        ("run\u00adning in the gar\u200bden", "running in the garden"),
        ("\ufeffrun\u2060ning \u200erun\u200dning\u202c", "running running"),
        ("Hund\u200ce", "Hunde"),
        ("می\u200cرود", "می\u200cرود"),
        ("क्\u200dष", "क्\u200dष"),
        ("ไป\u200bมา", "ไป\u200bมา"),
        ("👩\u200d🔬 ❤\ufe0f", "👩\u200d🔬 ❤\ufe0f"),
        ("a\x07b", "a b"),
        ("plain", "plain"),
    ],
)
def test_invisible_characters_are_left_out(text, read):
    assert as_read(text) == read
    assert "".join(text[i] for i in seen_positions(text)).replace("\x07", " ") == read
