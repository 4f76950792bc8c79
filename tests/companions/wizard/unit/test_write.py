"""`transformer-mt new`: which corpora a user's files are, and the config that is written for them."""

import bz2
import gzip
import json
import lzma
import re
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tests.helpers.companions import needs
from tests.helpers.faults import pairs_in_files, update_seconds
from transformer_mt.cli import main
from transformer_mt.companions.wizard import plan as speed
from transformer_mt.companions.wizard import write as write_module
from transformer_mt.companions.wizard.plan import PURPOSES, SIZES, size_for, smaller, suited
from transformer_mt.companions.wizard.user_files import guess_corpora
from transformer_mt.companions.wizard.write import new_config
from transformer_mt.config import DataConfig
from transformer_mt.config.load import dump_config, load_config
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder

PAIRS = list(toy.generate("train", 400))


def lines(side):
    return "".join(pair[side] + "\n" for pair in PAIRS)


def tmx():
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="de"><seg>{de}</seg></tuv></tu>'
        for en, de in PAIRS
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><tmx version="1.4"><body>{units}</body></tmx>'


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read(guess, languages=("en", "de")):
    """The pairs of a guessed corpus, as training would read them."""
    entry = guess.corpus.model_dump(exclude_none=True, exclude_defaults=True)
    values = {"source_lang": languages[0], "target_lang": languages[1], "train": entry, "valid": entry}
    data = DataConfig.model_validate(values)
    return list(data.train.read(data.languages))


def tsv(*columns, header=None):
    rows = ["\t".join(cells) for cells in zip(*columns)]
    return "\n".join([header, *rows] if header else rows) + "\n"


EN, DE = [en for en, _ in PAIRS], [de for _, de in PAIRS]
NUMBERS = [str(n) for n in range(len(PAIRS))]

TABLES = {
    "header.tsv": tsv(EN, DE, header="en\tde"),
    "english_names.csv": "English,German,Notes\n" + "".join(f'"{en}","{de}",x\n' for en, de in PAIRS),
    "longer_names.csv": "id,english_text,german_text\n"
    + "".join(f'{n},"{en}","{de}"\n' for n, (en, de) in enumerate(PAIRS)),
    "own_names.tsv": tsv(EN, DE, header="English\tDeutsch"),
    "sides.tsv": tsv(NUMBERS, EN, DE, header="id\tsource\ttarget"),
    "bare.tsv": tsv(EN, DE),
    "bare_swapped.tsv": tsv(NUMBERS, DE, EN),
    "semicolons.csv": "".join(f'"{en}";"{de}"\n' for en, de in PAIRS),
    "commas.csv": "de,en\n" + "".join(f'"{de}","{en}"\n' for en, de in PAIRS),
    "tabs.csv": tsv(EN, DE),
    "names.jsonl": "".join(json.dumps({"de": de, "en": en}) + "\n" for en, de in PAIRS),
    "nested.jsonl": "".join(json.dumps({"translation": {"de": de, "en": en}}) + "\n" for en, de in PAIRS),
    "other.jsonl": "".join(json.dumps({"id": 1, "b": de, "a": en}) + "\n" for en, de in PAIRS),
    "units.tmx": tmx(),
    "short.csv": "Term EN,Term DE\n" + "".join(f'"{en}","{de}"\n' for en, de in PAIRS[:15]),
    "text_in_translation.jsonl": "".join(
        json.dumps({"translation": de, "source": en}) + "\n" for en, de in PAIRS
    ),
}


@pytest.mark.parametrize(
    "name, packed",
    [*((name, "") for name in TABLES), ("tabs.csv", ".gz"), ("bare.tsv", ".xz")]
    + [("names.jsonl", ".bz2"), ("units.tmx", ".gz")],
)
def test_a_table_is_understood(tmp_path, name, packed):
    pack = {"": lambda data: data, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[packed]
    (tmp_path / f"{name}{packed}").write_bytes(pack(TABLES[name].encode()))
    (guess,) = guess_corpora([f"{name}{packed}"], "en", "de")
    pairs = PAIRS[:15] if name == "short.csv" else PAIRS
    assert read(guess) == pairs
    (guess,) = guess_corpora([f"{name}{packed}"], "de", "en")
    if name != "sides.tsv":  # whose columns say source and target
        assert read(guess, ("de", "en")) == [(de, en) for en, de in pairs]


def test_parquet_and_moses_files_and_endings_in_capitals_are_understood(tmp_path):
    table = pyarrow.table({"text": DE, "other": EN, "number": list(range(len(EN)))})
    pyarrow.parquet.write_table(table, "named_otherwise.parquet")
    (tmp_path / "P.CSV.GZ").write_bytes(gzip.compress(TABLES["commas.csv"].encode()))
    with zipfile.ZipFile("moses.zip", "w") as archive:
        archive.writestr("X.de-en.en", lines(0))
        archive.writestr("X.de-en.de", lines(1))
    for guess in guess_corpora(["named_otherwise.parquet", "moses.zip", "P.CSV.GZ"], "en", "de"):
        assert read(guess) == PAIRS


@pytest.mark.parametrize(
    "names",
    [
        ("all.en", "all.de"),
        ("x_de.txt", "x_en.txt"),
        ("en.txt.gz", "de.txt.gz"),
        ("first.txt", "second.txt"),  # by their text
        ("corpus.de_DE", "other.en_GB"),
        ("Europarl.de-en.en", "Europarl.de-en.de"),  # as OPUS names them
    ],
)
def test_two_text_files_are_a_corpus(tmp_path, names):
    for name in names:
        is_german = name.endswith((".de", ".de_DE")) or "_de" in name or name.startswith(("de.", "second"))
        text = lines(int(is_german)).encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (guess,) = guess_corpora(names, "en", "de")
    assert read(guess) == PAIRS
    assert ("their text" in guess.assumed) == (names[0] == "first.txt")


@pytest.mark.parametrize("codes", [("en", "zh_Hans"), ("en_GB", "zh-Hans"), ("en", "zh"), ("EN", "zh_CN")])
def test_codes_in_names_may_have_scripts_and_countries(tmp_path, codes):
    names = [f"{name}.{code}" for name in ("news", "talks") for code in codes]
    for name in names:
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    pairs = [(guess.corpus.source, guess.corpus.target) for guess in guess_corpora(names, "en", "zh_Hans")]
    assert pairs == [(names[0], names[1]), (names[2], names[3])]


@pytest.mark.parametrize("header", ["pt\tpt_BR", "pt_BR\tpt"])
def test_two_kinds_of_a_language_have_a_column_each(tmp_path, header):
    (tmp_path / "a.tsv").write_text(f"{header}\n" + "um\tdois\n" * 30, encoding="utf-8")
    (guess,) = guess_corpora(["a.tsv"], "pt", "pt_BR")
    expected = ("um", "dois") if header.startswith("pt\t") else ("dois", "um")
    assert next(iter(guess.corpus.read(("pt", "pt_BR")))) == expected


def test_any_mixture_in_the_order_of_the_command_line(tmp_path):
    for name in ("a.en", "a.de", "b.en", "b.de"):
        (tmp_path / name).write_text(lines(int(name.endswith("de"))), encoding="utf-8")
    (tmp_path / "t.tsv").write_text(TABLES["bare.tsv"], encoding="utf-8")
    guesses = guess_corpora(["b.de", "t.tsv", "a.en", "b.en", "a.de"], "en", "de")
    assert [getattr(g.corpus, "source", None) for g in guesses] == ["b.en", None, "a.en"]
    assert [getattr(g.corpus, "target", None) for g in guesses] == ["b.de", None, "a.de"]


@pytest.mark.parametrize(
    "files, message",
    [
        (["no.tsv"], "no.tsv: no such file"),
        (["alone.en"], "alone.en: must have a line-aligned file in the other language, but there is none"),
        (["alone.en", "two.en"], "alone.en: must have a line-aligned file"),
        (["empty.tsv"], "empty.tsv: a corpus must have sentence pairs, but is empty"),
        (["folder"], "folder: must be a file, but is a folder"),
        (["french.tsv"], "french.tsv: must have a column in en and one in de, but the best two have"),
        (["one.tsv"], "one.tsv: must have a column in en and one in de, but has one column of text"),
        (["titled.tsv"], "titled.tsv: row 1 must have 2 columns, as others have, but has 1; remove lines"),
        (["bare.tsv", "./bare.tsv"], "./bare.tsv: must be named once, but is named again"),
        (["bad.jsonl"], "bad.jsonl:1: must be a JSON object a line"),
        (["mac.csv"], "mac.csv: its lines must end with LF or CR LF, but end with CR alone"),
        (["array.jsonl"], "array.jsonl:1: must be a JSON object a line, but is a JSON array; `jq"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, files, message):
    for name in ("alone.en", "two.en"):
        (tmp_path / name).write_text(lines(0), encoding="utf-8")
    (tmp_path / "empty.tsv").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bare.tsv").write_text(TABLES["bare.tsv"], encoding="utf-8")
    (tmp_path / "titled.tsv").write_text("My glossary\n" + TABLES["bare.tsv"], encoding="utf-8")
    french = "Le chien court dans la rue.\tNous mangeons du pain avec nos amis.\n"
    (tmp_path / "french.tsv").write_text(french * 50, encoding="utf-8")
    (tmp_path / "one.tsv").write_text("A dog runs through the garden.\n" * 50, encoding="utf-8")
    (tmp_path / "mac.csv").write_bytes(b"en,de\rA dog.,Ein Hund.\r")
    (tmp_path / "bad.jsonl").write_text("{\n", encoding="utf-8")
    (tmp_path / "array.jsonl").write_text('[\n{"en": "a", "de": "b"}\n]\n', encoding="utf-8")
    with pytest.raises(InputError) as error:
        guess_corpora(files, "en", "de")
    assert str(error.value).startswith(message)


# The config


@pytest.fixture
def quick(monkeypatch):
    """A machine that takes as many seconds per update as `seconds` says, by width of the model."""
    seconds = {256: 0.1, 512: 10.0}
    update_seconds(monkeypatch, lambda config: seconds[config.model.d_model])
    return seconds


def test_one_endless_line_does_not_change_the_sizes(tmp_path, quick):
    """It was counted as pieces of all pairs: a training of minutes was planned for hours."""
    texts = {"": [], "long": ["word " * 200_000]}
    for name, more in texts.items():
        for side, language in enumerate(("en", "de")):
            content = lines(side) + "".join(f"{text}\n" for text in more)
            (tmp_path / f"all{name}.{language}").write_text(content, encoding="utf-8")
        new_config("en", "de", [f"all{name}.en", f"all{name}.de"], tmp_path / f"{name}x.yaml")
    plain, endless = (load_config(tmp_path / f"{name}x.yaml") for name in texts)
    assert abs(endless.train.max_updates - plain.train.max_updates) <= 10  # there is one pair more
    assert abs(endless.tokenizer.vocab_size - plain.tokenizer.vocab_size) <= 10


def test_files_that_grew_keep_the_share_that_is_held_out(tmp_path, quick, said, monkeypatch):
    """A smaller one would move sentences of the test set into training."""
    for name, text in zip(("all.en", "all.de"), (lines(0), lines(1))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    new_config("en", "de", ["all.en", "all.de"], tmp_path / "first.yaml")
    pairs_in_files(monkeypatch, 48_000)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "no.yaml").write_text("- data: [\n", encoding="utf-8")
    for place in (tmp_path / "first.yaml", tmp_path / "runs" / "first" / "config.yaml"):
        (tmp_path / "first.yaml").rename(place)  # the run keeps it, even if the config is gone
        new_config("en", "de", ["all.en", "all.de"], tmp_path / "second.yaml")
        assert load_config(tmp_path / "second.yaml").data.test[0].from_train.share == 0.05
        assert f"{place} holds out 5.00% of these files: the same share is used" in said
        (tmp_path / "second.yaml").unlink()
        place.rename(tmp_path / "first.yaml")
    (tmp_path / "first.yaml").unlink()
    new_config("en", "de", ["all.en", "all.de"], tmp_path / "second.yaml")
    assert load_config(tmp_path / "second.yaml").data.test[0].from_train.share == 0.025


def test_the_config_reads_back_and_names_the_files(tmp_path, quick, said):
    for name in ("all.en", "all.de"):
        (tmp_path / name).write_text(lines(int(name.endswith("de"))), encoding="utf-8")
    new_config("en", "de", ["all.en", "all.de"], tmp_path / "mine.yaml")
    config = load_config(tmp_path / "mine.yaml")
    assert (config.data.train.source, config.data.train.target) == ("all.en", "all.de")
    assert config.data.valid.from_train.share == 0.05
    assert (config.data.augment.typos, config.data.augment.punctuation) == (0.1, 0.1)
    assert 256 < config.tokenizer.vocab_size <= 500  # the sizes for 10,000 pairs have more
    assert said[0] == (
        "Assuming that line n of all.de (de) translates line n of all.en (en); the languages are taken from "
        "their names."
    )
    assert said[1] == "400 pairs"
    updates = config.train.max_updates
    assert f"on this machine ({updates:,} updates of 0.10 s), validations not counted" in said[-2]
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert text.count("#") >= 8 and all(len(line) <= 140 for line in text.split("\n"))
    with pytest.raises(InputError, match=r"mine.yaml: must not exist yet, but does"):
        new_config("en", "de", ["all.en", "all.de"], tmp_path / "mine.yaml")
    with pytest.raises(InputError, match="a language must be a code such as en or zh_Hans, but is 'd'"):
        new_config("en", "d", ["all.en", "all.de"], tmp_path / "other.yaml")
    with pytest.raises(InputError, match="but jp is a country's; Japanese is ja"):
        new_config("en", "jp", ["all.en", "all.de"], tmp_path / "other.yaml")
    with pytest.raises(InputError, match=r"write {hub: ., split: train} into a config by hand"):
        new_config("en", "de", ["."], tmp_path / "other.yaml")
    with pytest.raises(InputError, match="source and target language must differ, but both are en"):
        new_config("en", "en", ["all.en", "all.de"], tmp_path / "other.yaml")


@pytest.mark.parametrize(
    "name, message",
    [("my corpus.yaml", "the name of a config must begin"), ("file.txt/x.yaml", "cannot be written: ")],
)
def test_a_config_that_cannot_be_written_is_refused_before_any_work(tmp_path, quick, name, message):
    (tmp_path / "file.txt").touch()
    with pytest.raises(InputError, match=message):
        new_config("en", "de", ["no.tsv"], tmp_path / name)


@pytest.mark.parametrize("updates, every", [(100, 20), (250, 50), (3000, 200), (4, 1)])
def test_a_training_has_at_least_five_validations(updates, every):
    assert write_module._validate_every(updates) == every


def test_too_few_pairs_are_refused(tmp_path, quick):
    (tmp_path / "few.tsv").write_text("en\tde\n" + "A dog.\tEin Hund.\n" * 5, encoding="utf-8")
    with pytest.raises(InputError, match="few.tsv: must have at least 200 pairs with text on both sides"):
        new_config("en", "de", ["few.tsv"], tmp_path / "mine.yaml")


def test_the_largest_config_that_fits_the_hours_is_written(tmp_path, quick, monkeypatch, said):
    """With 500,000 pairs the wide model takes a day here, and the narrow one fits."""
    (tmp_path / "t.tsv").write_text(TABLES["header.tsv"], encoding="utf-8")
    pairs_in_files(monkeypatch, 500_000)
    assert new_config("en", "de", ["t.tsv"], tmp_path / "mine.yaml") > 3600
    new_config("en", "de", ["t.tsv"], tmp_path / "short.yaml", hours=1)
    config = load_config(tmp_path / "short.yaml")
    assert config.model.d_model == 256 and config.train.max_updates * 0.1 <= 3600
    assert config.tokenizer.vocab_size <= 8000
    wide = load_config(tmp_path / "mine.yaml")
    assert wide.model.d_model == 512
    for train in (config.train, wide.train):  # the longer the training, the less
        assert train.weight_decay * train.learning_rate * train.max_updates == pytest.approx(6, rel=0.1)


def test_a_training_of_few_epochs_has_no_bpe_dropout(tmp_path, quick, monkeypatch, said):
    """It costs three BLEU there; the hour has room for a part of the epochs."""
    (tmp_path / "t.tsv").write_text(TABLES["header.tsv"], encoding="utf-8")
    quick[256] = 20.0
    pairs_in_files(monkeypatch, 10_000)
    new_config("en", "de", ["t.tsv"], tmp_path / "mine.yaml")
    whole = load_config(tmp_path / "mine.yaml")
    new_config("en", "de", ["t.tsv"], tmp_path / "short.yaml", hours=1)
    short = load_config(tmp_path / "short.yaml")
    assert whole.train.max_updates > 2 * short.train.max_updates
    assert (whole.tokenizer.bpe_dropout, whole.model.dropout) == (0.1, 0.3)
    assert (short.tokenizer.bpe_dropout, short.model.dropout) == (0.0, 0.1)


def test_chinese_gets_what_it_needs(tmp_path, quick):
    rows = [f"The dog number {n} runs.\t第{n}只狗在跑，很快。" for n in range(240)]
    (tmp_path / "zh.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    new_config("en", "zh", ["zh.tsv"], tmp_path / "mine.yaml")
    tokenizer = load_config(tmp_path / "mine.yaml").tokenizer
    assert tokenizer.character_coverage == 0.9995 and tokenizer.vocab_size < 600  # so little text


@pytest.mark.parametrize(
    "language, target, monitor",
    [
        ("de", "Hund{} schläft", "chrF"),
        ("de", "Der Hund {} läuft schnell.", "BLEU"),
        ("th", "หมาตัวที่{}กำลังวิ่ง", "BLEU"),
    ],
)
def test_the_metric_fits_the_language(tmp_path, quick, language, target, monitor):
    rows = [f"The dog number {n} runs.\t{target.format(n)}" for n in range(240)]
    (tmp_path / "a.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    new_config("en", language, ["a.tsv"], tmp_path / "mine.yaml")
    assert load_config(tmp_path / "mine.yaml").train.monitor == monitor


def test_more_characters_than_pieces_raise_the_vocabulary(tmp_path, quick):
    rows = [f"The dog number {n} runs.\t{chr(0x4E00 + 2 * n)}只狗{chr(0x4E01 + 2 * n)}。" for n in range(900)]
    (tmp_path / "zh.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    new_config("en", "zh", ["zh.tsv"], tmp_path / "mine.yaml")
    assert load_config(tmp_path / "mine.yaml").tokenizer.vocab_size > 1800


def test_a_language_of_which_nothing_is_known_may_be_any_text(tmp_path):
    (tmp_path / "bare.tsv").write_text(TABLES["bare_swapped.tsv"], encoding="utf-8")
    (guess,) = guess_corpora(["bare.tsv"], "en", "tlh")
    assert read(guess, ("en", "tlh")) == PAIRS


@pytest.mark.parametrize("names", [("source.txt", "target.txt"), ("target.txt", "source.txt")])
def test_a_text_is_known_by_the_other_one(tmp_path, names):
    for side, name in enumerate(("source.txt", "target.txt")):
        (tmp_path / name).write_text(lines(side), encoding="utf-8")
    (guess,) = guess_corpora(names, "en", "tlh")
    assert read(guess, ("en", "tlh")) == PAIRS
    with pytest.raises(InputError, match="their names must tell which is mis, as all.mis and all.tlh do"):
        guess_corpora(names, "mis", "tlh")
    (tmp_path / "target.txt").write_text(lines(0), encoding="utf-8")
    with pytest.raises(InputError, match="their names must tell which is en, as all.en and all.de do"):
        guess_corpora(names, "en", "de")  # two English texts


@pytest.mark.parametrize("pairs, expected", [(0, 0), (40_000, 1), (200_000, 2), (10**8, 4)])
def test_the_size_for_an_amount_of_data(pairs, expected):
    assert size_for(pairs) == SIZES[expected]


def test_an_update_is_measured(write_config):
    config = load_config(write_config())
    lengths = [(5, 6), (9, 8), (60, 64), (2, 2)]
    assert 0 < speed.seconds_per_update(config, 450, lengths) < 60


def test_lines_that_are_too_long_are_not_measured(write_config):
    config = load_config(write_config(data={"max_length": 64}))
    for lengths in ([(5, 6), (100_000, 3)], [(100_000, 3)]):
        batches = speed.typical_batches(config, 450, lengths)
        shapes = [next(batches) for _ in range(20)]
        assert all(len(batch.src) >= 1 and batch.src.shape[1] <= 64 for batch in shapes)


@pytest.mark.long
def test_with_few_pairs_a_config_for_denoising_their_text_is_written(said):
    Path("a.tsv").write_text(tsv(EN, DE), encoding="utf-8")
    Path("b.tmx").write_text(tmx(), encoding="utf-8")
    new_config("en", "de", ["a.tsv", "b.tmx"], Path("mine.yaml"))
    assert any("pairs are few" in line and "init_from=runs/mine_denoise" in line for line in said)
    config = load_config("mine_denoise.yaml")
    assert config.data.objectives == ["denoise"] and config.data.directions == []
    assert [entry.language for entry in config.data.entries] == ["de", "en", "de", "en"]
    texts = [[text for text, _ in entry.read(config.data.languages)] for entry in config.data.entries]
    assert texts == [DE, EN, DE, EN]
    Path("terms.tsv").write_text("dog\tHund\n", encoding="utf-8")
    new_config("en", "de", ["a.tsv"], Path("terms.yaml"), glossary="terms.tsv")
    assert load_config("terms.yaml").data.changes and not load_config("terms_denoise.yaml").data.changes
    with pytest.raises(InputError, match="mine_denoise.yaml: must not exist yet, but does"):
        Path("mine.yaml").unlink()
        new_config("en", "de", ["a.tsv"], Path("mine.yaml"))


@needs("exchange", "browser")
def test_the_config_says_what_its_export_needs(tmp_path, quick):
    from transformer_mt.companions.browser.to_bergamot import reasons_against as bergamot_reasons
    from transformer_mt.companions.exchange.export.to_argos import ToArgos
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
    from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace

    rows = [f"The dog number {n} runs.\tDer Hund {n} schläft.\n" for n in range(240)]
    (tmp_path / "a.tsv").write_text("".join(rows), encoding="utf-8")
    new_config("en", "de", ["a.tsv"], tmp_path / "mine.yaml")
    comments = "".join(line for line in (tmp_path / "mine.yaml").read_text().split("\n") if line[:1] == "#")
    assert "cannot hold# rotary positions: for it, train with `model.position=sinusoidal`" in comments
    assert re.search(r"# Estimated on \S.*: \d+ (s|min) in updates.* \(compare report\.md\)$", comments)
    for purpose in PURPOSES:
        out = tmp_path / f"for_{purpose}.yaml"
        new_config("en", "de", ["a.tsv"], out, purpose=purpose)
        config = load_config(out)
        assert (config.model.num_decoder_layers == 1) is (purpose in ("browser", "bergamot"))
        if purpose == "bergamot":
            assert config.model.init == "depth_scaled"
            assert bergamot_reasons(config) == [] and "# only bergamot can hold it." in out.read_text()
            continue
        is_held = purpose in ("any", "huggingface")
        refused = [] if is_held else ["model.position must be sinusoidal, but is rotary"]
        assert ToHuggingFace().reasons_against(config) == refused
        assert ToCTranslate2().reasons_against(config) == ToArgos().reasons_against(config) == []
        assert ("cannot hold" in out.read_text()) is not is_held


@pytest.mark.parametrize("pairs", [size.pairs for size in SIZES])
def test_a_model_for_a_browser_is_narrow_and_trains_as_long(pairs):
    size, narrow = size_for(pairs), suited(size_for(pairs), "browser")
    assert narrow.d_model == 256 and narrow.shallow_decoder
    assert (narrow.pairs, narrow.epochs, narrow.dropout) == (pairs, size.epochs, size.dropout)
    assert all(other.shallow_decoder and other.d_model == 256 for other in smaller(narrow))
    assert {other.position for other in smaller(suited(size, "any"))} <= {"sinusoidal"}


def test_an_adapted_model_is_for_what_its_parent_is_for(capsys):
    assert main(["new", "en", "de", "a.tsv", "--from", "runs/x", "--for", "any"]) == 2
    assert (
        "--for and --from must not be given together: an adapted model keeps its sizes"
        in capsys.readouterr().err
    )


# `transformer-mt new --from`: a config that adapts a model.


@pytest.fixture
def files(tmp_path, monkeypatch):
    update_seconds(monkeypatch, lambda config: 0.01)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in toy.generate("train", 600)), encoding="utf-8")
    return [str(pairs)]


def test_a_config_adapts_a_run_with_its_shape_and_vocabulary(files, tiny_run, tmp_path, said, monkeypatch):
    out = tmp_path / "mine.yaml"
    new_config("en", "de", files, out, str(tiny_run))
    config = load_config(out)
    assert config.init_from == str(tiny_run) and config.train.optimizer == "adamw"
    assert config.model.model_fields_set == set() and config.tokenizer.model_fields_set == set()
    train = config.train
    assert train.max_updates >= 50 and train.warmup < train.max_updates and train.learning_rate < 0.001
    assert "training will take" in said[-1]
    more = tmp_path / "more.yaml"
    pairs_in_files(monkeypatch, 6000)
    new_config("en", "de", files, more, str(tiny_run))
    assert load_config(more).train.max_updates > train.max_updates


@pytest.mark.parametrize("is_adapted", [True, False])
def test_a_glossary_asks_for_training_on_terms(is_adapted, files, tiny_run, tmp_path, said):
    (tmp_path / "terms.tsv").write_text("dog\tHund\nzebra\tZebra\n", encoding="utf-8")
    out, parent = tmp_path / "mine.yaml", str(tiny_run) if is_adapted else None
    new_config("en", "de", files, out, parent, glossary=str(tmp_path / "terms.tsv"))
    assert load_config(out).data.changes == ["terms"]
    (note,) = [line for line in said if "terms.tsv" in line]
    assert re.fullmatch(r".*terms.tsv: 2 terms; \d+\.\d% of the pairs have one on both sides", note)
    with pytest.raises(InputError, match="nowhere.tsv: no such file"):
        new_config("en", "de", files, tmp_path / "b.yaml", parent, glossary="nowhere.tsv")


def test_corpora_of_the_parent_are_proposed(files, tiny_run, tmp_path, said, monkeypatch):
    parent = tmp_path / "parent"
    parent.mkdir()
    for path in RunFolder(tiny_run).translation_files:
        (parent / path.name).write_bytes(path.read_bytes())
    text = (parent / "config.yaml").read_text(encoding="utf-8")
    text = text.replace("train: {toy: train, size: 1500}", "train: {source: a.en, target: a.de}")
    (parent / "config.yaml").write_text(text, encoding="utf-8")
    new_config("en", "de", files, tmp_path / "mine.yaml", str(parent))
    written = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert "# - {source: a.en, target: a.de}" in written
    assert "# name files for `valid` and `test`: held-out sets would be pairs that it knows:" in written
    text = re.sub(r"valid: {toy: [^}]*}", "valid: {from_train: {share: 0.1}}", text)
    (parent / "config.yaml").write_text(text, encoding="utf-8")
    new_config("en", "de", files, tmp_path / "other.yaml", str(parent))
    assert "held-out sets would" not in (tmp_path / "other.yaml").read_text(encoding="utf-8")


def test_learned_positions_have_the_parents_length(files, tiny_run, tmp_path, said):
    """The table of positions is the parent's."""
    parent = tmp_path / "parent"
    parent.mkdir()
    for path in RunFolder(tiny_run).translation_files:
        (parent / path.name).write_bytes(path.read_bytes())
    config = load_config(parent / "config.yaml", ["model.position=learned", "data.max_length=77"])
    (parent / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    new_config("en", "de", files, tmp_path / "mine.yaml", str(parent))
    assert load_config(tmp_path / "mine.yaml").data.max_length == 77


@needs("exchange")
def test_a_parent_that_is_not_there_is_told(files, tmp_path, said):
    with pytest.raises(InputError, match="nowhere: must be a folder, or the name of a model on the hub"):
        new_config("en", "de", files, tmp_path / "mine.yaml", "nowhere")
    assert not (tmp_path / "mine.yaml").exists()
