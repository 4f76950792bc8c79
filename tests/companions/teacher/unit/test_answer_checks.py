"""What a language model may answer that is no translation."""

import pytest

from transformer_mt.companions.teacher.answer_checks import checks_of
from transformer_mt.companions.teacher.teacher_section import _CHECKS

GERMAN, ENGLISH = checks_of(_CHECKS, ("en", "de")), checks_of(_CHECKS, ("de", "en"))


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
        ("I'm sorry.", "Es tut mir leid.", None),
        ("The dog sleeps in the garden.", "the dog sleeps, in the garden", "copy"),
        ("Angela Merkel", "Angela Merkel.", "copy"),
        ("The dog sleeps in the garden.", "Le chien dort dans le jardin de la maison.", "language"),
        ("The dog sleeps in the garden.", "Собака спит в саду за домом.", "language"),
        ("Yes.", "Ja, das ist ein sehr langer Satz, der gar nicht hier steht, denn er ist lang.", "length"),
        ("The dog sleeps.", "**Der Hund schläft.**", "markup"),
        ("The <b>dog</b> sleeps.", "Der Hund schläft.", "markup"),
        ("The <b>dog</b> sleeps.", "Der <b>Hund</b> schläft.", None),
        ("In 1984 dogs slept.", "1985 schliefen die Hunde.", "numbers"),
        ("The dogs sleep and sleep.", "Die Hunde schlafen schlafen schlafen schlafen schlafen.", "repeating"),
    ],
)
def test_the_first_check_that_fails_is_named(source, translation, reason):
    assert GERMAN(source, translation) == reason


def test_apologies_of_the_text_itself_are_translated():
    assert ENGLISH("Der Hund schläft.", "I'm sorry, I cannot help with that.") == "chatter"
    assert GERMAN("Note: the dog sleeps.", "Note: der Hund schläft hier im Haus.") is None


def test_only_what_is_asked_for_is_checked():
    assert checks_of([], ("en", "de"))("The dog sleeps.", "Sure, here it is!") is None
    assert checks_of(["script"], ("en", "de"))("The dog sleeps.", "Собака спит в саду.") == "script"
    assert checks_of(["language"], ("en", "xx"))("The dog sleeps.", "Собака спит в саду.") is None
