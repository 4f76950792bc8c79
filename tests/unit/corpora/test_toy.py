import pytest

from transformer_mt.corpora import toy


@pytest.fixture(scope="module")
def train():
    """20,000 sentences and their translations."""
    return dict(toy.generate("train", 20_000))


def words(sentence):
    return sentence.lower().strip(".").replace(",", "").split()


def test_pairs_are_distinct_deterministic_and_a_longer_list_begins_with_the_shorter(train):
    assert len(train) == 20_000
    assert list(train.items())[:100] == list(toy.generate("train", 100))


def test_splits_are_disjoint_and_test_sentences_ask_for_something_new(train):
    """Recomputed from the words themselves: each test sentence holds an adjective before a noun, or a verb
    with an object, that no training sentence has.
    """
    test, valid = (dict(toy.generate(split, 500)) for split in ("test", "valid"))
    assert not train.keys() & test.keys()
    assert not train.keys() & valid.keys()
    assert not test.keys() & valid.keys()
    adjectives = {english for english, _ in toy.ADJECTIVES}
    singular = {
        form: noun.en
        for noun in toy.PERSONS + toy.THINGS + [n for _, _, n in toy.PLACES]
        for form in (noun.en, noun.en_plural)
    }

    def adjective_nouns(sentence):
        pairs = zip(words(sentence), words(sentence)[1:])
        return {(a, singular[n]) for a, n in pairs if a in adjectives and n in singular}

    known = set().union(*map(adjective_nouns, train))
    new = [sentence for sentence in test if adjective_nouns(sentence) - known]
    # The others are new in their verb and object, which takes a parser to see from outside.
    assert len(new) > 0.5 * len(test)
    held_out = set().union(*map(adjective_nouns, new)) - known
    assert all(toy._owner(pair) == "test" for pair in held_out)


def test_every_word_of_the_test_set_was_met_in_training(train):
    def of(pairs):
        return {word for pair in pairs for side in pair for word in words(side)}

    assert of(toy.generate("test", 500)) <= of(train.items())


def test_german_agrees_and_orders_its_verbs(train):
    """A sample a German speaker has read."""
    translation = "Die Mutter kann hinter einer schweren Tür weinen."
    assert train["The mother can cry behind a heavy door."] == translation
    german = list(train.values())
    assert any(", weil " in sentence and sentence.endswith(" sieht.") for sentence in german)
    assert any(sentence.startswith("Heute sieht ") for sentence in german)
    assert any(" keinen " in sentence for sentence in german)
    assert not any(" in dem " in sentence or " bei dem " in sentence for sentence in german)


def test_the_language_has_some_200_words():
    groups = [
        "PERSONS", "THINGS", "PLACES", "ADJECTIVES", "TRANSITIVE", "DITRANSITIVE", "INTRANSITIVE",
        "SPEECH", "MODALS", "PRONOUNS", "TIMES", "NUMBERS", "CONJUNCTIONS",
    ]  # fmt: skip
    assert 180 <= sum(len(getattr(toy, group)) for group in groups) <= 260
