import sys

import pytest
import sacrebleu

from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import bleu_tokenizer, corpus_scores, tokenised_note

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde laufen im Schnee herum."]
REFERENCES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde rennen durch den Schnee."]


def test_scores_are_sacrebleus_with_signatures():
    bleu, chrf, ter = corpus_scores(HYPOTHESES, REFERENCES, "de")
    assert bleu.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert chrf.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert ter.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert str(bleu) == f"BLEU {bleu.value:.2f}  {bleu.signature}"


@pytest.mark.parametrize(
    "language, tokenizer",
    [
        ("de", "13a"),
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("zh-CN", "zh"),
        ("ja", "ja-mecab"),
        ("ko", "ko-mecab"),
        ("ZH", "zh"),
    ],
)
def test_the_tokenizer_goes_by_the_target_language(language, tokenizer):
    assert bleu_tokenizer(language) == tokenizer


def test_chinese_is_scored_by_characters():
    (bleu,) = corpus_scores(["我喜欢红色的苹果。"], ["我喜欢绿色的苹果。"], "zh", metrics=["BLEU"])
    assert "tok:zh" in bleu.signature and 30 < bleu.value < 80


def test_settings_show_in_the_signature():
    (bleu,) = corpus_scores(
        ["A B C D E"], ["a b c d e"], "de", tokenize="none", lowercase=True, metrics=["BLEU"]
    )
    assert bleu.value == pytest.approx(100) and "tok:none" in bleu.signature and "case:lc" in bleu.signature


def test_japanese_without_its_extra_names_it(monkeypatch):
    for name in ("MeCab", "ipadic", "sacrebleu.tokenizers.tokenizer_ja_mecab"):
        monkeypatch.setitem(sys.modules, name, None)  # as if they were not installed
    with pytest.raises(InputError, match=r"pip install 'transformer-mt\[zh-ja-ko\]'"):
        corpus_scores(["犬"], ["猫"], "ja")


def test_counts_must_agree():
    with pytest.raises(InputError, match="there are 1 for 2"):
        corpus_scores(HYPOTHESES, REFERENCES[:1], "de")


def test_tokenised_text_is_recognised():
    assert "tokenised text" in tokenised_note(["ein mann schläft .", "zwei hunde !", "ohne punkt"], "auto")
    assert "tokenised text" in tokenised_note(REFERENCES, "none")
    assert tokenised_note(REFERENCES, "auto") is None
    assert tokenised_note([], "auto") is None
