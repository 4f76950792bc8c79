"""The rules of data.filter: what each drops, what it must not drop, and what repairs do before."""

import sys
from collections import Counter

import pytest

from transformer_mt.data.cleaning_rules import check_filter, length_reason, reason_table, repaired, rules_of
from transformer_mt.errors import InputError
from transformer_mt.settings.corpus_keys import FilterConfig
from transformer_mt.text.languages import is_same_language, script_share


def reasons(pair, languages=("en", "de"), **chosen):
    """The drop reason of the pair, or None."""
    return next((r.reason for r in rules_of(FilterConfig(**chosen), languages) if r.drops(*pair)), None)


@pytest.mark.parametrize(
    "src, tgt, is_dropped",
    [
        ("Photo: Reuters", "photo - reuters!", True),
        ("मेरा", "मेरी", False),  # vowels are signs
        ("1.", "1.", False),  # the same in every language
    ],
)
def test_copy(src, tgt, is_dropped):
    assert reasons((src, tgt), copy=True) == ("copy" if is_dropped else None)


@pytest.mark.parametrize(
    "src, tgt, lang, is_dropped",
    [
        ("A dog runs.", "Собака бежит.", "de", True),
        ("A dog runs.", "Собака бежит.", "ru", False),
        ("My name is Tom.", "我叫Tom。", "zh", False),
        ("42", "42", "zh", False),
        ("A dog runs.", "Ein Hund — Собака — rennt.", "de", False),
        ("A dog runs.", "Паc трчи.", "sr", False),
        ("A dog runs.", "Паc трчи.", "sr_Latn", True),
        ("A dog runs.", "A dog runs.", "rus", True),
        ("A dog runs.", "कुत्ता दौड़ता है।", "hin_Deva", False),
        ("A dog runs.", "whatever", "xx", False),  # a language whose script is not known
    ],
)
def test_script(src, tgt, lang, is_dropped):
    assert reasons((src, tgt), ("en", lang), script=True) == ("script" if is_dropped else None)


def test_the_share_of_a_script():
    assert script_share("abc где", "ru") == 0.5
    assert script_share("abc", "en") == 1.0
    assert script_share("12.", "en") is None
    assert script_share("犬がいるスーパー", "ja") == 1.0


@pytest.mark.parametrize(
    "src, tgt, is_dropped",
    [
        ("The dog runs through the garden.", "Der Hund rennt durch den Garten.", False),
        ("Le chien court à travers le jardin.", "Der Hund rennt durch den Garten.", True),
        ("The dog runs through the garden.", "The cat sleeps in the house.", True),
        ("OK!", "OK!", False),  # too short to know
    ],
)
def test_language(src, tgt, is_dropped):
    assert reasons((src, tgt), language=True) == ("language" if is_dropped else None)


def test_a_language_nothing_is_known_of_is_refused():
    with pytest.raises(InputError, match="py3langid does not know the language tlh; set"):
        rules_of(FilterConfig(language=True), ("en", "tlh"))


def test_codes_of_one_language():
    assert is_same_language("zh_Hans", "zh") and is_same_language("nb", "no")
    assert not is_same_language("de", "nl")


def test_the_extra_is_named_where_a_package_is_missing(monkeypatch):
    from transformer_mt.text import languages

    languages._model.cache_clear()
    for module, chosen in (
        ("py3langid.langid", {"language": True}),
        ("ftfy", {"encoding": "repair"}),
        ("sacremoses", {"detokenize": True}),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        name = module.partition(".")[0]
        with pytest.raises(InputError, match=rf"{name}, .* is not installed; .*transformer-mt\[clean\]"):
            check_filter(FilterConfig(**chosen), ("en", "de"))


@pytest.mark.parametrize(
    "src, tgt, is_dropped",
    [
        ("It has 25 rooms.", "Es hat 35 Zimmer.", True),
        ("id " + "1" * 5000, "Kennung " + "2" * 5000, True),
        ("1.50 euros or 20", "1,5 Euro oder 20", False),
        ("It has twenty-five rooms.", "Es hat 25 Zimmer.", False),
        ("1,000.50 euros", "1.000,50 Euro", False),
        ("in the 1990s", "in den 90er Jahren", False),
        ("at 8:30 p.m.", "um 20.30 Uhr", False),
        ("at 10 p.m.", "um 22 Uhr", False),
        ("25 rooms", "37 Zimmer", True),
        ("160,000 people", "16万人", False),
        ("on 03/2008", "am 3.2008", False),
        ("rooms 25 and 31", "Zimmer 25 und 41", True),
        ("２５ rooms", "25 Zimmer", False),
        ("2 rooms", "3 Zimmer", False),  # one digit may be a word, or part of a name
    ],
)
def test_numbers(src, tgt, is_dropped):
    assert reasons((src, tgt), numbers=True) == ("numbers" if is_dropped else None)


@pytest.mark.parametrize(
    "text, is_dropped",
    [
        ("<b>bold</b>", True),
        ("Hello {{name}}", True),
        ("see [[Link]]", True),
        ("x < y and y > z", False),
        ("a [note] (here) {one}", False),
    ],
)
def test_markup(text, is_dropped):
    for pair in ((text, "rein"), ("clean", text)):
        assert reasons(pair, markup=True) == ("markup" if is_dropped else None)


@pytest.mark.parametrize(
    "text, is_dropped",
    [
        ("fÃ¼r die KÃ¶nigin", True),
        ("itâ€™s here", True),
        ("ÐŸÑ€Ð¸Ð²ÐµÑ‚", True),
        ("ä¸­æ–‡", True),
        ("a \ufffd b", True),
        ("a \x93quote\x94", True),
        ("&quot;quoted&quot;", True),
        ("it &amp;#39;s", True),
        ("das „MENÜ“ — »ÄÖÜ«", False),
        ("AT&T; R&D", False),
        ("中文，「引號」。", False),
        ("été à l’œuvre…", False),
    ],
)
def test_encoding(text, is_dropped):
    for pair in ((text, "rein"), ("clean", text)):
        assert reasons(pair, encoding="drop") == ("encoding" if is_dropped else None)


def test_repairs():
    pairs = [
        ("fÃ¼r die KÃ¶nigin", "it &amp;quot;s&amp;quot; a&nbsp;b"),
        ("„MENÜ“ ﬁne “quotes” Ｆｕｌｌ", "plain & simple"),
    ]
    chosen = FilterConfig(encoding="repair")
    assert list(repaired(pairs, chosen, ("en", "de"))) == [
        ("für die Königin", 'it "s" a\xa0b'),
        pairs[1],  # nothing else is changed
    ]
    address = "See http://x.org/?a=1&section=2&copy=3&currency=EUR."
    assert list(repaired([(address, "ä")], chosen, ("en", "de"))) == [(address, "ä")]
    tokenised = [("it &apos;s , here ( state @-@ of @-@ art ) .", "das ist &quot; gut &quot; , ja .")]
    joined = list(repaired(tokenised, FilterConfig(detokenize=True), ("en", "de")))
    assert joined == [("it's, here (state-of-art).", 'das ist "gut", ja.')]
    assert list(repaired(tokenised, FilterConfig(), ("en", "de"))) == tokenised
    of_one_side = list(repaired(tokenised, FilterConfig(detokenize="source"), ("en", "de")))
    assert of_one_side == [(joined[0][0], tokenised[0][1])]


def test_spaces_between_chinese_characters_are_removed(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)  # needs no extra
    pairs = [("It 's", "有趣 的 是 ， 他说： “好” 有 2 部 iPhone 手机"), ("It 's", "カメラ　が あります")]
    chosen = FilterConfig(detokenize="target")
    assert [tgt for _, tgt in repaired(pairs, chosen, ("en", "zh"))] == [
        "有趣的是，他说：“好”有 2 部 iPhone 手机",
        "カメラがあります",
    ]


#


def test_misfits():
    assert length_reason(9, 9, max_length=10, max_ratio=4.0) is None
    assert length_reason(10, 9, max_length=10, max_ratio=4.0) == "over-long"
    assert length_reason(2, 18, max_length=100, max_ratio=4.0) is None
    assert length_reason(2, 19, max_length=100, max_ratio=4.0) == "length ratio"
    assert length_reason(19, 2, max_length=100, max_ratio=4.0) == "length ratio"
    assert length_reason(0, 3, max_length=100, max_ratio=4.0) == "empty side"


def test_table_has_a_line_a_reason_with_its_share():
    lines = reason_table(Counter({"read": 1000, "empty side": 10, "kept": 990})).split("\n")
    assert len(lines) == 7 and lines[0].split() == ["read", "1,000", "100.00%"]
    assert lines[1].split() == ["empty", "side", "10", "1.00%"]
