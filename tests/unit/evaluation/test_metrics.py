"""The metrics: their values are those of the library that defines them, their statistics add up."""

import stat
import sys

import numpy as np
import pytest
import sacrebleu
import sentencepiece

from transformer_mt.config.decode_section import EvaluateConfig
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.external_metric import ExternalMetric, StayingMetric
from transformer_mt.evaluation.metrics import (
    bleu_tokenizer,
    build_metrics,
    corpus_scores,
    metric_names,
    metrics_by_test,
    tokenised_note,
)
from transformer_mt.parts import names_of

SOURCES = ["A man sleeps on the sofa.", "Two dogs run around in the snow."]
HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde laufen im Schnee herum."]
REFERENCES = [["Ein Mann schläft auf dem Sofa."], ["Zwei Hunde rennen durch den Schnee."]]
TWO = [["Ein Mann schläft.", "Ein Mann schläft auf dem Sofa."], ["Zwei Hunde rennen im Schnee."]]


def scores(*names, references=REFERENCES, hypotheses=HYPOTHESES, lang="de", **rules):
    return corpus_scores(build_metrics(EvaluateConfig(**rules), lang, names), SOURCES, hypotheses, references)


def test_scores_are_sacrebleus_with_signatures():
    bleu, chrf, chrf_2, ter = scores("BLEU", "chrF", "chrF++", "TER")
    stream = [reference for (reference,) in REFERENCES]
    assert bleu.value == sacrebleu.corpus_bleu(HYPOTHESES, [stream]).score
    assert chrf.value == sacrebleu.corpus_chrf(HYPOTHESES, [stream]).score
    assert chrf_2.value == sacrebleu.corpus_chrf(HYPOTHESES, [stream], word_order=2).score
    assert ter.value == sacrebleu.corpus_ter(HYPOTHESES, [stream]).score
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nw:2" in chrf_2.signature and "nw:0" in chrf.signature
    assert str(bleu) == f"BLEU {bleu.value:.2f}  {bleu.signature}"


@pytest.mark.parametrize("lang", ["th", "zho_Hans"])
def test_ter_of_characters_which_is_slow_is_reported_where_it_is_asked_for(lang):
    assert metric_names(EvaluateConfig(), "de") == ["BLEU", "chrF", "TER"]
    assert metric_names(EvaluateConfig(), lang) == ["BLEU", "chrF"]
    assert metric_names(EvaluateConfig(metrics=["TER"]), lang) == ["TER"]


@pytest.mark.parametrize("first", ["de", "zh"])
def test_sets_in_several_languages_have_the_same_metrics(first):
    """With other metrics for a set, a table of all sets has no score to show."""
    of_test = metrics_by_test(EvaluateConfig(), first)
    sets = [EvaluationSet("a", "a", [], languages=("en", language)) for language in ("de", "zh")]
    named = [[metric.name for metric in of_test(test)] for test in sets]
    assert named[0] == named[1] == metric_names(EvaluateConfig(), first)


def test_several_references_may_differ_in_number():
    bleu, chrf, ter, exact, wer = scores("BLEU", "chrF", "TER", "exact match", "WER", references=TWO)
    streams = [[TWO[0][0], TWO[1][0]], [TWO[0][1], None]]
    assert bleu.value == sacrebleu.BLEU().corpus_score(HYPOTHESES, streams).score
    assert chrf.value == sacrebleu.CHRF().corpus_score(HYPOTHESES, streams).score
    assert ter.value == sacrebleu.TER().corpus_score(HYPOTHESES, streams).score
    assert all("nrefs:var" in score.signature for score in (bleu, chrf, ter, exact, wer))
    assert exact.value == 50.0  # the second reference of the first sentence
    # laufen, Schnee, herum. for rennen and Schnee.; of 6 + 5 words
    assert wer.value == pytest.approx(100 * 3 / 11)


def test_error_rates_are_edits_for_each_word_or_character_of_the_reference():
    names = "exact match", "WER", "CER"
    exact, wer, cer = scores(*names, hypotheses=["a b c", "x"], references=[["a c"], ["x"]])
    assert (exact.value, wer.value, cer.value) == (50.0, pytest.approx(100 / 3), pytest.approx(100 * 2 / 4))
    assert "|jiwer:" in wer.signature
    (loud,) = scores("WER", hypotheses=["A", "X"], references=[["a"], ["x"]], lowercase=True)
    assert loud.value == 0.0 and "case:lc" in loud.signature
    (empty,) = scores("WER", hypotheses=["a", "b"], references=[[""], [""]])
    assert empty.value == 100.0


def test_a_score_is_the_value_of_the_sum_of_the_sentences_statistics():
    names = [name for name in names_of("metric")[0] if name != "spBLEU"]
    for metric in build_metrics(EvaluateConfig(), "de", names):
        statistics = metric.statistics(SOURCES, HYPOTHESES, REFERENCES)
        first = metric.score(SOURCES[:1], HYPOTHESES[:1], REFERENCES[:1])
        assert metric.value(statistics[0].tolist()) == pytest.approx(first.value), metric.name
        assert statistics.shape[0] == 2 and np.isfinite(statistics).all()


def test_a_short_sentence_is_scored_by_the_n_grams_it_has():
    (bleu,) = build_metrics(EvaluateConfig(), "de", ["BLEU"])
    (row,) = bleu.statistics([""], ["Guten Tag"], [["Guten Tag"]])
    assert bleu.sentence_value(row.tolist()) == pytest.approx(100) and bleu.value(row.tolist()) == 0


def test_spbleu_is_sacrebleus_with_the_model_of_flores(tmp_path, monkeypatch):
    text = tmp_path / "text"
    text.write_text("\n".join(SOURCES + HYPOTHESES), encoding="utf-8")
    folder = tmp_path / "models"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=60, hard_vocab_limit=False
    )
    (tmp_path / "m.model").rename(folder / "flores200sacrebleuspm")
    for module in ("sacrebleu.utils", "sacrebleu.tokenizers.tokenizer_spm"):
        monkeypatch.setattr(f"{module}.SACREBLEU_DIR", str(tmp_path))
    (score,) = scores("spBLEU")
    assert score.name == "spBLEU" and "tok:flores200" in score.signature
    stream = [reference for (reference,) in REFERENCES]
    assert score.value == sacrebleu.corpus_bleu(HYPOTHESES, [stream], tokenize="flores200").score


def test_spbleu_without_its_model_says_where_it_goes(tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.SACREBLEU_DIR", str(tmp_path))

    def refuse(*words):
        raise OSError("no network")

    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_spm.download_file", refuse)
    with pytest.raises(InputError, match=r"copy it to .*/models/flores200sacrebleuspm"):
        scores("spBLEU")


@pytest.mark.parametrize(
    "language, tokenizer",
    [
        ("de", "13a"), ("zh_TW", "zh"), ("ZH", "zh"), ("cmn", "zh"), ("lzh", "zh"), ("jpn", "ja-mecab"),
        ("kor_Hang", "ko-mecab"), ("lao_Laoo", "char"), ("bo", "char"),
    ],
)  # fmt: skip
def test_the_tokenizer_goes_by_the_target_language(language, tokenizer):
    assert bleu_tokenizer(language) == tokenizer


def test_a_language_without_spaces_is_counted_in_characters():
    bleu = build_metrics(EvaluateConfig(), "th", ["BLEU"])[0]
    reference = "หมาใหญ่กินแมวแดงวันนี้"
    assert bleu.score(["a"], [reference], [[reference]]).value == pytest.approx(100)
    near = bleu.score(["a"], ["หมาใหญ่กินแมวดำวันนี้"], [[reference]])
    assert 60 < near.value < 95 and "tok:char" in near.signature
    assert bleu.mean_length([reference]) == len(reference)


def test_settings_show_in_the_signature():
    (bleu,) = scores(
        "BLEU", hypotheses=["A B C D E"] * 2, references=[["a b c d e"]] * 2, tokenize="none", lowercase=True
    )
    assert bleu.value == pytest.approx(100) and "tok:none" in bleu.signature and "case:lc" in bleu.signature


def test_japanese_without_its_extra_names_it(monkeypatch):
    for name in ("MeCab", "ipadic", "sacrebleu.tokenizers.tokenizer_ja_mecab"):
        monkeypatch.setitem(sys.modules, name, None)  # as if they were not installed
    with pytest.raises(InputError, match=r"pip install 'transformer-mt\[zh-ja-ko\]'"):
        scores("BLEU", lang="ja")


def test_error_rates_without_their_extra_name_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(InputError, match=r"WER needs jiwer: pip install 'transformer-mt\[metrics\]'"):
        scores("WER")


def test_counts_must_agree():
    with pytest.raises(InputError, match="there are 1 for 2"):
        scores("BLEU", references=REFERENCES[:1])


def test_tokenised_text_is_recognised():
    plain = [reference for (reference,) in REFERENCES]
    assert "tokenised text" in tokenised_note(["ein mann schläft .", "zwei hunde !", "ohne punkt"], "auto")
    assert "tokenised text" in tokenised_note(plain, "none")
    assert tokenised_note(["ein mann schläft .", "zwei hunde!"], "auto") is None  # half is not most
    assert tokenised_note(plain, "auto") is None
    assert tokenised_note([], "auto") is None


def program(tmp_path, body):
    path = tmp_path / "my metric.py"
    path.write_text(f"#!{sys.executable}\nimport json, sys\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"'{path}' --gpus 0"


LENGTHS = """
assert sys.argv[1:] == ["--gpus", "0"]
for line in sys.stdin:
    row = json.loads(line)
    assert row["source"] and len(row["references"]) == 1
    print(len(row["translation"].split()))
"""


def test_an_external_metric_is_the_mean_of_what_its_command_prints(tmp_path):
    metric = ExternalMetric("words", program(tmp_path, LENGTHS))
    score = metric.score(SOURCES, HYPOTHESES, REFERENCES)
    assert (score.name, score.value) == ("words", 6.0)
    assert score.signature == "command:my metric.py --gpus 0"  # without the folders of this machine


def test_a_sentence_with_more_than_100_is_told(tmp_path, capfd):
    ExternalMetric("big", program(tmp_path, "print(3); print(345.5)")).score(SOURCES, HYPOTHESES, REFERENCES)
    assert "note: big gave a sentence 345.5; most metrics end at 1 or 100" in capfd.readouterr().err


@pytest.mark.parametrize(
    "body, message",
    [
        ("print('warming up', file=sys.stderr); sys.exit('no GPU')", "failed with status 1: no GPU"),
        ("print(1)", "must print one number per sentence, but printed 1 for 2"),
        ("print('nan'); print(1)", "must print one number per line, but printed 'nan'"),
        ("print('0.5 0.6'); print(1)", "must print one number per line, but printed '0.5 0.6'"),
    ],
)
def test_what_goes_wrong_in_the_command_is_said(tmp_path, body, message):
    with pytest.raises(WorkError, match=f"words: the command {message}"):
        ExternalMetric("words", program(tmp_path, body)).score(SOURCES, HYPOTHESES, REFERENCES)


BLOCKS = """
import itertools
print("one model is read", file=sys.stderr, flush=True)
block = []
for line in itertools.chain(sys.stdin, [""]):
    if line.strip():
        block.append(json.loads(line))
    elif block:
        print(*(len(row["translation"].split()) for row in block), sep="\\n", flush=True)
        block = []
"""


@pytest.mark.parametrize(
    "body", [BLOCKS, LENGTHS.replace("row = ", "if not line.strip(): continue\n    row = ")]
)
def test_a_command_that_stays_is_asked_again_and_again(tmp_path, capfd, body):
    if body is not BLOCKS:
        body = body.replace(".split()))", ".split()), flush=True)")
    metric = StayingMetric("words", program(tmp_path, body))
    assert [metric.score(SOURCES, HYPOTHESES, REFERENCES).value for _ in range(3)] == [6.0] * 3
    many = 5000  # more than a pipe holds
    assert metric.score(["a"] * many, ["b c"] * many, [["d"]] * many).value == 2.0
    assert capfd.readouterr().err.count("one model is read") == (body is BLOCKS)
    assert ExternalMetric("words", program(tmp_path, body)).score(SOURCES, HYPOTHESES, REFERENCES).value == 6


class Impatient(StayingMetric):
    most_seconds = 0.2


@pytest.mark.parametrize("body", ["sys.exit(1)", "sys.stdin.read()"])
def test_a_command_that_ends_or_is_silent_is_said(tmp_path, body):
    with pytest.raises(InputError, match="words: the command must answer each block of sentences"):
        Impatient("words", program(tmp_path, body)).score(SOURCES, HYPOTHESES, REFERENCES)


def test_a_command_that_is_none_is_said():
    with pytest.raises(InputError, match="no-such-program: the program of x is not installed"):
        ExternalMetric("x", "no-such-program").score(SOURCES, HYPOTHESES, REFERENCES)
    with pytest.raises(InputError, match="cannot be read"):
        ExternalMetric("x", "python 'a")
    with pytest.raises(InputError, match="must name a program, but is empty"):
        ExternalMetric("x", " ")
