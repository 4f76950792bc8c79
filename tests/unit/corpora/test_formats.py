"""Formats of corpora: packed files, TMX, OPUS's Moses zip, delimiters. Each gives pairs or one sentence."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_mt.config import DataConfig
from transformer_mt.corpora.file import FileCorpus
from transformer_mt.errors import InputError

PAIRS = [("A dog.", "Ein Hund."), ("Two  cats.", "Zwei Katzen."), ("", "Leer.")]


def config_of(corpus, source="en", target="de"):
    data = {"source_lang": source, "target_lang": target, "train": corpus, "valid": {"toy": "valid"}}
    return DataConfig.model_validate(data)


def read(corpus, *languages):
    config = config_of(corpus, *languages)
    return list(config.train.read(config.languages))


def pack(path: Path, content: bytes) -> str:
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    if path.suffix == ".zst":
        with pyarrow.output_stream(str(path), compression="zstd") as file:
            file.write(content)
    else:
        path.write_bytes(packers[path.suffix](content))
    return str(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_packed_files_are_unpacked_while_they_are_read(tmp_path, ending):
    text = "".join(f"{en}\t{de}\n" for en, de in PAIRS)
    table = pack(tmp_path / f"a.tsv.{ending}", ("en\tde\n" + text).encode())
    assert read({"file": table}) == PAIRS
    sides = [
        pack(tmp_path / f"a.{side}.{ending}", "".join(pair[i] + "\n" for pair in PAIRS).encode())
        for i, side in enumerate(("en", "de"))
    ]
    assert read({"source": sides[0], "target": sides[1]}) == PAIRS


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_packed_file_that_is_cut_or_damaged_is_told(tmp_path, ending):
    lines = "".join(f"line {i * 7919 % 1000}\tZeile {i}\n" for i in range(5000))
    path = Path(pack(tmp_path / f"a.tsv.{ending}", ("en\tde\n" + lines).encode()))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=rf"a.tsv.{ending}: cannot be read after line \d+: "):
        read({"file": str(path)})
    path.write_bytes(b"not packed")
    with pytest.raises(InputError, match=rf"a.tsv.{ending}: cannot be read"):
        read({"file": str(path)})


def test_a_delimiter_of_ones_own(tmp_path):
    (tmp_path / "a.tsv").write_text("en|de\nA|B\n", encoding="utf-8")
    (tmp_path / "a.csv").write_text('en;de\n"A;a";B\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("{}\n", encoding="utf-8")
    assert read({"file": str(tmp_path / "a.tsv"), "delimiter": "|"}) == [("A", "B")]
    assert read({"file": str(tmp_path / "a.csv"), "delimiter": ";"}) == [("A;a", "B")]
    with pytest.raises(InputError, match="delimiter requires a .tsv or .csv file"):
        read({"file": str(tmp_path / "a.jsonl"), "delimiter": ";"})


def tmx(units: str, before: str = "") -> str:
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n{before}<tmx version="1.4"><header/>'
    return f"{head}<body>{units}</body></tmx>"


def unit(**texts: str) -> str:
    variants = (f'<tuv xml:lang="{k.replace("_", "-")}"><seg>{v}</seg></tuv>' for k, v in texts.items())
    return f"<tu>{''.join(variants)}</tu>"


UNIT = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'


def test_two_variants_of_a_language_are_two_texts(tmp_path):
    """A unit that has only one of them is no pair of it with itself."""
    units = UNIT.format("pt-PT", "Autocarro", "es", "Autobús") + UNIT.format("pt", "Trem", "pt-BR", "Comboio")
    (tmp_path / "a.tmx").write_text(tmx(units), encoding="utf-8")
    file = {"file": str(tmp_path / "a.tmx")}
    assert read(file, "pt-PT", "pt-BR") == [("Trem", "Comboio")]
    assert read(file, "pt-PT", "es") == [("Autocarro", "Autobús")]


def test_plain_text_of_a_variant_of_the_language(tmp_path):
    """Both sides ask for the same language."""
    units = UNIT.format("en-US", "A dog.", "de-DE", "Ein Hund.")
    (tmp_path / "a.tmx").write_text(tmx(units), encoding="utf-8")
    entry = {"file": str(tmp_path / "a.tmx"), "language": "de", "objective": "denoise"}
    pair = ("Ein Hund.", "Ein Hund.")
    assert list(FileCorpus.model_validate(entry).read(("en", "de"))) == [pair]


def test_entities_of_a_dtd_and_line_breaks_of_tmx_keep_words_apart(tmp_path):
    units = UNIT.format(
        "en", "10&nbsp;km caf&eacute;", "de", 'a<ph type="lb"/>b<ph>&lt;br/&gt;</ph>c<ph>x</ph>d'
    )
    dtd = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    (tmp_path / "a.tmx").write_text(tmx(units, dtd), encoding="utf-8")
    assert read({"file": str(tmp_path / "a.tmx")}) == [("10 km café", "a b cd")]


def written(tmp_path, text: str, name: str = "a.tmx") -> dict:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return {"file": str(tmp_path / name)}


def test_tmx_units_become_pairs(tmp_path):
    units = [
        unit(en="A dog.", de="Ein\n  Hund."),
        unit(de_AT="Zwei &lt;b&gt; Katzen", en_GB="Two cats", fr="Deux chats"),
        unit(en="No German"),
        unit(
            en="A <bpt i='1'>&lt;b&gt;<sub>code</sub></bpt>bold<ept i='1'>&lt;/b&gt;</ept> <hi>word</hi>",
            de="Ein <ph/>Wort",
        ),
    ]
    expected = [("A dog.", "Ein Hund."), ("Two cats", "Zwei <b> Katzen"), ("A bold word", "Ein Wort")]
    assert read(written(tmp_path, tmx("".join(units)))) == expected
    named = tmx("".join(units)).replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    assert read(written(tmp_path, named)) == expected
    packed = pack(tmp_path / "b.tmx.gz", tmx("".join(units)).encode())
    assert read({"file": packed}) == expected
    other = read({**written(tmp_path, tmx("".join(units))), "columns": ["fr", "en"]})
    assert other == [("Deux chats", "Two cats")]
    with pytest.raises(InputError, match="must have units in en and zh, but has en, de, de-AT, en-GB, fr"):
        read(written(tmp_path, tmx("".join(units))), "en", "zh")


def test_codes_of_two_and_three_letters_are_one_language_and_other_units_are_counted(tmp_path, said):
    codes = [("en", "de"), ("EN", "DE"), ("en-US", "de-DE"), ("en_GB", "de_AT"), ("eng", "deu")]
    codes.append(("eng", "ger"))
    rows = "".join(
        f'<tu><tuv xml:lang="{a}"><seg>{i}</seg></tuv><tuv xml:lang="{b}"><seg>d{i}</seg></tuv></tu>'
        for i, (a, b) in enumerate([*codes, ("en", "fra"), ("it", "de")])
    )
    file = written(tmp_path, tmx(rows))
    assert read(file) == [(str(i), f"d{i}") for i in range(6)]
    assert said == [f"note: {file['file']}: 2 of 8 units are not in en and de, but in en, fra, it, de"]


def test_tmx_never_expands_entities_or_reads_other_files(tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    for declaration in ('<!ENTITY a "aaaa">', f'<!ENTITY a SYSTEM "file://{tmp_path}/secret">'):
        text = tmx(unit(en="&a;", de="x"), f"<!DOCTYPE tmx [{declaration}]>\n")
        with pytest.raises(InputError, match="must not define XML entities, but does"):
            read(written(tmp_path, text))
    plain = tmx(unit(en="a", de="b"), '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n')
    assert read(written(tmp_path, plain)) == [("a", "b")]


def test_a_damaged_tmx_is_told(tmp_path):
    whole = tmx(unit(en="a", de="b") * 3)
    with pytest.raises(InputError, match="must be a TMX file, but its XML is damaged: "):
        read(written(tmp_path, whole[:-30]))
    with pytest.raises(InputError, match="must be a TMX file, but its XML is damaged: "):
        read(written(tmp_path, "no xml"))


def test_a_large_tmx_needs_little_memory(tmp_path):
    import tracemalloc

    file = written(tmp_path, tmx(unit(en="a dog " * 200, de="ein Hund " * 200) * 2_500))
    config = config_of(file)
    tracemalloc.start()
    count = sum(1 for _ in config.train.read(config.languages))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2_500 and peak < 5_000_000  # the file has 8 MB


def moses(path: Path, members: dict[str, str]) -> dict:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return {"file": str(path)}


def test_a_moses_zip_of_opus(tmp_path):
    texts = {"Books.de-en.de": "Ein Hund.\nZwei\n", "Books.de-en.en": "A dog.\nTwo\n"}
    members = {"README": "x", **texts, "LICENSE": "y"}
    corpus = moses(tmp_path / "de-en.txt.zip", members)
    assert read(corpus) == [("A dog.", "Ein Hund."), ("Two", "Zwei")]
    assert read(corpus, "de", "en") == [("Ein Hund.", "A dog."), ("Zwei", "Two")]
    with pytest.raises(
        InputError, match=r"must have one file that ends in .zh, but has README, .*; set `columns`"
    ):
        read(corpus, "en", "zh")
    chinese = moses(tmp_path / "en-zh.zip", {"B.en-zh_CN.en": "A\n", "B.en-zh_CN.zh_CN": "B\n"})
    assert read({**chinese, "columns": ["en", "zh_CN"]}, "en", "zh") == [("A", "B")]


def test_a_damaged_moses_zip_is_told(tmp_path):
    uneven = moses(tmp_path / "a.zip", {"a.en": "A\nB\n", "a.de": "A\n"})
    with pytest.raises(
        InputError, match="its two texts must have the same number of lines, but a.de ends after 1"
    ):
        read(uneven)
    (tmp_path / "b.zip").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(InputError, match="is not a zip file"):
        read({"file": str(tmp_path / "b.zip")})
    with pytest.raises(InputError, match="no such file"):
        read({"file": str(tmp_path / "c.zip")})


@pytest.mark.parametrize("field, value", [("flag", 1), ("compression", 9)], ids=["encrypted", "compression"])
def test_a_moses_zip_that_cannot_be_unpacked_is_reported(tmp_path, field, value):
    corpus = moses(tmp_path / "a.zip", {"a.en": "A\n", "a.de": "A\n"})
    content = bytearray((tmp_path / "a.zip").read_bytes())
    local, central = {"flag": (6, 8), "compression": (8, 10)}[field]
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        start = -1
        while (start := content.find(signature, start + 1)) >= 0:
            content[start + offset] |= value
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match="a.zip: this zip file cannot be unpacked: "):
        read(corpus)


PARTS = [
    "<tmx>", "</tmx>", "<tu>", "</tu>", "<tuv xml:lang='en'>", "</tuv>", "<seg>", "</seg>", "x", "\t", "\n",
    '"', ",", "en\tde\n", "en,de\n", '{"en": "a", "de": "b"}\n',
]  # fmt: skip
NAMES = ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.tmx", "a.zip", "a.tsv.gz", "a.csv.xz", "a.jsonl.zst"]
CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(str.encode),
    st.lists(st.sampled_from(PARTS), max_size=15).map(lambda parts: "".join(parts).encode()),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=CONTENTS, name=st.sampled_from(NAMES))
def test_whatever_a_file_holds_it_gives_pairs_or_one_sentence(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    try:
        pairs = read({"file": str(tmp_path / name)})
    except InputError as error:
        assert name.split(".")[0] in str(error) and "Traceback" not in str(error)
        return
    for src, tgt in pairs:
        assert isinstance(src, str) and isinstance(tgt, str) and "\n" not in src + tgt


def test_sacrebleus_test_sets_by_name(tmp_path, monkeypatch):
    """From its folder, where they are downloaded to; nothing is asked from the network here."""
    import sacrebleu.dataset

    dataset = sacrebleu.dataset.DATASETS["wmt14"]
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path))
    others = dict.fromkeys(dataset.fieldnames("en-de"), "x\nx\n")
    for side, lines in (others | {"src": "A dog.\nTwo.\n", "ref": "Ein Hund.\nZwei.\n"}).items():
        (tmp_path / f"wmt14.en-de.{side}").write_text(lines, encoding="utf-8")
    data = {"source_lang": "en", "target_lang": "de", "train": {"toy": "train"}, "valid": {"toy": "valid"}}

    def pairs(name, **languages):
        config = DataConfig.model_validate({**data, **languages, "test": [{"sacrebleu": name}]})
        return list(config.test[0].read(config.languages))

    assert pairs("wmt14") == [("A dog.", "Ein Hund."), ("Two.", "Zwei.")]
    (wmt14,) = DataConfig.model_validate({**data, "test": [{"sacrebleu": "wmt14"}]}).test
    assert wmt14.describe_access() == "sacrebleu wmt14, from the network or its local cache"
    (tmp_path / "wmt14.en-de.ref2").write_text("Hund.\nX.\n", encoding="utf-8")
    monkeypatch.setattr(dataset, "fieldnames", lambda pair: ["src", "ref:A", "ref:B"])
    files = [str(tmp_path / f"wmt14.en-de.{n}") for n in ("src", "ref", "ref2")]
    monkeypatch.setattr(dataset, "get_files", lambda pair: files)
    entry = {"sacrebleu": "wmt14", "several_references": True}
    (both,) = DataConfig.model_validate({**data, "test": [entry]}).test
    assert list(both.read(("en", "de"))) == [
        ("A dog.", "Ein Hund."), ("A dog.", "Hund."), ("Two.", "Zwei."), ("Two.", "X."),
    ]  # fmt: skip
    monkeypatch.undo()
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path))
    with pytest.raises(InputError, match="sacrebleu: no test set wmt41; did you mean wmt"):
        pairs("wmt41")
    with pytest.raises(InputError, match="sacrebleu: wmt14 has no en-zh; its language pairs are cs-en, "):
        pairs("wmt14", target_lang="zh")
    monkeypatch.setattr(dataset, "maybe_download", lambda: (_ for _ in ()).throw(OSError("no network")))
    monkeypatch.setattr(dataset, "_outdir", str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"wmt14 en-de cannot be downloaded \(.*\); check the network"):
        pairs("wmt14")
