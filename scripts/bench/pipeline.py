"""Speed of `pipeline("translation")` beside transformers' own `generate`, with the same OPUS-MT-sized model.

    python scripts/bench/pipeline.py SENTENCES TRANSLATIONS [--rounds 3] [--sentences 64]

A model with random weights in the layout of Helsinki-NLP/opus-mt-en-de is made: 512/2048, 6+6 layers, a joint
vocabulary of both files. Random weights never end a sentence, so all translations have the same number of
tokens (--tokens). transformers gets one text at a time, as its pipeline did by default, or batches of 16.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from transformer_mt import pipeline
from transformer_mt.text.lines import read_lines

BEAM = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", metavar="FILE", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=20, help="of each translation")
    options = parser.parse_args()
    sources, targets = (list(read_lines(file)) for file in options.files)
    with tempfile.TemporaryDirectory() as temporary:
        texts, folder = sources[: options.sentences], Path(temporary) / "opus-mt-en-de"
        make_model(folder, (sources, targets))
        model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ours = pipeline("translation_en_to_de", model=str(folder))
        lengths = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

        def generate(batch: int) -> None:
            for start in range(0, len(texts), batch):
                inputs = tokenizer(texts[start : start + batch], return_tensors="pt", padding=True)
                with torch.inference_mode():
                    tokenizer.batch_decode(model.generate(**inputs, num_beams=BEAM, **lengths))

        runs: dict[str, Callable[[], object]] = {
            "transformers, one text at a time": lambda: generate(1),
            "transformers, batches of 16": lambda: generate(16),
            "pipeline, one text at a time": lambda: [ours(text, num_beams=BEAM, **lengths) for text in texts],
            "pipeline, all texts": lambda: ours(texts, num_beams=BEAM, **lengths),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.rounds):  # taking turns
            for name, run in runs.items():
                begun = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - begun)
    size = sum(parameter.numel() for parameter in model.parameters())
    print(f"{size:,} parameters, {len(texts)} sentences, beam {BEAM}, {options.tokens} tokens each")
    print(f"\n| {torch.get_num_threads()} threads | sentences/s | relative |\n|---|---|---|")
    first = statistics.median(next(iter(seconds.values())))
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"| {name} | {len(texts) / median:.1f} | {first / median:.2f} |")


def make_model(folder: Path, text: Any) -> None:
    """A model of OPUS-MT's size with random weights."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    import_module("tests.helpers.public_models").write_marian(
        folder, text=text, pieces=16_000, scale=1.0, d_model=512, encoder_layers=6, decoder_layers=6,
        encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
    )  # fmt: skip


if __name__ == "__main__":
    main()
