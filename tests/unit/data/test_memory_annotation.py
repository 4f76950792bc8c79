"""`data.memory`: the translation of a similar pair after a training source, for other rows in each epoch."""

import numpy as np
import pytest

from transformer_mt.config import Config
from transformer_mt.config.parts.memory import MEMORY
from transformer_mt.data.batches.epoch_pairs import changing_pieces
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.memories.memory import Memory

ROWS = np.arange(400)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_MT_CACHE", str(folder / "cache"))

        def prepared(max_length=100, **memory):
            data = {
                "source_lang": "en", "target_lang": "de", "train": {"toy": "train", "size": 1500},
                "valid": {"toy": "valid", "size": 20}, "max_length": max_length,
                "memory": {"share": 0.5, "threshold": 0.5, **memory},
            }  # fmt: skip
            config = Config.model_validate({"name": "memory", "data": data, "tokenizer": {"vocab_size": 500}})
            found = prepare(config)
            pairs = changing_pieces(config, found.train, found.sizes, found.tokenizer, found.facts)
            return config, found, pairs

        yield prepared


def divided(ids, tokenizer):
    """(source, translation of a similar one or None)"""
    piece = tokenizer.control_id(MEMORY)
    ids = ids.tolist()
    if piece not in ids:
        return ids, None
    return ids[: ids.index(piece)], tokenizer.src.decode(ids[ids.index(piece) + 1 :])


def test_a_share_of_the_sources_is_followed_by_the_translation_of_a_similar_one(prepared):
    _, data, pairs = prepared()
    texts = [
        (
            data.tokenizer.src.decode(data.train.src(i).tolist()),
            data.tokenizer.tgt.decode(data.train.tgt(i).tolist()),
        )
        for i in range(len(data.train))
    ]
    memory = Memory(texts, ("en", "de"))
    seen = 0
    has = []
    for epoch in (0, 1):
        src, _ = pairs.rows(epoch, ROWS)
        has.append([])
        for row, ids in zip(ROWS.tolist(), src):
            plain, similar = divided(ids, data.tokenizer)
            assert plain == data.train.src(row).tolist()
            has[-1].append(similar is not None)
            if similar is not None:
                seen += 1
                assert similar == memory.similar(texts[row][0], 0.5).target != texts[row][1]
    assert seen > 100 and has[0] != has[1]
    lengths, _ = pairs.lengths(1)
    assert [len(ids) + 1 for ids in src] == lengths[ROWS].tolist()


def test_a_file_is_searched_instead_and_another_file_is_other_data(prepared, tmp_path):
    file = tmp_path / "memory.tsv"
    file.write_text("en\tde\nThe dog sleeps in the garden.\tAus der Datei.\n", encoding="utf-8")
    _, data, pairs = prepared(file=str(file), threshold=0.3, share=0.9)
    found = {divided(ids, data.tokenizer)[1] for ids in pairs.rows(0, ROWS)[0]}
    assert found == {None, "Aus der Datei."}
    file.write_text("en\tde\nThe dog sleeps in the garden.\tAnders.\n", encoding="utf-8")
    _, other, _ = prepared(file=str(file), threshold=0.3, share=0.9)
    assert other.fingerprint != data.fingerprint


def test_over_long_sources_stay(prepared):
    _, data, pairs = prepared(max_length=26)
    lengths, _ = pairs.lengths(0)
    assert lengths.max() <= 26 and (lengths > data.train.src_lengths).any()
