"""Which pairs of a corpus are of one document."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from pydantic import ValidationError

from transformer_mt.config import Config
from transformer_mt.data.corpora.evaluation_sets import read_in_documents
from transformer_mt.data.corpora.file import FileCorpus
from transformer_mt.data.corpora.files import FilesCorpus
from transformer_mt.data.corpora.hub import HubCorpus
from transformer_mt.data.corpora.sacrebleu_sets import SacrebleuCorpus
from transformer_mt.errors import InputError

LANGUAGES = ("en", "de")
ROWS = [{"en": f"Line {i}.", "de": f"Zeile {i}.", "talk": talk} for i, talk in enumerate((7, 7, 8, 7, 7))]
NUMBERS = [0, 0, 1, 2, 2]


def in_jsonl(folder):
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return FileCorpus(file=str(folder / "a.jsonl"), documents="talk")


def in_json(folder):
    in_jsonl(folder)
    (folder / "a.jsonl").rename(folder / "a.json")
    return FileCorpus(file=str(folder / "a.json"), documents="talk")


def in_parquet(folder):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "a.parquet")
    return FileCorpus(file=str(folder / "a.parquet"), documents="talk")


def in_table(folder):
    rows = ["en,de,talk", *("{en},{de},{talk}".format(**row) for row in ROWS)]
    (folder / "a.csv").write_text("\n".join(rows) + "\n")
    return FileCorpus(file=str(folder / "a.csv"), documents="talk")


def in_a_table_without_header(folder):
    (folder / "a.tsv").write_text("\n".join("{en}\t{de}\t{talk}".format(**row) for row in ROWS) + "\n")
    return FileCorpus(file=str(folder / "a.tsv"), columns=[1, 2], documents=3)


def in_tmx(folder):
    units = "".join(
        f'<tu><prop type="x-document">{row["talk"]}</prop><tuv xml:lang="en"><seg>{row["en"]}</seg></tuv>'
        f'<tuv xml:lang="de"><seg>{row["de"]}</seg></tuv></tu>'
        for row in ROWS
    )
    (folder / "a.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')
    return FileCorpus(file=str(folder / "a.tmx"), documents="x-document")


def in_a_folder_of_the_hub(folder):
    (folder / "set").mkdir()
    (folder / "set" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return HubCorpus(hub=str(folder / "set"), split="train", documents="talk")


@pytest.mark.parametrize(
    "written",
    [in_jsonl, in_json, in_parquet, in_table, in_a_table_without_header, in_tmx, in_a_folder_of_the_hub],
    ids=lambda written: written.__name__,
)
def test_a_value_says_which_document_a_pair_is_of(written, tmp_path):
    corpus = written(tmp_path)
    sentences, documents = read_in_documents(corpus, LANGUAGES, None, "valid")
    assert [src for src, _ in sentences] == [row["en"] for row in ROWS] and documents == NUMBERS


def test_a_blank_line_on_both_sides_ends_a_document_and_is_no_sentence(tmp_path):
    (tmp_path / "a.en").write_text("One.\n\n \nTwo.\n\nThree.\n")
    (tmp_path / "a.de").write_text("Eins.\n \n\nZwei.\nleer\nDrei.\n")
    corpus = FilesCorpus(source=str(tmp_path / "a.en"), target=str(tmp_path / "a.de"), documents=True)
    sentences, documents = read_in_documents(corpus, LANGUAGES, None, "test")
    assert [src for src, _ in sentences] == ["One.", "Two.", "", "Three."]
    assert documents == [0, 2, 2, 2]
    plain = corpus.model_copy(update={"documents": False})
    assert read_in_documents(plain, LANGUAGES, None, "test")[1] is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (in_jsonl, "no column `chapter`; the columns are en, de, talk"),
        (in_table, "no column `chapter`; the columns are en, de, talk"),
        (in_tmx, "every unit must have a property of type chapter, but 'Line 0.' has x-document"),
        (in_a_folder_of_the_hub, "must have the column `chapter`, but has en, de, talk"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(written, message, tmp_path):
    corpus = written(tmp_path).model_copy(update={"documents": "chapter"})
    with pytest.raises(InputError, match=message):
        list(corpus.in_documents(corpus.read(LANGUAGES), LANGUAGES))


def test_a_column_is_named_as_those_of_the_sides_are(tmp_path):
    corpus = in_table(tmp_path).model_copy(update={"documents": 3})
    with pytest.raises(
        InputError, match="documents must be the name of a column, as `columns` are, but is 3"
    ):
        list(corpus.in_documents(corpus.read(LANGUAGES), LANGUAGES))


def test_sets_of_sacrebleu_have_their_documents(tmp_path, monkeypatch):
    from sacrebleu.dataset import DATASETS

    folder = tmp_path / "wmt14"
    folder.mkdir()
    for field, lines in {"src": "A\nB\nC\n", "ref": "X\nY\nZ\n", "docid": "t1\nt1\nt2\n"}.items():
        (folder / f"wmt14.en-de.{field}").write_text(lines)
    for field in ("genre", "origlang"):
        (folder / f"wmt14.en-de.{field}").write_text("x\nx\nx\n")
    monkeypatch.setattr(DATASETS["wmt14"], "_outdir", str(folder))
    corpus = SacrebleuCorpus(sacrebleu="wmt14", documents="docid")
    assert list(corpus.read(LANGUAGES)) == [("A", "X"), ("B", "Y"), ("C", "Z")]
    assert read_in_documents(corpus, LANGUAGES, None, "test")[1] == [0, 0, 1]
    with pytest.raises(InputError, match="wmt14 has src, ref, docid, .* but documents is 'talk'; use docid"):
        read_in_documents(corpus.model_copy(update={"documents": "talk"}), LANGUAGES, None, "test")


DATA = {
    "source_lang": "en", "target_lang": "de", "train": {"toy": "train", "documents": True},
    "valid": {"toy": "valid"}, "context": {"sentences": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {**DATA, "train": {"toy": "train"}}}, "a training corpus has the key documents"),
        ({"tokenizer": {"shared": False}}, "tokenizer.shared must be true with data.context.sentences"),
        ({"train": {"guided_alignment": {"weight": 0.1}}}, "weight must be 0 with data.context"),
        ({"data": {**DATA, "language_pieces": "both"}}, "language_pieces must be auto, true or false"),
        (
            {"data": {**DATA, "valid": {"source": "a", "target": ["b", "c"], "documents": True}}},
            "documents must be left out unless a corpus has pairs, with one reference each",
        ),
    ],
)  # fmt: skip
def test_what_context_cannot_be_with_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Config.model_validate({"name": "x", "data": DATA, **changes})


def test_as_many_values_as_pairs_must_name_documents(tmp_path):
    rows = [*ROWS[:2], {"talk": 9}, *ROWS[2:]]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = FileCorpus(file=str(tmp_path / "a.jsonl"), documents="talk", damaged_rows="drop")
    with pytest.raises(InputError, match="must name the document of each pair, but there are not as many"):
        read_in_documents(corpus, LANGUAGES, None, "valid")
