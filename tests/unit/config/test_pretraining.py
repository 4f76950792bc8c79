"""Corpora of plain text in the YAML, and what each kind of model can learn from them."""

import re

import pytest

from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError

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
REFUSED_MODELS = [
    (
        "transformer",
        {**TEXT, "objective": "masked_lm"},
        r"objective must be translation or denoise or causal_lm with model.kind: transformer, but news\.en",
    ),
    ("encoder", TEXT, r"must be masked_lm or classification with model.kind: encoder, but news\.en\.gz has "),
    ("decoder", PAIRS, "must be causal_lm with model.kind: decoder, but toy train has translation"),
]
REFUSED_KEYS = [
    (
        PAIRS,
        {"data": {"labels": ["a", "b"]}},
        "data.labels must be given if, and only if, a corpus has objective: cl",
    ),
    (
        TEXT,
        {"data": {"valid": {"toy": "valid"}}},
        r"data.valid must have the objective of a training corpus \(denoise\), but toy valid has translation",
    ),
    (
        [PAIRS, {**TEXT, "language": "de"}],
        {"data": {"test": [{**TEXT, "language": "de"}]}},
        r"data.test must have the objective of a training corpus \(translation\), but news\.en\.gz has denoi",
    ),
    (TEXT, {"data": {"denoise": {"mask": 1.0}}}, "`data.denoise.mask` must be less than 1, but is 1.0"),
    (PAIRS, {"init_from": {"run": "runs/mine"}}, "`init_from.run` is not a key"),
    (PAIRS, {"init_from": {"encoder": None}}, "init_from must name an encoder, a decoder or bo"),
]


@pytest.mark.parametrize("train, message", REFUSED)
def test_a_corpus_that_cannot_be_is_refused_in_one_line(train, message, write_config):
    with pytest.raises(InputError, match=message) as error:
        load(write_config, train)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("kind, train, message", REFUSED_MODELS)
def test_what_a_kind_of_model_cannot_learn_is_refused(kind, train, message, write_config):
    with pytest.raises(InputError, match=message):
        load(write_config, train, kind)


def test_a_half_alone_has_one_vocabulary(write_config):
    train, tokenizer = {**TEXT, "objective": "causal_lm"}, {"shared": False}
    with pytest.raises(
        InputError, match="tokenizer.shared must be true with model.kind: decoder, but is fals"
    ):
        load(write_config, train, "decoder", tokenizer=tokenizer)


@pytest.mark.parametrize("train, sections, message", REFUSED_KEYS)
def test_keys_that_do_not_go_with_the_corpora_are_refused(train, sections, message, write_config):
    with pytest.raises(InputError, match=message):
        load(write_config, train, **sections)


def test_the_monitor_of_text_is_its_loss(write_config):
    from transformer_mt.config.resolve import with_loss_monitored

    config = load(write_config, TEXT)
    assert with_loss_monitored(config).train.monitor == "loss"
    with pytest.raises(InputError, match="`train.monitor` must be loss where no validation set is transl"):
        with_loss_monitored(load(write_config, TEXT, monitor="chrF"))
