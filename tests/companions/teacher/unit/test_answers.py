"""Answers of a teacher, their checks, and the prompts that ask for them."""

import base64
import json
from typing import get_args
from urllib.parse import quote

import pytest

pytest.importorskip("httpx")

from transformer_mt.companions.teacher.answers import Cost, SameAnswers, checks_of
from transformer_mt.companions.teacher.asking import Chat
from transformer_mt.companions.teacher.prompt import Check, LanguageModelConfig, Limit, Prompt

GERMAN, ENGLISH = checks_of(get_args(Check), ("en", "de")), checks_of(get_args(Check), ("de", "en"))


@pytest.mark.parametrize(
    "source, translation, reason",
    [
        ("The dog sleeps in 1984.", "Der Hund schläft im Jahr 1984.", None),
        ("The dog sleeps.", "Translation: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "Deutsch: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", '"Der Hund schläft."', "chatter"),
        ('"The dog sleeps."', "„Der Hund schläft.“", None),
        ('"No", he said.', "„Nein“, sagte er.", None),
        ("The dog sleeps.", "I'm sorry, but I can’t translate this.", "chatter"),
        ("The dog sleeps.", "As an AI language model I have no dog.", "chatter"),
        ("The dog sleeps.", "Hier ist die Übersetzung: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "1. Der Hund schläft.", "chatter"),
        ("3 May it is.", "3. Mai ist es.", None),
        ("'The dog sleeps.'", "„Der Hund schläft.“", None),
        ("The dog sleeps.", "Gerne! Hier ist die Übersetzung: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "Der Hund schläft. (Note: it may be a bitch.)", "chatter"),
        ("The dog sleeps.", "The dog sleeps. -> Der Hund schläft.", "copy"),
        ("The dog sleeps.", "Der Hund schläft. Der Hund schläft.", "repeating"),
        ("The dog sleeps.", "Der Hund schläft.<|im_end|>", "markup"),
        ("The dog sleeps.", "...", "length"),
        ("The dog sleeps in the garden.", "the dog sleeps, in the garden", "copy"),
        ("Angela Merkel", "Angela Merkel.", "copy"),
        ("The dog sleeps in the garden.", "Le chien dort dans le jardin de la maison.", "language"),
        ("Yes.", "Ja, das ist ein sehr langer Satz, der gar nicht hier steht, denn er ist lang.", "length"),
        ("The dog sleeps.", "**Der Hund schläft.**", "markup"),
        ("The <b>dog</b> sleeps.", "Der Hund schläft.", "markup"),
        ('The <b title="dog">dog</b> sleeps.', 'Der <b title="Hund">Hund</b> schläft.', None),
        ("In 1984 dogs slept.", "1985 schliefen die Hunde.", "numbers"),
        ("The dogs sleep and sleep.", "Die Hunde schlafen schlafen schlafen schlafen schlafen.", "repeating"),
    ],
)
def test_the_first_check_that_fails_is_named(source, translation, reason):
    assert GERMAN(source, translation) == reason


@pytest.mark.parametrize(
    "source, translation",
    [
        ("Ich kann nicht schlafen.", "I can't sleep."),
        ("Es tut mir leid.", "I'm sorry."),
        ("Natürlich, kommen Sie herein.", "Of course, come in."),
        ("Hier ist mein Haus.", "Here is my house."),
        ("Hinweis: Der Hund schläft.", "Note: The dog is asleep."),
        ("„Der Hund schläft.“", "“The dog is asleep.”"),
        ("「Der Hund schläft.」", '"The dog is asleep."'),
    ],
)
def test_what_people_say_is_no_chatter(source, translation):
    assert ENGLISH(source, translation) is None


def test_assistants_are_known_by_what_they_say_of_themselves():
    for text in ("I'm sorry, but I can't assist with that.", "As an AI, I cannot sleep."):
        assert ENGLISH("Der Hund schläft.", text) == "chatter"
    assert GERMAN("I can't assist him now.", "I can't assist him now, Max.") != "chatter"


def test_only_what_is_asked_for_is_checked():
    assert checks_of([], ("en", "de"))("The dog sleeps.", "Sure, here it is!") is None
    assert checks_of(["script"], ("en", "de"))("The dog sleeps.", "Собака спит в саду.") == "script"
    assert checks_of(["language"], ("en", "xx"))("The dog sleeps.", "Собака спит в саду.") is None


# Answers that are no translations, in any language; messages that show no key; the limit that is named.


@pytest.mark.parametrize(
    "source, answer",
    [
        ("A dog sleeps.", "翻译：狗在睡觉。"),
        ("A dog sleeps.", "Übersetzung: Ein Hund schläft."),
        ("A dog sleeps.", "Ein Hund schläft. (wörtlich)"),
        ("A dog sleeps.", "狗在睡觉（直译）。"),
        ("A dog sleeps.", "Ein Hund schläft / Der Hund schläft."),
        ("The teacher sleeps.", "Der Lehrer/die Lehrerin schläft."),
    ],
)
def test_labels_notes_and_choices_that_the_source_has_not_are_chatter(source, answer):
    assert checks_of(["chatter"], ("en", "de"))(source, answer) == "chatter"


@pytest.mark.parametrize(
    "source, answer",
    [
        ("He said: go.", "他说：走。"),
        ("It is 12:30.", "Es ist 12:30 Uhr."),
        ("the dog (left)", "der Hund (links)"),
        ("fifty kilometres per hour", "fünfzig km/h"),
        ("and/or", "und/oder"),
        ("He said that he goes.", "Er sagte: „Ich gehe.“"),
    ],
)
def test_translations_are_none(source, answer):
    assert checks_of(["chatter"], ("en", "de"))(source, answer) is None


def test_what_answers_unlike_lines_alike_is_no_translation():
    same = SameAnswers()
    lines = [
        "The dog sleeps in the garden.",
        "A woman reads a book at home.",
        "Two children play with a ball.",
    ]
    for line in lines:
        same.add(line, "Lo siento, no puedo traducir este texto.")
    same.add("The dog sleeps in a garden.", "Der Hund schläft.")
    same.add("The dog sleeps in the garden!", "Der Hund schläft.")
    same.add("Hi.", "Hallo.")
    same.add("Hello.", "Hallo.")
    assert "Lo siento, no puedo traducir este texto. " in same
    assert "Der Hund schläft." not in same and "Hallo." not in same


def test_a_message_in_parts_is_read_and_no_spelling_of_the_key_is_shown(monkeypatch):
    key = "sk-secret/key+1="
    monkeypatch.setenv("THE_KEY", key)
    settings = {"endpoint": "http://127.0.0.1:1/v1", "model": "m", "key": "THE_KEY"}
    chat = Chat(LanguageModelConfig.model_validate(settings))
    parts = [
        {"type": "text", "text": "Ein "},
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "Hund."},
    ]
    answer = {"choices": [{"finish_reason": "stop", "message": {"content": parts}}]}
    assert chat._reply(json.dumps(answer).encode()).text == "Ein Hund."
    quoted, digits = quote(key, safe=""), key.encode().hex()
    encoded = base64.b64encode(key.encode()).decode()
    spellings = [key, quoted, quoted.lower(), digits, digits.upper(), encoded, json.dumps(key)]
    for spelled in spellings:
        shown = str(chat.refusal(chat._message(f"401: bad key {spelled} given".encode())))
        assert "secret" not in shown and spelled not in shown and "…" in shown


def test_of_several_limits_the_one_that_is_reached_first_is_named():
    limit = Limit(requests=100, tokens=1000)
    assert Cost(requests=101, prompt_tokens=5000).over(limit) == "teacher.limit.tokens"
    assert Cost(requests=300, prompt_tokens=1100).over(limit) == "teacher.limit.requests"
    assert Cost(requests=99, prompt_tokens=900).over(limit) is None


# Lines as requests, and answers as lines again.


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
