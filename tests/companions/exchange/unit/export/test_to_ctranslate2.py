"""Every Transformer the YAML can describe computes the same through CTranslate2."""

import json
import shutil

import ctranslate2
import numpy as np
import pytest
import torch

from transformer_mt.companions.exchange import ctranslate2_engine
from transformer_mt.companions.exchange.ctranslate2_engine import choose_device_name
from transformer_mt.config import DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.messages import say_once

pytest.importorskip("ctranslate2")

from transformer_mt.companions.exchange.ctranslate2_engine import (
    CTranslate2Engine,
    advice_on_int8,
    has_exact_int8_products,
)
from transformer_mt.companions.exchange.export import proof
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.format import Output
from transformer_mt.companions.exchange.export.to_ctranslate2 import (
    ToCTranslate2,
    reasons_against,
    write_model,
)
from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.config.load import dump_config, load_config
from transformer_mt.config.model_section import AttentionConfig, ScoresConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import EOS, Tokenizer
from transformer_mt.errors import WorkError
from transformer_mt.model.build_model import build_model
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.engine import Request
from transformer_mt.translation.engines.torch_engine import TorchEngine, load_model

KINDS = [
    {},
    {"norm": "post"},
    {"feed_forward": "gelu"},
    {"feed_forward": "swiglu", "norm": "post"},
    {"feed_forward": "silu", "output_bias": True},
    {"position": "learned", "embedding_norm": True},
    {"position": "none"},
    {"position": "rotary"},
    {"position": {"relative": {"distance": 3}}},
    {"norm_kind": "rms", "embedding_norm": True},
    {"num_kv_heads": 2, "position": "rotary"},
    {"num_kv_heads": 1, "norm": "post", "norm_kind": "rms", "share_layers": True},
    {"tie_embeddings": False, "num_encoder_layers": 3, "num_decoder_layers": 1},
]


@pytest.fixture(scope="module")
def tokenizers():
    pairs = list(toy.generate("test", 300))
    return {
        shared: Tokenizer.train(pairs, TokenizerConfig(vocab_size=400, shared=shared))
        for shared in (True, False)
    }


def both_engines(tokenizer, folder, quantization="float32", guided=None, **model):
    sizes = {"d_model": 32, "d_ff": 64, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
    data = {"source_lang": "en", "target_lang": "de", "train": {"toy": "train"}, "valid": {"toy": "valid"}}
    data["max_length"] = 64
    config = Config.model_validate({"name": "x", "data": data, "model": {**sizes, **model}})
    torch.manual_seed(0)
    sizes = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    network = build_model(config.model, *sizes, tokenizer.shared, 64, guided).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # biases and norms, too, must have something to say
            parameter.add_(torch.randn_like(parameter) * 0.1)
    write_model(network, tokenizer, config, folder, quantization)
    (folder / "export.json").write_text(json.dumps({"positions": 64}), encoding="utf-8")
    return TorchEngine(network, tokenizer), CTranslate2Engine.load(folder, tokenizer, "cpu"), config


@pytest.mark.parametrize("number", range(len(KINDS)), ids=lambda number: str(KINDS[number]))
def test_an_export_gives_every_token_the_same_probability(number, tokenizers, tmp_path):
    ours, theirs, _ = both_engines(tokenizers[number % 2 == 0], tmp_path, **KINDS[number])
    generator = torch.Generator().manual_seed(1)
    pairs = [
        [torch.randint(4, 400, (n,), generator=generator).tolist() for n in lengths]
        for lengths in ((5, 7), (1, 1), (12, 3))
    ]
    for expected, found in zip(ours.token_log_probs(pairs), theirs.token_log_probs(pairs)):
        assert found == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("position", ["none", "rotary", "relative"])
def test_positions_inside_attention_are_the_same_step_by_step(position, tokenizers, tmp_path):
    ours, theirs, config = both_engines(tokenizers[True], tmp_path, position=position)
    settings = config.decode.model_copy(update={"beam": 3})
    requests = [
        Request([7, 9, 11, 20, EOS], 20, []),
        Request([30, 4, EOS], 9, []),
        Request([5, 6, 8, EOS], 20, [12, 13]),
    ]
    expected = dict(ours.search(requests, settings, 1))
    for i, (best,) in theirs.search(requests, settings, 1):
        assert best.tokens == expected[i][0].tokens and best.score == pytest.approx(
            expected[i][0].score, abs=1e-4
        )


@pytest.fixture(scope="module")
def trained(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "ct2"
    export(RunFolder(tiny_run), folder, ToCTranslate2(), None)
    model, tokenizer = load_model(RunFolder(tiny_run), RunFolder(tiny_run).config())
    return TorchEngine(model.eval(), tokenizer), CTranslate2Engine.load(folder, tokenizer, "cpu"), tokenizer


@pytest.mark.parametrize("guided", [None, "auto", 1])
def test_both_engines_read_the_head_that_was_trained_to_align(tokenizers, tmp_path, guided):
    ours, theirs, _ = both_engines(tokenizers[True], tmp_path, guided=guided)
    pairs = [([30, 31, 32, 33], [40, 41, 42]), ([50, 51], [60, 61, 62, 63])]
    weights = [np.array(each) for engine in (ours, theirs) for each in engine.cross_attention(pairs)]
    for i in range(2):
        assert weights[i] == pytest.approx(weights[2 + i], abs=1e-5)
    ours.model.guided_layer = {None: 0, "auto": None, 1: 1}[guided]  # another head gives something else
    assert ours.cross_attention(pairs)[0] != pytest.approx(weights[0], abs=1e-3)


@pytest.mark.parametrize("quantization, ratio", [("float16", 0.55), ("int16", 0.6), ("int8", 0.4)])
def test_a_quantised_export_stores_its_weights_in_fewer_bytes(tokenizers, tmp_path, quantization, ratio):
    sizes = {}
    for kind in ("float32", quantization):
        folder = tmp_path / kind
        folder.mkdir()
        both_engines(tokenizers[True], folder, kind, d_model=64, d_ff=128, position="rotary")
        sizes[kind] = (folder / "model.bin").stat().st_size
    assert sizes[quantization] < ratio * sizes["float32"]


SETTINGS = [
    {},
    {"beam": 1},
    {"length_penalty": 2.0},
    {"min_length": 4},
    {"no_repeat_ngram": 2},
    {"prefix": [7, 9]},
    {"limit": 3},
]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
def test_both_engines_find_the_same(trained, tiny_run, changes):
    """And what is found has the probability our model gives it, keeps its limit and begins with
    its prefix.
    """
    ours, theirs, tokenizer = trained
    sources = tokenizer.encode_src([english for english, _ in toy.generate("test", 20)])
    limit, prefix = changes.get("limit", 30), changes.get("prefix", [])
    settings = RunFolder(tiny_run).config().decode
    settings = settings.model_copy(update={k: v for k, v in changes.items() if k not in ("limit", "prefix")})
    requests = [Request(src, limit, prefix) for src in sources]
    expected, found = (dict(engine.search(requests, settings, settings.beam)) for engine in (ours, theirs))
    # The best is the best, however many are asked for
    for engine, whole in ((ours, expected), (theirs, found)):
        for n in {1, min(2, settings.beam)}:
            few = dict(engine.search(requests, settings, n))
            assert all([h.tokens for h in few[i]] == [h.tokens for h in whole[i][:n]] for i in few)
    assert list(theirs.search([], settings, 1)) == []
    alike = 0
    for i, src in enumerate(sources):
        best = found[i][0]
        alike += expected[i][0].tokens == best.tokens
        assert len(best.tokens) <= limit and best.tokens[-1] == EOS and best.tokens[: len(prefix)] == prefix
        assert len(best.tokens) > settings.min_length
        (again,) = ours.token_log_probs([(src, best.tokens[:-1])])
        assert best.log_prob == pytest.approx(sum(again), abs=1e-3)
        assert [h.score for h in found[i]] == sorted((h.score for h in found[i]), reverse=True)
    # Where it forbids tokens CTranslate2 searches a little differently.
    assert alike == len(sources) or changes.keys() & {"min_length", "no_repeat_ngram", "limit", "prefix"}
    pairs = [(src, expected[i][0].tokens[:-1]) for i, src in enumerate(sources)]
    for a, b in zip(ours.cross_attention(pairs), theirs.cross_attention(pairs)):
        assert len(a) == len(b)
        assert [row == pytest.approx(other, abs=1e-5) for row, other in zip(a, b)] == [True] * len(a)


@pytest.mark.parametrize("changes, prefix", [({"min_length": 4}, []), ({}, [7, 9])], ids=str)
def test_what_must_be_scored_again_is_scored_together(trained, tiny_run, monkeypatch, changes, prefix):
    _, theirs, tokenizer = trained
    sources = tokenizer.encode_src([english for english, _ in toy.generate("test", 20)])
    settings = RunFolder(tiny_run).config().decode.model_copy(update=changes)
    calls, score = [], ctranslate2.Translator.score_batch

    def watched(self, sources, *rest, **options):
        calls.append(len(sources))
        return score(self, sources, *rest, **options)

    monkeypatch.setattr(ctranslate2.Translator, "score_batch", watched)
    hypotheses = dict(theirs.search([Request(src, 30, prefix) for src in sources], settings, 1))
    assert sorted(hypotheses) == list(range(20)) and len(calls) == 1 and calls[0] >= 20


@pytest.mark.parametrize("beam", [1, 3])
def test_limits_of_batch_mates_change_nothing(trained, tiny_run, beam):
    """CTranslate2 has one limit for all: a request with a lower one ends as it would alone."""
    ours, theirs, tokenizer = trained
    sources = tokenizer.encode_src([english for english, _ in toy.generate("test", 12)])
    settings = RunFolder(tiny_run).config().decode.model_copy(update={"beam": beam})
    requests = [Request(src, 40 if i % 2 else 3 + i // 2) for i, src in enumerate(sources)]
    together = dict(theirs.search(requests, settings, 1))
    for i, request in enumerate(requests):
        (alone,) = dict(theirs.search([request], settings, 1)).values()
        (expected,) = dict(ours.search([request], settings, 1)).values()
        assert together[i][0].tokens == alone[0].tokens and len(alone[0].tokens) <= request.limit
        assert together[i][0].score == pytest.approx(alone[0].score, abs=1e-4)
        if beam == 1:
            assert alone[0].tokens == expected[0].tokens
            assert alone[0].score == pytest.approx(expected[0].score, abs=1e-3)


def test_settings_ctranslate2_has_not_are_refused_all_at_once(tokenizers, tmp_path):
    _, theirs, config = both_engines(tokenizers[True], tmp_path)
    settings = config.decode.model_copy(update={"length_penalty_form": "gnmt", "banned": ["Hund"]})
    with pytest.raises(InputError) as error:
        theirs.check(settings)
    first, second = str(error.value).split("\n")
    assert first.startswith("`decode.length_penalty_form` must be 'plain' with `engine=ctranslate2`")
    assert second.startswith("`decode.banned` must be [] with `engine=ctranslate2`, but is ['Hund']")


def test_what_ctranslate2_cannot_run_is_said_before_weights_move(tokenizers, tmp_path):
    config = both_engines(tokenizers[True], tmp_path)[2]
    assert reasons_against(config.model) == []
    odd = config.model.model_copy(update={"position": "alibi", "feed_forward": "tanh"})
    assert reasons_against(odd) == [
        "model.feed_forward must be relu or gelu or silu or swiglu, but is tanh",
        "model.position must be sinusoidal or sinusoidal_marian or sinusoidal_fairseq or learned or relative "
        "or rotary or none, but is alibi",
    ]
    assert reasons_against(config.model.model_copy(update={"qk_norm": True})) == [
        "model.qk_norm must be false, but is true"
    ]
    attention = AttentionConfig(
        score=ScoresConfig(cross="additive"), window=3, cross="local_m", cross_window=4, hard=True
    )
    assert reasons_against(config.model.model_copy(update={"attention": attention})) == [
        "model.attention.score must be scaled_dot, but is additive (cross)",
        "model.attention.window must be 0, but is 3",
        "model.attention.cross must be global, but is local_m",
        "model.attention.hard must be False, but is True",
    ]
    assert reasons_against(config.model.model_copy(update={"kind": "recurrent", "attention": attention})) == [
        "model.kind must be transformer, but is recurrent"
    ]


def test_an_export_that_translates_otherwise_is_refused(tokenizers, tmp_path, tiny_run):
    """Two models in torch stand for a model and its broken export."""
    from transformer_mt import Translator

    ours = Translator.load(tiny_run, device="cpu")
    theirs = Translator.load(tiny_run, device="cpu")
    sentences = [english for english, _ in toy.generate("test", 20)]
    expected = ours.translate(sentences)
    assert proof.compare(expected, theirs.translate(sentences), "float32", "de").identical == 20
    with torch.no_grad():
        theirs.engine.model.decoder.layers[0].cross_residual.norm.weight.mul_(-3.0)
    found = theirs.translate(sentences)
    with pytest.raises(WorkError, match=r"must translate 99.5% of the lines identically, .* it was not kept"):
        proof.compare(expected, found, "float32", "de")
    with pytest.raises(
        WorkError, match=r"must have a BLEU of 95 .* kept, give sentences like those it .*; why"
    ):
        proof.compare(expected, found, "int8", "de", advice=["; why"])
    with pytest.raises(WorkError, match=r"sentences it can translate whole, but all 3 are split or stopped"):
        proof.compare([], [], "float32", "de", left_out=3)


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("AuthenticAMD avx2 fma", False),
        ("AuthenticAMD avx2 avx512f avx512_vnni", True),
        ("GenuineIntel avx2", True),
        ("fp asimd", True),
        (None, True),
    ],
)
def test_instructions_for_int8_products_are_recognised(tmp_path, flags, expected):
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"model name : x\nflags : {flags}\n", encoding="utf-8")
    assert has_exact_int8_products(file) == expected == (advice_on_int8(file) == [])


def test_lines_that_a_weak_model_finds_equally_good_do_not_refuse_its_export():
    """Rounding decides which way its search goes; only scores that differ mean another model."""
    expected = [Output(f"line {i}", -2.5 - i / 100) for i in range(100)]
    others = [Output(f"other {i}", -2.6) if i < 5 else out for i, out in enumerate(expected)]
    result = proof.compare(expected, others, "float32", "de", scores=[-2.6000004] * 5)
    assert (result.identical, result.ties) == (95, 5)
    said = "95 of 100 probe sentences translated identically (5 others differently, with the same score"
    assert said in str(result)
    with pytest.raises(WorkError, match="identically, or differently with the same"):
        proof.compare(expected, others, "float32", "de", scores=[-2.61] * 5)


def test_the_translations_of_an_export_are_scored_by_the_run_itself(tiny_run):
    from transformer_mt import Translator

    ours = Translator.load(tiny_run, device="cpu")
    sentences = [english for english, _ in toy.generate("test", 30)]
    usual = ours.translate(sentences)
    beam = Translator.load(tiny_run, device="cpu", decode={"beam": 2}).translate(sentences)
    outputs = [Output(result.translation, result.score, result.tokens) for result in beam]

    class Given(ToCTranslate2):
        def translate(self, folder, lines):
            return outputs

    target = Given()
    result = proof.prove(ours, target, tiny_run, sentences)
    assert result.ties == sum(a.translation != b.translation for a, b in zip(usual, beam)) > 0
    outputs = [Output(out.translation, out.score - 0.01, out.tokens) for out in outputs]
    with pytest.raises(WorkError, match="it was not kept"):
        proof.prove(ours, target, tiny_run, sentences)


def test_scores_that_differ_are_refused():
    expected = [Output("a b c d e", -0.5)] * 10
    with pytest.raises(WorkError, match="scores within 0.001"):
        proof.compare(expected, [Output("a b c d e", -0.502)] * 10, "float32", "de")


def test_short_lines_and_languages_without_spaces_are_compared_by_their_characters():
    """They have no four words in a row, and then one other word made the BLEU 0."""
    for line, old, new, language in (
        ("今天第{}只狗在房子里睡觉。", "狗", "猫", "zh"),
        ("Neue Datei {}", "Neue", "Neu", "de"),
    ):
        outputs = [[Output(line.format(i), -1.0) for i in range(200)] for _ in range(2)]
        outputs[1][7] = Output(line.format(7).replace(old, new), -1.0)
        comparison = proof.compare(*outputs, "int8", language)
        assert comparison.identical == 199 and 99 < comparison.bleu < 100


def test_rules_that_the_engines_apply_otherwise_are_no_part_of_the_proof(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    rules = ["decode.min_length=12", "decode.no_repeat_ngram=2"]
    (run / "config.yaml").write_text(dump_config(load_config(run / "config.yaml", rules)), encoding="utf-8")
    found = export(RunFolder(run), tmp_path / "ct2", ToCTranslate2(), None)
    assert found.identical + found.ties == found.sentences
    assert RunFolder(tmp_path / "ct2").config().decode.min_length == 12


def test_settings_ctranslate2_has_not_are_left_out_of_an_export_and_said(tiny_run, tmp_path, said):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    wanted = ["decode.search=mbr", "decode.samples=4", "decode.banned=[dog]", "decode.length_penalty=0.7"]
    (run / "config.yaml").write_text(dump_config(load_config(run / "config.yaml", wanted)), encoding="utf-8")
    export(RunFolder(run), tmp_path / "ct2", ToCTranslate2(), None)
    assert said[0] == (
        "CTranslate2 cannot search as this run does; the export has decode.search beam (here mbr), "
        "decode.banned [] (here ['dog'])"
    )
    decode = RunFolder(tmp_path / "ct2").config().decode
    assert (decode.search, decode.samples, decode.banned, decode.length_penalty) == ("beam", 1, [], 0.7)


# Choosing an engine's device.


@pytest.fixture
def gpu(monkeypatch):
    """CTranslate2 sees a GPU; this machine has no CUDA library."""
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda kind: {"float32"})
    say_once.cache_clear()


def test_a_gpu_without_its_library_is_not_used(gpu, said):
    assert [choose_device_name("auto", None), choose_device_name("auto", None)] == ["cpu", "cpu"]
    assert len(said) == 1
    assert said[0].startswith("note: translating on the CPU, because CTranslate2 ")
    missing = "needs libcublas.so.12 to use the GPU: pip install"
    assert said[0].endswith(f"{missing} 'transformer-mt[ctranslate2-cuda]'")
    assert choose_device_name("cpu", None) == "cpu"
    with pytest.raises(InputError, match=rf"^CTranslate2 \S+ {missing}"):
        choose_device_name("cuda", None)


def test_the_library_of_a_package_is_loaded_before_ctranslate2_looks_for_it(gpu, said, monkeypatch, tmp_path):
    loaded = []

    def load(name, mode):
        if "/" not in name:
            raise OSError(f"{name}: cannot open shared object file")
        loaded.append(name)

    monkeypatch.setattr(ctranslate2_engine.ctypes, "CDLL", load)
    (tmp_path / "nvidia").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert choose_device_name("auto", None) == "cuda" and not said
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    assert loaded == [str(folder / "libcublasLt.so.12"), str(folder / "libcublas.so.12")]


def test_a_batch_is_as_large_as_the_device():
    assert DecodeConfig().batch_budget() == 8192
    of_gpus = [DecodeConfig().batch_budget(gb * 10**9, 32_000) for gb in (4, 8, 24, 80)]
    assert of_gpus == [8192, 15_625, 46_875, 156_250]
    assert [DecodeConfig().batch_budget(80 * 10**9, size) for size in (8000, 256_000)] == [2**18, 19_531]
    assert DecodeConfig(batch_tokens=100).batch_budget(80 * 2**30) == 100
