"""Sentences translated together with those before them in their document."""

import asyncio
from dataclasses import replace

import pytest

from tests.conftest import TINY
from tests.engines import TableEngine
from transformer_mt import Translator
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.config.parts.context import SENTENCE
from transformer_mt.data.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.documents.translate import parse, translate_pieces
from transformer_mt.errors import InputError
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.serving.batcher import Batcher
from transformer_mt.serving.texts import translate_html, translate_texts
from transformer_mt.terms.glossary_file import read_glossary
from transformer_mt.text.documents import documents_of, end_of_document
from transformer_mt.translation.context import part_of
from transformer_mt.translation.result import Options

TOKENIZER = Tokenizer.train(toy.generate("train", 400), TokenizerConfig(vocab_size=400), [SENTENCE])
PIECE = TOKENIZER.control_id(SENTENCE)
LINES = ["A dog.", "The cat sleeps.", "", "A bird. The bird sings.", "7", "A horse."]
DATA = {**TINY["data"], "train": {**TINY["data"]["train"], "documents": True}}


class Windowed(TableEngine):
    """Writes each sentence in capitals after its place in the window; `wrong` windows lose a separator."""

    wrong = ()
    dtype, is_on_cpu = "float32", True

    def search(self, requests, settings, n_best):
        self.windows = [self.sentences(request.src) for request in requests]
        self.calls.append(self.windows)
        for i, window in enumerate(self.windows):
            texts = [f"{place}{text.upper()}" for place, text in enumerate(window)]
            ids = TOKENIZER.encode_tgt(texts)
            between = [] if window[-1] in self.wrong and len(window) > 1 else [PIECE]
            joined = [token for k, part in enumerate(ids) for token in (between * bool(k) + part)]
            yield i, [Hypothesis([*joined, EOS], -9.0, -9.0)]

    def sentences(self, src):
        parts = [[]]
        for i in src:
            parts.append([]) if i == PIECE else parts[-1].append(i)
        return [TOKENIZER.src.decode(part) for part in parts]


def translator(sentences=3, max_length=64, **decode):
    data = {**DATA, "context": {"sentences": sentences}, "max_length": max_length}
    config = Config.model_validate(
        {"name": "context", **TINY, "data": data, "decode": {"split_sentences": True, **decode}}
    )
    return Translator(Windowed(TOKENIZER, {}), TOKENIZER, config)


def test_a_sentence_is_translated_after_those_before_it_in_its_document():
    own = translator()
    results = own.translate(LINES, documents=documents_of(LINES))
    assert own.engine.windows == [
        ["A dog."],
        ["A dog.", "The cat sleeps."],
        ["A bird."],
        ["A bird.", "The bird sings."],
        ["A bird.", "The bird sings.", "A horse."],
    ]
    texts = ["0A DOG.", "1THE CAT SLEEPS.", "", "0A BIRD. 1THE BIRD SINGS.", "7", "2A HORSE."]
    assert [result.translation for result in results] == texts
    assert not any(result.problems for result in results)  # a blank line ends a document
    assert results[1].log_prob == pytest.approx(-0.1 * (len(results[1].tokens) + 1))


def test_lines_are_documents_of_their_own_unless_the_caller_says_which_belong_together():
    own = translator()
    own.translate(LINES)
    assert ["A bird.", "The bird sings."] in own.engine.windows
    assert ["A dog.", "The cat sleeps."] not in own.engine.windows


def test_the_window_can_be_turned_off():
    own = translator(context=False)
    own.translate(LINES, documents=documents_of(LINES))
    assert max(map(len, own.engine.windows)) == 1 and own.reads_before == 0


def test_a_window_in_another_number_of_sentences_is_given_up_for_the_sentence_alone():
    own = translator()
    own.engine.wrong = ("The cat sleeps.",)
    results = own.translate(LINES[:2], documents=[0, 0])
    assert own.engine.calls[1:] == [[["The cat sleeps."]]]
    assert results[1].translation == "0THE CAT SLEEPS."


def test_the_best_translation_of_a_window_decides_whatever_else_is_asked_for():
    """A worse one that has as many sentences is not taken where several are searched for."""

    class Several(Windowed):
        def search(self, requests, settings, n_best):
            for i, (first,) in super().search(requests, settings, n_best):
                yield i, [first, replace(first, tokens=[PIECE, *first.tokens])][:n_best]

    own = translator()
    own.engine = Several(TOKENIZER, {})
    own.engine.wrong = ("The cat sleeps.",)
    for lines, n_best in ((LINES[:2], 1), (LINES[:2], 2), ([*LINES[:2], "It costs 5 kg."], 1)):
        results = list(own.stream(lines, Options(n_best=n_best, documents=[0] * len(lines))))
        assert results[1].translation.startswith("0THE CAT")


@pytest.mark.parametrize(
    "key, value", [("min_length", 2), ("no_repeat_ngram", 2), ("repetition_penalty", 1.5)]
)
def test_rules_of_whole_translations_are_for_sentences_alone(key, value):
    own = translator(**{key: value})
    own.translate(LINES, documents=documents_of(LINES))
    assert max(map(len, own.engine.windows)) == 1 and own.reads_before == 0


def test_a_term_is_written_into_the_sentence_alone(tmp_path):
    """A search of its window would make all sentences of that its translation."""
    (tmp_path / "terms.tsv").write_text("cat\tKatze\n", encoding="utf-8")

    class Attending(Windowed):
        writes_phrases = False

        def search(self, requests, settings, n_best):
            self.requests = [*getattr(self, "requests", []), *requests]
            return super().search(requests, settings, n_best)

        def cross_attention(self, pairs):
            return [[[1.0 / len(src)] * len(src)] * len(tgt) for src, tgt in pairs]

    own = translator().with_glossary(read_glossary(tmp_path / "terms.tsv", ("en", "de")))
    own.engine = Attending(TOKENIZER, {})
    result = own.translate(LINES[:2], documents=[0, 0])[1]
    given = [request for request in own.engine.requests if request.prefix]
    assert given and all(PIECE not in request.src for request in given)
    assert "A DOG" not in result.translation


def test_a_window_that_does_not_fit_begins_later():
    own = translator(max_length=14)
    lines = ["The cat sleeps.", "A dog.", "A bird."]
    own.translate(lines, documents=[0, 0, 0])
    assert own.engine.windows[-1] in (["A dog.", "A bird."], ["A bird."])


def test_a_text_is_translated_the_same_wherever_it_is_divided():
    own = translator()
    lines = [*LINES, *LINES[:2], "A dog runs."]
    whole = [result.translation for result in own.translate(lines, documents=documents_of(lines))]
    for cut in range(len(lines)):
        before = end_of_document(lines[:cut], own.reads_before)
        rest = [*before, *lines[cut:]]
        options = Options(documents=documents_of(rest), lines_before=len(before))
        assert [result.translation for result in own.stream(rest, options)] == whole[cut:]
        parts = [range(cut), range(cut, len(lines))]
        options = Options(documents=documents_of(lines))
        found = [own.stream(*part_of(lines, options, part, own.reads_before)) for part in parts]
        assert [result.translation for part in found for result in part] == whole


def test_a_given_prefix_is_of_the_line_alone():
    own = translator()
    own.translate(["A dog.", "The cat sleeps."], documents=[0, 0], prefixes=["", "Die"])
    assert own.engine.windows == [["A dog."], ["The cat sleeps."]]


def test_each_line_has_a_document():
    with pytest.raises(InputError, match="there must be one document per line \\(2\\), but there are 1"):
        translator().translate(["A dog.", "A cat."], documents=[0])


def test_the_texts_of_a_document_are_read_together_also_when_it_is_resumed():
    own = translator()
    pieces = parse("<p>A dog.</p>\n<p>The cat <b>sleeps</b>.</p>", "html", ("en", "de"), "page.html")
    whole = [part.written for part in translate_pieces(own, pieces)]
    assert own.engine.windows == [["A dog."], ["A dog.", "The cat sleeps."]]
    assert [part.written for part in translate_pieces(own, pieces, done=1)] == whole[1:]


def test_a_server_reads_the_lines_of_a_text_together_but_not_its_texts():
    own = translator()
    batcher = Batcher(own)
    try:
        asyncio.run(translate_texts(batcher, ["A dog.\nThe cat sleeps.", "A bird."], 0))
        windows = [window for call in own.engine.calls for window in call]
        assert sorted(windows) == [["A bird."], ["A dog."], ["A dog.", "The cat sleeps."]]
        asyncio.run(translate_html(batcher, "<p>A horse.<p>A bird.", 0))
        assert ["A horse.", "A bird."] in [window for call in own.engine.calls for window in call]
    finally:
        batcher.close()
