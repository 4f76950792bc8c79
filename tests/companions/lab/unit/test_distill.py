"""What a student is trained on."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import TINY
from tests.helpers.faults import instead_of_training
from transformer_mt import Translator
from transformer_mt.companions.lab.synthetic import REJECTED_FLAGS, PairSelection, TextSource
from transformer_mt.config.load import dump_config, load_config
from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder, makers_of
from transformer_mt.settings.corpus_keys import FilterConfig

pytest.importorskip("ctranslate2")

from transformer_mt.companions.lab import distill

Plan = distill.DistillationPlan


class TrainingStarts(Exception):
    pass


def test_a_student_is_trained_on_the_translations_of_its_teacher(
    tiny_run, write_config, tmp_path, monkeypatch
):
    config = load_config(write_config(), ["data.train={toy: train, size: 40}", "name=student"])
    (corpus,), _ = entries_of(Plan([tiny_run]), config, tmp_path / "student", monkeypatch)
    rows = rows_of(corpus)
    # One is longer than the teacher's training pairs.
    tokenizer = Translator.load(tiny_run).tokenizer
    pairs = [pair for pair in toy.generate("train", 40) if len(tokenizer.encode_src(pair[:1])[0]) < 64]
    assert len(pairs) == 39
    expected = Translator.load(tiny_run).translate([english for english, _ in pairs])
    assert corpus.columns == ["en", "de"]
    assert [row["en"] for row in rows] == [english for english, _ in pairs]
    assert [row["de"] for row in rows] == [result.translation for result in expected]
    assert [row["de"] for row in rows] != [german for _, german in pairs]
    # What the teacher has seen follows to the student.
    (maker,) = makers_of(Path(corpus.file))
    assert maker.path.resolve() == tiny_run.resolve()


def test_a_student_keeps_the_names_weights_and_tags_of_its_corpora(
    tiny_run, write_config, tmp_path, monkeypatch
):
    tagged = {"toy": "valid", "size": 10, "tag": "<bt>", "weight": 0.5, "name": "back"}
    entries = [{"toy": "train", "size": 20}, tagged]
    config = load_config(write_config(data={"train": entries}), ["name=student"])
    (first, second), _ = entries_of(Plan([tiny_run]), config, tmp_path / "student", monkeypatch)
    assert (first.tag, first.weight, second.tag, second.weight, second.name) == (None, 1, "<bt>", 0.5, "back")
    for corpus, (split, size) in ((first, ("train", 20)), (second, ("valid", 10))):
        assert [row["en"] for row in rows_of(corpus)] == [english for english, _ in toy.generate(split, size)]


def test_what_the_students_rules_drop_is_not_translated(tiny_run, write_config, tmp_path, monkeypatch):
    good = list(toy.generate("train", 10))
    pairs = [*good, ("Это не английский.", "Это не английский."), ("Same text here.", "Same text here.")]
    (tmp_path / "a.tsv").write_text("en\tde\n" + "".join(f"{en}\t{de}\n" for en, de in pairs), "utf-8")
    entry = {"file": str(tmp_path / "a.tsv"), "filter": {"copy": True, "script": True}}
    config = load_config(write_config(data={"train": entry}), ["name=student"])
    (corpus,), _ = entries_of(Plan([tiny_run]), config, tmp_path / "student", monkeypatch)
    assert [row["en"] for row in rows_of(corpus)] == [english for english, _ in good]
    # With other rules the text to translate is another: what was translated before does not stand for it.
    content = TextSource.of_corpora(config.data, config.data.entries).content
    other = load_config(write_config(data={"train": {"file": str(tmp_path / "a.tsv")}}), ["name=student"])
    assert TextSource.of_corpora(other.data, other.data.entries).content != content
    assert not corpus.synthetic  # a translation may be equal to a reference


def test_text_without_lines_is_refused_before_any_translation(tiny_run, write_config, tmp_path):
    (tmp_path / "empty.en").touch()
    plan = Plan([tiny_run], texts=[tmp_path / "empty.en"])
    with pytest.raises(InputError, match=r"empty.en: must have lines to translate, but is empty"):
        distill.distill(plan, load_config(write_config()), tmp_path / "student")
    assert not (tmp_path / "student").exists()


def test_a_missing_extra_is_reported_before_the_training(tiny_run, write_config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"needs CTranslate2: pip install 'transformer-mt\[ctranslate2\]'"):
        distill.distill(Plan([tiny_run]), load_config(write_config()), tmp_path / "student")
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize(
    "override, message",
    [
        ("data.valid={from_train: {share: 0.1}}", "data.valid of the student must be a separate corpus"),
        ("data.test=[{from_train: {share: 0.1}}]", "data.test of the student must be a separate corpus"),
        ("train.guided_alignment={weight: 0.1, file: a}", "train.guided_alignment.file must be left out"),
    ],
)
def test_what_a_student_cannot_be_trained_with_is_refused(
    tiny_run, write_config, tmp_path, override, message
):
    with pytest.raises(InputError, match=message):
        config = load_config(write_config(), ["name=student", override])
        distill.distill(Plan([tiny_run]), config, tmp_path / "student")


def test_the_folder_of_another_training_is_refused_before_any_translation(tiny_run, write_config, tmp_path):
    config = load_config(write_config(), ["name=student"])
    with pytest.raises(InputError, match=r"tiny: must not be the teacher's folder; name another with `out`"):
        distill.distill(Plan([tiny_run]), config, tiny_run)
    trained = shutil.copytree(tiny_run, tmp_path / "trained")
    with pytest.raises(InputError, match="trained: must be a separate folder, but belongs to another train"):
        distill.distill(Plan([tiny_run]), config, trained)
    assert not list(trained.glob("distilled*"))


def test_a_corpus_may_call_its_languages_by_other_names(tiny_run, write_config, tmp_path, monkeypatch):
    """The file of translations has the names that the teacher has for them."""
    rows = "".join(f"{en}\t{de}\n" for en, de in toy.generate("train", 5))
    (tmp_path / "a.tsv").write_text(f"en_GB\tde_AT\n{rows}", encoding="utf-8")
    train = f"data.train={{file: {tmp_path / 'a.tsv'}, source_lang: en_GB, target_lang: de_AT}}"
    config = load_config(write_config(), [train, "name=student"])
    (corpus,), _ = entries_of(Plan([tiny_run]), config, tmp_path / "student", monkeypatch)
    assert corpus.columns == ["en", "de"] and all({"en", "de"} <= row.keys() for row in rows_of(corpus))


def test_the_tag_of_the_test_set_is_before_its_sources(tiny_run, write_config):
    class WithTag(Translator):
        """Knows <formal>, and translates as if it were not there."""

        def stream(self, lines, options):
            tags.append(options.tag)
            return super().stream(lines)

    rules, tags = load_config(write_config()).evaluate, []
    sentences = [("The dog sleeps.", ("Der Hund schläft.",))] * 2
    test = EvaluationSet("test", "a set", sentences, "<formal>", ("en", "de"))
    translator = WithTag.load(tiny_run)
    distill._timed("student", translator, test, rules, 1.0, "0 %")
    assert tags == [None, None]  # a model without the tag was trained on no such corpus
    translator.tokenizer.control_ids = {"<formal>": 4}
    row = distill._timed("student", translator, test, rules, 1.0, "0 %")
    assert tags[2:] == ["<formal>", "<formal>"] and row.sentences_per_second > 0
    # Names of columns are languages of the model, too, where it has one direction.
    named = replace(test, tag=None, languages=("English", "German"))
    assert distill._measure("student", [tiny_run], named, rules).bleu == row.bleu


def test_an_export_with_another_search_is_made_again(tiny_run, tmp_path):
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
    from transformer_mt.companions.lab.distill import _is_export_of

    run = shutil.copytree(tiny_run, tmp_path / "run")
    export(RunFolder(run), run / "int8", ToCTranslate2(), None)  # int8 needs a better model
    assert _is_export_of(RunFolder(run), RunFolder(run / "int8"))
    changed = load_config(run / "config.yaml", ["decode.beam=1"])
    (run / "config.yaml").write_text(dump_config(changed), encoding="utf-8")
    assert not _is_export_of(RunFolder(run), RunFolder(run / "int8"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.target_lang=fr"], "the student must translate en to de like its teacher, but"),
        ([], "teacher: must be outside .*student, which is moved"),
    ],
)
def test_nothing_is_moved_aside_before_a_mistake_is_found(
    tiny_run, write_config, tmp_path, overrides, message
):
    folder = tmp_path / "student"
    teacher = shutil.copytree(tiny_run, tmp_path / "teacher" if overrides else folder / "teacher")
    folder.mkdir(exist_ok=True)
    config = load_config(write_config(), ["name=student", *overrides])
    with pytest.raises(InputError, match=message):
        distill.distill(Plan([teacher]), config, folder, fresh=True)
    assert folder.is_dir() and not list(tmp_path.glob("student.old*"))


def test_a_student_starts_over_where_asked(tiny_run, write_config, tmp_path, monkeypatch, said):
    config = load_config(write_config(), ["data.train={toy: train, size: 10}", "name=student"])
    plan, folder = Plan([tiny_run]), tmp_path / "student"
    entries_of(plan, config, folder, monkeypatch)
    (folder / "mine.txt").touch()
    with pytest.raises(TrainingStarts):
        distill.distill(plan, config, folder, fresh=True)
    (aside,) = (path for path in tmp_path.iterdir() if path.name.startswith("student.") and path.is_dir())
    assert (aside / "mine.txt").exists() and f"the old folder is now {aside}" in said
    assert (folder / "distilled.jsonl").exists() and not (folder / "mine.txt").exists()


@pytest.mark.parametrize("origin", ["init_from", "tokenizer.file"])
def test_a_student_leaves_to_its_parent_or_vocabulary_what_they_decide(
    tiny_run, write_config, tmp_path, monkeypatch, origin
):
    where = {"init_from": tiny_run, "tokenizer.file": tiny_run / "tokenizer.model"}[origin]
    path = write_config()
    path.write_text(yaml.safe_dump({key: TINY[key] for key in ("data", "train")}), encoding="utf-8")
    config = load_config(path, ["data.train={toy: train, size: 10}", "name=student", f"{origin}={where}"])
    _, begun = entries_of(Plan([tiny_run]), config, tmp_path / "student", monkeypatch)
    assert not begun.model.model_fields_set and "vocab_size" not in begun.tokenizer.model_fields_set


def entries_of(plan, config, folder, monkeypatch):
    """What the student is trained on, and its config."""
    trained_on = []

    def train(config, folder):
        trained_on.append(config)
        raise TrainingStarts

    instead_of_training(monkeypatch, train)
    with pytest.raises(TrainingStarts):
        distill.distill(plan, config, folder)
    return trained_on[0].data.entries, trained_on[0]


def rows_of(corpus):
    with open(corpus.file, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_several_teachers_translate_as_an_ensemble(tiny_run, write_config, tmp_path, monkeypatch):
    from transformer_mt import checkpoint

    other = shutil.copytree(tiny_run, tmp_path / "other")
    weights = checkpoint.load_weights(other / "model.safetensors")
    name = "encoder.layers.0.feed_forward.inner.weight"
    weights[name] = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(1))
    checkpoint.save_weights(other / "model.safetensors", weights)
    config = load_config(write_config(), ["data.train={toy: train, size: 30}", "name=student"])
    plan = Plan([tiny_run, other])
    (corpus,), _ = entries_of(plan, config, tmp_path / "student", monkeypatch)
    english = [english for english, _ in toy.generate("train", 30)]
    expected = [
        result.translation for result in Translator.load(tiny_run, ensemble=[other]).translate(english)
    ]
    alone = [result.translation for result in Translator.load(tiny_run).translate(english)]
    assert [row["de"] for row in rows_of(corpus)] == expected != alone


def test_text_and_references_are_learnt_from_too(tiny_run, write_config, tmp_path, monkeypatch):
    text = tmp_path / "mono.en"
    text.write_text("A dog sleeps.\nA cat sings.\nA dog sleeps.\n", encoding="utf-8")
    config = load_config(write_config(), ["data.train={toy: train, size: 30}", "name=student"])
    plan = Plan([tiny_run], texts=[text], with_references=True)
    entries, _ = entries_of(plan, config, tmp_path / "student", monkeypatch)
    translated, more, references = entries
    assert len(rows_of(translated)) == 30 and references == config.data.train
    assert [row["en"] for row in rows_of(more)] == ["A dog sleeps.", "A cat sings."]


def test_translations_are_chosen_where_asked(tiny_run, write_config, tmp_path, monkeypatch):
    config = load_config(write_config(), ["data.train={toy: train, size: 60}", "name=student"])
    english = [english for english, _ in toy.generate("train", 60)]
    results = Translator.load(tiny_run).translate(english)
    good = {r.source for r in results if not set(r.flags) & set(REJECTED_FLAGS)}
    assert 0 < len(good) < 55
    plan = Plan([tiny_run], choice=PairSelection(FilterConfig(copy=True)))
    (corpus,), _ = entries_of(plan, config, tmp_path / "clean", monkeypatch)
    assert {row["en"] for row in rows_of(corpus)} == good
    plan = Plan([tiny_run], choice=PairSelection(FilterConfig(), 0.5, ()))
    (half,), _ = entries_of(plan, config, tmp_path / "half", monkeypatch)
    assert 29 <= len(rows_of(half)) <= 31
