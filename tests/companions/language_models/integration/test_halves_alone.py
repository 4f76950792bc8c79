"""Encoders and decoders alone through the real command line, from plain text to what they are used for."""

import json
import shutil
import sys
from argparse import Namespace

import pytest
import yaml

from tests.companions.language_models.integration.conftest import BERT, train_on_text
from tests.conftest import TINY
from tests.helpers.command import run_command
from tests.helpers.companions import needs
from transformer_mt.companions.language_models.commands import texts_of
from transformer_mt.corpora import toy
from transformer_mt.corpora.seen_sentences import SeenSentences, Sentences, keys_of
from transformer_mt.errors import InputError


@pytest.fixture(scope="module")
def classifier(folder):
    for split in ("train", "test"):
        texts = [en for en, _ in toy.generate(split, 1500 if split == "train" else 100)]
        lines = [f"{text}\t{'the' if ' the ' in text else 'none'}\n" for text in texts]
        (folder / f"{split}.tsv").write_text("".join(["sentence\tlabel\n", *lines]), encoding="utf-8")
    corpus = {"file": "train.tsv", "columns": ["sentence", "label"], "objective": "classification"}
    values = {
        **TINY,
        "name": "labels",
        "data": {"language": "en", "train": corpus, "valid": {"from_train": {"share": 0.1}},
                 "test": [{**corpus, "file": "test.tsv"}], "labels": ["the", "none"], "max_length": 64},
        "model": {**TINY["model"], **BERT},
        "train": {**TINY["train"], "max_updates": 300, "validate_every": 300, "save_every": 20,
                  "monitor": "exact match", "label_smoothing": 0.0},
    }  # fmt: skip
    (folder / "labels.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = run_command("train", "labels.yaml", cwd=folder)
    assert result.status == 0, result.err
    assert 'try: transformer-mt classify runs/labels "..."\n' in result.err
    return folder / "runs" / "labels"


def test_masks_are_filled_where_they_stand(bert, cli):
    status, out, err = cli("fill", bert, "The [MASK] sleeps.", "A <mask> sees a [MASK].")
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith("The") and first.endswith("sleeps.") and "MASK" not in out
    assert second.startswith("A") and " sees a" in second
    out = cli("fill", bert, "The [MASK] sleeps.", "--top", "3", "--json")[1]
    (guesses,) = json.loads(out)["guesses"]
    probabilities = [guess["probability"] for guess in guesses]
    assert len(guesses) == 3 and probabilities == sorted(probabilities, reverse=True)
    everything = cli("fill", bert, "The [MASK] sleeps.", "--top", "100000")[1].splitlines()[1:]
    assert 400 < len(everything) <= 450
    assert sum(probabilities) <= 1.0 and not any("__label__" in guess["piece"] for guess in guesses)


@needs("exchange", "lab")
@pytest.mark.parametrize(
    "words, message",
    [
        (["fill", "BERT", "No mask."], "text 1: the text must have [MASK] where a word is to be f"),
        (["fill", "BERT", "A [MASK] " * 40], "text 1: the text must have at most 63 tokens, but has"),
        (["fill", "BERT", "a [MASK]", "--top", "0"], "--top must be at least 1, but is 0"),
        (["fill", "GPT", "a [MASK]"], "must be a run with model.kind: encoder, but is decoder"),
        (["complete", "BERT", "a"], "must be a run with model.kind: decoder, but is encoder"),
        (["complete", "GPT", "Die Katze " * 40], "text 1: the text must have fewer than 64 tokens"),
        (["complete", "GPT", "a", "--search", "mbr", "--samples", "4"], "--search must be beam or sample to"),
        (["complete", "GPT", "a", "--min-length", "99"], "--min-length must be below 62 after this text"),
        (["complete", "GPT", "a", "--n-best", "9"], "--n-best must be 1 to 5, the search's hypotheses, b"),
        (["classify", "BERT", "a"], "was not trained with objective: classification"),
        (["translate", "BERT", "a"], "must be a model that translates, but was trained for masked_lm; try: "),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(words, message, bert, gpt, cli):
    known = {"BERT": bert, "GPT": gpt}
    status, out, err = cli(*(known.get(word, word) for word in words))
    assert status == 2 and out == "" and message in err and len(err.strip().splitlines()) == 1


def test_a_text_is_continued_by_any_search(gpt, cli):
    status, out, err = cli("complete", gpt, "Die alte", "Ein")
    assert (status, err) == (0, "") and [line[:3] for line in out.splitlines()] == ["Die", "Ein"]
    best = cli("complete", gpt, "Die alte", "--n-best", "3")[1].splitlines()
    assert best[0] == out.splitlines()[0] and len(best) == len(set(best)) == 3
    assert all(text.startswith("Die alte") for text in best)
    drawn = [cli("complete", gpt, "Die", "--search", "sample", "--seed", seed)[1] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert cli("complete", gpt, "Die  ♞")[1].startswith("Die  ♞")  # what was given stays as it is
    plain = cli("complete", gpt, "Die")[1]
    assert cli("complete", gpt, "Die ")[1] == plain
    assert len(cli("complete", gpt, "Die", "--max-length", "1")[1]) <= len(plain)


def test_a_label_is_given_to_each_text(classifier, cli):
    texts = ["A mouse sees the women.", "Five women do not sleep.", "", "A mouse " * 200]
    status, out, err = cli("classify", classifier, *texts)
    assert (status, err) == (0, "") and out.splitlines()[:2] == ["the", "none"]
    assert len(out.splitlines()) == 4  # an empty text, and one that is too long, has a label, too
    found = json.loads(cli("classify", classifier, texts[0], "--json")[1])
    assert found["label"] == "the" and sum(found["probabilities"].values()) == pytest.approx(1.0)


@needs("lab")
def test_scores_of_each_objective(bert, gpt, classifier, folder, cli, monkeypatch):
    monkeypatch.chdir(folder)
    masked = cli("evaluate", bert)[1]
    assert "accuracy of masked tokens" in masked and "30 texts" in masked
    assert float(masked.split("perplexity ")[1].split()[0]) < 150  # of 450 pieces
    causal = cli("evaluate", gpt)[1]
    assert "perplexity" in causal and "bits per character" in causal
    assert cli("evaluate", bert)[1] == masked  # the masks are always the same
    for words in (["--tag", "<x>"], ["--beam", "2"], ["--robust"]):
        status, _, err = cli("evaluate", bert, *words)
        assert status == 2 and f"{words[0]} must be left out: it translates nothing" in err
    report = (bert / "report.md").read_text(encoding="utf-8")
    assert "## Test" in report and "accuracy of masked tokens" in report
    labels = cli("evaluate", classifier)[1]
    accuracy = float(labels.split("accuracy")[1].split()[0])
    assert accuracy > 95  # four of five have the label "the"


def test_texts_that_were_trained_on_are_counted(gpt, folder, tmp_path, cli, monkeypatch):
    monkeypatch.chdir(folder)
    copy = shutil.copytree(gpt, tmp_path / "gpt")
    trained = keys_of(german for _, german in toy.generate("test", 30))
    SeenSentences(Sentences(alone=trained)).write(copy / "seen.safetensors")
    assert "  30 of 30 sentences seen before" in cli("evaluate", copy).out
    assert "| seen " in (copy / "report.md").read_text(encoding="utf-8")


def test_the_perplexity_of_text_is_that_of_the_full_pass(gpt, cli):
    import math

    import torch
    import torch.nn.functional as F

    from transformer_mt.companions.language_models.text_models import TextModel
    from transformer_mt.data.vocabulary.tokenizer import BOS, EOS

    loaded = TextModel.load(gpt, ("decoder",), "cpu")
    nll = pieces = 0
    for _, text in toy.generate("test", 30):
        ids = loaded.tokenizer.encode_src([text])[0]
        if len(ids) < 64:
            read = torch.tensor([[BOS, *ids]])
            with torch.inference_mode():
                logits = loaded.model(read, read != 0, read)[0]
            nll += float(F.cross_entropy(logits, torch.tensor([*ids, EOS]), reduction="sum"))
            pieces += len(ids) + 1
    out = cli("evaluate", gpt)[1]
    assert float(out.split("perplexity ")[1].split()[0]) == pytest.approx(math.exp(nll / pieces), rel=1e-3)


@needs("lab")
def test_attention_of_a_half_alone_is_drawn(bert, gpt, tmp_path, cli):
    pytest.importorskip("matplotlib")
    for run in (bert, gpt):
        picture = tmp_path / f"{run.name}.png"
        result = cli("plot", "attention", run, "The old cat sleeps.", "-o", picture)
        assert result.status == 0, result.err
        assert picture.stat().st_size > 5000


def test_the_report_of_a_text_model_has_no_translations(bert):
    report = (bert / "report.md").read_text(encoding="utf-8")
    assert "toy train: masked language modelling." in report and "encoder, 1 layers" in report
    assert "perplexity" in report and "Greedy translations" not in report and "## Samples" not in report
    assert "## Diagnosis" in report


@needs("exchange")
def test_halves_leave_as_bert_and_gpt2(bert, gpt, tmp_path, cli):
    transformers = pytest.importorskip("transformers")
    for run in (bert, gpt):
        out = tmp_path / run.name
        status, said, err = cli("export", run, out, "--to", "huggingface")
        assert status == 0, err
        assert "the same ids and logits within" in said
    assert transformers.pipeline("text-generation", model=str(tmp_path / "gpt"))("Die", max_new_tokens=3)
    filled = cli("fill", bert, "A [MASK] sleeps.", "--top", "3", "--json")[1]
    ours = [guess["probability"] for guess in json.loads(filled)["guesses"][0]]
    theirs = transformers.pipeline("fill-mask", model=str(tmp_path / "bert"))("A <mask> sleeps.", top_k=30)
    # Theirs may write control pieces, ours never does.
    text = [g for g in theirs if not g["token_str"].startswith(("<", "__"))][:3]
    assert [g["score"] for g in text] == pytest.approx(ours, rel=0.05)


@needs("exchange")
def test_what_bert_cannot_hold_is_refused_with_all_reasons(folder, tmp_path, cli):
    run, _ = train_on_text(folder, "odd", "masked_lm", {"kind": "encoder"}, max_updates=2)
    status, _, err = cli("export", run, tmp_path / "odd", "--to", "huggingface")
    assert status == 2 and not (tmp_path / "odd").exists()
    reasons = [line.split(": ", 1)[1] for line in err.strip().splitlines()]
    assert reasons == [
        "model.norm must be post, but is pre",
        "model.position must be learned, but is sinusoidal",
        "model.embedding_norm must be true, but is false",
    ]
    status, _, err = cli("export", run, tmp_path / "odd")
    assert status == 2 and "model.kind must be transformer, but is encoder" in err


# The texts of `fill`, `complete` and `classify`.


def test_bytes_that_are_not_utf_8_are_read_as_unknown_characters():
    """A Latin-1 é, as the shell gives it."""
    assert list(texts_of(Namespace(texts=["caf\udce9", "café"]))) == ["caf\ufffd", "café"]


def test_a_closed_standard_input_is_told(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed; give TEXT"):
        texts_of(Namespace(texts=[]))
