"""Lines as requests, and answers as lines again."""

import pytest

from transformer_mt.companions.teacher.prompt import LanguageModelConfig, Prompt

LINES = ["The dog sleeps.", "Two cats.", "Four."]


def prompt(**keys):
    settings = LanguageModelConfig(endpoint="http://localhost/v1", model="m", **keys)
    return Prompt(settings, ("en", "de"))


def read(text, count=3, **keys):
    return [tuple(answer) for answer in prompt(lines=8, **keys).read(text, LINES[:count])]


def test_a_request_holds_one_text_or_numbered_lines():
    alone = prompt().of(["The dog sleeps."])
    assert alone.endswith("in one line.\n\nThe dog sleeps.") and "from English to German" in alone
    several = prompt(lines=8).of(LINES)
    assert several.endswith("\n\n1. The dog sleeps.\n2. Two cats.\n3. Four.")
    assert prompt(lines=8).of(LINES[:1]) == alone


def test_a_prompt_of_the_users_own_is_followed():
    custom = prompt(prompt="{source}: {text}\n{target} {}:")
    assert custom.of(["A {target} {text}."]) == "English: A {target} {text}.\nGerman {}:"
    # One that asks for numbers gets them for a lone line, too.
    numbered = prompt(prompt="Keep the numbers.\n{text}", lines=4)
    assert numbered.of(["Four."]) == "Keep the numbers.\n1. Four."
    assert numbered.read("1. Vier.", ["Four."]) == [("Vier.", None)]


def test_terms_of_the_lines_are_named(tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\tHund|Köter\ncat\tKatze\nmouse\tMaus\n", encoding="utf-8")
    with_terms = prompt(lines=8, glossary=str(tmp_path / "terms.tsv"))
    assert "Translate these terms so: dog = Hund; cat = Katze.\n\n1." in with_terms.of(LINES)
    assert "terms" not in with_terms.of(["Four."])


def test_numbered_lines_are_read():
    good = [("Der Hund schläft.", None), ("Zwei Katzen.", None), ("Vier.", None)]
    assert read("1. Der Hund schläft.\n2. Zwei Katzen.\n3. Vier.") == good
    assert read("Here are the lines:\n\n1) Der Hund schläft.\n\n 2: Zwei Katzen.\n3. Vier.\n") == good
    assert read("<think>Line 1. Hm.\n1. The</think>\n1. Der Hund schläft.\n2. Zwei Katzen.\n3. Vier.") == good
    assert read("1. Am 3. Mai.\n2. 3.5 Katzen.\n3.")[:2] == [("Am 3. Mai.", None), ("3.5 Katzen.", None)]
    assert read("1. Am 3. Mai.\n2. 3.5 Katzen.\n3.")[2] == ("", "empty")


@pytest.mark.parametrize(
    "text",
    [
        "1. Der Hund schläft.\n2. Zwei Katzen. Vier.",
        "1. Der Hund schläft.\n3. Zwei Katzen.\n2. Vier.",
        "1. Der Hund\n2. schläft.\n3. Zwei Katzen.\n4. Vier.",
        "1. Der Hund schläft.\n2. Zwei Katzen.\n2. Zwei Katzen.\n3. Vier.",
        "Der Hund schläft.\nZwei Katzen.\nVier.",
        "",
    ],
)
def test_with_other_numbers_no_line_is_trusted(text):
    assert [reason for _, reason in read(text)] == ["numbering"] * 3


def test_what_goes_on_below_a_line_is_chatter():
    assert [reason for _, reason in read("1. Der Hund.\n2. Zwei.\n3. Vier.\n```\n\nAnything else?")] == [
        None
    ] * 3
    reasons = [reason for _, reason in read("1. Der Hund.\n2. Zwei Katzen.\n3. Vier.\nAnything else?")]
    assert reasons == [None, None, "chatter"]
    assert [reason for _, reason in read("Der Hund.\n\nNote: it sleeps.", count=1)] == ["chatter"]
    assert [reason for _, reason in read(" \n", count=1)] == ["empty"]
