"""Each key of the YAML's `decode` section reaches each engine: it changes an output, or the engine refuses it
by name.
"""

import pytest

from tests.helpers.companions import needs
from transformer_mt import Translator
from transformer_mt.config import DecodeConfig
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.runs.folder import RunFolder
from transformer_mt.translation.engines import ctranslate2_engine, torch_engine

SAMPLE = {"search": "sample", "samples": 4}

# For each key two settings of the search that differ in this key alone, and must not give the same
# translations.
TWO_VALUES = {
    "search": (SAMPLE, {**SAMPLE, "search": "mbr"}),
    "beam": ({"beam": 1}, {"beam": 5}),
    "stop_early": ({"beam": 2, "stop_early": False}, {"beam": 2, "stop_early": True}),
    "length_penalty": ({"length_penalty": 0.0}, {"length_penalty": 2.0}),
    "length_penalty_form": ({"length_penalty": 0.6}, {"length_penalty": 0.6, "length_penalty_form": "gnmt"}),
    "samples": (SAMPLE, {**SAMPLE, "samples": 2}),
    "temperature": (SAMPLE, {**SAMPLE, "temperature": 0.3}),
    "top_k": (SAMPLE, {**SAMPLE, "top_k": 2}),
    "top_p": (SAMPLE, {**SAMPLE, "top_p": 0.2}),
    "seed": (SAMPLE, {**SAMPLE, "seed": 2}),
    "utility": ({**SAMPLE, "search": "mbr"}, {**SAMPLE, "search": "mbr", "utility": "bleu"}),
    "min_length": ({}, {"min_length": 12}),
    "max_length": ({}, {"max_length": 2}),
    "max_length_ratio": (
        {"min_length": 14, "length_penalty": 5.0},
        {"min_length": 14, "length_penalty": 5.0, "max_length_ratio": 0.1},
    ),
    "no_repeat_ngram": ({"min_length": 12}, {"min_length": 12, "no_repeat_ngram": 1}),
    "banned": ({}, {"banned": ["."]}),
    "split_sentences": ({}, {"split_sentences": False}),
    "lowercase_capitals": ({}, {"lowercase_capitals": False}),
    "protect_usual": ({}, {"protect_usual": False}),
    "match_ends": ({}, {"match_ends": True}),
}
# These change how the work is divided and nothing that is found: they have tests of their own below.
ONLY_SPEED = {"batch_tokens"}


@pytest.fixture(scope="module")
def sentences():
    return [
        *(english for english, _ in toy.generate("test", 10)),
        "The dog sleeps. A cat sings.",
        "A BIRD SINGS.",
        "The dog sees {name}",
    ]


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def load(request, tiny_run, tmp_path_factory):
    """A function from settings of the search to a Translator with them, for each engine."""
    folder = tiny_run
    if request.param == "ctranslate2":
        pytest.importorskip("ctranslate2")
        from transformer_mt.companions.exchange.export.export import export
        from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

        folder = tmp_path_factory.mktemp("keys") / "ct2"
        export(RunFolder(tiny_run), folder, ToCTranslate2(), None)
    return lambda settings: Translator.load(folder, device="cpu", decode=settings)


def outputs(translator, sentences):
    """All candidates that the search returns, with their scores."""
    settings = translator.decode
    results = translator.translate(
        sentences, n_best=settings.beam if settings.search == "beam" else settings.samples
    )
    return [
        [(c.translation, round(c.score, 3), round(c.log_prob, 3)) for c in result.n_best]
        for result in results
    ]


def test_the_table_has_every_key():
    """But stages are companions': tests/companions/test_stranger.py has one."""
    assert TWO_VALUES.keys() | ONLY_SPEED | {"stages"} == DecodeConfig.model_fields.keys()
    for key, (first, second) in TWO_VALUES.items():
        a, b = DecodeConfig.model_validate(first), DecodeConfig.model_validate(second)
        assert [name for name in DecodeConfig.model_fields if getattr(a, name) != getattr(b, name)] == [key]


@needs("exchange")
@pytest.mark.parametrize("key", TWO_VALUES)
def test_a_key_changes_the_output_or_is_refused_by_its_name(load, sentences, key):
    found = []
    for settings in TWO_VALUES[key]:
        translator = load(settings)
        try:
            found.append(outputs(translator, sentences))
        except InputError as error:
            assert translator.engine.name == "ctranslate2", "the torch engine has every setting"
            missing = [name for name in settings if f"`decode.{name}` must be" in str(error)]
            assert missing, f"refused without naming a setting: {error}"
            # Its search is refused: then the key has no meaning either
            if key in settings and key not in missing:
                assert "search" in missing
            return
    assert found[0] != found[1]


def test_batch_tokens_bounds_a_batch_of_the_torch_engine(tiny_run, sentences, monkeypatch):
    batches = []
    search = torch_engine.TorchEngine._search
    monkeypatch.setattr(
        torch_engine.TorchEngine,
        "_search",
        lambda self, requests, *rest: (
            batches.append([len(r.src) + 1 for r in requests]),
            search(self, requests, *rest),
        )[1],
    )
    Translator.load(tiny_run, device="cpu", decode={"batch_tokens": 100}).translate(sentences)
    assert len(batches) > 1 and all(len(b) == 1 or len(b) * max(b) * 5 <= 100 for b in batches)


@needs("exchange")
def test_batch_tokens_bounds_a_batch_of_ctranslate2(tiny_run, sentences, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    export(RunFolder(tiny_run), tmp_path / "ct2", ToCTranslate2(), None)
    translator = Translator.load(tmp_path / "ct2", device="cpu", decode={"batch_tokens": 200})
    asked = []

    class Watched:
        def __init__(self, model):
            self.model = model

        def translate_batch(self, *arguments, **options):
            asked.append(options["max_batch_size"])
            return self.model.translate_batch(*arguments, **options)

    model = ctranslate2_engine.CTranslate2Engine._model
    monkeypatch.setattr(
        ctranslate2_engine.CTranslate2Engine, "_model", lambda self, n: Watched(model(self, n))
    )
    translator.translate(sentences)
    longest = max(len(ids) + 1 for ids in translator.tokenizer.encode_src(sentences))
    assert max(asked) == max(200 // 5, longest)


@needs("exchange")
def test_a_short_source_is_not_searched_to_the_limit_of_a_long_one(tiny_run, tmp_path, monkeypatch):
    """A weak model ends no line: 280 sentences went to the limit of the longest, then each again alone."""
    pytest.importorskip("ctranslate2")
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    engine = ctranslate2_engine.CTranslate2Engine
    export(RunFolder(tiny_run), tmp_path / "ct2", ToCTranslate2(), None)
    ask, asked = engine._ask, []

    def watched(self, model, requests, *rest):
        asked.append([request.limit for request in requests])
        return ask(self, model, requests, *rest)

    monkeypatch.setattr(engine, "_ask", watched)
    lines = ["dog"] * 30 + ["The dog sees the cat."] * 30 + ["The dog sees the old cat in the garden, " * 4]
    translator = Translator.load(tmp_path / "ct2", device="cpu")
    assert len(translator.translate(lines)) == len(lines) == 61
    assert all(max(limits) < 2 * min(limits) for limits in asked) and max(map(len, asked)) >= 30
    # What does not end is asked again together, not one by one.
    asked.clear()
    written = {piece for result in translator.translate(lines) for piece in result.tokens}
    asked.clear()
    translator.engine._never = tuple(translator.engine.tgt_ids[piece] for piece in written)
    translator.translate(lines)
    assert sum(map(len, asked)) >= 2 * len(lines) and len(asked) < 10
