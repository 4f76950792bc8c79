"""Noise that a model restores: spans of words hidden, sentences in another order."""

import numpy as np
import pytest

from tests.conftest import TINY
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.config.data_section import DenoiseConfig
from transformer_mt.corpora import toy
from transformer_mt.data.changes.objectives import Denoising
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.settings.objectives import MASK


@pytest.fixture(scope="module")
def tokenizer():
    pairs = [*toy.generate("train", 400), *[("猫は外で眠る。犬は歌う。", "猫は外で眠る。犬は歌う。")] * 50]
    return Tokenizer.train(pairs, TokenizerConfig(vocab_size=400), [MASK])


def noisy(tokenizer, text, settings, seeds=range(300)):
    mask_id = tokenizer.control_id(MASK)
    config = Config.model_validate({"name": "noise", **TINY})
    data = config.data.model_copy(update={"denoise": DenoiseConfig(**settings)})
    denoising = Denoising(tokenizer, config.model_copy(update={"data": data}))
    ids = np.array(tokenizer.encode_src([text])[0])
    return ids, mask_id, [denoising.source(ids, np.random.default_rng(seed)) for seed in seeds]


TEXT = "The old teacher sees a small bird and the young child sings in the garden today."


@pytest.mark.parametrize("mask, span", [(0.35, 3.5), (0.15, 3.0), (0.6, 1.0), (0.9, 6.0)])
def test_the_share_of_hidden_words_is_right_and_no_text_becomes_longer(tokenizer, mask, span):
    ids, mask_id, found = noisy(tokenizer, TEXT, {"mask": mask, "span": span})
    words = TEXT.count(" ") + 1
    shown = [len(tokenizer.src.decode([int(i) for i in row if i != mask_id]).split()) for row in found]
    assert np.mean(shown) == pytest.approx(words * (1 - mask), abs=0.25)
    assert max(map(len, found)) <= len(ids)


def test_what_is_left_stands_in_its_order_and_no_two_masks_meet(tokenizer):
    ids, mask_id, found = noisy(tokenizer, TEXT, {"mask": 0.5, "span": 2.0})
    for row in found:
        rest = iter(ids.tolist())
        assert all(piece in rest for piece in row if piece != mask_id)  # a subsequence
        assert not ((row[1:] == mask_id) & (row[:-1] == mask_id)).any()


def test_spans_are_of_whole_words_with_a_poisson_length(tokenizer):
    _, mask_id, found = noisy(tokenizer, TEXT, {"mask": 0.35, "span": 3.5})
    texts = [" ".join(tokenizer.src.decode(part.tolist()) for part in
                      np.split(row, np.flatnonzero(row == mask_id)))
             for row in found]  # fmt: skip
    known = set(TEXT.split())
    assert all(word in known for text in texts for word in text.split())
    hidden_per_span = sum(len(TEXT.split()) - len(text.split()) for text in texts) / sum(
        int((row == mask_id).sum()) for row in found
    )
    assert 2.0 < hidden_per_span < 4.0  # the last span of a text is cut to the share


def test_sentences_change_places(tokenizer):
    text = "The dog sleeps. A cat sings. The bird sees a child."
    _, _, found = noisy(tokenizer, text, {"mask": 0.0})
    orders = {tokenizer.src.decode(row.tolist()) for row in found}
    assert len(orders) == 6 and text in orders  # 3!
    assert all(sorted(order.split()) == sorted(text.split()) for order in orders)


def test_in_a_script_without_spaces_a_piece_is_a_word(tokenizer):
    ids, mask_id, found = noisy(tokenizer, "猫は外で眠る。犬は歌う。", {"mask": 0.4, "span": 1.5})
    assert len(ids) > 3
    assert len({tuple(row) for row in found}) > 5
    assert all((row != mask_id).any() for row in found)


def test_the_shortest_texts_are_no_error(tokenizer):
    for text in ("The", "a", "x"):
        ids, _, found = noisy(tokenizer, text, {"mask": 0.9, "span": 3.5})
        assert max(map(len, found)) <= len(ids)
