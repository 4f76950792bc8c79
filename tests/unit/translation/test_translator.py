""""""

import copy
import math
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.conftest import ROOT, TINY
from tests.helpers.engines import TableEngine, planned_lines
from transformer_mt import Translator
from transformer_mt.config import DecodeConfig, TokenizerConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import EOS, UNK, Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.scoring import Pair, pairs_of_files, score
from transformer_mt.run_folder import RunFolder
from transformer_mt.search.hypothesis import Hypothesis

ODD = [
    "",
    "   ",
    "\t",
    "A dog.",
    "\x00\x01",
    "😀😀",
    "中文句子",
    "x" * 300,
    "word " * 1000,
    "\u2028",
    "a\u2028b\x0bc\x85d",
    "The dog sleeps.",
    "\ufeff",
]


@pytest.fixture(scope="module")
def translator(tiny_run):
    translator = Translator.load(tiny_run, device="cpu")
    translator.config = RunFolder(tiny_run).config()
    return translator


@pytest.fixture(scope="module")
def sentences():
    return [english for english, _ in toy.generate("test", 30)]


def test_an_unknown_token_is_never_written(tiny_run, tmp_path):
    """It has no text; the model here would write nothing else."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    weights = load_file(run / "model.safetensors")
    for name, weight in weights.items():
        if len(weight) == TINY["tokenizer"]["vocab_size"]:
            weights[name][UNK] = 100 * weights[name].abs().max() * weights[name][EOS].sign()
    save_file(weights, run / "model.safetensors")
    for search in ({"beam": 3}, {"search": "sample", "samples": 3}):
        for result in Translator.load(run, device="cpu", decode=search).translate(
            ["The dog sleeps.", "A cat."]
        ):
            assert "<unk>" not in result.tokens and "⁇" not in result.translation


def test_translate_keeps_one_line_per_line(translator):
    assert translator.translate([]) == []
    results = translator.translate(ODD)
    assert [result.source for result in results] == ODD
    assert all("\n" not in result.translation for result in results)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=12), max_size=5
    )
)
def test_any_lines_give_as_many(translator, lines):
    results = translator.translate(lines)
    assert [result.source for result in results] == lines
    assert not any("\n" in result.translation or "\r" in result.translation for result in results)


def test_what_could_not_be_done_is_said(translator):
    empty, long, fine = translator.translate(["", "dog " * 500, "The dog sleeps."])
    assert (empty.translation, empty.flags) == ("", ["empty"])
    assert empty.problems == ["there is nothing to translate"]
    assert re.fullmatch(r"the source was translated in \d+ parts: it is too long for one", long.problems[0])
    assert long.flags[0] == "split"
    assert not any("source" in problem for problem in fine.problems)


def test_n_best_is_sorted_and_begins_with_the_best(translator, sentences):
    sentences = sentences[:10]
    for one, five in zip(translator.translate(sentences), translator.translate(sentences, n_best=5)):
        assert five.n_best[0].translation == one.translation == five.translation
        assert 1 < len({candidate.translation for candidate in five.n_best}) == len(five.n_best) <= 5
        scores = [candidate.score for candidate in five.n_best]
        assert scores == sorted(scores, reverse=True)
    with pytest.raises(InputError, match=r"`n_best` must be at most `decode.beam` \(5\), but is 6"):
        translator.translate(sentences, n_best=6)
    with pytest.raises(InputError, match="`n_best` must be at least 1, but is 0"):
        translator.translate(sentences, n_best=0)


def test_the_length_penalty_and_the_ratio_of_lengths_are_taken(tiny_run, sentences):
    short, long, ratio = (
        Translator.load(tiny_run, device="cpu", decode=settings).translate(sentences[:12])
        for settings in (
            {"length_penalty": 0.0},
            {"length_penalty": 3.0},
            {"max_length_ratio": 0.1, "length_penalty": 5.0},
        )
    )
    assert sum(len(r.tokens) for r in short) < sum(len(r.tokens) for r in long)
    assert all(len(result.tokens) <= 0.1 * 30 + 10 for result in ratio)


def test_a_length_limit_is_kept_and_told(translator, sentences):
    results = translator.translate(sentences, max_length=3)
    assert all(len(result.tokens) <= 3 for result in results)
    cut = [result for result in results if "truncated" in result.flags]
    assert cut and all("the translation was stopped at 3 tokens" in result.problems for result in cut)


@pytest.mark.parametrize("end, cut", [(0.9, False), (0.1, True)])
def test_a_translation_that_ends_at_its_limit_by_itself_is_not_cut(translator, end, cut):
    sure = altered(translator)

    class Sure(type(sure.engine)):
        def token_log_probs(self, pairs):
            return [[*super().token_log_probs(pairs)[0][:-1], math.log(end)]]

    sure.engine = Sure(translator.engine.model, translator.tokenizer)
    (result,) = sure.translate(["The dog sleeps."], max_length=2)
    assert len(result.tokens) == 2 and ("truncated" in result.flags) == cut


def test_a_given_prefix_does_not_count_as_written(translator):
    (result,) = translator.translate(["The dog sleeps."], max_length=2, prefixes=["Der alte Mann sieht"])
    given = len(translator.tokenizer.encode_tgt(["Der alte Mann sieht"])[0])
    assert given < len(result.tokens) <= given + 2
    if "truncated" in result.flags:
        assert f"the translation was stopped at {given + 2} tokens" in result.problems


def test_bfloat16_translates_too(tiny_run, sentences):
    results = Translator.load(tiny_run, device="cpu", dtype="bfloat16").translate(sentences[:8])
    assert len(results) == 8


def altered(translator, **settings):
    """The same model with other settings of its search, checked as a YAML's are."""
    decode = DecodeConfig.model_validate({**translator.decode.model_dump(), **settings})
    return Translator(translator.engine, translator.tokenizer, translator.config, decode)


SEARCHES = [
    {},
    {"beam": 1},
    {"length_penalty_form": "gnmt", "length_penalty": 0.6},
    {"no_repeat_ngram": 2, "min_length": 3, "banned": ["Hund"]},
    {"search": "sample", "samples": 4, "top_k": 10, "top_p": 0.8, "temperature": 0.8, "no_repeat_ngram": 2},
    {"search": "mbr", "samples": 5},
]


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_lines_translation_is_its_own(translator, sentences, search, data):
    """It depends on no batch mate, no batch size, no order, and not on how many of the best are shown."""
    picked = data.draw(st.lists(st.sampled_from([*sentences, *ODD[:7]]), min_size=1, max_size=6))
    size = data.draw(st.sampled_from([16, 100, 4096]))
    one = altered(translator, **search)
    several = altered(translator, **search, batch_tokens=size)
    width = one.decode.beam if one.decode.search == "beam" else one.decode.samples
    together = several.translate(picked, n_best=data.draw(st.integers(1, width)))
    for line, result in zip(picked, together):
        (alone,) = one.translate([line])
        assert alone.translation == result.translation == result.n_best[0].translation
        assert alone.score == pytest.approx(result.score, abs=1e-4)
        scores = [candidate.score for candidate in result.n_best]
        assert scores == sorted(scores, reverse=True)


@pytest.fixture
def threads():
    """Three threads for torch, as on a machine with three cores; the suite gives each worker one."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("search", [{}, {"search": "sample", "samples": 3}], ids=str)
def test_threads_and_concurrent_callers_change_nothing(translator, sentences, threads, search):
    """They once shared the hooks that record attention: alignments were those of other lines."""
    lines, options = sentences[:12], {"align": True, "max_length": 16}
    expected = [altered(translator, **search).translate([line], **options)[0] for line in lines]

    def ask(_):
        return altered(translator, **search, batch_tokens=100).translate(lines, **options)

    with ThreadPoolExecutor(4) as callers:
        for results in callers.map(ask, range(4)):
            assert [r.translation for r in results] == [r.translation for r in expected]
            assert [r.alignment for r in results] == [r.alignment for r in expected]
            assert [r.score for r in results] == pytest.approx([r.score for r in expected], abs=1e-4)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_the_log_probability_is_what_scoring_gives_the_pair(translator, sentences, search):
    tokenizer = translator.tokenizer
    for result in altered(translator, **search).translate(sentences[:8], n_best=1):
        tgt = [tokenizer.tgt.piece_to_id(piece) for piece in result.tokens]
        src = tokenizer.encode_src([result.source])[0]
        (scored,) = score(translator, [Pair("a:1", result.source, "", [(src, tgt)])])
        assert result.log_prob == pytest.approx(scored.log_prob, abs=1e-3)
        if search in ({}, {"beam": 1}):
            assert result.score == pytest.approx(scored.score, abs=1e-4)


def test_an_engine_that_is_not_installed_is_refused(tiny_run):
    """It was searched by torch without a word."""
    with pytest.raises(InputError, match="there is no engine ctranslate3; those installed are torch"):
        Translator.load(tiny_run, engine="ctranslate3")


@pytest.mark.parametrize("search", [{"beam": 1}, {"search": "mbr", "samples": 2}], ids=str)
def test_what_no_translation_satisfies_is_said(translator, search):
    """By mbr the command ended with a traceback."""
    strict = altered(translator, **search, no_repeat_ngram=1, min_length=460)  # of 450 tokens
    (result,) = strict.translate(["The dog sleeps."])
    assert result.translation == "" and "no_hypothesis" in result.flags
    assert "the rules of the search allow no translation" in result.problems


TWO = {"The dog sleeps.": ["Der Hund schläft.", "Hund."], "A cat sings.": ["Eine Katze singt.", "Katze."]}
TOGETHER = "The dog sleeps. A cat sings."


def answering(translator, answers, target_lang="de", **settings):
    """The translator with an engine that answers from a table."""
    config = translator.config
    config = config.model_copy(update={"data": config.data.model_copy(update={"target_lang": target_lang})})
    decode = DecodeConfig.model_validate({**translator.decode.model_dump(), **settings})
    return Translator(TableEngine(translator.tokenizer, answers), translator.tokenizer, config, decode)


def test_each_sentence_of_a_line_is_translated_by_itself(translator):
    """A model trained on single sentences drops all but one of several."""
    table = answering(translator, TWO)
    (result,) = table.translate(["The dog sleeps.  A cat sings."])
    assert result.translation == "Der Hund schläft.  Eine Katze singt." and result.source.endswith(
        "  A cat sings."
    )
    assert result.flags == ["split"] and result.problems == []
    assert [segment["source"] for segment in result.segments] == ["The dog sleeps.", "A cat sings."]
    assert (result.score, result.log_prob) == (-1.0, -2.0)
    assert table.engine.calls == [["The dog sleeps.", "A cat sings."]]
    assert answering(translator, TWO, target_lang="zh").translate([TOGETHER])[0].translation == (
        "Der Hund schläft.Eine Katze singt."
    )


def test_a_line_stays_whole_where_sentences_are_not_split(translator):
    whole = answering(translator, {TOGETHER: ["Beides."]}, split_sentences=False)
    (result,) = whole.translate([TOGETHER])
    assert result.translation == "Beides." and result.flags == [] and result.segments == []


def test_the_n_best_of_a_line_join_the_n_best_of_its_sentences(translator):
    (result,) = answering(translator, {**TWO, "A cat sings.": ["Eine Katze singt."]}).translate(
        [TOGETHER], n_best=2
    )
    assert [c.translation for c in result.n_best] == ["Der Hund schläft. Eine Katze singt."]
    (result,) = answering(translator, TWO).translate([TOGETHER], n_best=2)
    assert [c.translation for c in result.n_best] == ["Der Hund schläft. Eine Katze singt.", "Hund. Katze."]


def test_the_prefix_of_a_line_is_that_of_its_first_sentence(translator):
    for prefix, requests in (("Der", ["Der", ""]), ("Der Hund schläft. Eine", ["Der Hund schläft. Eine"])):
        table = answering(translator, {**TWO, TOGETHER: ["Der Hund schläft. Eine Katze singt."]})
        table.translate([TOGETHER], prefixes=[prefix])
        assert [table.tokenizer.decode_tgt(ids) for ids in table.engine.prefixes] == requests


def test_a_prefix_in_characters_the_model_does_not_know_is_refused(translator):
    """A vocabulary without bytes has no tokens for them."""
    known = list(toy.generate("train", 200))
    tokenizer = Tokenizer.train(known, TokenizerConfig(vocab_size=200, byte_fallback=False))
    strict = Translator(TableEngine(tokenizer, {}), tokenizer, translator.config)
    with pytest.raises(
        InputError, match="a prefix must be written in characters the model knows, but is '狗'"
    ):
        strict.translate(["The dog sleeps."], prefixes=["狗"])


def test_texts_are_shown_once_in_an_n_best_list(translator):
    (result,) = answering(translator, {"A.": ["Ein Hund", "Ein Hund", "Hund"]}).translate(["A."], n_best=2)
    assert [candidate.translation for candidate in result.n_best] == ["Ein Hund", "Hund"]


def test_alignments_count_over_all_sentences(translator):
    (result,) = translator.translate([TOGETHER], align=True)
    first = len(translator.tokenizer.encode_src(["The dog sleeps."])[0])
    size = result.segments[0]["tokens"]
    assert max(result.alignment[:size]) < first <= min(result.alignment[size:])
    assert len(result.alignment) == len(result.tokens)
    assert max(result.alignment) < len(result.source_tokens)
    assert "".join(result.source_tokens).replace("▁", " ").split() == TOGETHER.split()


def test_long_text_is_translated_sentence_by_sentence(translator):
    alone = translator.translate(["The dog sleeps.", "A cat sings."])
    for split in (True, False):  # also without it: the line is too long for the model
        line = "  " + "The dog sleeps. A cat sings. " * 12
        (long,) = altered(translator, split_sentences=split).translate([line])
        # The white space around the line stays.
        assert long.translation == f"  {' '.join([alone[0].translation, alone[1].translation] * 12)} "
        assert long.log_prob == pytest.approx(12 * (alone[0].log_prob + alone[1].log_prob), abs=1e-3)
        assert bool(long.problems) is not split or "truncated" in long.flags


@pytest.mark.parametrize("line", ["dog, " * 100, "a.b,c" * 90, "ö、" * 200])
def test_every_part_of_a_line_reaches_the_engine_uncut(translator, line):
    (planned,) = planned_lines(translator, line)
    assert all(len(unit.src) < translator.max_src_length for unit in planned.units)
    pieces = translator.tokenizer.encode_src([unit.segment.text for unit in planned.units])
    assert [unit.src for unit in planned.units] == pieces
    assert "".join("".join(unit.segment.text for unit in planned.units).split()) == "".join(line.split())


def test_protected_text_passes_through(translator):
    (result,) = translator.translate(["The <b>dog</b> sees {name_1} today."], protect=r"</?b>|\{\w+\}")
    assert re.findall(r"</?b>|\{\w+\}", result.translation) == ["<b>", "</b>", "{name_1}"]
    assert "protected_split" in result.flags
    (only,) = translator.translate(["{name_1} ?!"], protect=r"\{\w+\}")
    assert only.translation == "{name_1} ?!" and only.problems == []
    (result,) = translator.translate(["The dog sees <1>, <2> and <3>."], protect=r"<\d>")
    # What has nothing to translate passes through, too
    assert re.search("<1>, <2> .*<3>[.]$", result.translation)
    for line, first in (("<1> dogs run.", "Heute <1> "), ("Dogs run <1>.", "Heute")):
        (result,) = translator.translate([line], protect=r"<\d>", prefixes=["Heute"])
        assert result.translation.startswith(first)
    (none,) = translator.translate(["The dog sleeps."], protect=r"\{\w+\}")
    assert none == translator.translate(["The dog sleeps."])[0]


KEPT = {"The {a} dog.": ["Der Hund.", "Der {a} Hund.", "{a} Hund.", "Der Hund {b}."]}


def test_of_the_n_best_those_are_taken_that_kept_protected_text(translator):
    table = answering(translator, KEPT)
    (result,) = table.translate(["The {a} dog."], protect=r"\{\w\}")
    assert result.translation == "Der {a} Hund." and result.flags == [] and len(result.n_best) == 1
    assert table.engine.calls == [["The {a} dog."]]  # nothing had to be translated apart
    (result,) = table.translate(["The {a} dog."], n_best=4, protect=r"\{\w\}")
    assert [c.translation for c in result.n_best] == ["Der {a} Hund.", "{a} Hund."]


def test_lines_whose_protected_text_was_lost_are_translated_around_it_in_one_batch(translator):
    lines = ["The {a} dog.", "A {b} cat.", "The {a} dog."]
    lost = {"The {a} dog.": ["Der Hund."], "A {b} cat.": ["Katze."]}
    spans = {"The": ["Der"], "dog.": ["Hund."], "A": ["Eine"], "cat.": ["Katze."]}
    table = answering(translator, {**lost, **spans})
    results = table.translate(lines, protect=r"\{\w\}")
    assert [r.translation for r in results] == ["Der {a} Hund.", "Eine {b} Katze.", "Der {a} Hund."]
    assert all("protected_split" in result.flags for result in results)
    assert table.engine.calls == [lines, ["The", "dog.", "A", "cat.", "The", "dog."]]


def test_protected_text_of_several_sentences_is_not_divided(translator):
    line = "He said %%Go home. Come back. Be good.%% to us. It runs."
    segments = [unit.segment.text for unit in planned(translator, line, r"%%.*?%%")]
    assert segments == [line.removesuffix(" It runs."), "It runs."]
    (whole,) = planned(translator, "He ran.  It runs.", r"\.  I")
    assert whole.segment.text == "He ran.  It runs."


def planned(translator, line, protected):
    (found,) = planned_lines(translator, line, protect=protected)
    return found.units


def test_where_nothing_is_protected_the_translation_is_the_same(translator):
    (plain,) = translator.translate(["The dog sleeps."])
    said = re.escape(plain.translation.split()[0])  # stands in the translation alone
    assert translator.translate(["The dog sleeps."], protect=said) == [plain]


def test_of_samples_the_chosen_one_is_judged_and_each_text_is_shown_once(translator):
    src = translator.tokenizer.encode_src(["The dog sleeps."])[0]
    short, long = translator.tokenizer.encode_tgt(["Hund", "Der Hund schläft heute im Garten"])
    chooser = altered(translator, search="mbr", samples=6)

    class Draws(type(chooser.engine)):
        def search(self, requests, settings, n_best):
            drawn = [Hypothesis([*short, EOS], -1.0, -1.0), *[Hypothesis([*long, EOS], -9.0, -9.0)] * 5]
            return iter([(0, drawn)])

    chooser.engine = Draws(translator.engine.model, translator.tokenizer)
    (result,) = chooser.translate(["The dog sleeps."], n_best=6, max_length=len(long))
    assert result.translation == "Der Hund schläft heute im Garten" and len(result.n_best) == 2
    (end,) = [each[-1] for each in translator.engine.token_log_probs([(src, long)])]
    assert end < math.log(0.5) and "truncated" in result.flags


def test_results_come_as_soon_as_they_and_those_before_are_done(translator, sentences):
    small, asked = altered(translator, batch_tokens=60), []

    class Watched(type(small.engine)):
        def search(self, *words):
            for found in super().search(*words):
                asked.append(found[0])
                yield found

    small.engine = Watched(translator.engine.model, translator.tokenizer)
    lines = sorted(sentences, key=len, reverse=True)
    assert next(small.stream(lines)).source == lines[0]
    assert len(asked) < len(lines)


@pytest.mark.parametrize("search", [{}, {"beam": 1}, {"search": "sample", "samples": 2}], ids=str)
def test_logits_that_are_not_finite_are_reported_at_any_step(translator, search):
    """Not as rules that leave no translation. Here they break at the third step."""
    strict = altered(translator, min_length=9, **search)

    class Breaking(type(translator.engine.model)):
        def step(self, tokens, state, recorder=None):
            logits, after = super().step(tokens, state, recorder)
            return (logits * float("nan") if state.length == 2 else logits), after

    model = copy.copy(translator.engine.model)
    model.__class__ = Breaking
    strict.engine = type(strict.engine)(model, translator.tokenizer)
    with pytest.raises(
        WorkError, match="the model's output is not finite; its weights are damaged, or too large"
    ):
        strict.translate(["The dog sleeps."])


def test_options_that_do_not_fit_are_refused(translator, sentences):
    for options, message in [
        ({"prefixes": ["a"]}, "there must be one prefix per line .30., but there are 1"),
        ({"protect": ["x"]}, "there must be one pattern per line .30., but there are 1"),
        ({"prefixes": ["Der\nHund"] * 30}, r"a prefix must be one line, but is 'Der\\nHund'"),
        ({"max_length": -5}, "max_length must be at least 1, but is -5"),
        ({"max_length": "5"}, "max_length must be a whole number of at least 1, but is '5'"),
        ({"n_best": 1.5}, "`n_best` must be at least 1, but is 1.5"),
        ({"prefixes": [None] * 30}, "prefixes must be texts, but number 1 is None; an empty one is ''"),
        ({"prefixes": "x" * 30}, "prefixes must be a list of texts, but are one text"),
    ]:
        with pytest.raises(InputError, match=message):
            translator.translate(sentences, **options)
    longer = copy.copy(translator)
    longer.decode = translator.decode.model_copy(update={"min_length": 6})
    with pytest.raises(InputError, match=r"max_length must be at least 6, but is 2"):
        longer.translate(sentences, max_length=2)
    with pytest.raises(InputError, match=r"lines must be a list of texts, but are one text; give \[text\]"):
        translator.translate("The dog sleeps.")


def test_an_ensemble_ends_where_the_first_of_its_models_does(translator):
    config = translator.config
    short = config.model_copy(
        update={
            "data": config.data.model_copy(update={"max_length": 20}),
            "model": config.model.model_copy(update={"position": "learned"}),
        }
    )
    both = Translator(translator.engine, translator.tokenizer, config, others=[short])
    assert both.max_src_length == both.max_positions == 20 and translator.max_positions is None


@pytest.fixture(scope="module")
def other_run(tiny_run, tmp_path_factory):
    """The tiny run with other weights and shorter sources, of the same vocabulary."""
    folder = tmp_path_factory.mktemp("other") / "run"
    shutil.copytree(tiny_run, folder)
    generator = torch.Generator().manual_seed(5)
    weights = load_file(folder / "model.safetensors")
    weights = {name: w + 0.1 * torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    save_file(weights, folder / "model.safetensors")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(text.replace("max_length: 64", "max_length: 20"), encoding="utf-8")
    return folder


def test_an_ensemble_gives_each_token_the_mean_of_its_models_probabilities(
    translator, tiny_run, other_run, sentences
):
    both = Translator.load(tiny_run, device="cpu", ensemble=[other_run])
    assert (translator.max_src_length, both.max_src_length) == (64, 20)
    other = Translator.load(other_run, device="cpu")
    tokenizer = translator.tokenizer
    pairs = list(zip(tokenizer.encode_src(sentences[:6]), tokenizer.encode_tgt(sentences[6:12])))
    asked = (each.engine.token_log_probs(pairs) for each in (translator, other, both))
    for alone, beside, together in zip(*asked):
        mean = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(alone, beside)]
        assert together == pytest.approx(mean, abs=1e-4)
        assert together != pytest.approx(alone, abs=1e-3)
    scores = [[round(r.score, 3) for r in each.translate(sentences)] for each in (translator, other, both)]
    assert scores[2] not in scores[:2]


def test_models_with_other_vocabularies_do_not_translate_together(tiny_run, tmp_path):
    for name in ("config.yaml", "model.safetensors"):
        (tmp_path / name).write_bytes((tiny_run / name).read_bytes())
    pairs = [(english, german) for english, german in toy.generate("test", 300)]
    Tokenizer.train(pairs, TokenizerConfig(vocab_size=450)).save(tmp_path)
    with pytest.raises(
        InputError, match="must have the tokenizer of .* to translate together, but has another"
    ):
        Translator.load(tiny_run, device="cpu", ensemble=[tmp_path])


def test_the_words_of_alignments_are_those_of_the_line(translator, sentences):
    """Also of several sentences, with white space around, protected text kept or translated around."""
    lines = [*sentences[:5], "  The dog sleeps.  A cat sings. ", "See {a_b} and {c} now.", ""]
    for result in translator.translate(lines, align=True, n_best=2, protect=r"\{\w+\}"):
        for candidate in result.n_best:
            sources = [span for segment in candidate.aligned for span in segment.source]
            targets = [span for segment in candidate.aligned for span in segment.target]
            assert "".join(result.source[slice(*span)] for span in sources) == "".join(result.source.split())
            joined = "".join(candidate.translation[slice(*span)] for span in targets)
            assert joined == "".join(candidate.translation.split())
            for segment in candidate.aligned:
                assert segment.weights.shape == (len(segment.target), len(segment.source))
                for source, target in segment.links():
                    kept = result.source[slice(*source)]
                    if kept in ("{a_b}", "{c}"):
                        assert candidate.translation[slice(*target)] == kept


def test_each_line_has_its_own_pattern(translator):
    lines = ["See XYZ now."] * 2
    first, second = translator.translate(lines, protect=["XYZ", None])
    assert "XYZ" in first.translation
    assert second.translation == translator.translate(lines[:1])[0].translation


def test_a_carriage_return_around_protected_text_ends_no_line(translator):
    table = altered(translator, beam=1)
    (result,) = table.translate(["mothers \rhttp://a.b/c?d=e"], protect=r"http\S+")
    assert "\r" not in result.translation and "http://a.b/c?d=e" in result.translation


def test_protected_text_that_is_the_whole_line_is_not_suspiciously_long(translator):
    line = "dog {name_1} {name_2} {name_3} {name_4} {name_5} {name_6} {name_7}"
    lost = answering(translator, {line: ["Hund"], "dog": ["Hund"]})
    (result,) = lost.translate([line], protect=r"\{\w+\}")
    assert "protected_split" in result.flags and "length_ratio" not in result.flags


def test_invisible_characters_change_nothing_but_the_places_of_words(translator):
    plain, hyphened = translator.translate(["The dog sleeps.", "The d\u00adog sle\u200beps."], align=True)
    assert hyphened.translation == plain.translation
    words = [
        [result.source[begin:end] for begin, end in result.n_best[0].aligned[0].source]
        for result in (plain, hyphened)
    ]
    assert words == [["The", "dog", "sleeps", "."], ["The", "d\u00adog", "sle\u200beps", "."]]


# Scores of given translations.


def test_a_pair_that_is_too_long_is_named_by_its_line(tmp_path):
    for side, text in (("en", "Dog.\nThe old dog sees a bird.\n"), ("de", "Er.\nEr.\n")):
        (tmp_path / f"a.{side}").write_text(text, encoding="utf-8")
    translator = Translator.load(ROOT / "tests" / "golden" / "run")
    translator.planner.max_positions = 6
    (pairs,) = pairs_of_files(translator, str(tmp_path / "a.en"), str(tmp_path / "a.de"), 10)
    with pytest.raises(InputError, match=r"a\.en:2: each side must have at most 6 tokens, but has \d+$"):
        score(translator, pairs)
