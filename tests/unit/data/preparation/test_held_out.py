"""Sets held out of the training corpora by a hash of the normalised source."""

import pytest

from tests.helpers.faults import cores
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import FromTrain, HeldOutSplit
from transformer_mt.errors import InputError
from transformer_mt.preparation import prepare
from transformer_mt.text.hashes import sentence_key

PAIRS = list(toy.generate("train", 3000))


def valid_pairs(data):
    return [(src, reference) for src, (reference,) in data.valid[0].sentences]


def write(path, pairs):
    path.write_text("en\tde\n" + "".join(f"{en}\t{de}\n" for en, de in pairs), encoding="utf-8")
    return {"file": str(path)}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A cache of its own, and one process: workers take longer to start than these corpora to be read."""
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    cores(monkeypatch, 1)


@pytest.fixture
def prepared(write_config):
    """Prepare data with the given `data` section."""

    def make(vocab_size=400, **data):
        return prepare(load_config(write_config(data=data, tokenizer={"vocab_size": vocab_size})))

    return make


def test_one_in_so_many_sources_is_held_out():
    split = HeldOutSplit("valid", FromTrain(share=0.1, max=50))
    taken = [src for src, _ in PAIRS if split.takes(sentence_key(src))]
    assert len(taken) == pytest.approx(300, rel=0.2)
    other = HeldOutSplit("test", FromTrain(share=0.1, max=50))
    both = [src for src in taken if other.takes(sentence_key(src))]
    assert len(both) == pytest.approx(30, abs=20)  # independent samples


def test_held_out_pairs_are_not_trained_on_and_the_smallest_are_scored(prepared, tmp_path):
    file = write(tmp_path / "a.tsv", PAIRS)
    held = {
        "valid": {"from_train": {"share": 0.05, "max": 40}},
        "test": [{"from_train": {"share": 0.03, "max": 30}}],
    }
    data = prepared(train=file, **held)
    (corpus,) = data.corpora
    assert len(valid_pairs(data)) == 40 and len(data.held_out["test"]) == 30
    assert data.held_out["valid"] == valid_pairs(data)
    assert corpus.counts["held out"] == pytest.approx(240, rel=0.25)
    trained = {tuple(data.train.src(i).tolist()) for i in range(len(data.train))}
    for src, _ in [*valid_pairs(data), *data.held_out["test"]]:
        assert tuple(data.tokenizer.encode_src([src])[0]) not in trained
    assert not {src for src, _ in valid_pairs(data)} & {src for src, _ in data.held_out["test"]}


def test_the_first_pair_of_a_source_is_scored(prepared, tmp_path):
    again = [(src.upper(), tgt + " noch einmal") for src, tgt in PAIRS]
    file = write(tmp_path / "a.tsv", [*PAIRS, *again])
    data = prepared(train=file, valid={"from_train": {"share": 0.05, "max": 1000}})
    sources = [sentence_key(src) for src, _ in valid_pairs(data)]
    assert len(set(sources)) == len(sources) and set(valid_pairs(data)) <= set(PAIRS)


def test_adding_data_never_moves_a_held_out_sentence_into_training(prepared, tmp_path):
    held = {"valid": {"from_train": {"share": 0.05, "max": 1000}}}
    few, many = write(tmp_path / "few.tsv", PAIRS[:1500]), write(tmp_path / "many.tsv", PAIRS[1500:])
    before = prepared(train=few, **held)
    after = prepared(train=[many, few], **held)
    assert set(valid_pairs(before)) <= set(valid_pairs(after))


def test_tagged_entries_hold_out_but_are_not_scored(prepared, tmp_path):
    plain, tagged = write(tmp_path / "a.tsv", PAIRS[:1500]), write(tmp_path / "b.tsv", PAIRS[1500:])
    data = prepared(train=[plain, {**tagged, "tag": "<bt>"}], valid={"from_train": {"share": 0.1}})
    assert set(valid_pairs(data)) <= set(PAIRS[:1500])
    assert all(corpus.counts["held out"] > 100 for corpus in data.corpora)


def test_synthetic_entries_are_not_scored_and_have_no_reference_of_a_test_set(prepared, tmp_path):
    """The source of a back-translated pair is new; its target may be a reference."""
    plain = write(tmp_path / "a.tsv", PAIRS[:1500])
    other = [(f"{src} now", tgt) for src, tgt in PAIRS[1500:]]
    made = {**write(tmp_path / "b.tsv", other), "synthetic": True}
    test = write(tmp_path / "t.tsv", PAIRS[1500:1540])
    data = prepared(train=[plain, made], valid={"from_train": {"share": 0.1}}, test=[test])
    assert set(valid_pairs(data)) <= set(PAIRS[:1500])
    references = {tgt for _, tgt in PAIRS[1500:1540]}
    expected = sum(tgt in references for _, tgt in other)
    assert data.corpora[1].counts["in validation or test"] == expected >= 40
    data = prepared(train=[plain, {**made, "synthetic": False}], valid={"toy": "valid"}, test=[test])
    assert "in validation or test" not in data.corpora[1].counts


def test_held_out_targets_are_not_learned_from_with_a_source_that_a_model_wrote(prepared, tmp_path):
    """The backward model of a chain may translate the pairs themselves."""
    plain = write(tmp_path / "a.tsv", PAIRS[:1500])
    written = [(f"{src} now", tgt) for src, tgt in PAIRS[:1500]]
    made = {**write(tmp_path / "b.tsv", written), "synthetic": True}
    data = prepared(train=[plain, made], valid={"from_train": {"share": 0.1}})
    held_out = {tgt for _, tgt in valid_pairs(data)}
    assert len(held_out) > 100
    learnt = {tuple(data.train.tgt(i).tolist()) for i in range(data.sizes[0], len(data.train))}
    assert not learnt & set(map(tuple, data.tokenizer.encode_tgt(sorted(held_out))))
    other = prepared(train=[plain, {**made, "synthetic": False}], valid={"from_train": {"share": 0.1}})
    counts = [each.corpora[1].counts["held out"] for each in (data, other)]
    assert counts[0] > counts[1] + 100  # in both a tenth of the sources that are new


def test_the_order_of_the_corpora_changes_nothing_about_what_is_held_out(prepared, tmp_path):
    """The references of a set are not trained on either where synthetic pairs, or text, are read first."""
    plain = write(tmp_path / "a.tsv", PAIRS[:1000])
    written = [(f"{src} now", tgt) for src, tgt in PAIRS[:1000]]
    made = {**write(tmp_path / "b.tsv", written), "synthetic": True}
    repeated = {**write(tmp_path / "c.tsv", PAIRS[900:1000]), "synthetic": True, "tag": "<c>"}
    corpora = {"plain": plain, "made": made, "repeated": repeated}
    held_out = {"valid": {"toy": "valid", "size": 50}, "test": [{"from_train": {"share": 0.2}}]}
    counts = []
    for order in (list(corpora), list(corpora)[::-1]):
        data = prepared(train=[{**corpora[name], "name": name} for name in order], **held_out)
        counts.append({corpus.name: corpus.counts["held out"] for corpus in data.corpora})
        references = {tgt for _, tgt in data.held_out["test"]}
        trained = {data.tokenizer.decode_tgt(data.train.tgt(i).tolist()) for i in range(len(data.train))}
        assert len(references) > 150 and not trained & references
    assert counts[0] == counts[1]


def test_labels_that_a_model_wrote_are_no_references(tmp_path, write_config):
    for name, rows in (("gold", PAIRS[:300]), ("made", PAIRS[300:600])):
        lines = "".join(f"{src}\t{i % 2}\n" for i, (src, _) in enumerate(rows))
        (tmp_path / f"{name}.tsv").write_text(f"text\tlabel\n{lines}", encoding="utf-8")
    gold = {"file": str(tmp_path / "gold.tsv"), "objective": "classification"}
    made = {"file": str(tmp_path / "made.tsv"), "objective": "classification", "synthetic": True}
    languages = {"source_lang": "text", "target_lang": "label", "labels": ["0", "1"], "test": []}
    path = write_config(
        data={**languages, "train": [gold, made], "valid": {"from_train": {"share": 0.1}}},
        tokenizer={"vocab_size": 400},
        model={"kind": "encoder"},
    )
    assert prepare(load_config(path)).corpora[1].counts["kept"] > 200


def test_a_set_of_one_direction_is_held_out_where_sources_begin_with_their_language(prepared, tmp_path):
    """Sources of the set all begin with the piece of `data.source_lang`."""
    train = []
    for name, rows in (("en", PAIRS[:300]), ("nl", PAIRS[300:600])):
        files = [tmp_path / f"{name}.src", tmp_path / f"{name}.tgt"]
        for file, side in zip(files, zip(*rows)):
            file.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        train.append({"source": str(files[0]), "target": str(files[1]), "source_lang": name})
    data = prepared(
        train=train, valid={"from_train": {"share": 0.1}}, test=[], language_pieces="both", target_lang="de"
    )
    assert data.corpora[1].counts["held out"] > 10 and set(valid_pairs(data)) <= set(PAIRS[:300])


def test_a_share_that_holds_nothing_out_is_told(prepared, tmp_path):
    with pytest.raises(
        InputError, match=r"data.valid.from_train must hold out at least one pair, .* raise its share"
    ):
        prepared(train=write(tmp_path / "a.tsv", PAIRS[:20]), valid={"from_train": {"share": 0.0001}})


def test_what_became_of_each_corpus_is_counted(prepared, tmp_path, said):
    first = write(tmp_path / "a.tsv", [*PAIRS[:100], PAIRS[3], ("", "leer")])
    second = write(tmp_path / "b.tsv", [*PAIRS[90:200], PAIRS[500]])
    valid = write(tmp_path / "v.tsv", [PAIRS[500]])
    train = [{**first, "name": "first"}, {**second, "weight": 2.0}]
    data = prepared(train=train, valid=valid, max_length=200)
    one, two = data.corpora
    assert one.counts == {"read": 102, "empty side": 1, "duplicate": 1, "kept": 100} and one.name == "first"
    assert two.counts == {"read": 111, "duplicate": 10, "in validation or test": 1, "kept": 100}
    assert data.sizes == [100, 100] and data.weights == [1.0, 2.0]
    assert one.source_tokens == data.train.lengths(0)[:100].sum()
    assert two.target_tokens == data.train.lengths(1)[100:].sum()
    table = said[-1]
    assert "| first" in table and "uses per epoch" in table and str(tmp_path / "b.tsv") in table


def test_a_corpus_by_itself_and_as_a_list_of_one_are_the_same(prepared, tmp_path):
    file, valid = write(tmp_path / "a.tsv", PAIRS[:300]), {"toy": "valid", "size": 20}
    alone, listed = prepared(train=file, valid=valid), prepared(train=[file], valid=valid)
    weighted = prepared(train=[{**file, "weight": 3.0}], valid=valid)
    assert alone.fingerprint == listed.fingerprint != weighted.fingerprint


def test_a_tag_is_a_piece_that_no_text_becomes(prepared, tmp_path):
    tagged = {**write(tmp_path / "a.tsv", [("<bt> a dog", "ein Hund"), *PAIRS[:300]]), "tag": "<bt>"}
    valid = {"toy": "valid", "size": 20, "tag": "<clean>"}
    data = prepared(train=[tagged], valid=valid)
    tag = data.tokenizer.control_id("<bt>")
    assert data.tokenizer.control_ids.keys() == {"<bt>", "<clean>"}
    assert all(data.train.src(i)[0] == tag for i in range(len(data.train)))
    assert (data.train.src(0)[1:] != tag).all()  # its characters in the text are other pieces
    assert data.valid[0].pairs.src(0)[0] == data.tokenizer.control_id("<clean>")
    assert tag not in data.tokenizer.encode_src(["<bt> <bt>"])[0]
    with pytest.raises(InputError, match="`tag` must be one of <bt>, <clean>, but is <x>"):
        data.tokenizer.control_id("<x>")


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("chosen, kept", [(None, 0), ("sources", 1)], ids=["usual", "sources"])
def test_references_that_are_targets_of_another_direction_are_left_out(
    prepared, tmp_path, chosen, kept, held_out
):
    """As of multi-parallel data: the German sentence of an English test pair has a French source, too."""
    words = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
    for name, some in (("t", words), ("v", words[:9])):
        for side in ("en", "fr", "de"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{side} {w}\n" for w in some), encoding="utf-8")

    def files(name, lang):
        return {"source": str(tmp_path / f"{name}.{lang}"), "target": str(tmp_path / f"{name}.de")}

    done = prepared(
        train=[files("t", "en"), {**files("t", "fr"), "source_lang": "fr"}],
        valid={"from_train": {"share": 0.1}} if held_out else files("v", "en"),
        test=[],
        leave_out=chosen,
        vocab_size=330,
    )
    references = {tgt for valid in done.valid for _, targets in valid.sentences for tgt in targets}
    targets = [done.tokenizer.decode_tgt(done.train.tgt(row)) for row in range(len(done.train))]
    left = len(references & set(targets))
    # A French source that is held out by itself takes its own target along.
    assert len(references) > 3 and (left > 0.8 * len(references) if kept else not left)
