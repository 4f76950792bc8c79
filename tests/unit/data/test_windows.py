"""`data.context`: neighbouring sentences of a document as one training pair."""

import numpy as np
import pytest

from transformer_mt.config import Config
from transformer_mt.config.parts.context import SENTENCE
from transformer_mt.data.batches.batching import TrainingBatches, validation_batches
from transformer_mt.data.batches.objectives import epoch_pairs, of_held_out
from transformer_mt.data.preparation.prepare import prepare

DOCUMENTS = [[f"Line {10 * d + i} is here." for i in range(size)] for d, size in enumerate((5, 1, 2, 7))]
ALONE = [f"Nobody {i} knows." for i in range(6)]


def written(path, documents, change=str):
    path.write_text("\n\n".join("\n".join(map(change, lines)) for lines in documents) + "\n", "utf-8")
    return str(path)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))

    def prepared(
        sentences=3, max_length=100, seed=1, documents=True, vocab_size=400, indent="", tokenizer=None, **data
    ):
        ordered = {
            "source": written(tmp_path / "a.en", DOCUMENTS),
            "target": written(tmp_path / "a.de", DOCUMENTS, str.upper),
            "documents": documents,
        }
        alone = {
            "source": written(tmp_path / "b.en", [ALONE]),
            "target": written(tmp_path / "b.de", [ALONE], str.upper),
        }
        valid = [[f"Valid {d} {i}." for i in range(3)] for d in range(2)]
        held_out = {
            "source": written(tmp_path / "v.en", valid, lambda line: indent + line),
            "target": written(tmp_path / "v.de", valid, str.upper),
            "documents": True,
        }
        values = {
            "name": "context", "seed": seed,
            "data": {
                "source_lang": "en", "target_lang": "de", "train": [ordered, alone], "valid": held_out,
                "max_length": max_length, "context": {"sentences": sentences}, **data,
            },
            "tokenizer": {"vocab_size": vocab_size, **(tokenizer or {})},
        }  # fmt: skip
        config = Config.model_validate(values)
        found = prepare(config)
        return config, found, epoch_pairs(config, found.train, found.sizes, found.tokenizer, found.facts)

    return prepared


def test_documents_are_found_again_where_a_file_divides_the_same_pairs_otherwise(prepared, monkeypatch):
    def num_documents():
        _, data, _ = prepared()
        return sum(len(data.facts.starts.src(i)) > 0 for i in range(len(data.train)))

    before = num_documents()
    alone = [[line] for lines in DOCUMENTS for line in lines]
    monkeypatch.setattr(f"{__name__}.DOCUMENTS", alone)
    assert num_documents() == before + len(alone) - 4


def texts(data, ids):
    """The sentences of one side of a training pair."""
    piece, parts = data.tokenizer.control_id(SENTENCE), [[]]
    for i in ids.tolist():
        parts.append([]) if i == piece else parts[-1].append(i)
    return [data.tokenizer.tgt.decode(part) for part in parts]


def windows(data, pairs, epoch):
    lengths = pairs.lengths(epoch)[0]
    rows = np.flatnonzero(lengths)
    src, tgt = pairs.rows(epoch, rows)
    assert [len(ids) + 1 for ids in src] == lengths[rows].tolist()
    return [(texts(data, a), texts(data, b)) for a, b in zip(src, tgt)]


def test_an_epoch_has_each_sentence_once_in_windows_of_one_document(prepared):
    _, data, pairs = prepared()
    whole = [line for document in DOCUMENTS for line in document] + ALONE
    sizes = set()
    for epoch in range(6):
        found = windows(data, pairs, epoch)
        assert [line for src, _ in found for line in src] == whole
        assert all(tgt == [line.upper() for line in src] for src, tgt in found)
        for src, _ in found:
            sizes.add(len(src))
            assert any(
                src == document[i : i + len(src)] for document in [*DOCUMENTS, *([a] for a in ALONE)]
                for i in range(len(document))
            )  # fmt: skip
    assert sizes == {1, 2, 3}


def test_windows_are_others_in_each_epoch_and_a_function_of_seed_and_epoch(prepared):
    _, data, pairs = prepared()
    _, _, again = prepared()
    _, _, other = prepared(seed=2)
    epochs = [windows(data, pairs, epoch) for epoch in range(6)]
    assert epochs[0] != epochs[1] and len(set(map(len, epochs))) > 1
    assert windows(data, again, 5) == epochs[5]  # without the epochs before it
    assert [windows(data, other, epoch) for epoch in range(6)] != epochs


def test_a_window_that_is_too_long_is_divided_into_its_sentences(prepared):
    _, data, pairs = prepared(sentences=7, max_length=24)
    for epoch in range(4):
        assert max(pairs.lengths(epoch)[0]) <= 24
        assert sum(len(src) for src, _ in windows(data, pairs, epoch)) == 21


def test_batches_have_every_sentence_once(prepared):
    config, data, pairs = prepared()
    batches = TrainingBatches(data.train, 200, config.seed, changing=pairs)
    plan = batches._plan(0)
    firsts = np.flatnonzero(pairs.lengths(0)[0])
    assert sorted(np.concatenate(plan).tolist()) == firsts.tolist()


def test_the_validation_loss_is_of_the_longest_windows(prepared):
    config, data, _ = prepared()
    (valid,) = data.valid
    assert valid.documents == [0, 0, 0, 1, 1, 1]
    pairs = of_held_out(config, valid.pairs, valid.objective, data.tokenizer, valid.starts)
    (batch,) = validation_batches(valid.pairs, 200, pairs)
    piece = data.tokenizer.control_id(SENTENCE)
    assert ((batch.src == piece).sum(dim=1)).tolist() == [2, 2]


def test_the_indent_of_a_paragraph_is_no_part_of_its_sentence(prepared):
    """In Japanese and Chinese it is a character that `identity` keeps."""
    _, plain, _ = prepared(tokenizer={"normalization": "identity"})
    _, data, _ = prepared(tokenizer={"normalization": "identity"}, indent="\u3000")
    assert data.valid[0].documents == [0, 0, 0, 1, 1, 1]
    assert data.valid[0].pairs.src(0).tolist() == plain.valid[0].pairs.src(0).tolist()


def test_a_column_names_the_document(tmp_path, prepared):
    rows = ["en\tde\tpart", *(f"Line {i}.\tZeile {i}.\t{'aabbb'[i]}" for i in range(5))]
    (tmp_path / "t.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    corpus = {"file": str(tmp_path / "t.tsv"), "documents": "part"}
    _, data, pairs = prepared(sentences=9, vocab_size=300, train=corpus)
    for epoch in range(9):
        together = [tuple(src) for src, _ in windows(data, pairs, epoch)]
        assert not any({"Line 1.", "Line 2."} <= set(src) for src in together)
    assert ("Line 0.", "Line 1.") in {tuple(s) for e in range(9) for s, _ in windows(data, pairs, e)}
