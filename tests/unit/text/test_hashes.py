"""Hashes of sentences and pairs, and the mixing of numbers."""

import numpy as np
import pytest

from transformer_mt.text.hashes import near_text, pair_key, sentence_key, splitmix64


def test_numbers_are_mixed_as_published():
    """The first three numbers of SplitMix64 with the seed 1234567, from its authors' code."""
    gamma, state = 0x9E3779B97F4A7C15, 1234567
    found = [splitmix64((state + i * gamma) % 2**64) for i in (1, 2, 3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_arrays_are_mixed_as_numbers_are():
    numbers = [0, 1, 2**63, 2**64 - 1, 12345678901234567890]
    assert splitmix64(np.array(numbers, np.uint64)).tolist() == list(map(splitmix64, numbers))


@pytest.mark.parametrize("other", ["the DOG  sleeps.", "The dog sleeps. ", "Ｔhe dog sleeps."])
def test_a_sentence_is_the_same_in_other_spelling(other):
    assert sentence_key(other) == sentence_key("The dog sleeps.") != sentence_key("The dog sleeps")


def test_near_duplicates_differ_in_capitals_spacing_marks_and_digits_alone():
    pair = ("It is 10 km.", "Es sind 10 km.")
    near = ("it is 27 km", "Es sind 27  km!")
    assert pair_key(pair) != pair_key(near) and pair_key(pair, near=True) == pair_key(near, near=True)
    assert pair_key(pair, near=True) != pair_key(("It is 10 m.", "Es sind 10 km."), near=True)


def test_vowel_signs_make_words_differ():
    """Masculine and feminine forms of Hindi are no near-duplicates."""
    assert near_text("खाता") != near_text("खाती") and near_text("ที่") != near_text("ทั")
    assert near_text("İSTANBUL") == near_text("istanbul") and near_text("ok ❤\ufe0f") == near_text("ok ❤")
    assert near_text("كِتَاب") == near_text("كتاب") and near_text("שָׁלוֹם") == near_text("שלום")


def test_a_text_without_letters_is_itself():
    assert near_text(" ?! ") == "?!" and near_text("...") != near_text("!!!")


def test_the_sides_of_a_pair_are_kept_apart():
    assert pair_key(("a", "bc")) != pair_key(("ab", "c")) != pair_key(("abc", ""))
    assert pair_key((" a", "b ")) == pair_key(("a", "b")) != pair_key(("b", "a"))
