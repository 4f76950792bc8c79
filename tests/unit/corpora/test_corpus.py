import csv
import gzip
import json
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from transformer_mt.config import DataConfig
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.errors import InputError

PAIRS = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("", "Leer.")]


def data(corpus, **more):
    return DataConfig.model_validate(
        {"source_lang": "en", "target_lang": "de", "train": corpus, "valid": {"toy": "valid"}, **more}
    )


def read(corpus, which=None, **more):
    config = data(corpus, **more)
    return list(config.entries[which or 0].read(config.languages))


def write_files(folder: Path, src: str, tgt: str) -> dict:
    (folder / "a.en").write_text(src, encoding="utf-8")
    (folder / "a.de").write_text(tgt, encoding="utf-8")
    return {"source": str(folder / "a.en"), "target": str(folder / "a.de")}


def test_two_files(tmp_path):
    assert read(write_files(tmp_path, "A dog.\nTwo cats.\n\n", "Ein Hund.\r\nZwei Katzen.\r\nLeer.")) == PAIRS


def test_files_of_different_length_name_both_counts(tmp_path):
    with pytest.raises(InputError, match=r"a.en has 2 and .*a.de has 5"):
        read(write_files(tmp_path, "a\nb\n", "a\nb\nc\nd\ne\n"))
    with pytest.raises(InputError, match=r"a.en has 4 and .*a.de has 1"):
        read(write_files(tmp_path, "a\nb\nc\nd\n", "a\n"))


def test_one_file_of_each_kind(tmp_path):
    tsv = tmp_path / "a.tsv"
    tsv.write_text("id\tde\ten\n" + "".join(f"1\t{de}\t{en}\n" for en, de in PAIRS), encoding="utf-8")
    assert read({"file": str(tsv)}) == PAIRS
    csv = tmp_path / "a.csv"
    csv.write_text('en,de\n"A ""big"", dog.","Ein ""großer"", Hund."\n', encoding="utf-8")
    assert read({"file": str(csv)}) == [('A "big", dog.', 'Ein "großer", Hund.')]
    csv.write_text('en,de\n"A\ndog.",Ein Hund.\n\n', encoding="utf-8")
    # A cell is one sentence, a blank line is none
    assert read({"file": str(csv)}) == [("A dog.", "Ein Hund.")]
    tsv.write_text("en\tde\na\tb\n\n\t\n", encoding="utf-8")
    assert read({"file": str(tsv)}) == [("a", "b"), ("", "")]
    jsonl = tmp_path / "a.jsonl.gz"
    jsonl.write_bytes(gzip.compress("\n".join(json.dumps({"en": en, "de": de}) for en, de in PAIRS).encode()))
    assert read({"file": str(jsonl)}) == PAIRS
    parquet = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"src": [en for en, _ in PAIRS], "tgt": [de for _, de in PAIRS]}), parquet
    )
    assert read({"file": str(parquet), "columns": ["src", "tgt"]}) == PAIRS


def test_missing_column_lists_those_there_are(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("english\tgerman\na\tb\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"no column `en`; the columns are english, german; set `columns"):
        read({"file": str(path)})
    (tmp_path / "a.jsonl").write_text('{"english": "a", "de": "b"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"a.jsonl:1: no column `en`; the columns are english, de"):
        read({"file": str(tmp_path / "a.jsonl")})


DAMAGED = {
    "a.tsv": "en\tde\na\tb\nc\nd\te\tf\ng\th\ni\t\tj\nk\n",
    "a.csv": "en,de\na,b\nc\nd,e,f\ng,h\ni,,j\nk\n",
    "a.jsonl": "".join(f"{json.dumps(row)}\n" for row in [
        {"en": "a", "de": "b"}, {"en": "c"}, {"de": "d"}, {"en": "g", "de": "h"}, {"x": "y"}, {}]),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_rows_are_refused_together_or_left_out(tmp_path, name, said):
    path = tmp_path / name
    path.write_text(DAMAGED[name], encoding="utf-8")
    with pytest.raises(InputError) as error:
        read({"file": str(path)})
    told = str(error.value)
    assert told.startswith(f"{path}: 4 rows are damaged: row ") and told.count("; row") == 2
    assert "leave such rows out with `damaged_rows: drop`" in told
    dropping = {"file": str(path), "damaged_rows": "drop"}
    for _ in range(2):  # a corpus is read several times
        assert read(dropping) == [("a", "b"), ("g", "h")]
    assert len(said) == 1 and said[0].startswith(f"{path}: 4 damaged rows are left out; 4 rows are damaged")


def test_a_table_with_another_delimiter_is_recognised(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("en;de\na;b\n", encoding="utf-8")
    with pytest.raises(InputError, match='if .* separates the columns, set `delimiter: ";"`'):
        read({"file": str(path)})
    assert read({"file": str(path), "delimiter": ";"}) == [("a", "b")]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.jsonl", "not json\n", r"a.jsonl:1: must be a JSON object a line"),
        ("a.jsonl", '{"en": 3, "de": "x"}\n', r"must hold text, but hold 3"),
        ("a.tsv", "en\tde\nHello\tworld\tHallo Welt\n", r"row 2 must have 2 columns, but has 3"),
        ("a.csv", 'en,de\n"open,' + "x" * 200_000, r"row 2 is not CSV: .*is a quote left open"),
        ("a.csv", 'en,de\n"Hello, world","Hallo\na,b\nc,d\n', r"row 2 is not CSV: .*is a quote left open"),
        ("a.csv", '"en,de\nHello,Hallo\n', r"row 1 is not CSV: .*is a quote left open"),
        ("a.csv", "en,de\rHello,Hallo\r", r"its lines must end with LF or CR LF, but end with CR alone"),
        ("a.tsv", "Hello\tHallo\rWorld\tWelt\r", r"must end with LF or CR LF, but end with CR alone"),
        ("a.jsonl", '{"a":' * 200_000, r"a.jsonl:1: is nested too deeply"),
        ("a.jsonl", '[{"en": "x", "de": "y"}]\n', r"a.jsonl:1: must be .*, but is a JSON array; `jq -c"),
        ("a.jsonl", "3\n", r"a.jsonl:1: must be a JSON object a line, but is '3'"),
        ("a.tsv", "PK\3\4 and more", r"a.tsv: must be text in UTF-8, but is a zip file, as .docx, .xlsx"),
        ("a.jsonl", '{"en": ' + "1" * 5000 + "}", r"a.jsonl:1: must be a JSON object a line: Exceeds"),
        ("a.jsonl", '{"en": "\\ud800", "de": "x"}\n', r"a.jsonl:1: must be valid Unicode text"),
        ("a.tsv", "", r"must have sentence pairs, but is empty"),
        ("a.tsv", "en\tde\n", r"must have sentence pairs, but is empty"),
        ("a.parquet", "not parquet", r"must be a parquet file"),
        ("a.txt", "x", r"must end in .tsv, .csv, .jsonl or .tmx .*, .parquet or .zip"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        read({"file": str(tmp_path / name)})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "corpus", [{"file": "no/such.tsv"}, {"file": "no/such.parquet"}, {"source": "no/a", "target": "no/b"}]
)
def test_missing_files_are_named(corpus):
    with pytest.raises(InputError, match="no such file"):
        read(corpus)


@pytest.fixture
def hub_folder(tmp_path):
    """A local folder in the layout of the hub's WMT sets: configurations, parquet, a nested `translation`."""
    folder = tmp_path / "wmt"
    (folder / "de-en").mkdir(parents=True)
    rows = [{"de": de, "en": en} for en, de in PAIRS]
    for split in ("train", "validation"):
        table = pyarrow.table({"translation": rows})
        pyarrow.parquet.write_table(table, folder / "de-en" / f"{split}-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: de-en\n  data_files:\n  - {split: train, path: de-en/train-*}\n"
        "  - {split: validation, path: de-en/validation-*}\n---\n",
        encoding="utf-8",
    )
    return folder


@pytest.mark.parametrize(
    "split, expected",
    [("train[1:]", PAIRS[1:]), ("train[-1:]", PAIRS[-1:]), ("train[:9999]", PAIRS), ("train[:2]", PAIRS[:2])],
)
def test_slices_of_splits_are_pythons(hub_folder, split, expected):
    assert read({"hub": str(hub_folder), "config": "de-en", "split": split}) == expected


def test_hub_layout_with_flat_columns(tmp_path):
    folder = tmp_path / "flat"
    folder.mkdir()
    lines = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in PAIRS)
    (folder / "train.jsonl").write_text(lines, encoding="utf-8")
    (folder / "val.jsonl").write_text(lines, encoding="utf-8")
    assert read({"split": "validation"}, hub=str(folder)) == PAIRS


def test_unknown_split_lists_those_there_are(hub_folder):
    with pytest.raises(UnknownSplitError, match=r"no split `test`; the splits are train, validation"):
        read({"hub": str(hub_folder), "config": "de-en", "split": "test"})


def test_unknown_configuration_of_a_set_is_one_line(hub_folder):
    with pytest.raises(InputError, match=r"fr-en") as error:
        read({"hub": str(hub_folder), "config": "fr-en", "split": "train"})
    assert "\n" not in str(error.value)


def test_folders_that_are_no_data_sets_are_one_line(tmp_path):
    problem = r"cannot be read as a data set|must be a JSON object a line"
    for name, content in (("script.py", "import datasets"), ("data.jsonl", "{broken")):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=problem) as error:
            read({"hub": str(folder), "split": "train"})
        assert "\n" not in str(error.value)


def test_parquet_whose_text_is_not_utf8_is_told(tmp_path):
    column = pyarrow.array([b"fine", b"\xff\xfe"], pyarrow.binary()).view(pyarrow.string())
    (tmp_path / "set").mkdir()
    file = tmp_path / "set" / "train-00000.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"en": column, "de": column}), file)
    for corpus in ({"file": str(file)}, {"hub": str(tmp_path / "set"), "split": "train"}):
        with pytest.raises(InputError, match="00.parquet: is damaged or holds text that is not UTF-8"):
            read(corpus)


def test_only_the_columns_of_the_pair_are_decoded(tmp_path):
    (tmp_path / "set").mkdir()
    picture = pyarrow.array([b"\xff"]).view(pyarrow.utf8())
    table = pyarrow.table({"en": ["a"], "de": ["b"], "picture": picture})
    pyarrow.parquet.write_table(table, tmp_path / "set" / "train-00000.parquet")
    assert read({"hub": str(tmp_path / "set"), "split": "train"}) == [("a", "b")]


def test_a_download_that_breaks_off_is_told(monkeypatch):
    import datasets
    import huggingface_hub

    def broken(*words, **options):
        raise huggingface_hub.utils.httpx.ReadError("peer closed connection")

    monkeypatch.setattr(datasets, "load_dataset_builder", broken)
    with pytest.raises(
        InputError, match=r"a/b: cannot be downloaded from the hub \(ReadError\); check the name"
    ):
        read({"hub": "a/b", "split": "train"})


def test_a_pinned_state_of_a_set_is_what_is_asked_for(monkeypatch, hub_folder):
    import datasets

    asked = []
    builder, names = datasets.load_dataset_builder, datasets.get_dataset_split_names
    load = datasets.load_dataset

    def of_the_hub(ask):
        return lambda hub, *words, revision, **options: (
            asked.append(revision) or ask(str(hub_folder), *words, **options)
        )

    monkeypatch.setattr(datasets, "load_dataset_builder", of_the_hub(builder))
    monkeypatch.setattr(datasets, "get_dataset_split_names", of_the_hub(names))
    monkeypatch.setattr(datasets, "load_dataset", of_the_hub(load))
    corpus = {"hub": "a/b", "config": "de-en", "split": "train", "revision": "v1.2"}
    assert read(corpus) and set(asked) == {"v1.2"}
    pinned, newest = (data({**corpus, "revision": r}).train.identity() for r in ("v1.2", None))
    assert pinned != newest


@pytest.mark.slow  # the hub's library waits between its own tries
def test_unreachable_hub_says_what_to_do_instead():
    with pytest.raises(
        InputError, match=r"wmt/wmt14: cannot be downloaded from the hub .*set data.hub to the folder"
    ) as error:
        read({"hub": "wmt/wmt14", "config": "de-en", "split": "train"})
    assert "\n" not in str(error.value)


def test_missing_hub_folder_is_not_looked_for_on_the_hub():
    with pytest.raises(InputError, match=r"\.\./nowhere/multi30k: no such folder"):
        read({"hub": "../nowhere/multi30k", "split": "train"})


def test_identity_changes_when_a_file_does(tmp_path):
    corpus = data(write_files(tmp_path, "a\n", "b\n")).train
    before = corpus.identity()
    (tmp_path / "a.de").write_text("bb\n", encoding="utf-8")
    assert corpus.identity() != before


def test_toy_goes_both_ways_and_no_other():
    english_first = read({"toy": "train", "size": 3})
    config = data({"toy": "train", "size": 3}, source_lang="de", target_lang="en")
    assert [(en, de) for de, en in config.train.read(config.languages)] == english_first
    french = config.model_copy(update={"source_lang": "fr"})
    with pytest.raises(InputError, match="the toy language has en and de, but data asks for fr and en"):
        french.train.read(french.languages)


@pytest.mark.parametrize("name, gap", [("a.tsv", "\t"), ("a.csv", ",")])
def test_columns_by_number_are_of_a_table_without_header(tmp_path, name, gap):
    rows = (["7", "Hello", "Hallo"], ["8", "Yes", "Ja"])
    (tmp_path / name).write_text("".join(gap.join(row) + "\n" for row in rows), encoding="utf-8")
    file = str(tmp_path / name)
    assert read({"file": file, "columns": [2, 3]}) == [("Hello", "Hallo"), ("Yes", "Ja")]
    assert read({"file": file, "columns": [3, 2]}) == [("Hallo", "Hello"), ("Ja", "Yes")]
    with pytest.raises(InputError, match=f"{name}: there is no column 4; the table has 3"):
        read({"file": file, "columns": [2, 4]})
    with pytest.raises(InputError, match=r"no column `en`; .* table without header .* `columns: \[1, 2\]`"):
        read({"file": file})


@pytest.mark.parametrize("columns", [[0, 1], [1], [1, "de"], ["en", "de", "fr"], "en", [True, False]])
def test_wrong_columns_are_refused(columns):
    with pytest.raises(ValueError, match=r"columns must be two names \(\[en, de\]\) or, for a table without"):
        FileCorpus.model_validate({"file": "a.tsv", "columns": columns})


def test_column_numbers_are_for_tables(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"en": "a", "de": "b"}\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"columns must be names, but are \[1, 2\]; numbers are for .tsv"):
        read({"file": str(tmp_path / "a.jsonl"), "columns": [1, 2]})


def test_two_columns_of_one_name_are_refused(tmp_path):
    """An export of a spreadsheet may have them; only one can be meant."""
    (tmp_path / "a.tsv").write_text("en\tde\ten\nA dog.\tEin Hund.\tnote\n", encoding="utf-8")
    (tmp_path / "a.csv").write_text("id,en,de,de\n1,A dog.,Ein Hund.,draft\n", encoding="utf-8")
    row = '{"translation": {"en": "A dog.", "de": "Ein Hund.", "en": "note"}}\n'
    (tmp_path / "a.jsonl").write_text(row, encoding="utf-8")
    table = pyarrow.table([["A dog."], ["Ein Hund."], ["note"]], names=["en", "de", "en"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    for name, problem in (
        ("a.tsv", "must have one column `en`, but columns 1, 3 have this name; rename all but one"),
        ("a.csv", "must have one column `de`, but columns 3, 4 have this name; rename all but one"),
        ("a.jsonl", "must have each key once, but has `en` twice; rename one of them"),
        ("a.parquet", "must have each key once, but has `en` twice; rename one of them"),
    ):
        with pytest.raises(InputError, match=problem):
            list(FileCorpus(file=str(tmp_path / name)).read(("en", "de")))
    # A column that is not read may be there twice, as may one that is named by its number.
    (tmp_path / "b.tsv").write_text("en\tde\tnote\tnote\nA dog.\tEin Hund.\t\t\n", encoding="utf-8")
    assert list(FileCorpus(file=str(tmp_path / "b.tsv")).read(("en", "de"))) == [("A dog.", "Ein Hund.")]
    assert len(list(FileCorpus(file=str(tmp_path / "a.tsv"), columns=[1, 2]).read(("en", "de")))) == 2


QUOTED = [('He said "no".', 'Er sagte "nein".'), ("A dog.", "Ein Hund."), ('"', '"')]


@pytest.mark.parametrize("kind", ["file", "hub"])
def test_a_quotation_mark_in_a_table_is_text(tmp_path, kind):
    rows = ['"An open quote', *(f"line {n}" for n in range(20)), 'and its "end', '"A whole line."']
    (tmp_path / "train.tsv").write_text("en\tde\n" + "".join(f"{r}\t{r}\n" for r in rows), encoding="utf-8")
    where = {"file": str(tmp_path / "train.tsv")} if kind == "file" else {"hub": str(tmp_path)}
    assert read(where | ({"split": "train"} if kind == "hub" else {})) == [(row, row) for row in rows]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("kind", ["file", "hub"])
def test_a_table_that_a_spreadsheet_wrote_is_read_as_one(tmp_path, kind, quoting, said):
    pairs = [("plain", "einfach"), *QUOTED, ("with\ta tab", "mit Tabulator"), ("two\nlines", "zwei Zeilen")]
    with (tmp_path / "train.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=quoting).writerows([("en", "de"), *pairs])
    where = {"file": str(tmp_path / "train.tsv")} if kind == "file" else {"hub": str(tmp_path)}
    expected = [(src.replace("\n", " "), tgt) for src, tgt in pairs]
    assert read(where | ({"split": "train"} if kind == "hub" else {})) == expected
    assert any("cells are quoted as spreadsheets do" in text for text in said)


def test_one_row_that_is_no_spreadsheets_decides_for_the_whole_table(tmp_path):
    rows = ['"He said ""no"""', 'a "loose" word']
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(f"{r}\t{r}\n" for r in rows), encoding="utf-8")
    assert read({"file": str(tmp_path / "a.tsv")}) == [(row, row) for row in rows]


def test_text_files_of_a_hub_folder_are_read_by_their_own_rules(tmp_path):
    pairs = [("null", "NA"), ("None", "nan"), ("1.0", "true"), ("a\u2028b", "c\x0bd")]
    for name in ("csv", "jsonl", "json", "txt"):
        (tmp_path / name).mkdir()
    with (tmp_path / "csv" / "train.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("en", "de"), *pairs])
    rows = [{"en": en, "de": de} for en, de in pairs]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "jsonl" / "train.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "json" / "train.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    for name in ("csv", "jsonl", "json"):
        assert read({"hub": str(tmp_path / name), "split": "train"}) == pairs, name
        assert read({"hub": str(tmp_path / name), "split": "train[-3:-1]"}) == pairs[1:3], name
    (tmp_path / "txt" / "train.txt").write_text("".join(f"{en}\n" for en, _ in pairs), encoding="utf-8")
    text = {"hub": str(tmp_path / "txt"), "split": "train", "columns": ["text"]}
    text |= {"language": "en", "objective": "denoise"}
    assert [src for src, _ in read([text, {"toy": "train"}], which=0)] == [en for en, _ in pairs]


def test_a_zip_that_a_mac_packed_is_read_without_its_notes(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for side, text in (("en", "A dog.\n"), ("de", "Ein Hund.\n")):
            archive.writestr(f"a.{side}", text)
            archive.writestr(f"__MACOSX/._a.{side}", "notes")
    assert read({"file": str(tmp_path / "a.zip")}) == PAIRS[:1]


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be"])
def test_utf_16_without_a_mark_is_named(tmp_path, encoding):
    for side in ("en", "de"):
        (tmp_path / f"a.{side}").write_bytes("A dog.\n".encode(encoding))
    with pytest.raises(InputError, match=f"is UTF-16 without a mark; convert it with iconv -f {encoding}"):
        read({"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")})


def test_an_array_of_other_things_than_objects_is_one_line(tmp_path):
    (tmp_path / "train.json").write_text('[{"en": "a", "de": "b"}, "c"]', encoding="utf-8")
    with pytest.raises(InputError, match="must be a JSON array of objects, but has 'c'|cannot be read as a"):
        read({"hub": str(tmp_path), "split": "train"})
