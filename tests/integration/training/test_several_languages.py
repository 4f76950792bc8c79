"""Several languages in one model: reversed corpora, a piece for the target language, each set in its own."""

import html
import json
import shutil
from dataclasses import replace

import pytest
import yaml

from tests.conftest import TINY
from tests.helpers.companions import needs
from tests.helpers.faults import killed_at_the_end
from transformer_mt import Translator
from transformer_mt.cli.model_options import select_by_language
from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.corpora.held_out import EvaluationSet as Sentences
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import Score
from transformer_mt.evaluation.set_evaluation import evaluate
from transformer_mt.files import read_objects
from transformer_mt.run.validation import SetScores, mean_of
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import train
from transformer_mt.translation.planner import can_translate

THERE, BACK = {"toy": "train", "size": 400}, {"toy": "train", "size": 300, "reverse": True, "name": "back"}
BOTH = {
    "train": [THERE, BACK],
    "valid": [
        {"toy": "valid", "size": 30},
        {"toy": "valid", "size": 30, "reverse": True, "name": "valid back"},
    ],
    "test": [{"toy": "test", "size": 10}, {"toy": "test", "size": 12, "reverse": True, "name": "test back"}],
}
SHORT = {**TINY["train"], "max_updates": 12, "validate_every": 6, "save_every": 6}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folder of a run from English to German and back."""

    folder = tmp_path_factory.mktemp("both")
    path = folder / "both.yaml"
    path.write_text(
        yaml.safe_dump({**TINY, "name": "both", "data": {**TINY["data"], **BOTH}, "train": SHORT})
    )
    return train(load_config(path), folder / "run")


@pytest.fixture(scope="module")
def child(both):
    """(config, run) of a child of `both`, of one direction, and with a tag that only it has."""
    path = both.parent / "child.yaml"
    data = {**TINY["data"], "test": [{"toy": "test", "size": 8, "tag": "<cap>"}]}
    sections = {"data": data, "train": SHORT, "init_from": str(both), "tokenizer": {}, "model": {}}
    path.write_text(yaml.safe_dump({**TINY, **sections, "name": "child"}))
    return path, train(load_config(path), both.parent / "child")


def test_confidence_is_fitted_on_the_validation_sets_of_all_languages(both):
    """The first one alone has too few sentences, and says nothing of another language."""
    assert RunFolder(both).calibration()["sentences"] == 30  # half of 60; the others say how well it fits


def test_a_reversed_corpus_is_swapped(write_config, tmp_path):
    files = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
    (tmp_path / "a.en").write_text("A dog.\nA cat.\n")
    (tmp_path / "a.de").write_text("Ein Hund.\nEine Katze.\n")
    (tmp_path / "a.tsv").write_text("en\tde\nA dog.\tEin Hund.\n")
    data = load_config(
        write_config(
            data={
                "source_lang": "de",
                "target_lang": "en",
                "train": [
                    {**files, "source_lang": "en", "target_lang": "de", "reverse": True},
                    {"file": str(tmp_path / "a.tsv"), "columns": ["de", "en"]},
                    {"toy": "train", "size": 2},
                ],
            }
        )
    ).data
    assert list(data.entries[0].read(data.languages)) == [("Ein Hund.", "A dog."), ("Eine Katze.", "A cat.")]
    assert list(data.entries[1].read(data.languages)) == [("Ein Hund.", "A dog.")]
    assert data.directions == [("de", "en")] and data.control_pieces == []


def test_each_source_begins_with_the_piece_of_its_target_language(both):
    tokenizer = Tokenizer.load(both)
    assert set(tokenizer.control_ids) == {">>de<<", ">>en<<"}
    seen = []
    translator = Translator.load(both, "cpu")
    for target, source in (("de", "en"), ("en", "de")):
        own = translator.towards(target)
        assert (own.source_lang, own.target_lang) == (source, target)
        requests = []
        search = own.engine.search
        own.engine.search = lambda r, *rest, search=search, requests=requests: (
            requests.extend(r), search(r, *rest)
        )[1]  # fmt: skip
        own.translate(["A dog sleeps >>en<<"])
        own.engine.search = search
        (ids,) = [request.src for request in requests]
        assert ids[0] == tokenizer.control_ids[f">>{target}<<"]
        assert not set(ids[1:]) & set(tokenizer.control_ids.values()), "text never becomes the piece"
        seen.append(ids)
    assert seen[0][1:] == seen[1][1:]


def test_validation_and_tests_go_by_their_own_languages(both, cli):
    entries = [entry for entry in read_objects(both / "metrics.jsonl") if entry["event"] == "valid"]
    assert [each["name"] for each in entries[-1]["sets"]] == ["toy valid", "valid back"]
    status, out, err = cli("evaluate", both, "--json")
    assert status == 0, err
    assert [json.loads(line)["sentences"] for line in out.splitlines()] == [10, 12]
    rows = read_objects(both / "evaluation" / "test-1.jsonl")
    english, german = zip(*toy.generate("test", 12))
    assert [row["source"] for row in rows] == list(german)
    expected = Translator.load(both, "cpu").towards("en").translate(german)
    assert [row["translation"] for row in rows] == [result.translation for result in expected]
    status, out, _ = cli("evaluate", both, "--json", "--to", "en")
    assert [json.loads(line)["corpus"] for line in out.splitlines()] == ["toy test (de to en)"]


def test_a_mean_has_the_signatures_of_all_sets():
    sets = [
        SetScores(name, 1.0, [Score("BLEU", value, f"tok:{tok}")])
        for name, value, tok in (("a", 10.0, "13a"), ("b", 20.0, "zh"), ("c", 30.0, "13a"))
    ]
    (score,) = mean_of(sets).scores
    assert score == Score("BLEU", 20.0, "tok:13a; tok:zh")


def test_bleu_is_computed_with_the_tokenizer_of_the_sets_own_language(both):
    config = load_config(both / "config.yaml")
    data = config.data.model_copy(update={"target_lang": "zh"})  # the config's default must not matter
    config = config.model_copy(update={"data": data})
    translator = Translator.load(both, "cpu")
    for languages in (("en", "de"), ("de", "en")):
        test = Sentences("x", "x", [("A dog.", ("Ein Hund.",))], None, languages)
        assert "tok:13a" in evaluate(translator, test, config.evaluate).scores[0].signature


def test_the_command_line_names_the_languages(both, cli):
    status, out, err = cli("translate", both, "A dog.")
    assert status == 2 and "--to must be one of de, en, the model's target languages" in err
    german = cli("translate", both, "--to", "de", "A dog sleeps.")
    english = cli("translate", both, "--to", "en", "A dog sleeps.")
    assert german[0] == english[0] == 0
    assert (
        german[1].strip()
        == Translator.load(both, "cpu").towards("de").translate(["A dog sleeps."])[0].translation
    )
    status, _, err = cli("translate", both, "--to", "fr", "A dog.")
    assert status == 2 and "--to must be a language the model writes (de, en), but is fr" in err
    status, _, err = cli("translate", both, "--to", "de", "--from", "fr", "A dog.")
    assert status == 2 and "--from must be a language the model reads (en, de), but is fr" in err


def test_a_model_of_one_language_takes_its_own_name_only(tiny_run, cli):
    plain = cli("translate", tiny_run, "A dog.")
    assert cli("translate", tiny_run, "--to", "de", "A dog.") == plain
    status, _, err = cli("translate", tiny_run, "--to", "en", "A dog.")
    assert status == 2 and "--to must be a language the model writes (de), but is en" in err


def test_a_language_has_the_name_the_model_gives_it(tiny_run):
    translator = Translator.load(tiny_run, "cpu")
    austrian = translator.towards("de_AT", "EN-gb")
    assert (austrian.source_lang, austrian.target_lang) == ("en", "de")
    with pytest.raises(InputError, match=r"`to` must be a language the model writes \(de\), but is xx"):
        translator.towards("xx")
    with pytest.raises(InputError, match=r"`from` must be a language the model reads \(en\), but is de"):
        translator.towards("de", "de")


def test_a_model_of_one_language_takes_a_set_of_another(tiny_run):
    """As one whose language has another code than the training corpora."""
    translator, config = Translator.load(tiny_run, "cpu"), load_config(tiny_run / "config.yaml")
    test = Sentences("x", "x", [("A dog.", ("Ein Hund.",))], None, ("nl", "de"))
    assert evaluate(translator, test, config.evaluate).scores
    with pytest.raises(InputError, match="the model translates en to de, but the set is"):
        translator.for_set(("de", "en"))


def test_a_model_that_is_asked_for_languages_takes_only_those(both):
    translator = Translator.load(both, "cpu")
    for languages, fits in ((("de_AT", "en"), True), (("en", "fr"), False), (("fr", "de"), False)):
        assert can_translate(translator.directions, True, languages) == fits
    with pytest.raises(InputError, match="the model translates en to de, de to en, but the set is en to fr"):
        translator.for_set(("en", "fr"))


@pytest.mark.parametrize(
    "direction, languages, fits",
    [
        (("en", "de"), ("en_GB", "de_AT"), True),
        (("en", "de"), ("nl", "de"), True),
        (("en", "de"), ("en", "nl"), True),
        (("en", "de"), ("de_AT", "en_GB"), False),
        (("en", "de"), ("nl", "en"), False),
        (("zh_Hans", "zh_Hant"), ("zh_Hans", "zh_Hant"), True),
        (("zh_Hans", "zh_Hant"), ("zh_Hant", "zh_Hans"), False),
        (("nb", "nn"), ("nn", "nb"), False),
        (("en", "en"), ("en", "en"), True),
        (("German", "English"), ("de", "en"), True),
    ],
)
def test_a_model_takes_no_set_of_the_other_direction(direction, languages, fits):
    assert can_translate([direction], False, languages) == fits


def test_a_validation_set_of_the_other_direction_is_refused_at_once(write_config, tmp_path):
    valid = {"toy": "valid", "source_lang": "de", "target_lang": "en"}
    with pytest.raises(InputError, match=r"data.valid must be .* \(en to de\), but toy valid is de to en"):
        train(load_config(write_config(data={"valid": valid})), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@needs("lab")
def test_systems_are_compared_in_the_direction_of_the_set(both, tiny_run, tmp_path, cli):
    status, _, err = cli("compare", both, tiny_run)
    assert status == 2 and "the model translates en to de, but the set is de to en" in err
    status, out, _ = cli("compare", both, tiny_run, "--to", "de", "--samples", "20")
    assert status == 0 and "en to de" in out and "de to en" not in out
    (tmp_path / "a.de").write_text("Ein Hund schläft.\n")
    (tmp_path / "a.en").write_text("A dog sleeps.\n")
    files = ["--source", tmp_path / "a.de", "--reference", tmp_path / "a.en"]
    status, _, err = cli("compare", both, *files)
    assert status == 2 and "--to must be one of de, en, the model's target languages" in err
    status, _, err = cli("compare", tiny_run, both, *files)
    assert status == 0  # the direction of the first
    page = tmp_path / "page.html"
    words = ["--to", "en", "--samples", "20", "--html", page]
    assert cli("compare", both, *files, *words)[0] == 0
    expected = Translator.load(both, "cpu").towards("en").translate(["Ein Hund schläft."])[0].translation
    assert html.escape(expected) in page.read_text()
    status, _, err = cli("compare", tiny_run, "--to", "en")
    assert status == 2 and "there is no test set into en; the model's test sets are en to de" in err
    translations = tmp_path / "a.en"
    status, _, err = cli("compare", f"x={translations}", f"y={translations}", *files, "--to", "en",
        "--target-lang", "en",
    )  # fmt: skip
    assert status == 2 and "--to requires a model, but all systems are files" in err


def test_evaluate_takes_the_sets_of_the_languages_named(both, cli):
    for words, there, back in (
        (["--to", "de_AT"], True, False), (["--from", "de"], False, True), (["--to", "en"], False, True),
    ):  # fmt: skip
        status, out, _ = cli("evaluate", both, *words)
        assert status == 0 and ("(en to de)" in out, "(de to en)" in out) == (there, back)
    status, _, err = cli("evaluate", both, "--from", "de", "--to", "de")
    assert status == 2 and "no test set from de into de; the model's test sets are en to de, de to en" in err


def test_of_two_variants_the_one_named_is_taken():
    sets = [Sentences(name, name, [], None, ("en", name)) for name in ("zh_Hans", "zh_Hant", "de_AT")]
    directions = [("en", "zh_Hans"), ("en", "zh_Hant"), ("en", "de")]
    for target, found in (("zh_Hant", ["zh_Hant"]), ("zh_Hans", ["zh_Hans"]), ("de_CH", ["de_AT"])):
        assert [each.name for each in select_by_language(sets, directions, target, None)] == found


@needs("lab")
def test_a_child_is_compared_only_where_it_and_its_parent_translate(both, child, cli):
    """And a set whose tag the parent does not have is translated without it."""
    _, run = child
    status, out, err = cli("evaluate", run)
    assert status == 0 and f"no comparison: {both} or {run} cannot translate it" in err
    assert f"{both}: translating toy test without <cap>, a tag which it does not have" in err
    assert "before" in out and "(de to en)" not in out.split("before")[1]
    assert "(en to de)" in out.split("before")[1]


def test_another_language_is_not_resumed(both, tmp_path, cli, monkeypatch):
    source, out = tmp_path / "a.txt", tmp_path / "out.txt"
    source.write_text("A dog.\nA cat.\nA bird.\n")
    killed_at_the_end(monkeypatch)
    command = ["translate", both, "-i", source, "-o", out]
    assert cli(*command, "--to", "de")[0] == 0
    out.write_bytes(out.read_bytes().splitlines(keepends=True)[0])
    status, _, err = cli(*command, "--to", "en", "--resume")
    assert status == 2 and 'another value of the setting languages ("en to de" then, "de to en" now)' in err
    assert cli(*command, "--to", "de", "--resume")[0] == 0


def test_a_direction_without_a_corpus_is_reported(both, cli):
    said = "note: the model was not trained to translate de to de"
    assert said in cli("translate", both, "--from", "de", "--to", "de", "Hund.")[2]
    assert "note" not in cli("translate", both, "--from", "en", "--to", "de", "Dog.")[2]


@needs("exchange")
def test_an_export_has_all_languages(both, tmp_path, cli):
    pytest.importorskip("ctranslate2")
    out = tmp_path / "ct2"
    status, _, err = cli("export", both, out)
    assert status == 0, err
    lines = [english for english, _ in toy.generate("test", 10)]
    for target in ("de", "en"):
        theirs = Translator.load(out, "cpu").towards(target).translate(lines)
        settings = {"stop_early": True}
        ours = Translator.load(both, "cpu", decode=settings).towards(target).translate(lines)
        assert sum(a.translation == b.translation for a, b in zip(ours, theirs)) >= 9
    status, _, err = cli("export", both, tmp_path / "argos", "--to", "argos")
    assert status == 2 and "data.train must have one target language, but has 2" in err


@needs("exchange")
def test_an_export_for_transformers_asks_for_a_language_as_its_run_does(both, tmp_path, cli):
    pytest.importorskip("transformers")
    status, _, err = cli("export", both, tmp_path / "hf", "--to", "huggingface")
    assert status == 0, err
    assert ">>de<<" in (tmp_path / "hf" / "README.md").read_text()


def test_temperature_is_of_directions(write_config):
    data = {"train": [THERE, {**THERE, "name": "more"}, BACK], "temperature": 2.0, "valid": BOTH["valid"]}
    config = load_config(write_config(data=data))
    assert config.data.temperature_groups == [0, 0, 1]
    one = load_config(write_config(data={"train": [THERE, {**THERE, "name": "more"}]}))
    assert one.data.temperature_groups == [0, 1]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"valid": {"from_train": {"share": 0.1}}}, "data.valid must not be from_train with several target"),
        ({"source_lang": "fr"}, "must be those of a training corpus, but none is fr to de"),
        (
            {"language_pieces": False},
            r"must be auto or true with several target languages \(de, en\) unless each training corpus has",
        ),
        ({"test": [{"toy": "test", "target_lang": "fr"}]}, r"\(de, en\), but a set is into fr"),
        (
            {"test": [{"sacrebleu": "wmt14", "reverse": True}]},
            "must have source_lang and target_lang instead",
        ),
        (
            {"test": [{"source": "a", "target": ["b", "c"], "reverse": True}]},
            "several references must not have re",
        ),
    ],
)
def test_what_does_not_fit_several_languages_is_refused(write_config, changes, message):
    with pytest.raises(InputError, match=message):
        load_config(write_config(data={**BOTH, "train": [
            {**THERE, "source_lang": "en", "target_lang": "de"},
            {**BACK, "source_lang": "en", "target_lang": "de"},
        ], **changes}))  # fmt: skip


def test_tags_may_ask_for_the_language_instead_of_language_pieces(write_config):
    data = {**BOTH, "language_pieces": False, "train": [{**THERE, "tag": "<de>"}, {**BACK, "tag": "<en>"}]}
    assert load_config(write_config(data=data)).data.control_pieces == ["<de>", "<en>"]


def test_a_child_may_write_another_language(tiny_run, write_config, tmp_path):
    """Fine-tuning a model of one direction on both: the pieces of the languages are new tags."""
    parent = shutil.copytree(tiny_run, tmp_path / "parent")
    values = {"init_from": str(parent), "tokenizer": {}, "model": {}}
    path = write_config("child.yaml", data=BOTH, train=SHORT)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}))
    child = train(load_config(path), tmp_path / "child")
    assert set(Tokenizer.load(child).control_ids) == {">>de<<", ">>en<<"}
    shutil.rmtree(parent)
    assert Translator.load(child, "cpu").towards("en").translate(["Ein Hund."])[0].source == "Ein Hund."


@needs("lab")
def test_kept_translations_are_those_into_the_same_language(both, tmp_path, monkeypatch):
    """Two sets with the same sources: the translations into one language are not taken for the other's."""
    from transformer_mt.companions.lab import translated as module
    from transformer_mt.companions.lab.translated import translated

    evaluate = module.evaluate

    def marked(translator, test, *given, **options):  # the model translates alike into both
        found = evaluate(translator, test, *given, **options)
        return replace(found, rows=[{**row, "translation": test.languages[1]} for row in found.rows])

    monkeypatch.setattr(module, "evaluate", marked)
    run = shutil.copytree(both, tmp_path / "run")
    sentences = [("A dog sleeps.", ("Ein Hund schläft.",)), ("A cat sings.", ("Eine Katze singt.",))]
    sets = [Sentences(f"test-{target}", target, sentences, None, ("en", target)) for target in ("de", "en")]
    into_german, into_english = translated(RunFolder(run), sets, "cpu")
    again = translated(RunFolder(run), sets[::-1], "cpu")
    assert again == [into_english, into_german] and into_german != into_english


def test_a_child_of_one_direction_keeps_asking_its_parent_for_the_language(child):
    path, run = child
    assert load_config(run / "config.yaml").data.language_pieces is True
    requests = []
    translator = Translator.load(run, "cpu")
    search = translator.engine.search
    translator.engine.search = lambda r, *rest: (requests.extend(r), search(r, *rest))[1]
    translator.translate([english for english, _ in toy.generate("test", 10)])
    piece = translator.tokenizer.control_ids[">>de<<"]
    assert all(request.src[0] == piece for request in requests)
    train(load_config(path), run)  # and it is resumed


def test_the_same_pair_in_two_languages_is_no_duplicate(write_config, tmp_path):
    from transformer_mt.preparation import prepare

    (tmp_path / "a.tsv").write_text("en\tnb\n" + "".join(f"A dog {i}.\tEn hund {i}.\n" for i in range(60)))
    corpus = {"file": str(tmp_path / "a.tsv"), "columns": ["en", "nb"]}
    sets = [{"toy": "valid", "size": 5, "source_lang": "en", "target_lang": "de"}]
    train_sets = [
        {"toy": "train", "size": 400},
        {**corpus, "target_lang": "nb", "name": "nb"},
        {**corpus, "target_lang": "nn", "name": "nn"},
    ]
    config = load_config(write_config(data={"train": train_sets, "valid": sets, "test": []}))
    counts = {corpus.name: corpus.counts for corpus in prepare(config).corpora}
    assert counts["nb"]["kept"] == counts["nn"]["kept"] == 60


def test_a_test_pair_is_left_out_of_training_in_both_directions(write_config):
    from transformer_mt.preparation import prepare

    data = {**BOTH, "train": [{"toy": "train", "size": 400}, {"toy": "test", "size": 30, "reverse": True}]}
    data |= {"valid": [{"toy": "valid", "size": 20}], "test": [{"toy": "test", "size": 30}]}
    (_, back) = prepare(load_config(write_config(data=data))).corpora
    assert back.counts["in validation or test"] == 30


def test_a_reversed_corpus_that_contradicts_the_languages_is_refused(write_config):
    with pytest.raises(InputError, match="must be those of a training corpus, but none is en to de"):
        load_config(write_config(data={"train": {"toy": "train", "reverse": True}}))


def test_a_tag_is_no_language_piece(write_config):
    with pytest.raises(InputError, match="tag"):
        load_config(write_config(data={"train": {"toy": "train", "tag": ">>fr<<"}}))
