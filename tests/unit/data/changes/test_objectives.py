"""What each objective makes of the training rows, in each epoch."""

import numpy as np
import pytest

from tests.conftest import TINY
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.config.data_section import DenoiseConfig
from transformer_mt.corpora import toy
from transformer_mt.data.batches.batch import Rows
from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, write_chunks
from transformer_mt.data.changes.objectives import Denoising, Masking
from transformer_mt.data.changes.training_rows import with_objectives
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_mt.settings.corpus_keys import label_piece
from transformer_mt.settings.objectives import MASK

PIECES = [MASK, *map(label_piece, ("random", "next", "0", "1"))]
ROWS = np.arange(200)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(toy.generate("train", 600), TokenizerConfig(vocab_size=400), PIECES)


@pytest.fixture(scope="module")
def pairs(tokenizer, tmp_path_factory):
    """200 pairs of the English text with itself, 20 with a label."""
    file = tmp_path_factory.mktemp("rows") / "rows.arrow"
    texts = [en for en, _ in toy.generate("train", 220)]
    ids = tokenizer.encode_src(texts)
    labels = [[tokenizer.control_id(label_piece(str(i % 2)))] for i in range(20)]
    write_chunks(file, [(Column.of(ids), Column.of([*ids[:200], *labels]))])
    return EncodedPairs([file])


def rows_of(objective, pairs, tokenizer, kind="transformer", seed=1, **data):
    values = {
        "name": "rows",
        "seed": seed,
        "data": {
            "language": "en",
            "train": [{"text": "a.txt", "objective": objective}],
            "valid": {"from_train": {"share": 0.1}},
            "max_length": 64,
            **data,
        },
        "model": {"kind": kind},
    }
    config = Config.model_validate(values)
    return with_objectives(config, Rows(pairs), [(200, objective), (20, "classification")], tokenizer)


def as_lists(found):
    return [[row.tolist() for row in side] for side in found]


@pytest.mark.parametrize("objective, kind", [("denoise", "transformer"), ("masked_lm", "encoder")])
def test_rows_are_a_function_of_the_seed_the_epoch_and_the_row(objective, kind, pairs, tokenizer):
    rows = rows_of(objective, pairs, tokenizer, kind)
    first = as_lists(rows.rows(3, ROWS))
    again = as_lists(rows_of(objective, pairs, tokenizer, kind).rows(3, ROWS[::-1]))
    assert first == [side[::-1] for side in again]
    assert first != as_lists(rows.rows(4, ROWS))
    assert first != as_lists(rows_of(objective, pairs, tokenizer, kind, seed=2).rows(3, ROWS))


@pytest.mark.parametrize(
    "kind, objective, next_sentence",
    [("transformer", "denoise", False), ("encoder", "masked_lm", False), ("encoder", "masked_lm", True)],
)
def test_no_row_is_longer_than_the_batches_count_it(kind, objective, next_sentence, pairs, tokenizer):
    rows = rows_of(objective, pairs, tokenizer, kind, masked_lm={"next_sentence": next_sentence})
    src_lengths, tgt_lengths = rows.lengths(2)
    src, tgt = rows.rows(2, ROWS)
    assert all(len(row) <= most for row, most in zip(src, src_lengths[ROWS]))
    assert all(len(row) <= most for row, most in zip(tgt, tgt_lengths[ROWS]))
    if kind == "encoder":
        assert [len(row) for row in src] == src_lengths[ROWS].tolist()


def test_denoising_restores_the_text(pairs, tokenizer):
    src, tgt = rows_of("denoise", pairs, tokenizer).rows(0, ROWS)
    mask_id = tokenizer.control_id(MASK)
    assert [row.tolist() for row in tgt] == [pairs.tgt(i).tolist() for i in ROWS]
    assert sum((row == mask_id).any() for row in src) > 150


def test_a_text_after_nothing_is_language_modelling(pairs, tokenizer):
    src, tgt = rows_of("causal_lm", pairs, tokenizer).rows(0, ROWS)
    assert not any(map(len, src)) and [row.tolist() for row in tgt] == [pairs.tgt(i).tolist() for i in ROWS]


def test_of_15_percent_80_are_hidden_10_are_others_and_10_stay(pairs, tokenizer):
    masking = Masking(tokenizer, tokenizer.control_id(MASK), 0.15)
    ids = np.concatenate([pairs.src(i) for i in range(200)])
    read, targets = masking(ids, np.random.default_rng(0))
    chosen = targets != PAD
    is_text = ~np.isin(ids, [*tokenizer.control_ids.values(), *range(EOS + 1)])
    assert chosen.sum() == round(0.15 * is_text.sum())
    assert (targets[chosen] == ids[chosen]).all() and (read[~chosen] == ids[~chosen]).all()
    assert not chosen[~is_text].any()  # neither <s> nor </s> nor a piece of a language
    shares = [np.mean(read[chosen] == tokenizer.control_id(MASK)), np.mean(read[chosen] == ids[chosen])]
    assert shares == pytest.approx([0.8, 0.1], abs=0.03)
    replaced = read[chosen & (read != ids) & (read != tokenizer.control_id(MASK))]
    assert not np.isin(replaced, [*tokenizer.control_ids.values(), *range(EOS + 1)]).any()


def test_only_what_is_hidden_is_in_the_loss(pairs, tokenizer):
    rows = rows_of("masked_lm", pairs, tokenizer, "encoder")
    batch = rows.batch(0, ROWS)
    read, predicted = rows.rows(0, ROWS)
    assert batch.num_tokens == sum(int((row != PAD).sum()) for row in predicted)
    assert batch.real.numel() == batch.num_tokens
    share = batch.num_tokens / sum(len(row) - 2 for row in read)
    assert 0.1 < share < 0.25
    assert all(row[0] == BOS and row[-1] == EOS for row in read)
    assert all((row != PAD).any() for row in predicted)  # at least one piece of each text


def test_the_next_sentence_is_one_of_two_and_is_predicted_at_the_first_piece(pairs, tokenizer):
    rows = rows_of("masked_lm", pairs, tokenizer, "encoder", masked_lm={"next_sentence": True, "mask": 0.01})
    read, predicted = rows.rows(0, ROWS)
    is_next = [row[0] == tokenizer.control_id(label_piece("next")) for row in predicted]
    assert 60 < sum(is_next) < 140
    for i, row in enumerate(read):
        ends = np.flatnonzero(row == EOS)
        assert len(ends) == 2 and row[0] == BOS
        shown = row.copy()
        shown[1:][predicted[i][1:] != PAD] = predicted[i][1:][predicted[i][1:] != PAD]
        own, other = pairs.src(i).tolist(), shown[ends[0] + 1 : -1].tolist()
        assert shown[1 : ends[0]].tolist() == own[: ends[0] - 1]
        if is_next[i]:
            follows = pairs.src(i + 1).tolist()
            assert i + 1 < 200 and other == follows[: len(other)]
    strangers = [row[np.flatnonzero(row == EOS)[0] :] for row, one in zip(read, is_next) if not one]
    others = {tuple(row.tolist()) for row in strangers}
    assert len(others) > 30


def test_a_label_is_predicted_at_the_first_piece_and_nothing_else_is(pairs, tokenizer):
    rows = rows_of("masked_lm", pairs, tokenizer, "encoder")
    read, predicted = rows.rows(0, np.arange(200, 220))
    for i, (row, targets) in enumerate(zip(read, predicted)):
        assert row.tolist() == [BOS, *pairs.src(200 + i), EOS]
        assert targets.tolist() == [tokenizer.control_id(label_piece(str(i % 2))), *[PAD] * (len(row) - 1)]


# Noise that a model restores: spans of words hidden, sentences in another order.


@pytest.fixture(scope="module")
def denoising_tokenizer():
    pairs = [*toy.generate("train", 400), *[("猫は外で眠る。犬は歌う。", "猫は外で眠る。犬は歌う。")] * 50]
    return Tokenizer.train(pairs, TokenizerConfig(vocab_size=400), [MASK])


def noisy(denoising_tokenizer, text, settings, seeds=range(300)):
    mask_id = denoising_tokenizer.control_id(MASK)
    config = Config.model_validate({"name": "noise", **TINY})
    data = config.data.model_copy(update={"denoise": DenoiseConfig(**settings)})
    denoising = Denoising(denoising_tokenizer, config.model_copy(update={"data": data}))
    ids = np.array(denoising_tokenizer.encode_src([text])[0])
    return ids, mask_id, [denoising.source(ids, np.random.default_rng(seed)) for seed in seeds]


TEXT = "The old teacher sees a small bird and the young child sings in the garden today."


@pytest.mark.parametrize("mask, span", [(0.35, 3.5), (0.9, 6.0)])
def test_the_share_of_hidden_words_is_right_and_no_text_becomes_longer(denoising_tokenizer, mask, span):
    ids, mask_id, found = noisy(denoising_tokenizer, TEXT, {"mask": mask, "span": span})
    words = TEXT.count(" ") + 1
    shown = [
        len(denoising_tokenizer.src.decode([int(i) for i in row if i != mask_id]).split()) for row in found
    ]
    assert np.mean(shown) == pytest.approx(words * (1 - mask), abs=0.25)
    assert max(map(len, found)) <= len(ids)


def test_what_is_left_stands_in_its_order_and_no_two_masks_meet(denoising_tokenizer):
    ids, mask_id, found = noisy(denoising_tokenizer, TEXT, {"mask": 0.5, "span": 2.0})
    for row in found:
        rest = iter(ids.tolist())
        assert all(piece in rest for piece in row if piece != mask_id)  # a subsequence
        assert not ((row[1:] == mask_id) & (row[:-1] == mask_id)).any()


def test_spans_are_of_whole_words_with_a_poisson_length(denoising_tokenizer):
    _, mask_id, found = noisy(denoising_tokenizer, TEXT, {"mask": 0.35, "span": 3.5})
    texts = [" ".join(denoising_tokenizer.src.decode(part.tolist()) for part in
                      np.split(row, np.flatnonzero(row == mask_id)))
             for row in found]  # fmt: skip
    known = set(TEXT.split())
    assert all(word in known for text in texts for word in text.split())
    hidden_per_span = sum(len(TEXT.split()) - len(text.split()) for text in texts) / sum(
        int((row == mask_id).sum()) for row in found
    )
    assert 2.0 < hidden_per_span < 4.0  # the last span of a text is cut to the share


def test_sentences_change_places(denoising_tokenizer):
    text = "The dog sleeps. A cat sings. The bird sees a child."
    _, _, found = noisy(denoising_tokenizer, text, {"mask": 0.0})
    orders = {denoising_tokenizer.src.decode(row.tolist()) for row in found}
    assert len(orders) == 6 and text in orders  # 3!
    assert all(sorted(order.split()) == sorted(text.split()) for order in orders)


def test_in_a_script_without_spaces_a_piece_is_a_word(denoising_tokenizer):
    ids, mask_id, found = noisy(denoising_tokenizer, "猫は外で眠る。犬は歌う。", {"mask": 0.4, "span": 1.5})
    assert len(ids) > 3
    assert len({tuple(row) for row in found}) > 5
    assert all((row != mask_id).any() for row in found)


def test_the_shortest_texts_are_no_error(denoising_tokenizer):
    for text in ("The", "a", "x"):
        ids, _, found = noisy(denoising_tokenizer, text, {"mask": 0.9, "span": 3.5})
        assert max(map(len, found)) <= len(ids)
