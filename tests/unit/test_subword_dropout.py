"""BPE-dropout: other spellings of the same words, drawn the same wherever and whenever they are drawn."""

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from tests.conftest import ROOT
from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subword_dropout import SubwordDropout, respelling
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.toy import generate

PAIRS = list(generate("train", 600))
LINES = [side for pair in PAIRS for side in pair]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(PAIRS, TokenizerConfig(vocab_size=600))


def respelled(tokenizer, dropout, lines=LINES, seed=1):
    sampler, rng = SubwordDropout(tokenizer.src, dropout, seed), np.random.default_rng(0)
    return [sampler.respell(np.array(ids, np.int32), rng).tolist() for ids in tokenizer.encode_src(lines)]


def test_without_dropout_the_merges_are_sentencepieces(tokenizer):
    assert respelled(tokenizer, 0.0) == tokenizer.encode_src(LINES)


def test_the_text_stays_and_its_pieces_change(tokenizer):
    usual, other = tokenizer.encode_src(LINES), respelled(tokenizer, 0.1)
    assert [tokenizer.decode_tgt(ids) for ids in other] == [tokenizer.decode_tgt(ids) for ids in usual]
    changed = sum(a != b for a, b in zip(usual, other)) / len(usual)
    assert 0.3 < changed < 0.95
    assert 1.05 < sum(map(len, other)) / sum(map(len, usual)) < 1.6


def test_more_dropout_makes_more_pieces_and_all_of_it_letters(tokenizer):
    few, many = (sum(map(len, respelled(tokenizer, dropout))) for dropout in (0.1, 0.5))
    assert few < many
    letters = respelled(tokenizer, 0.999, ["The dog sees the bird."])[0]
    assert [tokenizer.src.id_to_piece(i) for i in letters] == list("▁The▁dog▁sees▁the▁bird.")


def test_what_is_no_piece_is_left_alone(tokenizer):
    lines = ["☃ 🜚 the dog", "", "ǻ"]
    usual, other = tokenizer.encode_src(lines), respelled(tokenizer, 0.3, lines)
    assert [tokenizer.decode_tgt(ids) for ids in other] == [tokenizer.decode_tgt(ids) for ids in usual]
    assert other[1] == []


def test_another_seed_draws_other_spellings(tokenizer):
    assert respelled(tokenizer, 0.2) == respelled(tokenizer, 0.2)
    assert respelled(tokenizer, 0.2) != respelled(tokenizer, 0.2, seed=2)


def test_another_process_draws_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    program = f"""
from tests.unit.test_subword_dropout import respelled, Tokenizer
from pathlib import Path
print(respelled(Tokenizer.load(Path({str(tmp_path)!r})), 0.2))
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == str(respelled(tokenizer, 0.2)), result.stderr


def test_a_side_that_would_be_over_long_keeps_its_spelling(tokenizer):
    src, tgt = (np.array(tokenizer.encode_src([line])[0], np.int32) for line in PAIRS[0])
    respell = respelling(tokenizer, 0.999, seed=1, max_length=len(src) + 5)
    other_src, other_tgt = respell(src, tgt[:2], np.random.default_rng(0))
    assert other_src.tolist() == src.tolist()
    assert len(other_tgt) > 2
    assert respelling(tokenizer, 0.0, seed=1, max_length=9) is None


def test_only_merges_can_be_left_out():
    with pytest.raises(
        ValidationError, match=r"tokenizer.sampling must be 0.0 with tokenizer.kind: unigram, but is 0.1"
    ):
        TokenizerConfig(kind="unigram", sampling=0.1)
