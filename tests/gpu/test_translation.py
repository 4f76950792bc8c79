"""Every search finds on a GPU what it finds on the CPU, and an export made there proves itself."""

import pytest
import torch

from tests.unit.translation.test_translator import SEARCHES
from transformer_mt import Translator
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder


@pytest.fixture(scope="module")
def sentences():
    return [english for english, _ in toy.generate("test", 30)]


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_every_search_finds_what_it_finds_on_the_cpu(tiny_run, sentences, device, search):
    on_cpu, on_gpu = (
        Translator.load(tiny_run, device=place, decode=search).translate(sentences, align=True)
        for place in ("cpu", str(device))
    )
    alike = [a.translation == b.translation for a, b in zip(on_cpu, on_gpu)]
    # Samples are drawn by comparing sums of probabilities, which differ in their last bits.
    assert sum(alike) >= (28 if "search" in search else 30)
    for a, b in zip(on_cpu, on_gpu):
        if a.translation == b.translation and "search" not in search:
            assert b.score == pytest.approx(a.score, abs=1e-3) and b.alignment == a.alignment


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_translates(tiny_run, sentences, device, dtype):
    results = Translator.load(tiny_run, device=str(device), dtype=dtype).translate(sentences)
    assert len(results) == 30 and all(result.score < 0 for result in results)


def test_batches_do_not_change_translations(tiny_run, sentences, device):
    together = Translator.load(tiny_run, device=str(device)).translate(sentences)
    alone = Translator.load(tiny_run, device=str(device), decode={"batch_tokens": 1}).translate(sentences)
    assert [r.translation for r in together] == [r.translation for r in alone]


def test_an_export_proves_itself_and_ctranslate2_runs_it_on_the_gpu(tiny_run, sentences, device, tmp_path):
    library = pytest.importorskip("ctranslate2")
    export(RunFolder(tiny_run), tmp_path / "ct2", ToCTranslate2(), None)
    if device.type == "cuda" and not library.get_cuda_device_count():
        pytest.skip("this CTranslate2 was built without CUDA")
    expected = Translator.load(tiny_run, device="cpu").translate(sentences)
    try:
        found = Translator.load(tmp_path / "ct2", device=str(device)).translate(sentences)
    except InputError as error:
        assert "pip install 'transformer-mt[ctranslate2-cuda]'" in str(error)
        pytest.skip("CTranslate2 has no cuBLAS of CUDA 12 here")
    assert [r.translation for r in found] == [r.translation for r in expected]


def test_too_little_memory_to_translate_is_one_line(tiny_run, cuda, cli):
    total = torch.cuda.get_device_properties(cuda).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e6 / total)
    try:
        # So wide a beam that it does not fit into what earlier tests have left free
        status, out, err = cli(
            "translate", tiny_run, "--device", "cuda", "--beam", "200", *["The dog sleeps."] * 200
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert (status, out) == (1, "")
    assert err == "not enough memory; lower --batch-tokens or --beam, or close other programs\n"


def test_tf32_translates_like_float32(tiny_run, sentences, device, monkeypatch):
    exact = Translator.load(tiny_run, device=str(device)).translate(sentences)
    monkeypatch.undo()  # of the fixture exact_products
    try:
        fast = Translator.load(tiny_run, device=str(device)).translate(sentences)
        assert device.type != "cuda" or torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert sum(a.translation == b.translation for a, b in zip(exact, fast)) >= 25
