"""Each key of the YAML's `decode` section reaches each engine: it changes an output, or the engine refuses it
by name."""

import json
from functools import cache

import pytest
import torch

from tests.helpers.companions import needs
from transformer_mt import Translator
from transformer_mt.config import DecodeConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.model.build_model import build_model
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import PackedLinear, pack

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


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    """The tiny run as CTranslate2 reads it."""
    pytest.importorskip("ctranslate2")
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    folder = tmp_path_factory.mktemp("keys") / "ct2"
    export(RunFolder(tiny_run), folder, ToCTranslate2(), None)
    return folder


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def found(request, tiny_run, sentences):
    """A function from settings of the search to what each engine finds with them, or how it refuses them."""
    folder = tiny_run if request.param == "torch" else request.getfixturevalue("exported")

    @cache
    def search(words):
        translator = Translator.load(folder, device="cpu", decode=json.loads(words))
        try:
            return outputs(translator, sentences)
        except InputError as error:
            assert translator.engine.name == "ctranslate2", "the torch engine has every setting"
            return error

    return lambda settings: search(json.dumps(settings))


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
    """But stages and rules are companions': tests/companions/test_stranger.py has them."""
    assert TWO_VALUES.keys() | ONLY_SPEED | {"stages", "rules"} == DecodeConfig.model_fields.keys()
    for key, (first, second) in TWO_VALUES.items():
        a, b = DecodeConfig.model_validate(first), DecodeConfig.model_validate(second)
        assert [name for name in DecodeConfig.model_fields if getattr(a, name) != getattr(b, name)] == [key]


@needs("exchange")
@pytest.mark.parametrize("key", TWO_VALUES)
def test_a_key_changes_the_output_or_is_refused_by_its_name(found, key):
    first, second = map(found, TWO_VALUES[key])
    for settings, answer in zip(TWO_VALUES[key], (first, second)):
        if isinstance(answer, InputError):
            missing = [name for name in settings if f"`decode.{name}` must be" in str(answer)]
            assert missing, f"refused without naming a setting: {answer}"
            # Its search is refused: then the key has no meaning either
            if key in settings and key not in missing:
                assert "search" in missing
            return
    assert first != second


def test_batch_tokens_bounds_a_batch_of_the_torch_engine(tiny_run, sentences):
    translator = Translator.load(tiny_run, device="cpu", decode={"batch_tokens": 100})
    shapes = []

    class Watched(type(translator.engine.model)):
        def encode(self, src, src_mask):
            shapes.append(src.shape)
            return super().encode(src, src_mask)

    translator.engine.model.__class__ = Watched
    translator.translate(sentences)
    assert len(shapes) > 1 and all(B == 1 or B * S * 5 <= 100 for B, S in shapes)


@pytest.fixture
def asked(exported, monkeypatch):
    """The calls of CTranslate2: (sources, options)."""
    import ctranslate2

    calls, translate = [], ctranslate2.Translator.translate_batch

    def watched(self, source, *rest, **options):
        calls.append((source, options))
        return translate(self, source, *rest, **options)

    monkeypatch.setattr(ctranslate2.Translator, "translate_batch", watched)
    return calls


@needs("exchange")
def test_batch_tokens_bounds_a_batch_of_ctranslate2(exported, sentences, asked):
    translator = Translator.load(exported, device="cpu", decode={"batch_tokens": 200})
    translator.translate(sentences)
    longest = max(len(ids) + 1 for ids in translator.tokenizer.encode_src(sentences))
    assert max(options["max_batch_size"] for _, options in asked) == max(200 // 5, longest)


@needs("exchange")
def test_a_short_source_is_not_searched_to_the_limit_of_a_long_one(exported, asked):
    """A weak model ends no line: 280 sentences went to the limit of the longest, then each again alone."""
    lines = ["dog"] * 30 + ["The dog sees the cat."] * 30 + ["The dog sees the old cat in the garden, " * 4]
    translator = Translator.load(exported, device="cpu")
    assert len(translator.translate(lines)) == len(lines) == 61
    lengths = [{len(source) for source in sources} for sources, _ in asked]
    limits = [options["max_decoding_length"] for _, options in asked]
    assert all(2 * min(each) + 30 > limit for each, limit in zip(lengths, limits))
    assert max(len(sources) for sources, _ in asked) >= 30


#


needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)

TOLERANCE = {torch.float32: {"atol": 1e-5, "rtol": 1e-4}, torch.bfloat16: {"atol": 0.1, "rtol": 0.1}}


@needs_onednn
@torch.inference_mode()
@pytest.mark.parametrize("norm, dtype", [("pre", torch.float32), ("post", torch.bfloat16)])
def test_a_packed_model_computes_the_same(norm, dtype):
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 on this CPU")
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=32, d_ff=64, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, norm=norm
    )
    model = build_model(config, 50, 50, True, 64).eval().to(dtype)
    src, tgt = torch.randint(4, 50, (3, 9)), torch.randint(4, 50, (3, 7))
    plain = model(src, src != 0, tgt)
    pack(model)
    assert isinstance(model.output, PackedLinear) and isinstance(
        model.encoder.layers[0].feed_forward.inner, PackedLinear
    )
    torch.testing.assert_close(model(src, src != 0, tgt), plain, **TOLERANCE[dtype])


def test_other_arithmetic_is_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).half()
    pack(model)
    assert isinstance(model[0], torch.nn.Linear)
