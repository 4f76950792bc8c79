"""From the config a user wrote to the one that is trained: each step, and their order."""

import pytest
from pydantic import ValidationError

from tests.conftest import TINY
from transformer_mt.config import Config
from transformer_mt.config.resolve import (
    DataFacts,
    Known,
    changed,
    resolve,
    with_checkpoint,
    with_keys_of,
    with_last_update,
    with_parent,
    with_sentence_splitting,
)
from transformer_mt.errors import InputError


def config(**sections):
    """TINY with other values, an emptied section where a value is None."""
    values = {key: value for key, value in TINY.items() if sections.get(key, "") is not None}
    for key, changes in sections.items():
        if changes is not None:
            values[key] = {**values.get(key, {}), **changes} if isinstance(changes, dict) else changes
    return Config.model_validate(values)


def known(reference_tokens=12.0, is_on_gpu=False, **facts):
    """Data of which one source in three has several sentences; 900 tokens fit, an epoch ends at update 7."""
    data = DataFacts(0.3, reference_tokens, is_on_gpu)
    return Known(data=data, batch_tokens=900, last_update=7, **facts)


def test_a_config_that_leaves_nothing_open_is_trained_as_it_is():
    settled = {
        "tokenizer": {"vocab_size": 400, "normalization": "nfkc"},
        "train": {"packed": True},
        "decode": {"split_sentences": True},
    }
    written = config(**settled)
    assert resolve(written, known(reference_tokens=4.0)) == written


def test_what_is_open_is_settled_as_far_as_it_is_known():
    written = config(train={"batch_tokens": "auto", "max_epochs": 1.0})
    early = resolve(written, Known())
    assert early == changed(written, "tokenizer", normalization="compose")
    expected = changed(early, "train", batch_tokens=900, max_updates=7, packed=False)
    expected = changed(expected, "decode", split_sentences=False)
    assert resolve(written, known()) == expected
    assert resolve(expected, known()) == expected  # what is settled stays
    assert written.train.batch_tokens == "auto"  # a config never changes


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, None),
        ({"model": {"kind": "recurrent"}}, "model.kind is recurrent"),
        ({"model": {"attention": {"cross": "local_m"}}}, "model.attention looks at one part of a source"),
        ({"model": {"attention": {"hard": True}}}, "model.attention looks at one part of a source"),
        ({"train": {"guided_alignment": {"weight": 0.1}}}, "train.guided_alignment is on"),
        ({"data": {"max_length": 600}}, "data.max_length is 600, above 512"),
    ],
)
def test_batches_are_packed_on_a_gpu_for_networks_that_can_read_them(sections, reason):
    written = config(**sections)
    assert resolve(written, known(is_on_gpu=False)).train.packed is False
    resolved = resolve(written, known(is_on_gpu=True))
    assert resolved.train.packed is (reason is None)
    # A run keeps its batches wherever it is resumed.
    resumed = resolve(written, known(is_on_gpu=reason is not None, checkpoint=resolved))
    assert resumed.train.packed is resolved.train.packed
    if reason is not None:
        with pytest.raises(ValidationError, match=f"train.packed must be auto or false where {reason}"):
            config(**{**sections, "train": {**sections.get("train", {}), "packed": True}})


def test_the_normalisation_composes_unless_another_is_asked_for_or_given():
    assert resolve(config(), known()).tokenizer.normalization == "compose"
    other = config(tokenizer={"normalization": "nfkc"})
    assert resolve(other, known()).tokenizer.normalization == "nfkc"
    for old in ("nmt_nfkc", "identity"):
        before = config(tokenizer={"normalization": old})
        for origin in ({"checkpoint": before}, {"parent": before}):
            init_from = "runs/parent" if "parent" in origin else None
            wanted = config(tokenizer={"normalization": "auto"}, init_from=init_from)
            assert resolve(wanted, known(**origin)).tokenizer.normalization == old


def test_few_tokens_are_judged_by_characters():
    monitored = [resolve(config(), known(tokens)).train.monitor for tokens in (3.9, 4.0)]
    assert monitored == ["chrF", "BLEU"]
    by_loss = resolve(config(train={"monitor": "loss"}), known(1.0))
    assert by_loss.train.monitor == "loss"


def test_a_resumed_run_keeps_what_was_found_for_it():
    before = config(train={"batch_tokens": 777}, decode={"split_sentences": True})
    now = config(train={"batch_tokens": "auto"}, decode={"split_sentences": "auto"})
    resolved = resolve(now, known(checkpoint=before))
    assert (resolved.train.batch_tokens, resolved.decode.split_sentences) == (777, True)


def test_a_fine_tuned_run_keeps_the_keys_it_took_from_its_parent():
    before = config(init_from="runs/parent", data={"language_pieces": True})
    now = config(init_from="runs/parent", model=None, tokenizer=None)
    assert with_checkpoint(now, before) == before
    other = config(model=None)
    assert with_checkpoint(other, before).model == other.model  # without init_from the config must name them


def test_keys_that_are_left_out_are_the_parents():
    parent = config(model={"norm": "post"}, tokenizer={"vocab_size": 300})
    child = config(init_from="runs/parent", model={"dropout": 0.3, "norm": "post"}, tokenizer=None)
    filled = with_parent(child, parent)
    assert (filled.model.d_model, filled.model.norm, filled.model.dropout) == (32, "post", 0.3)
    assert filled.tokenizer.vocab_size == 300 and filled.data.language_pieces == "auto"


def test_a_child_asks_for_language_pieces_if_its_parent_has_seen_no_source_without():
    parent, child = config(data={"language_pieces": True}), config(init_from="runs/parent")
    assert with_parent(child, parent).data.language_pieces is True
    own = config(init_from="runs/parent", data={"language_pieces": False})
    assert with_parent(own, parent).data.language_pieces is False


def test_all_reasons_against_a_parent_are_told_at_once():
    parent = config(model={"position": "learned"})
    child = config(
        init_from="runs/parent",
        data={"max_length": 32},
        model={"d_model": 64},
        tokenizer={"vocab_size": 500, "file": "a.model"},
    )
    with pytest.raises(InputError) as error:
        with_parent(child, parent)
    assert str(error.value).splitlines() == [
        "`tokenizer.vocab_size` must be 450, as in runs/parent, but is 500",
        "`model.d_model` must be 32, as in runs/parent, but is 64",
        "`data.max_length` must be 64, as in runs/parent, but is 32",
        "`tokenizer.file` must be left out with init_from, which brings its own vocabulary",
    ]


def test_keys_of_another_config_must_fit_the_own_ones():
    mine, theirs = config(model={"num_heads": 4}), config(model={"d_model": 30, "num_heads": 2})
    filled = with_keys_of(config(model=None), theirs, ["model"])
    assert (filled.model.d_model, filled.model.num_heads) == (30, 2)
    with pytest.raises(InputError, match="model.num_heads must divide model.d_model"):
        with_keys_of(changed(mine, "model", d_model=30), theirs, ["model"])


@pytest.mark.parametrize("share, language, expected", [
    (0.19, "en", True), (0.2, "en", False), (0.0, "phonemes", False),
])  # fmt: skip
def test_lines_are_split_if_the_model_has_hardly_seen_several_sentences(share, language, expected):
    written = changed(config(), "data", source_lang=language)
    assert with_sentence_splitting(written, share).decode.split_sentences is expected


@pytest.mark.parametrize("last, expected", [(7, 7), (0, 1), (24, 24), (25, 24)])
def test_epochs_limit_the_updates_and_never_raise_them(last, expected):
    assert with_last_update(config(), last).train.max_updates == expected
