""""""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.helpers.companions import needs
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.error_sentences import OTHER_NAMES, OTHER_VALUES, keys
from transformer_mt.config.load import as_overrides, dump_config, json_schema, load_config, load_yaml
from transformer_mt.corpora.hub import HubCorpus
from transformer_mt.corpora.line_files import FilesCorpus
from transformer_mt.errors import InputError
from transformer_mt.settings.objectives import objective_class

SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
SWEEPS = [path for path in SHIPPED if "\nvariants:" in path.read_text(encoding="utf-8")]
CHAINS = [path for path in SHIPPED if "\nforward:" in path.read_text(encoding="utf-8")]
CONFIGS = [path for path in SHIPPED if path not in (*SWEEPS, *CHAINS)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_state_only_what_differs_from_the_defaults_or_their_base(path):
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = load_config(path.parent / values["extends"]).model_dump() if "extends" in values else None
    for dotted, _, default in keys(Config):
        section, _, key = dotted.rpartition(".")
        if section and key in (values.get(section) or {}):
            inherited = base[section][key] if base else default
            assert values[section][key] != inherited, f"{path.name}: {dotted} says what it would be anyway"


@needs("lab")
@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_variant_of_a_shipped_sweep_is_another_training(path):
    from transformer_mt.companions.lab.sweep_jobs import load_sweep

    sweep = load_sweep(path, [])
    unlike = {job.variant: job.config.model_dump_json(exclude={"name", "seed"}) for job in sweep.jobs}
    assert sweep.name == path.stem and len(unlike) >= 4
    assert len(set(unlike.values())) == len(unlike)


@needs("lab")
@pytest.mark.parametrize("path", CHAINS, ids=lambda path: path.stem)
def test_every_shipped_chain_names_configs_of_both_directions_and_their_keys(path):
    from transformer_mt.companions.lab.backtranslation_chain import ChainConfig

    chain = load_yaml(ChainConfig, path)
    forward = load_config(path.parent / chain.forward, as_overrides(chain.student))
    teachers = [
        load_config(path.parent / file, as_overrides(chain.teachers))
        for file in (chain.forward, chain.backward)
    ]
    assert chain.name == path.stem and forward.data.languages == teachers[0].data.languages
    assert teachers[1].data.languages == forward.data.languages[::-1]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_say_what_they_are_for_and_what_was_measured(path):
    comment = [line for line in path.read_text(encoding="utf-8").split("\n") if line.startswith("#")]
    assert len(comment) >= 2
    assert any("easured" in line for line in comment)


def test_a_sweep_is_not_taken_for_a_config(tmp_path):
    path = tmp_path / "which.yaml"
    path.write_text("base: demo.yaml\nvariants: {scaled dot: }\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"but is a sweep; use transformer-mt sweep .*which\.yaml'?$"):
        load_config(path)


def test_a_longest_pair_must_fit_a_batch(write_config):
    with pytest.raises(
        InputError, match=r"train.batch_tokens must be at least data.max_length \(64\), but is 10"
    ):
        load_config(write_config(), ["train.batch_tokens=10"])


def test_overrides_reach_into_sections_lists_and_whole_corpora(write_config):
    config = load_config(
        write_config(),
        ["data.train={source: a, target: b}", "data.test.0.size=7", "model={d_model: 64}", "seed=3"],
    )
    assert config.data.train == FilesCorpus(source="a", target="b")
    assert config.data.test[0].size == 7
    assert (config.model.d_model, config.model.d_ff) == (64, 64)
    assert config.seed == 3


@pytest.mark.parametrize(
    "word",
    [
        *("seed", "=3", "data.test.5.size=1", "data.test.².size=1", "name.x=1", "data.test=&a [*a]"),
        "name=" + "[" * 2000,
    ],
)
def test_overrides_that_cannot_be_applied_are_refused(write_config, word):
    with pytest.raises(InputError, match="must|cannot set"):
        load_config(write_config(), [word])


def test_an_override_with_half_a_character_is_refused(write_config):
    with pytest.raises(InputError, match="the value must be valid Unicode text, but holds half a sur"):
        load_config(write_config(), ['data.train={file: "\\ud800"}'])


def test_hub_is_handed_down_so_that_one_word_redirects_a_config(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "data: {source_lang: en, target_lang: de, hub: a/b, config: de-en, train: {split: train}, "
        "valid: {split: validation}, test: [{split: test}, {hub: other/set, split: test}]}",
        encoding="utf-8",
    )
    data = load_config(path, ["data.hub=local/folder"]).data
    assert data.train == HubCorpus(hub="local/folder", config="de-en", split="train")
    assert data.test[0].hub == "local/folder"
    assert data.test[1].hub == "other/set"


def test_extends_inherits_and_is_another_run(tmp_path, write_config):
    write_config("base.yaml", train={"max_updates": 77})
    child = tmp_path / "child.yaml"
    child.write_text(
        "extends: base.yaml\nmodel: {d_ff: 128}\ndata: {train: {source: a, target: b}}\n", encoding="utf-8"
    )
    config = load_config(child)
    assert config.name == "child"
    assert (config.train.max_updates, config.model.d_ff, config.model.d_model) == (77, 128, 32)
    assert config.data.train == FilesCorpus(source="a", target="b")


def test_an_error_does_not_name_the_line_of_what_was_replaced(tmp_path, write_config):
    """The base gives the split of its own corpus, not that of the child's."""
    write_config("base.yaml", data={"train": {"hub": "a/b", "split": "train"}})
    child = tmp_path / "child.yaml"
    child.write_text("extends: base.yaml\nseed: 2\ndata:\n  train: {hub: a/c}\n", encoding="utf-8")
    with pytest.raises(InputError, match="child.yaml:4: `data.train.split` must be given"):
        load_config(child)


def test_extends_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n", encoding="utf-8")
    with pytest.raises(InputError, match="`extends` must not form a cycle"):
        load_config(tmp_path / "a.yaml")


def test_yaml_traps_are_closed(tmp_path, write_config):
    """YAML 1.1 reads `7e-4` as text and `no` (Norwegian) as false, and keeps the last of two equal keys."""
    config = load_config(write_config(), ["train.learning_rate=7e-4", "data.target_lang=no"])
    assert config.train.learning_rate == 7e-4
    assert config.data.target_lang == "no"
    config = load_config(write_config(), ["seed=010", "decode.banned=[12:30]", "train.max_updates=1_000"])
    assert (config.seed, config.decode.banned, config.train.max_updates) == (10, ["12:30"], 1000)
    twice = tmp_path / "twice.yaml"
    twice.write_text("seed: 1\nmodel: {d_ff: 1,\n  d_ff: 2}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"twice.yaml:3: `model.d_ff` must be given once"):
        load_config(twice)


def test_a_mistyped_file_name_gets_the_nearest_one(write_config):
    path = write_config()
    with pytest.raises(InputError, match="no such config file; did you mean .*tiny.yaml"):
        load_config(path.with_name("tyni.yaml"))


def test_a_file_that_is_not_yaml_is_named_with_its_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("seed: 1\nmodel: {d_ff: [}\n", encoding="utf-8")
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="run: a config must be a YAML file, but is a folder$"):
        load_config(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").touch()
    with pytest.raises(InputError, match="is a folder; its config is .*run/config.yaml$"):
        load_config(tmp_path / "run")
    with pytest.raises(InputError, match=r"bad.yaml:2: this is not YAML"):
        load_config(path)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shown_config_reads_back_the_same(path, tmp_path):
    shown = tmp_path / "shown.yaml"
    shipped = load_config(path)
    assert shipped.name == path.stem
    objective = shipped.data.main_objective
    kind = "" if objective == "translation" else f", objective: {objective}"
    kind += ", language: en" if objective_class(objective).is_plain_text else ""
    config = load_config(path, [f"data.train={{source: 'a: b, #c', target: 'true'{kind}}}"])
    for comments in (True, False):
        shown.write_text(dump_config(config, comments), encoding="utf-8")
        assert load_config(shown) == config


def test_a_score_for_each_attention_reads_back_the_same(write_config, tmp_path):
    config = load_config(write_config(), ["model.attention.score.cross=additive"])
    scores = config.model.attention.scores()
    assert (scores.cross, scores.encoder) == ("additive", "scaled_dot")
    (tmp_path / "shown.yaml").write_text(dump_config(config, comments=True), encoding="utf-8")
    assert load_config(tmp_path / "shown.yaml") == config


def test_an_override_changes_one_place_of_what_an_alias_names(tmp_path):
    path = tmp_path / "alias.yaml"
    path.write_text(
        "data: {source_lang: en, target_lang: de, train: {file: t.tsv}, valid: &v {file: v.tsv}, "
        "test: [*v]}\n",
        encoding="utf-8",
    )
    data = load_config(path, ["data.valid.file=w.tsv"]).data
    assert (data.valid.file, data.test[0].file) == ("w.tsv", "v.tsv")


def test_every_key_has_a_meaning():
    assert [dotted for dotted, meaning, _ in keys(Config) if not meaning] == []


@pytest.mark.parametrize(
    "content, message",
    [
        ("{{name}}: x", "a key must be a word"),
        ("a: &x [*x]", "must not contain itself"),
        ("seed: 99999999999999999999999", "`seed` must be less than 4294967296"),
        ("data: {train: {hub: a, split: 'train[-:5]'}}", "`data.train.split` must be the name of a split or"),
        ("data: {train: 5}", "`data.train` must be a corpus: .*but is 5"),
        ("- a\n- b", "a config must be a mapping of keys to values, but is a list"),
        ("data: {filter: {detokenize: sourc}}", "must be true, false, source or target, but is 'sourc'$"),
        ("tokenizer: {shared: 'True'}", "must be true or false, but is 'True'; did you mean true"),
        ("tokenizer: {file: 3}", "odd.yaml:1: tokenizer.file must be a SentencePiece model, or a list of"),
        ("data: {train: {file: a.tsv, columns: 3}}", "columns must be two names .*, but is 3\n"),
        ("data: {config: de-en}", "data.config requires data.hub, but is de-en alone"),
        ("train: {learning_rate: .inf}", "`train.learning_rate` must be"),
        ("train: {batch_tokens: 0}", "`train.batch_tokens` must be auto or a whole number above 0, but is 0"),
        ("seed: !!int abc", "this is not YAML"),
        ("seed: !!bool x", "this is not YAML"),
        ('name: "\\ud800"', "odd.yaml:1: a value must be valid Unicode text, but holds half a surrogate"),
        (
            "model: {attention: {score: {cros: additive}}}",
            "`model.attention.score.cros` is not a key; did you mean `model.attention.score.cross`",
        ),
        ("model: {attention: {score: aditive}}", "must be .* but is 'aditive'; did you mean 'additive'"),
        ("model: {recurrent: {decoder: bahdanau}}", "model.recurrent must be left out without kind: recurr"),
    ],
)
def test_odd_files_get_a_sentence(tmp_path, content, message):
    path = tmp_path / "odd.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_config(path)


def test_any_text_reads_back_from_a_shown_config(write_config, tmp_path):
    config = load_config(write_config(), ["data.max_length_ratio=.inf"])
    for text in (
        "? a", "a\x7fb", "true", "1e5", "- x", "a: b", "it's", '"', "日本", "2024-13-45", " x ", "~", "null",
        "",
    ):  # fmt: skip
        data = config.data.model_copy(update={"train": FilesCorpus(source=text, target="b")})
        shown = config.model_copy(update={"data": data})
        (tmp_path / "shown.yaml").write_text(dump_config(shown, comments=True), encoding="utf-8")
        assert load_config(tmp_path / "shown.yaml") == shown, text


def test_a_problem_on_the_command_line_is_not_blamed_on_the_file(write_config):
    with pytest.raises(InputError, match=r"^command line: `data.test.0.toyy` is not a key"):
        load_config(write_config(), ["data.test=[{toyy: x, file: a}]"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"attention": {"score": "concat"}},
            "must be one for kind: transformer, but is concat (encoder), which needs kind: recurrent",
        ),
        (
            {"attention": {"score": {"decoder": "additive"}}, "position": "rotary"},
            "model.attention.score must be scaled_dot, dot, cosine, euclidean with rotary positions, but is "
            "additive (decoder)",
        ),
        (
            {"attention": {"score": "cosine"}, "position": "relative"},
            "model.attention.score must be scaled_dot, dot with relative positions, but is cosine (encoder)",
        ),
        ({"attention": {"score": {"cross": "additivv"}}}, "`model.attention.score.cross` must be"),
        (
            {"attention": {"cross": "local_p", "hard": True}},
            "model.attention.hard must be false with cross: local_p",
        ),
        ({"kind": "recurrent", "attention": {"window": 3}}, "model.attention.window must be 0 with kind: re"),
        ({"attention": {"cross_window": 3}}, "cross_window must be left out without cross: local_m or "),
        (
            {"kind": "recurrent", "attention": {"score": {"encoder": "additive", "cross": "general"}}},
            "model.attention.score must be one score, or cross alone, with kind: recurrent",
        ),
        ({"kind": "recurrent", "d_model": 33}, "model.d_model must be even with kind: recurrent"),
    ],
)
def test_mechanisms_that_do_not_go_together_are_refused_with_a_sentence(write_config, model, message):
    with pytest.raises(InputError) as error:
        load_config(write_config(model=model))
    assert message in str(error.value)


def test_what_a_recurrent_network_does_not_ask_for_may_stay_in_its_yaml(write_config):
    config = load_config(write_config(model={"kind": "recurrent", "num_heads": 5, "position": "none"}))
    assert config.model.recurrent.decoder == "luong"


def test_configs_that_ship_with_the_package_are_found_by_their_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = load_config("demo")
    assert shipped == load_config(ROOT / "configs" / "demo.yaml") and shipped.name == "demo"
    with pytest.raises(
        InputError, match=r"^dmeo: must be a config file, or one that ships with .*; did you mean demo\?$"
    ):
        load_config("dmeo")
    # A user's own file comes first
    (tmp_path / "demo").write_text("train: {max_updates: 3}\n", encoding="utf-8")
    with pytest.raises(InputError, match="`data` must be given"):
        load_config("demo")


@needs("cluster", "documents", "exchange", "inspection", "lab", "serving")
def test_a_wheel_holds_every_package_and_the_configs():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    files = ROOT.glob("transformer_mt/**/__init__.py")
    packages = {".".join(file.parent.relative_to(ROOT).parts) for file in files}
    assert set(settings["packages"]) == packages | {"transformer_mt.configs"}
    assert settings["package-dir"] == {"transformer_mt.configs": "configs"}


@pytest.mark.parametrize(
    "override, hint",
    [
        ("train.gpus=2", "`train.gpus` is not a key; it is called `--gpus N` on the command line here"),
        ("train.zebra=1", "`train.zebra` is not a key"),
        ("data.test=[{toy: test, revers: true}]", "did you mean `data.test.reverse`?"),
        ("train.optimizer=AdamW", "this project calls it adamw"),
        ("model.norm=pre-norm", "this project calls it pre"),
        ("decode.search=greedy", "this project calls it beam with `decode.beam: 1`"),
        ("model.norm=rope", "but is 'rope'"),
    ],
)
def test_keys_and_values_of_other_toolkits_are_known_by_their_meaning(write_config, override, hint):
    with pytest.raises(InputError) as error:
        load_config(write_config(), [override])
    assert str(error.value).endswith(hint)


def test_every_other_name_of_a_value_is_of_a_value():
    values = set(re.findall(r'"(\w+)"', json_schema()))
    assert {right.split()[0] for right in OTHER_VALUES.values()} <= values


@pytest.mark.parametrize("word, number", [("4.03k", 4_030), ("2M", 2_000_000), ("1_000", 1_000)])
def test_thousands_and_millions_are_numbers(write_config, word, number):
    path = write_config(train={"max_updates": word} if word[-1] in "kM" else {"max_updates": int(word)})
    assert load_config(path).train.max_updates == number
    assert load_config(write_config(), [f"train.max_updates={word}"]).train.max_updates == number


def test_texts_such_as_10k_stay_texts(write_config):
    assert load_config(write_config(), ["name=10k"]).name == "10k"


@pytest.mark.parametrize("word", ["k", "1.0001k", "-1k"])
def test_other_words_are_no_numbers(write_config, word):
    with pytest.raises(InputError, match="`train.max_updates` must be a whole number, but is"):
        load_config(write_config(), [f"train.max_updates={word}"])


def test_names_of_other_toolkits_are_no_keys_and_what_they_mean_exists():
    every = {dotted for dotted, _, _ in keys(Config)}
    assert not {key.rpartition(".")[2] for key in every} & OTHER_NAMES.keys()
    for meaning in set(OTHER_NAMES.values()):
        named = [name.partition(":")[0] for name in re.findall(r"`([^`]+)`", meaning) if name[0] != "-"]
        assert set(named) <= every | {"file", "source", "target"}, meaning


def test_a_file_that_is_not_there_is_not_taken_for_the_one_that_extends_it(tmp_path):
    (tmp_path / "demo2.yaml").write_text("extends: demo.yaml\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"demo.yaml: no such config file$"):
        load_config(tmp_path / "demo2.yaml")


def test_three_equal_scores_are_one(write_config):
    """A run with the one may be resumed and fine-tuned with the other."""
    three = "model.attention.score={encoder: dot, decoder: dot, cross: dot}"
    assert load_config(write_config(), [three]) == load_config(write_config(), ["model.attention.score=dot"])


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, "beam 5"),
        ({"beam": 1, "batch_tokens": 100, "split_sentences": True}, "beam 1"),
        ({"length_penalty": 0.6, "banned": ["é"]}, 'beam 5, length_penalty 0.6, banned ["é"]'),
        ({"search": "sample", "samples": 4, "top_k": 3}, "4 samples, top_k 3"),
        ({"search": "mbr", "samples": 8, "utility": "bleu"}, "8 samples, mbr by bleu"),
        ({"split_sentences": False}, "beam 5, split_sentences false"),
    ],
)
def test_a_search_is_named_by_all_that_changes_it(settings, words):
    assert DecodeConfig(**settings).in_words == words


# Corpora of plain text in the YAML, and what each kind of model can learn from them.


TEXT = {"text": "news.en.gz", "language": "en", "objective": "denoise"}
PAIRS = {"toy": "train"}


def load(write_config, train, kind="transformer", **sections):
    data = {"train": train, "valid": {"from_train": {"share": 0.1}}, "test": [], **sections.pop("data", {})}
    train_section = {"monitor": sections.pop("monitor")} if "monitor" in sections else {}
    return load_config(write_config(data=data, model={"kind": kind}, train=train_section, **sections))


def test_text_and_pairs_are_mixed_by_weight_and_translation_is_the_main_objective(write_config):
    config = load(write_config, [PAIRS, {**TEXT, "weight": 0.5, "language": "de"}])
    assert config.data.objectives == ["translation", "denoise"]
    assert config.data.main_objective == "translation" and config.data.translates
    assert config.data.directions == [("en", "de")]
    assert config.data.control_pieces == ["<mask>"]


def test_one_language_is_written_once(write_config):
    text = {"text": "a.txt", "objective": "denoise"}
    with pytest.raises(InputError, match="data.language must be left out with data.source_lang"):
        load(write_config, text, data={"language": "fr"})
    path = write_config(data={"language": "en", "train": text, "valid": text, "test": []})
    written = path.read_text(encoding="utf-8")
    path.write_text(re.sub("  (source|target)_lang: ..\n", "", written), encoding="utf-8")
    config = load_config(path)
    assert config.data.train.language == "en" and config.data.languages == ("en", "en")


REFUSED = [
    (
        {"text": "news.en.gz", "objective": "translation"},
        "objective must be one for plain text, such as denoise, with text, but is translation",
    ),
    ({**TEXT, "text": "a.tsv"}, r"text must be a file of lines, but is a\.tsv; .* use file instead"),
    ({"text": "a.txt", "objective": "denoise"}, "with objective: denoise must have the key language"),
    ({**PAIRS, "language": "en"}, "language must be left out with objective: translation, which is not for"),
    ({**TEXT, "objective": "denoising"}, "did you mean 'denoise'"),
]
REFUSED_KEYS = [
    (
        {**TEXT, "objective": "masked_lm"},
        {"kind": "transformer"},
        r"must be translation or denoise or causal_lm with model.kind: transformer, but news\.en",
    ),
    (TEXT, {"kind": "encoder"}, r"must be masked_lm or .* with model.kind: encoder, but news\.en\.gz has "),
    (PAIRS, {"kind": "decoder"}, "must be causal_lm with model.kind: decoder, but toy train has translation"),
    (
        {**TEXT, "objective": "causal_lm"},
        {"kind": "decoder", "tokenizer": {"shared": False}},
        "tokenizer.shared must be true with model.kind: decoder, but is fals",
    ),
    (PAIRS, {"data": {"labels": ["a", "b"]}}, "data.labels must be given if, and only if, a corpus has"),
    (TEXT, {"data": {"valid": {"toy": "valid"}}}, r"data.valid must have .* \(denoise\), but toy valid has "),
    (
        [PAIRS, {**TEXT, "language": "de"}],
        {"data": {"test": [{**TEXT, "language": "de"}]}},
        r"data.test must have the objective of a training corpus \(translation\), but news\.en\.gz has denoi",
    ),
    (PAIRS, {"init_from": {"run": "runs/mine"}}, "`init_from.run` is not a key"),
    (PAIRS, {"init_from": {"encoder": None}}, "init_from must name an encoder, a decoder or bo"),
]


@pytest.mark.parametrize("train, message", REFUSED)
def test_a_corpus_that_cannot_be_is_refused_in_one_line(train, message, write_config):
    with pytest.raises(InputError, match=message) as error:
        load(write_config, train)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("train, sections, message", REFUSED_KEYS)
def test_models_and_keys_that_do_not_go_with_the_corpora_are_refused(train, sections, message, write_config):
    with pytest.raises(InputError, match=message):
        load(write_config, train, **sections)


def test_the_monitor_of_text_is_its_loss(write_config):
    from transformer_mt.config.resolve import with_loss_monitored

    config = load(write_config, TEXT)
    assert with_loss_monitored(config).train.monitor == "loss"
    with pytest.raises(InputError, match="`train.monitor` must be loss where no validation set is transl"):
        with_loss_monitored(load(write_config, TEXT, monitor="chrF"))


# Seventy mistakes in a YAML file, and the whole answer to each: where, what must be, what is, what to do.


BEGINNING = """data:
  source_lang: en
  target_lang: de
  train: {toy: train, size: 100}
  valid: {toy: valid, size: 20}
"""
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))


@needs("lab", "cluster")  # answers list what companions bring
@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["text"].strip()[-60:] for each in MISTAKES])
def test_a_mistake_is_answered(tmp_path, monkeypatch, mistake):
    monkeypatch.chdir(tmp_path)
    whole = mistake["text"] if mistake["text"].startswith("data:") else BEGINNING + mistake["text"]
    (tmp_path / "x.yaml").write_text(whole, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_config("x.yaml")
    assert str(error.value).replace("x.yaml:", "") == mistake["answer"].strip("\n")
