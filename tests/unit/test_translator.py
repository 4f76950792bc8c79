import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import TINY
from transformer_mt import Translator
from transformer_mt.data import toy
from transformer_mt.errors import InputError, WorkError

ODD = [
    "",
    "   ",
    "\t",
    "A dog.",
    "\x00\x01",
    "😀😀",
    "中文句子",
    "x" * 300,
    "word " * 5000,
    "\u2028",
    "a\u2028b\x0bc\x85d",
    "The dog sleeps.",
    "\ufeff",
]


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def sentences():
    return [english for english, _ in toy.generate("test", 30)]


def test_translate_keeps_one_line_per_line(translator):
    results = translator.translate(ODD)
    assert [result.source for result in results] == ODD
    assert all("\n" not in result.translation for result in results)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12), max_size=5)
)
def test_any_lines_give_as_many(translator, lines):
    results = translator.translate(lines)
    assert [result.source for result in results] == lines
    assert not any("\n" in result.translation or "\r" in result.translation for result in results)


def test_what_could_not_be_done_is_said(translator):
    empty, long, fine = translator.translate(["", "dog " * 500, "The dog sleeps."])
    assert empty.translation == "" and empty.problems == ["there is nothing to translate"] and empty.flags == ["empty"]
    assert re.fullmatch(r"the source was translated in \d+ parts: it is too long for one", long.problems[0])
    assert long.flags[0] == "split"
    assert not any("source" in problem for problem in fine.problems)


def test_batching_does_not_change_output(translator, tiny_run, sentences):
    """Not its batch mates, nor their number, nor their order."""
    together = [result.translation for result in translator.translate(sentences)]
    alone = [translator.translate([sentence])[0].translation for sentence in sentences]
    backwards = [result.translation for result in translator.translate(sentences[::-1])][::-1]
    small = Translator.load(tiny_run, device="cpu", decode={"batch_tokens": 200})
    assert together == alone == backwards
    assert [result.translation for result in small.translate(sentences)] == together


def test_scores_do_not_depend_on_batch_mates(translator, sentences):
    together = [result.score for result in translator.translate(sentences)]
    alone = [translator.translate([sentence])[0].score for sentence in sentences]
    assert together == pytest.approx(alone, abs=1e-5)


def test_n_best_is_sorted_and_begins_with_the_best(translator, sentences):
    for one, five in zip(translator.translate(sentences), translator.translate(sentences, n_best=5)):
        assert five.n_best[0].translation == one.translation == five.translation
        assert len(five.n_best) == 5
        scores = [candidate.score for candidate in five.n_best]
        assert scores == sorted(scores, reverse=True)
    with pytest.raises(InputError, match=r"--n-best must be at most --beam \(5\), but is 6"):
        translator.translate(sentences, n_best=6)


def test_settings_of_the_search_are_taken(tiny_run, sentences):
    greedy = Translator.load(tiny_run, device="cpu", decode={"beam": 1})
    assert greedy.decode.beam == 1
    short, long = (
        Translator.load(tiny_run, device="cpu", decode={"length_penalty": a}).translate(sentences) for a in (0.0, 3.0)
    )
    assert sum(len(r.tokens) for r in short) < sum(len(r.tokens) for r in long)
    ratio = Translator.load(tiny_run, device="cpu", decode={"max_length_ratio": 0.1, "length_penalty": 5.0})
    assert all(len(result.tokens) <= 0.1 * 30 + 10 for result in ratio.translate(sentences))


def test_a_length_limit_is_kept_and_told(translator, sentences):
    for result in translator.translate(sentences, max_length=3):
        assert len(result.tokens) <= 3
        if len(result.tokens) == 3:
            assert "the translation was stopped at 4 pieces" in result.problems


def test_bfloat16_translates_too(tiny_run, sentences):
    assert len(Translator.load(tiny_run, device="cpu", dtype="bfloat16").translate(sentences)) == len(sentences)


def test_no_lines_give_none(translator):
    assert translator.translate([]) == []


def test_folders_that_are_no_models_are_told(tmp_path, tiny_run):
    with pytest.raises(InputError, match="no such folder; a model is the folder of a run"):
        Translator.load(tmp_path / "none")
    with pytest.raises(InputError, match="must be a run's folder, but holds no config.yaml"):
        Translator.load(tmp_path)
    (tmp_path / "config.yaml").write_text((tiny_run / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="no model.safetensors yet; training writes it at its first validation"):
        Translator.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes((tiny_run / "tokenizer.model").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((tiny_run / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(WorkError, match="is damaged"):
        Translator.load(tmp_path, device="cpu")


def test_three_files_are_all_a_model_needs(tmp_path, tiny_run, translator, sentences):
    for name in ("config.yaml", "tokenizer.model", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny_run / name).read_bytes())
    copied = Translator.load(tmp_path, device="cpu")
    assert copied.translate(sentences) == translator.translate(sentences)
    assert TINY["data"]["max_length"] == copied.max_src_length
