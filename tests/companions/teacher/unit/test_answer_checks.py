"""Answers of language models that are no translations."""

from typing import get_args

import pytest

from transformer_mt.companions.teacher.answers import checks_of
from transformer_mt.companions.teacher.prompt import Check

GERMAN, ENGLISH = checks_of(get_args(Check), ("en", "de")), checks_of(get_args(Check), ("de", "en"))


@pytest.mark.parametrize(
    "source, translation, reason",
    [
        ("The dog sleeps in 1984.", "Der Hund schläft im Jahr 1984.", None),
        ("The dog sleeps.", "Translation: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "German: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "Deutsch: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", '"Der Hund schläft."', "chatter"),
        ('"The dog sleeps."', "„Der Hund schläft.“", None),
        ('"No", he said.', "„Nein“, sagte er.", None),
        ("The dog sleeps.", "I'm sorry, but I can’t translate this.", "chatter"),
        ("The dog sleeps.", "As an AI language model I have no dog.", "chatter"),
        ("The dog sleeps.", "Sure, here is the translation.", "chatter"),
        ("The dog sleeps.", "Hier ist die Übersetzung: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "1. Der Hund schläft.", "chatter"),
        ("3 May it is.", "3. Mai ist es.", None),
        ('He says, "I sleep."', "Er sagt: „Ich schlafe.“", None),
        ("'The dog sleeps.'", "„Der Hund schläft.“", None),
        ("The dog sleeps.", "Gerne! Hier ist die Übersetzung: Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "[Translation] Der Hund schläft.", "chatter"),
        ("The dog sleeps.", "Der Hund schläft. (Note: it may be a bitch.)", "chatter"),
        ("The dog sleeps.", "The dog sleeps. -> Der Hund schläft.", "copy"),
        ("The dog sleeps.", "Der Hund schläft. Der Hund schläft.", "repeating"),
        ("The dog sleeps.", '{"translation": "Der Hund schläft."}', "markup"),
        ("The dog sleeps.", "Der Hund schläft.<|im_end|>", "markup"),
        ("The dog sleeps.", "...", "length"),
        ("I'm sorry.", "Es tut mir leid.", None),
        ("The dog sleeps in the garden.", "the dog sleeps, in the garden", "copy"),
        ("Angela Merkel", "Angela Merkel.", "copy"),
        ("The dog sleeps in the garden.", "Le chien dort dans le jardin de la maison.", "language"),
        ("The dog sleeps in the garden.", "Собака спит в саду за домом.", "language"),
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
        ("Gut, gehen wir.", "Okay, let's go."),
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
