"""BPE-dropout: other segmentations of the same words, the same wherever and whenever they are made."""

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from transformer_mt.config import TokenizerConfig
from transformer_mt.corpora.toy import generate
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks
from transformer_mt.data.changes.change import A, B, random_bits, uniforms
from transformer_mt.data.changes.subword_dropout import BpeDropout, Merges, SubwordDropout
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.hashes import splitmix64

PAIRS = list(generate("train", 600))
LINES = [side for pair in PAIRS for side in pair]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(PAIRS, TokenizerConfig(vocab_size=600))


def segmented(tokenizer, dropout, lines=LINES, seed=1, sample=0, **options):
    column = Column.of(tokenizer.encode_src(lines))
    sampler = SubwordDropout(tokenizer.src, dropout, seed, **options)
    spelled = [ids.tolist() for ids in sampler.segment(column, np.arange(len(lines)), sample)]
    assert sampler.lengths(column, np.arange(len(lines)), sample).tolist() == list(map(len, spelled))
    return spelled


def test_without_dropout_the_merges_are_sentencepieces(tokenizer):
    assert segmented(tokenizer, 0.0) == tokenizer.encode_src(LINES)


def one_by_one(model, word, dropout, key):
    """Algorithm 1 of Provilkov et al. for one word, with the same random numbers."""
    symbols, step = list(word), 0
    ids = {model.id_to_piece(i): i for i in range(model.vocab_size())}
    while True:
        bits, possible = splitmix64((key + step * int(A)) % 2**64), []
        for i, pair in enumerate(pairwise(symbols)):
            merged = ids.get("".join(map(model.id_to_piece, pair)))
            if merged is not None and splitmix64((bits + i * int(B)) % 2**64) / 2**64 >= dropout:
                possible.append((-model.get_score(merged), i, merged))
        if not possible:
            return symbols
        _, i, merged = min(possible)
        symbols[i : i + 2] = [merged]
        step += 1


def test_words_are_merged_together_as_each_alone(tokenizer):
    model, merges, dropout = tokenizer.src, Merges(tokenizer.src), 0.3
    words = sorted({word for line in LINES for word in line.split()})
    letters = [merges.letters(model.encode(word)) for word in words]
    keys = np.random.default_rng(0).integers(2**64, size=len(words), dtype=np.uint64)
    made = merges.merge(letters, dropout, keys)
    expected = [one_by_one(model, word, dropout, int(key)) for word, key in zip(letters, keys)]
    assert [ids.tolist() for ids in made] == expected and len({len(word) for word in letters}) > 5


def test_the_text_stays_and_its_pieces_change(tokenizer):
    """What is no piece is left alone."""
    lines = [*LINES, "☃ 🜚 the dog", "", "ǻ"]
    usual, other = tokenizer.encode_src(lines), segmented(tokenizer, 0.1, lines)
    assert [tokenizer.decode_tgt(ids) for ids in other] == [tokenizer.decode_tgt(ids) for ids in usual]
    changed = sum(a != b for a, b in zip(usual, other)) / len(usual)
    assert 0.3 < changed < 0.95 and other[-2] == []
    assert 1.05 < sum(map(len, other)) / sum(map(len, usual)) < 1.6


def test_another_seed_epoch_or_row_gives_other_segmentations(tokenizer):
    usual = segmented(tokenizer, 0.2)
    assert usual == segmented(tokenizer, 0.2)
    assert usual != segmented(tokenizer, 0.2, seed=2) and usual != segmented(tokenizer, 0.2, sample=1)
    same = segmented(tokenizer, 0.2, ["the elephants sleep and the elephants sleep"] * 40)
    assert len(set(map(tuple, same))) > 20


def test_a_row_is_spelled_the_same_whatever_stands_beside_it(tokenizer):
    sampler, ids = SubwordDropout(tokenizer.src, 0.2, seed=1), tokenizer.encode_src(LINES)
    together = sampler.segment(Column.of(ids), np.arange(len(ids)), sample=3)
    other = SubwordDropout(tokenizer.src, 0.2, seed=1)
    for i in (7, 1000, 3):
        (alone,) = other.segment(Column.of([ids[i]]), np.array([i]), sample=3)
        assert alone.tolist() == together[i].tolist()


def test_words_beyond_the_most_keep_their_segmentation(tokenizer):
    usual = tokenizer.encode_src(LINES)
    few, many = segmented(tokenizer, 0.3, most_words=20), segmented(tokenizer, 0.3)
    assert usual != few != many and sum(map(len, usual)) < sum(map(len, few)) < sum(map(len, many))
    assert [tokenizer.decode_tgt(ids) for ids in few] == [tokenizer.decode_tgt(ids) for ids in usual]
    assert segmented(tokenizer, 0.3, most_words=0) == usual


@pytest.fixture
def pairs(tokenizer, tmp_path):
    """Encoded, in two files, with an empty side."""
    src, tgt = (
        encode([pair[side] for pair in PAIRS])
        for side, encode in enumerate((tokenizer.encode_src, tokenizer.encode_tgt))
    )
    src[0] = []
    for name, part in (("a", slice(0, 100)), ("b", slice(100, None))):
        write_chunks(tmp_path / name, [(Column.of(src[part]), Column.of(tgt[part]))])
    return EncodedPairs([tmp_path / "a", tmp_path / "b"])


def spelled(pairs, tokenizer, dropout, max_length, most_words=1000):
    return BpeDropout(Rows(pairs), tokenizer, dropout, 1, max_length, False, most_words)


def test_the_lengths_of_an_epoch_are_those_of_its_rows(tokenizer, pairs):
    spelling = spelled(pairs, tokenizer, 0.2, max_length=64)
    rows = np.random.default_rng(0).permutation(len(pairs))
    for epoch in (0, 5):
        for of_side, ids in zip(spelling.lengths(epoch), spelling.rows(epoch, rows)):
            assert of_side[rows].tolist() == [len(each) + 1 for each in ids]


def test_a_side_that_would_be_over_long_keeps_its_spelling(tokenizer, pairs):
    longest = int(pairs.lengths(0).max())
    spelling = spelled(pairs, tokenizer, 0.999, max_length=longest)
    lengths, (src, _) = spelling.lengths(0), spelling.rows(0, np.arange(len(pairs)))
    kept = [i for i in range(len(pairs)) if len(pairs.src(i)) and src[i].tolist() == pairs.src(i).tolist()]
    assert kept and all(len(ids) < longest for ids in src)
    assert (lengths[0] == [len(ids) + 1 for ids in src]).all()


def test_each_side_has_its_own_words(tokenizer, pairs):
    """With one vocabulary for both, the sources, which come first, do not take all the places."""
    respelling = spelled(pairs, tokenizer, 0.5, max_length=100, most_words=30)
    respelling.lengths(0)
    every = np.arange(len(pairs))
    for others, usual in zip(respelling.rows(0, every), (pairs.src, pairs.tgt)):
        assert any(other.tolist() != usual(i).tolist() for i, other in enumerate(others))


def test_words_met_first_have_other_spellings(tokenizer):
    lines = ["dog cat house bird", "sees small big the"]
    usual, other = tokenizer.encode_src(lines), segmented(tokenizer, 0.999, lines, most_words=4)
    assert other[0] != usual[0] and other[1] == usual[1]


def test_only_merges_can_be_left_out():
    with pytest.raises(
        ValidationError, match="bpe_dropout must be 0.0 with tokenizer.kind: unigram, but is 0.1"
    ):
        TokenizerConfig(kind="unigram", bpe_dropout=0.1)


#


ROWS = np.array([0, 1, 70_000])


def test_the_numbers_never_change():
    """A run that an earlier version interrupted resumes with the same dropped subwords and typos."""
    bits = [0x2F94368E6950BA1C, 0xD9FA770E666DA7A2, 0x57047708AF13E7F2]
    assert random_bits(3, 2, ROWS, 5).tolist() == bits
    assert uniforms(3, 2, ROWS, 5).tolist() == [number / 2**64 for number in bits]
    numbers = [random_bits(seed, epoch, ROWS, i) for seed in (1, 2) for epoch in (0, 1) for i in (0, 1)]
    assert np.unique(numbers).size == 8 * len(ROWS)
