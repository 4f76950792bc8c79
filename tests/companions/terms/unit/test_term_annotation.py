"""`data.changes: [terms]`: terms of a glossary, or aligned words, inside the sources of an epoch."""

import numpy as np
import pytest

from tests.conftest import TINY
from transformer_mt.companions.terms.required_terms import TermTokens, tokens_of_span
from transformer_mt.config import Config
from transformer_mt.preparation import prepare
from transformer_mt.run.config_changes import changed_keys

ROWS = np.arange(300)
BEFORE = {**TINY["data"], "changes": [{"terms": {"share": 0.2, "file": "a.tsv"}}]}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A function: config of the toy language, its data, and the pairs of an epoch."""
    folder = tmp_path_factory.mktemp("terms")
    (folder / "terms.tsv").write_text(
        "garden\tGarten\nold teacher\talter Lehrer\ncat\tHund\n", encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_MT_CACHE", str(folder / "cache"))

        def prepared(file=True, share=0.999, bpe_dropout=0.0, **more):
            terms = {"share": share} | ({"file": str(folder / "terms.tsv")} if file else {})
            changes = [{"terms": terms}] if share else []
            sets = {"train": {"toy": "train", "size": 2000}, "valid": {"toy": "valid", "size": 20}}
            values = {"source_lang": "en", "target_lang": "de", "max_length": 100, "changes": changes}
            tokenizer = {"vocab_size": 500, "bpe_dropout": bpe_dropout}
            config = {"name": "terms", "data": {**values, **sets, **more}, "tokenizer": tokenizer}
            config = Config.model_validate(config)
            data = prepare(config)
            return config, data, data.rows(config, data.mixture(config))

        yield prepared


def terms_of(ids, tokenizer):
    """[(source words, target words)] of an annotated source, and the source without them."""
    pieces, found, plain = TermTokens.of(tokenizer), [], []
    state = None
    for i in ids:
        if i == pieces.term:
            state, parts = "source", {"source": [], "target": []}
        elif i == pieces.as_:
            state = "target"
        elif i == pieces.end:
            found.append(tuple(tokenizer.src.decode(parts[side]) for side in ("source", "target")))
            state = None
        else:
            if state:
                parts[state].append(int(i))
            if state != "target":
                plain.append(int(i))
    return found, plain


def test_terms_that_both_sides_have_are_written_into_the_source(prepared):
    _, data, pairs = prepared()
    src, tgt = pairs.rows(0, ROWS)
    found = set()
    for row, ids in zip(ROWS.tolist(), src):
        terms, plain = terms_of(ids, data.tokenizer)
        found.update(terms)
        assert plain == data.train.src(row).tolist() and np.array_equal(tgt[row], data.train.tgt(row))
        text = data.tokenizer.tgt.decode(tgt[row].tolist())
        assert all(target.split()[-1] in text for _, target in terms)
    assert ("garden", "Garten") in found
    assert not any(target == "Hund" for _, target in found)  # no cat is a Hund


def test_lengths_are_those_of_the_rows(prepared):
    _, data, pairs = prepared(bpe_dropout=0.2)
    lengths = pairs.lengths(1)
    src, tgt = pairs.rows(1, ROWS)
    assert [len(ids) + 1 for ids in src] == lengths[0][ROWS].tolist()
    assert [len(ids) + 1 for ids in tgt] == lengths[1][ROWS].tolist()
    assert any(TermTokens.of(data.tokenizer).term in ids for ids in src)


def test_a_share_of_the_pairs_has_terms_other_ones_in_each_epoch(prepared):
    _, data, pairs = prepared(file=False, share=0.3)
    term = TermTokens.of(data.tokenizer).term
    has = [[term in ids for ids in pairs.rows(epoch, ROWS)[0]] for epoch in (0, 0, 1)]
    assert has[0] == has[1] != has[2]
    assert 0.2 < sum(has[0]) / len(ROWS) < 0.35


def test_without_a_glossary_words_that_belong_together_are_terms(prepared):
    _, data, pairs = prepared(file=False)
    found: dict[str, set] = {}
    for ids in pairs.rows(0, np.arange(1500))[0]:
        for source, target in terms_of(ids, data.tokenizer)[0]:
            found.setdefault(source.lower(), set()).add(target)
    assert found["bottle"] == {"Flasche", "Flaschen"}  # often in a form that is not that of its sentence
    assert found["bag"] == {"Tasche", "Taschen"} and found["lost"] == {"verloren"}
    assert "the" not in found and "." not in found  # too frequent, and no word
    assert any(" " in source for source in found)


def test_over_long_sources_stay_as_they_are(prepared):
    _, data, pairs = prepared(max_length=30)
    lengths, _ = pairs.lengths(0)
    assert data.train.lengths(0).max() > 27 and lengths.max() <= 30
    assert (lengths > data.train.lengths(0)).any()


def test_two_vocabularies_are_refused():
    values = {**TINY, "data": {**TINY["data"], "changes": ["terms"]}, "tokenizer": {"shared": False}}
    with pytest.raises(ValueError, match=r"tokenizer\.shared must be true with data\.changes: terms, but is"):
        Config.model_validate(values)


def test_attention_to_a_translation_belongs_to_the_words_of_its_term():
    pieces = TermTokens(90, 91, 92)
    ids = pieces.inserted([1, 2, 3, 4], [(1, 3, [7, 8])])
    assert ids == [1, 90, 2, 3, 91, 7, 8, 92, 4]
    assert pieces.text_positions(ids) == [[0], [2, 5, 6], [3, 5, 6], [8]]
    assert pieces.text_positions([5, 6]) == [[0], [1]]


def test_pieces_of_a_span_are_those_with_its_characters():
    spans = [(0, 3), (3, 7), (7, 8)]
    assert tokens_of_span(spans, 4, 7) == (1, 2)
    assert tokens_of_span(spans, 2, 8) == (0, 3)
    assert tokens_of_span(spans, 9, 12) == (0, 0)


def test_a_vocabulary_with_the_pieces_of_terms_is_another_one(prepared):
    """Also where the corpora have tags."""
    tagged = {"train": {"toy": "train", "size": 2000, "tag": "<news>"}}
    _, with_terms, _ = prepared(**tagged)
    _, without, _ = prepared(share=0.0, file=False, **tagged)
    assert TermTokens.of(with_terms.tokenizer) is not None and TermTokens.of(without.tokenizer) is None


def test_a_glossary_may_lie_elsewhere():
    """Its content is compared when a run is resumed, and the location is not."""

    def changed(**terms):
        data = {**TINY["data"], "changes": [{"terms": {"share": 0.2, "file": "a.tsv", **terms}}]}
        return changed_keys(
            *(Config.model_validate({"name": "terms", **TINY, "data": d}) for d in (BEFORE, data))
        )

    assert changed(file="b.tsv") == [] and changed(share=0.3) == ["data.changes.0.terms.share"]
