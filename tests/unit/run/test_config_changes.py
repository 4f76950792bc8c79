"""What may differ between the configs of one training."""

import pytest

from tests.conftest import TINY
from transformer_mt.config import Config
from transformer_mt.config.error_sentences import marks
from transformer_mt.errors import InputError
from transformer_mt.ranks import Ranks
from transformer_mt.run import config_changes as changes
from transformer_mt.run.config_changes import (
    has_update_size_changed,
    note_changed_update_size,
    refuse_different_ranks,
)
from transformer_mt.settings.section import Changeable, Mark, Section

HERE = {"train.device": "cuda", "train.precision": "bfloat16", "fresh": False}


class Elsewhere(Ranks):
    """Rank 0 of two; the other has a config of its own."""

    def __init__(self, other):
        super().__init__(0, 2)
        self._other = other

    def gather(self, value):
        theirs = {**changes.flat(self._other.model_dump()), **HERE}
        return [value, {key: theirs[key] for key in value}]


def config(**train):
    return Config.model_validate({**TINY, "train": {**TINY["train"], **train}})


def test_machines_with_different_configs_are_refused():
    other = {**TINY["train"], "learning_rate": 0.02}
    other = Config.model_validate({**TINY, "data": {**TINY["data"], "max_length": 60}, "train": other})
    with pytest.raises(
        InputError,
        match="`data.max_length` is 64 on rank 0 and 60 on rank 1\n"
        "`train.learning_rate` is 0.01 on rank 0 and 0.02 on rank 1\nevery machine must",
    ):
        refuse_different_ranks(config(), HERE, Elsewhere(other))


def test_where_the_data_lies_is_each_machines_matter():
    moved = Config.model_validate({**TINY, "data": {**TINY["data"], "train": {"toy": "train", "size": 1400}}})
    refuse_different_ranks(config(), HERE, Elsewhere(moved))
    refuse_different_ranks(config(), HERE, Ranks())


@pytest.mark.parametrize(
    "key, here, there", [("fresh", True, "False"), ("train.precision", "float16", "'bfloat16'")]
)
def test_what_auto_is_and_a_fresh_start_are_the_same_on_all_machines(key, here, there):
    with pytest.raises(InputError, match=f"`{key}` is {here!r} on rank 0 and {there} on rank 1"):
        refuse_different_ranks(config(), {**HERE, key: here}, Elsewhere(config()))


@pytest.mark.parametrize(
    "before, ranks, accumulate, told",
    [
        (4, 2, 1, "2 from here on (2 x accumulate), 4 before; train.accumulate=2 keeps it"),
        (2, 3, 1, "3 from here on (3 x accumulate), 2 before; no train.accumulate keeps it"),
        (4, 2, 2, ""),
        (None, 2, 2, ""),
    ],
)
def test_another_size_of_the_updates_is_told(before, ranks, accumulate, told, said):
    now = config(accumulate=accumulate).train, Ranks(0, ranks)
    if before is not None and has_update_size_changed(before, *now):
        note_changed_update_size(before, *now)
    assert "".join(said).startswith(told and f"batches in an update: {told}") and bool(said) is bool(told)


def test_a_key_is_fixed_unless_its_field_is_marked():
    class New(Section):
        """A section somebody adds."""

        unmarked: int = 1
        marked: Changeable[int] = 1

    assert marks(New, "unmarked") == set() and marks(New, "marked") == {Mark.CHANGEABLE}
    fixed = {key for key in changes.flat(config().model_dump()) if not marks(Config, key)}
    assert {"seed", "data.source_lang", "data.max_length", "tokenizer.vocab_size", "model.d_model"} <= fixed
    assert {"model.attention.score", "train.batch_tokens", "train.optimizer"} <= fixed
    assert not fixed & {"name", "decode.beam", "train.max_updates", "model.dropout", "tokenizer.bpe_dropout"}
    assert marks(Config, "data.train.size") == marks(Config, "data.hub") == {Mark.LOCATION}
    assert marks(Config, "evaluate.lowercase") == {Mark.CHANGEABLE, Mark.AFFECTS_SCORES}


def test_fixed_keys_are_refused_and_changeable_ones_reported(tmp_path, said):
    changes.report_changes(config(), config(learning_rate=0.02), tmp_path)
    assert said == ["changed since the last checkpoint: `train.learning_rate` from 0.01 to 0.02"]
    with pytest.raises(InputError, match="`train.optimizer` must stay 'muon' .*, but is 'adam'"):
        changes.report_changes(config(optimizer="muon"), config(optimizer="adam"), tmp_path)


def test_of_a_list_of_corpora_only_what_differs_is_reported(tmp_path, said):
    def named(name):
        train = [{"toy": "train", "size": 10}, {"toy": "valid", "size": 10, "name": name}]
        return Config.model_validate({**TINY, "data": {**TINY["data"], "train": train}})

    changes.report_changes(named("b"), named("c"), tmp_path)
    assert said == ["changed since the last checkpoint: `data.train.1.name` from 'b' to 'c'"]
