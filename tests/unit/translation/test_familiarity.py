"""Sources unlike the training text are known by their pieces."""

import json

import numpy as np
import pytest

from transformer_mt.config import TokenizerConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.evaluation.calibration import fit_familiarity
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.stages.confidence import Calibration

OTHERS = ["Photosynthesis converts radiation into carbohydrates.", "GDP growth slowed to 0.3 % in Q2."]


@pytest.fixture(scope="module")
def texts():
    return {split: [src for src, _ in toy.generate(split, 800)] for split in ("train", "valid", "test")}


def learnt(texts, *control_pieces):
    return Tokenizer.train([(text, text) for text in texts], TokenizerConfig(vocab_size=900), control_pieces)


@pytest.fixture(scope="module")
def familiarity(texts):
    tokenizer = learnt(texts["train"])
    trained = np.concatenate([np.array(ids) for ids in tokenizer.encode_src(texts["train"])])
    return tokenizer, trained, fit_familiarity(tokenizer, trained, {"en": texts["valid"]})


def distances(familiarity, lines):
    tokenizer, _, known = familiarity
    pieces = tokenizer.encode_src(lines)
    return [known.distance("en", *known.measured([ids], [text])) for ids, text in zip(pieces, lines)]


def test_other_texts_are_beyond_the_limit_and_those_like_the_training_are_not(familiarity, texts):
    limit = familiarity[2].limit("en")
    assert np.mean([one > limit for one in distances(familiarity, texts["test"])]) <= 0.02
    assert all(one > limit for one in distances(familiarity, OTHERS))


def test_nothing_is_said_of_a_language_or_a_line_that_nothing_is_known_of(familiarity):
    known = familiarity[2]
    assert (
        known.distance("fr", 50, 10) is None and known.distance("en", *known.measured([[5]], ["17"])) is None
    )
    assert fit_familiarity(familiarity[0], familiarity[1], {"en": ["too few"] * 49}) is None


def test_a_long_odd_source_does_not_make_the_others_unfamiliar(familiarity, texts):
    """It draws the mean beyond nearly all of them, and the confidence must stay between 0 and 1."""
    tokenizer, trained, _ = familiarity
    odd = "Photosynthesis converts radiation into carbohydrates " * 2000
    known = fit_familiarity(tokenizer, trained, {"en": [*texts["valid"], odd]})
    assert known.limit("en") >= 1


def test_pieces_that_are_rare_look_alike_and_tags_count_nothing(texts):
    """Else calibration.json would tell who is named in a corpus."""
    tokenizer = learnt(texts["train"], "<2de>")
    seen = np.repeat(np.arange(4, 300), 100)
    for count in (0, 1, 4):
        once = fit_familiarity(tokenizer, np.append(seen, np.full(count, 350)), {"en": texts["valid"]})
        assert once.pieces[350] == once.pieces[351] > once.pieces[10]
        assert once.pieces[tokenizer.control_id("<2de>")] == "a"


def test_a_calibration_is_read_as_it_was_written_and_one_of_before_is_read(familiarity, tmp_path):
    facts = {"intercept": 1.0, "slope": 2.0, "low": 0.3}
    file = RunFolder(tmp_path).calibration_file
    file.write_text(json.dumps(facts), encoding="utf-8")
    assert Calibration.load(RunFolder(tmp_path)) == Calibration(1.0, 2.0, 0.3)
    known = familiarity[2]
    usual = {lang: vars(one) for lang, one in known.usual.items()}
    more = {"is_saturated": True, "familiarity": {"pieces": known.pieces, "usual": usual}}
    file.write_text(json.dumps(facts | more), encoding="utf-8")
    read = Calibration.load(RunFolder(tmp_path))
    assert read.is_saturated and read.familiarity == known
