"""Answers that are no translations, in any language; messages that show no key; the limit that is named."""

import base64
import json
from urllib.parse import quote

import pytest

pytest.importorskip("httpx")

from transformer_mt.companions.teacher.answers import Cost, SameAnswers, checks_of
from transformer_mt.companions.teacher.asking import Chat
from transformer_mt.companions.teacher.prompt import LanguageModelConfig, Limit


@pytest.mark.parametrize(
    "source, answer",
    [
        ("A dog sleeps.", "翻译：狗在睡觉。"),
        ("A dog sleeps.", "Übersetzung: Ein Hund schläft."),
        ("A dog sleeps.", "译文﹕狗在睡觉。"),
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
