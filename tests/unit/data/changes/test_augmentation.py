"""Training pairs changed to how people also write: what changes, how often, and the same when resumed."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.config import TokenizerConfig, load_config
from transformer_mt.config.data_section import AugmentConfig
from transformer_mt.corpora import toy
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks
from transformer_mt.data.changes.augmentation import Augmentation, unchanged_by
from transformer_mt.data.changes.subword_dropout import BpeDropout
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.text_changes import (
    FinalMark,
    LowerCase,
    NoFinalMark,
    TitleCase,
    Typos,
    UpperCase,
    with_typos,
)

PAIRS = list(toy.generate("train", 600))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(PAIRS, TokenizerConfig(vocab_size=450), ["<bt>"])


@pytest.fixture(scope="module")
def pairs(tokenizer, tmp_path_factory):
    """In two files; every source of the first has a tag."""
    folder = tmp_path_factory.mktemp("pairs")
    src = tokenizer.encode_src([src for src, _ in PAIRS])
    src = [[tokenizer.control_ids["<bt>"], *ids] if i < 200 else ids for i, ids in enumerate(src)]
    tgt = tokenizer.encode_tgt([tgt for _, tgt in PAIRS])
    for name, part in (("a", slice(0, 200)), ("b", slice(200, None))):
        write_chunks(folder / name, [(Column.of(src[part]), Column.of(tgt[part]))])
    return EncodedPairs([folder / "a", folder / "b"])


def augmented(pairs, tokenizer, seed=1, max_length=128, dropout=0.0, most_words=10_000, **probabilities):
    config = AugmentConfig(**probabilities)
    augmentation = Augmentation(Rows(pairs), tokenizer, config, seed, max_length)
    if not dropout:
        return augmentation
    return BpeDropout(augmentation, tokenizer, dropout, seed, max_length, True, most_words)


def texts(tokenizer, made, epoch=0, rows=None):
    src, tgt = made.rows(epoch, np.array(range(len(PAIRS)) if rows is None else rows))
    return [(tokenizer.src.decode(a.tolist()), tokenizer.tgt.decode(b.tolist())) for a, b in zip(src, tgt)]


def test_a_change_that_most_pairs_cannot_have_is_said():
    """Without marks at their end, and in a script without capitals."""
    config = AugmentConfig(upper=0.1, lower=0.1, punctuation=0.1, typos=0.1)
    pairs = [("гайда пак.", "x"), ("人人", "天"), ("人人 人。", "天。"), ("早上好", "天")]
    assert list(unchanged_by(config, pairs, ("zh", "zh"))) == [
        "note: data.augment.upper can change 1 of 4 sampled pairs",
        "note: data.augment.lower can change 0 of 4 sampled pairs",
        "note: data.augment.punctuation can change 1 of 4 sampled pairs",
    ]
    assert list(unchanged_by(config, PAIRS, ("en", "de"))) == []


ALL = {"upper": 0.1, "title": 0.1, "lower": 0.1, "punctuation": 0.2, "typos": 0.2}


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_batches_are_planned_by_the_lengths_that_the_changes_make(tokenizer, pairs, dropout):
    made = augmented(pairs, tokenizer, dropout=dropout, max_length=80, **ALL)
    rows = np.random.default_rng(0).permutation(len(pairs))
    lengths, both = made.lengths(3), made.rows(3, rows)
    for of_side, ids in zip(lengths, both):
        assert of_side[rows].tolist() == [len(each) + 1 for each in ids]
        assert of_side.max() <= 80
    batches = TrainingBatches(made, 600, seed=1)
    while batches.epoch == 0:
        assert batches.next_update()[0].num_positions <= 600


def test_a_row_is_the_same_alone_again_and_with_another_order(tokenizer, pairs):
    whole = texts(tokenizer, augmented(pairs, tokenizer, **ALL), epoch=2)
    for row in (0, 7, 599):
        assert texts(tokenizer, augmented(pairs, tokenizer, **ALL), 2, [row]) == [whole[row]]
    assert whole != texts(tokenizer, augmented(pairs, tokenizer, **ALL), epoch=3)
    assert whole != texts(tokenizer, augmented(pairs, tokenizer, seed=2, **ALL), epoch=2)


def test_with_dropout_a_resumed_run_spells_as_one_that_saw_earlier_epochs(tokenizer, pairs):
    """Misspelled words are new in each epoch: they must not take places in the table of words."""
    first = augmented(pairs, tokenizer, dropout=0.3, most_words=300, **ALL)
    for epoch in range(3):
        first.lengths(epoch)
    resumed = augmented(pairs, tokenizer, dropout=0.3, most_words=300, **ALL)
    rows = np.arange(len(pairs))
    for a, b in zip(first.rows(3, rows), resumed.rows(3, rows)):
        assert all(np.array_equal(one, other) for one, other in zip(a, b))


CHANGED = {
    "upper": lambda src, tgt: src == src.upper() and tgt == tgt.upper(),
    "title": lambda src, tgt: all(word[0].isupper() for word in src.split()),
    "lower": lambda src, tgt: src == src.lower() and tgt != tgt.lower(),
    "punctuation": lambda src, tgt: src[-1].isalpha() or src[-2] == src[-1],
}


@pytest.mark.parametrize("key", CHANGED)
def test_as_many_pairs_are_changed_as_the_probability_says(tokenizer, pairs, key):
    found = texts(tokenizer, augmented(pairs, tokenizer, **{key: 0.3}))
    share = sum(CHANGED[key](*pair) for pair in found) / len(found)
    assert share == pytest.approx(0.3, abs=0.06)
    unchanged = [pair for pair, usual in zip(found, PAIRS) if pair == usual]
    assert len(unchanged) / len(found) == pytest.approx(0.7, abs=0.06)


def test_each_corpus_is_changed_as_its_languages_ask(tmp_path):
    words = ["ışık inci", "ipek ılık"]
    tokenizer = Tokenizer.train(
        [(text.upper(), "İ I i ı") for text in words] * 20, TokenizerConfig(vocab_size=290)
    )
    ids = tokenizer.encode_src(words * 2)
    write_chunks(tmp_path / "a", [(Column.of(ids), Column.of(ids))])
    rows, config = Rows(EncodedPairs([tmp_path / "a"])), AugmentConfig(upper=0.999)
    made = Augmentation(rows, tokenizer, config, 1, 200, [(2, ("tr", "en")), (2, ("en", "az"))])
    src, tgt = made.rows(0, np.arange(4))
    read = [(tokenizer.src.decode(a.tolist()), tokenizer.tgt.decode(b.tolist())) for a, b in zip(src, tgt)]
    assert read[0] == ("IŞIK İNCİ", "IŞIK INCI") and read[2] == ("IŞIK INCI", "IŞIK İNCİ")


def test_what_would_be_over_long_stays_as_it_is(tokenizer, pairs):
    longest = int(max(pairs.lengths(0).max(), pairs.lengths(1).max()))
    made = augmented(pairs, tokenizer, max_length=longest, punctuation=0.9)
    assert max(map(int, made.lengths(0)[0])) <= longest
    assert any(pair == usual for pair, usual in zip(texts(tokenizer, made), PAIRS))


def test_a_pair_with_unknown_characters_has_no_text_to_change(tmp_path):
    """It would learn to write what SentencePiece prints for them."""
    plain = TokenizerConfig(vocab_size=300, byte_fallback=False, kind="char", shared=True)
    tokenizer = Tokenizer.train(PAIRS, plain)
    lines = ["A dog ☃ sleeps.", "A dog sleeps."] * 10
    ids = tokenizer.encode_src(lines)
    write_chunks(tmp_path / "a", [(Column.of(ids), Column.of(tokenizer.encode_tgt(["Ein Hund."] * 20)))])
    pairs = EncodedPairs([tmp_path / "a"])
    config = AugmentConfig(upper=0.99)
    augmentation = Augmentation(Rows(pairs), tokenizer, config, 1, 200)
    src, _ = augmentation.rows(0, np.arange(20))
    assert all(src[i].tolist() == ids[i] for i in range(0, 20, 2))
    others = [src[i].tolist() for i in range(1, 20, 2)]
    assert any(row != ids[1] for row in others) and all(UNK not in row for row in others)


def test_a_change_with_unknown_characters_is_not_made(tmp_path):
    """A vocabulary without byte pieces may not have the capitals."""
    plain = TokenizerConfig(vocab_size=100, byte_fallback=False, kind="char", shared=True)
    tokenizer = Tokenizer.train([("a dog sleeps.", "ein hund schläft. A D O G")], plain)
    src, tgt = tokenizer.encode_src(["a dog sleeps.", "a dog."]), tokenizer.encode_tgt(["ein hund."] * 2)
    write_chunks(tmp_path / "a", [(Column.of(src), Column.of(tgt))])
    pairs = EncodedPairs([tmp_path / "a"])
    augmentation = Augmentation(Rows(pairs), tokenizer, AugmentConfig(upper=0.999), 1, 200)
    made_src, made_tgt = augmentation.rows(0, np.arange(2))
    assert UNK in tokenizer.encode_tgt(["EIN HUND."])[0]
    assert [row.tolist() for row in made_src] == src and [row.tolist() for row in made_tgt] == tgt


def test_changes_by_hand():
    rng = Random(1)
    assert UpperCase()("a dog's", "ein Hund", rng) == ("A DOG'S", "EIN HUND")
    assert TitleCase()("a dog's day", "ein Tag", rng) == ("A Dog's Day", "Ein Tag")
    assert LowerCase()("A Dog", "Ein Hund", rng) == ("a dog", "Ein Hund")
    assert NoFinalMark()("Is it?!", "Ist es?", rng) == ("Is it", "Ist es")
    assert NoFinalMark()("Is it", "Ist es?", rng) == ("Is it", "Ist es?")
    assert NoFinalMark()("Good.", "好。", rng) == ("Good", "好")
    src, tgt = Typos()("The old dog sleeps here.", "Der alte Hund schläft hier.", Random(3))
    assert src != "The old dog sleeps here." and tgt == "Der alte Hund schläft hier."
    found = {FinalMark()("Go!", "Geh!", Random(i)) for i in range(40)}
    assert found == {("Go", "Geh"), ("Go!!", "Geh!!"), ("Go!!!", "Geh!!!")}


@given(text=st.text(max_size=80), seed=st.integers(0, 100))
def test_typos_change_letters_only(text, seed):
    found = with_typos(text, Random(seed))
    others = [c for c in text if not c.isalpha()]
    assert [c for c in found if not c.isalpha()] == others
    assert abs(len(found) - len(text)) <= max(1, len(text) // 40)
    assert found == with_typos(text, Random(seed))


@pytest.mark.parametrize(
    "text, kinds", [("The old dog sleeps here.", 4), ("Старый пёс спит.", 4), ("狗在这里睡觉", 3)]
)
def test_typos_of_every_kind(text, kinds):
    found = {with_typos(text, Random(i)) for i in range(200)} - {text}
    swapped = {t for t in found if sorted(t) == sorted(text)}
    dropped = {t for t in found if len(t) == len(text) - 1}
    doubled = {t for t in found if len(t) == len(text) + 1}
    wrong_keys = found - swapped - dropped - doubled
    assert swapped and dropped and doubled and bool(wrong_keys) == (kinds == 4)


def test_a_pair_has_one_case(write_config):
    with pytest.raises(InputError, match="upper, title and lower must sum to at most 1, .* but are 1.2"):
        load_config(write_config(), ["data.augment={upper: 0.6, title: 0.6}"])
