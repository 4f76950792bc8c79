"""Translations that must have the terms of a glossary."""

import dataclasses

import numpy as np
import pytest

from tests.conftest import TINY
from tests.helpers.engines import TableEngine
from transformer_mt import Translator
from transformer_mt.companions.terms.glossary import Glossary, Term
from transformer_mt.companions.terms.glossary_resource import GlossaryResource
from transformer_mt.companions.terms.required_terms import AS, TERM, TERM_END, TermTokens, tokens_of_span
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.messages import say_once
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.alignment import align_segment
from transformer_mt.translation.stages.call import Resources

SOURCE = "The dog sees the old house."


def glossary(**terms):
    return Glossary(
        [Term(source, (target,) if target else ()) for source, target in terms.items()], ("en", "de")
    )


def resource(**terms):
    return GlossaryResource(glossary(**terms))


@pytest.fixture(scope="module")
def reading_terms():
    """A vocabulary with the pieces of terms."""
    return Tokenizer.train(toy.generate("train", 400), TokenizerConfig(vocab_size=400), [TERM, AS, TERM_END])


class Watching(TableEngine):
    """Answers whatever it is asked with one text, and remembers the requests."""

    def __init__(self, tokenizer, *answers):
        super().__init__(tokenizer, {})
        self.texts, self.requests = answers, []

    def search(self, requests, settings, n_best):
        self.requests += requests
        self.answers = {tuple(request.src): self.texts for request in requests}
        return super().search(requests, settings, n_best)


def translator_of(tokenizer, engine, terms):
    config = Config.model_validate({"name": "terms", **TINY})
    return Translator(
        engine,
        tokenizer,
        config,
        resources=Resources(by_name={"glossary": GlossaryResource(terms)} if terms else {}),
    )


def test_a_model_that_reads_terms_gets_them_in_the_source(reading_terms):
    engine = Watching(reading_terms, "Der Kater sieht das alte Haus.")
    translator = translator_of(reading_terms, engine, glossary(dog="Kater"))
    (result,) = translator.translate([SOURCE])
    pieces = TermTokens.of(reading_terms)
    (request,) = engine.requests
    plain, spans = reading_terms.spans_src(SOURCE)
    begin = next(i for i, (first, last) in enumerate(spans) if last > 4)
    end = next(i for i, (first, last) in enumerate(spans) if last >= 7) + 1
    target = reading_terms.encode_src(["Kater"])[0]
    assert request.src == pieces.inserted(plain, [(begin, end, target)]) != plain
    assert result.flags == [] and result.translation == "Der Kater sieht das alte Haus."


def test_a_source_without_terms_is_what_it_was(reading_terms):
    engine = Watching(reading_terms, "Die Katze sieht das alte Haus.")
    translator_of(reading_terms, engine, glossary(bird="Vogel")).translate([SOURCE])
    assert [request.src for request in engine.requests] == reading_terms.encode_src([SOURCE])


def test_a_source_that_would_be_over_long_is_not_lengthened(reading_terms):
    engine = Watching(reading_terms, "Hund")
    translator = translator_of(reading_terms, engine, glossary(dog="Kater " * 40))
    (result,) = translator.translate(["The dog sees a dog and a dog and a dog."])
    assert TermTokens.of(reading_terms).term not in engine.requests[0].src
    assert "missing_term" in result.flags


def test_a_candidate_with_the_terms_wins_and_a_missing_one_is_flagged(reading_terms):
    engine = Watching(reading_terms, "Der Hund sieht.", "Der Kater sieht.")
    (result,) = translator_of(reading_terms, engine, glossary(dog="Kater")).translate([SOURCE])
    assert result.translation == "Der Kater sieht." and "missing_term" not in result.flags
    (result,) = translator_of(reading_terms, engine, glossary(dog="Vogel", house="")).translate([SOURCE])
    assert "missing_term" in result.flags
    assert any(
        "not translated as in the glossary: 'dog' (Vogel), 'house' (house)" in p for p in result.problems
    )


def test_a_term_is_written_within_the_positions_of_the_model(reading_terms):
    engine = Watching(reading_terms, "Der Hund sieht.")
    engine.max_positions, engine.selects = 30, True
    terms = glossary(dog="Kater", house="Gebäude")
    translator_of(reading_terms, engine, terms).translate(["The dog sees the old house and a dog " * 2])
    assert max(request.limit for request in engine.requests) == 30
    assert any(request.wanted for request in engine.requests)


def test_attention_to_terms_belongs_to_the_words_of_the_source(reading_terms):
    pieces = TermTokens.of(reading_terms)
    plain, spans = reading_terms.spans_src("The dog sees.")
    target = reading_terms.encode_src(["Kater"])[0]
    begin, end = tokens_of_span(spans, 4, 7)
    src = pieces.inserted(plain, [(begin, end, target)])
    tgt = reading_terms.encode_tgt(["Der Kater sieht."])[0]
    attention = np.zeros((len(tgt), len(src)), np.float32)
    attention[:, src.index(pieces.as_) + 1] = 1.0  # all look at the translation of the term
    positions = pieces.text_positions(src)
    aligned = align_segment(reading_terms, "The dog sees.", src, tgt, attention, positions=positions)
    assert ["The dog sees."[slice(*span)] for span in aligned.source][1] == "dog"
    assert aligned.attention[0].tolist() == pytest.approx([0, 1, 0, 0])


@pytest.fixture(scope="module")
def plain(tiny_run):
    return Translator.load(tiny_run, device="cpu")


@pytest.mark.parametrize("search", [{"beam": 4}, {"beam": 1}])
def test_a_model_that_does_not_read_terms_is_made_to_write_them(tiny_run, search, said):
    say_once.cache_clear()
    translator = Translator.load(tiny_run, device="cpu", decode=search)
    lines = [english for english, _ in toy.generate("test", 12)]
    terms = glossary(**{word: "Zebra" for line in lines for word in line.lower().strip(".").split()[2:3]})
    results = translator.with_resources(glossary=GlossaryResource(terms)).translate(lines)
    assert all("Zebra" in result.translation for result in results)
    assert not any("missing_term" in result.flags for result in results)
    notes = [text for text in said if "the model was not trained for glossaries" in text]
    assert len(notes) == 1
    # Lines without terms, and the same lines without a glossary, are what they were.
    assert [r.translation for r in translator.translate(lines)] == [
        r.translation
        for r in translator.with_resources(glossary=resource(xylophone="Zebra")).translate(lines)
    ]


def test_a_term_depends_on_its_line_alone(plain):
    terms = glossary(garden="Zebra", bird="Tiger")
    lines = [english for english, _ in toy.generate("test", 30)]
    translator = plain.with_resources(glossary=GlossaryResource(terms))
    together = [result.translation for result in translator.translate(lines)]
    assert together == [translator.translate([line])[0].translation for line in lines]


def test_sampling_flags_what_it_misses(tiny_run):
    translator = Translator.load(tiny_run, device="cpu", decode={"search": "sample", "samples": 2})
    (result,) = translator.with_resources(glossary=resource(dog="Zebra")).translate(["The dog sleeps."])
    assert "missing_term" in result.flags


def test_another_direction_has_no_glossary(plain):
    terms = glossary(dog="Zebra")
    other = plain.with_resources(glossary=GlossaryResource(Glossary(terms.terms, ("en", "fr"))))
    lines = ["The dog sleeps."]
    assert "Zebra" in plain.with_resources(glossary=GlossaryResource(terms)).translate(lines)[0].translation
    assert other.translate(lines) == plain.translate(lines)


def test_terms_of_a_request_win_over_those_of_the_glossary():
    """In every form of the word; a longer term of the glossary wins over a shorter one."""
    terms = [Term("Dog", ("Kater",)), Term("house", ("Heim",))]
    both = Glossary(terms, ("en", "de"), behind=glossary(dogs="Zebra", bird="Tiger"))
    matches = both.find("The dog, a bird, a house")
    assert [match.targets for match in matches] == [("Kater",), ("Tiger",), ("Heim",)]
    longer = Glossary([Term("old house", ("Villa",))], ("en", "de"))
    matches = Glossary([Term("old", ("betagt",))], ("en", "de"), behind=longer).find("an old house, old")
    assert [match.targets for match in matches] == [("Villa",), ("betagt",)]


def test_protected_text_has_no_terms(reading_terms):
    engine = Watching(reading_terms, "Siehe https://dog.com und {dog}.")
    translator = translator_of(reading_terms, engine, glossary(dog="Kater"))
    (result,) = translator.translate(["See https://dog.com and {dog}."])
    assert engine.requests[0].src == reading_terms.encode_src(["See https://dog.com and {dog}."])[0]
    assert "missing_term" not in result.flags


def test_a_term_is_written_where_the_word_stood_that_it_replaces(reading_terms):
    """Any engine can: what comes before is a prefix. The attention of this one is the diagonal."""

    class Diagonal(Watching):
        def search(self, requests, settings, n_best):
            self.requests += requests
            for i, request in enumerate(requests):
                text = "Der Kater sieht." if request.prefix else "Der Hund sieht."
                yield i, [Hypothesis([*self.tokenizer.encode_tgt([text])[0], EOS], -1.0, -1.0)]

        def cross_attention(self, pairs):
            return [
                [[float(s == min(t, len(src) - 1)) for s in range(len(src))] for t in range(len(tgt))]
                for src, tgt in pairs
            ]

    engine = Diagonal(reading_terms)
    translator = translator_of(reading_terms, engine, glossary(dog="Kater"))
    (result,) = translator.translate(["The dog sees."])
    assert result.translation == "Der Kater sieht." and result.flags == []
    first, second = engine.requests
    kater = reading_terms.encode_tgt(["Kater"])[0]
    # After it stands the next piece, so that the term does not become the beginning of a longer word.
    assert not first.prefix and second.prefix[-len(kater) - 1 : -1] == kater
    assert second.limit > first.limit


def test_a_search_for_terms_does_not_lose_those_that_were_there(reading_terms):
    class Losing(Watching):
        def search(self, requests, settings, n_best):
            texts = ["Vogel." if r.prefix else "Der Kater sieht die Frau." for r in requests]
            for i, text in enumerate(texts):
                yield i, [Hypothesis([*self.tokenizer.encode_tgt([text])[0], EOS], -1.0, -1.0)]

    translator = translator_of(reading_terms, Losing(reading_terms), glossary(dog="Kater", house="Haus"))
    (result,) = translator.translate([SOURCE])
    assert result.translation == "Der Kater sieht die Frau." and "missing_term" in result.flags


def test_pieces_of_terms_are_no_tags(reading_terms):
    translator = translator_of(reading_terms, Watching(reading_terms, "x"), None)
    with pytest.raises(InputError, match="tag` must be left out, because .* has no tags, but is <term>"):
        translator.translate(["A dog."], tag=TERM)


def test_a_glossary_file_is_a_setting_of_load(tiny_run, tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\tZebra\n", encoding="utf-8")
    translator = Translator.load(tiny_run, device="cpu", glossary=tmp_path / "terms.tsv")
    (result,) = translator.translate(["The dog sleeps."])
    assert "Zebra" in result.translation
    assert dataclasses.asdict(result.n_best[0])["translation"] == result.translation
