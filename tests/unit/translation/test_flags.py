import pytest

from transformer_mt.translation.stages.text_stages import text_flags
from transformer_mt.translator import Translator


@pytest.mark.parametrize(
    "source, translation, flags",
    [
        ("A dog sleeps.", "Ein Hund schläft.", []),
        ("A dog sleeps.", "A dog sleeps.", ["copied"]),
        ("Berlin", "Berlin", []),
        ("It costs 1,250.50 in 2019", "Es kostet 1.250,50 im Jahr 2019", []),
        ("It costs 1,250.50 in 2019", "Es kostet 1.250,50", ["missing_number"]),
        ("In 2010, 15 people came", "2010 kamen 15 Leute", []),
        ("I have 3 5 7", "Ich habe 3, 5 und 7", []),
        ("It is 3.5 high", "Es ist 35 hoch", ["missing_number"]),
        ("It is 3.5 high at 10:30", "Es ist 3,5 hoch um 10.30 Uhr", []),
        ("1 250 000 in 2019 300", "1.250.000 in 2019 300", []),
        ("他在北京看见一只狗", "他在北京看见一只狗", ["copied"]),
        ("北京", "北京", []),
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


@pytest.mark.parametrize("unit", ["a", "q7", ".", "a.b-", "1,", "@", "www."])
def test_an_endless_line_takes_time_in_proportion(unit):
    text = unit * (400_000 // len(unit))  # an hour, if time grew with the square of the length
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
