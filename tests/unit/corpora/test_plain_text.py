"""Corpora of plain text: every format that pairs have, and what is left out of them."""

import gzip
import json

import pytest

from tests.unit.corpora.test_formats import pack
from transformer_mt.config import DataConfig
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.preparation import prepare

TEXTS = ["Ein Hund.", "Zwei  Katzen.", "Leer."]


def read(corpus):
    corpus = {"objective": "denoise", "language": "de", **corpus}
    valid = {"from_train": {"share": 0.1}}
    data = {"source_lang": "en", "target_lang": "de", "train": corpus, "valid": valid}
    config = DataConfig.model_validate(data)
    return list(config.train.read(config.languages))


def test_a_file_of_lines_is_read_packed_and_unpacked(tmp_path):
    content = "".join(f"{text}\n" for text in TEXTS).encode()
    (tmp_path / "a.txt").write_bytes(content)
    for file in (tmp_path / "a.txt", pack(tmp_path / "a.gz", content), pack(tmp_path / "a.zst", content)):
        assert read({"text": str(file)}) == [(text, text) for text in TEXTS]


def test_a_column_of_a_table_is_plain_text(tmp_path):
    (tmp_path / "a.tsv").write_text("id\ttext\n" + "".join(f"1\t{t}\n" for t in TEXTS), encoding="utf-8")
    rows = "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in TEXTS)
    (tmp_path / "a.jsonl").write_text(rows, encoding="utf-8")
    for file in ("a.tsv", "a.jsonl"):
        corpus = {"file": str(tmp_path / file), "columns": ["text"]}
        assert read(corpus) == [(text, text) for text in TEXTS]
    with pytest.raises(InputError, match="txt"):
        read({"file": str(tmp_path / "a.tsv"), "columns": ["txt"]})


@pytest.mark.parametrize("language, side", [("en", 0), ("de", 1)])
def test_of_pairs_the_language_says_which_side(tmp_path, language, side):
    pairs = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen.")]
    for name, column in (("a.en", 0), ("a.de", 1)):
        (tmp_path / name).write_text("".join(f"{pair[column]}\n" for pair in pairs), encoding="utf-8")
    (tmp_path / "a.tsv.gz").write_bytes(
        gzip.compress(("en\tde\n" + "".join(f"{en}\t{de}\n" for en, de in pairs)).encode())
    )
    hub = tmp_path / "hub"
    hub.mkdir()
    rows = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs)
    (hub / "train.jsonl").write_text(rows, encoding="utf-8")
    expected = [(pair[side], pair[side]) for pair in pairs]
    files = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
    for corpus in (files, {"file": str(tmp_path / "a.tsv.gz")}, {"hub": str(hub), "split": "train"}):
        assert read({**corpus, "language": language}) == expected


def test_a_language_that_the_pairs_do_not_have_is_told(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("A dog.\n", encoding="utf-8")
    corpus = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de"), "language": "fr"}
    with pytest.raises(
        InputError, match="`language` must be en or de, the languages of its sides, but is fr"
    ):
        read(corpus)


def test_lines_of_validation_and_test_sets_are_left_out_on_either_side(
    tmp_path, write_config, monkeypatch, said
):
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    german = [f"der Hund {i} sieht {i % 7} Katzen und rennt" for i in range(100)]
    english = [f"the dog {i} sees {i % 7} cats and runs" for i in range(100)]

    def write(name, lines):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(tmp_path / name)

    text = write("text.de", [*german, "Ein gültiger Satz.", german[0], "", "ein Wort " * 70])
    train = {"source": write("a.en", english), "target": write("a.de", german)}
    data = {
        "train": [train, {"text": text, "language": "de", "objective": "denoise"}],
        "valid": {"source": write("v.en", ["A valid one."]), "target": write("v.de", ["Ein gültiger Satz."])},
        "test": [],
    }
    prepared = prepare(load_config(write_config(data=data, tokenizer={"vocab_size": 320})))
    counts = prepared.corpora[1].counts
    assert counts["read"] == 104 and counts["in validation or test"] == 1
    assert counts["empty side"] == 1 and counts["over-long"] == 1 and counts["duplicate"] == 1
    data["valid"] = {"from_train": {"share": 0.2}}
    prepared = prepare(load_config(write_config("held.yaml", data=data, tokenizer={"vocab_size": 320})))
    held_out = [corpus.counts["held out"] for corpus in prepared.corpora]
    references = {target for valid in prepared.valid for _, (target,) in valid.sentences}
    # Those with a small hash of their own, and the references: neither is learned from as text.
    assert held_out[0] > 10 and held_out[1] > 1.4 * held_out[0]
    assert references <= set(german)
    assert counts["kept"] == 100  # that a text is its own copy is no reason to drop it


@pytest.mark.parametrize("change", ["detokenize", "reverse"])
def test_a_side_of_pairs_is_held_out_with_its_pair(tmp_path, write_config, monkeypatch, change):
    """So what is denoised first has no reference of the translation that begins with it, whatever the pairs
    are before they are held out.
    """
    monkeypatch.setenv("TRANSFORMER_MT_CACHE", str(tmp_path / "cache"))
    rows = [(f"{src[:-1]} .", f"{tgt[:-1]} .") for src, tgt in toy.generate("train", 600)]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(f"{src}\t{tgt}\n" for src, tgt in rows))
    pairs = {"file": str(tmp_path / "a.tsv"), "columns": ["en", "de"]}
    data = {"valid": {"from_train": {"share": 0.1}}, "test": []}
    if change == "reverse":
        pairs |= {"source_lang": "en", "target_lang": "de", "reverse": True}
        data |= {"source_lang": "de", "target_lang": "en"}
    elif change:
        data["filter"] = {"detokenize": True}
    sides = [{**pairs, "language": language, "objective": "denoise"} for language in ("en", "de")]
    translated, denoised = (
        prepare(load_config(write_config(data={"train": train, **data}, tokenizer={"vocab_size": 420})))
        for train in (pairs, sides)
    )
    references = {target for _, (target,) in translated.valid[0].sentences}
    restored = {target for _, (target,) in denoised.valid[0].sentences}
    assert len(references) > 30 and restored == references  # the text of the target language
    counts = [corpus.counts["held out"] for corpus in denoised.corpora]
    assert counts == [translated.corpora[0].counts["held out"]] * 2
