"""Speed on a GPU: of the trainer's own updates, with real batches, and of translating, text to text.

    python scripts/bench/gpu.py base:adamw:compiled small:muon:captured ...
    python scripts/bench/gpu.py --train a.en.gz a.de.gz --tokenizer bpe.model base:adamw:compiled ...
    python scripts/bench/gpu.py --translate RUN --lines captions.jsonl

Each row of training is a run that `transformer-mt train` would open, measured after its first updates: padded
batches, packed ones, packed ones captured as CUDA graphs, and those with compiled layers and loss. Without
--train the text is random words, as long as sentences of European parliament and news. MFU is the share of
the device's bfloat16 rate: 6 x weights x tokens and the products of attention, over the time. `GPU busy` is
the time of the kernels over that of the updates. Memory is what torch has reserved.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.device import use_device
from transformer_mt.run_folder import RunFolder
from transformer_mt.training import open_run
from transformer_mt.update import build_updater as build
from transformer_mt.update.step import Updater

SHAPES = {  # d_model, d_ff, heads, layers on each side, tokens of an update
    "tiny": (64, 128, 4, 1, 1024),
    "small": (256, 1024, 4, 4, 8000),
    "base": (512, 2048, 8, 6, 25000),
    "big": (1024, 4096, 16, 6, 25000),
}
WAYS = {  # packed, captured, compiled
    "padded": (False, False, False),
    "packed": (True, False, False),
    "captured": (True, True, False),
    "compiled": (True, True, True),
}
WARM = 8
COLUMNS = "shape, optimizer, way, target tokens/s, ms, MFU, GPU busy, padding, first 4 updates s, GB, loss"


def write_words(folder: Path, pairs: int = 40_000, words: int = 31_000) -> list[Path]:
    """Two aligned files of random words; the frequent ones are as frequent as in a language."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(3.2, 0.6, pairs), 3, 100).astype(int)
    vocabulary = np.array([f"w{number:05d}" for number in range(words)])
    shares = 1 / np.arange(2, words + 2)
    files = []
    for side, ratio in (("en", 1.0), ("de", 1.03)):
        ids = rng.choice(words, int(2 * lengths.sum()), p=shares / shares.sum())
        ends = np.cumsum(np.maximum(1, (lengths * ratio).astype(int)))
        lines = (" ".join(vocabulary[ids[start:end]]) for start, end in zip([0, *ends], ends))
        files.append(folder / f"words.{side}")
        files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def config(args: argparse.Namespace, shape: str, optimizer: str, way: str) -> Config:
    d_model, d_ff, heads, layers, tokens = SHAPES[shape]
    packed, _, compiled = WAYS[way]
    source, target = args.train
    words = {"kind": "word", "vocab_size": 32_000, "byte_fallback": False}
    return Config.model_validate(
        {
            "name": "bench",
            "data": {
                "source_lang": "en",
                "target_lang": "de",
                "max_length": 128,
                "train": {"source": str(source), "target": str(target)},
                "valid": {"from_train": {"share": 0.002}},
            },
            "tokenizer": {"file": str(args.tokenizer)} if args.tokenizer else words,
            "model": {
                "d_model": d_model,
                "d_ff": d_ff,
                "num_heads": heads,
                "num_encoder_layers": layers,
                "num_decoder_layers": layers,
            },
            "train": {
                "batch_tokens": tokens,
                "device": args.device,
                "precision": "bf16",
                "packed": packed,
                "compile": compiled,
                "optimizer": optimizer,
                "max_updates": 100_000,
            },
        }
    )


def peak_flops(device: torch.device) -> float:
    """Operations a second of a large bfloat16 product."""
    size = 8192 if device.type == "cuda" else 512
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    sync(device)
    start = time.perf_counter()
    for _ in range(20):
        a @ a
    sync(device)
    return 20 * 2 * size**3 / (time.perf_counter() - start)


def sync(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def flops(shape: str, vocabulary: int, src: float, tgt: float, squares: tuple[float, float, float]) -> float:
    """The operations of an update of `src` and `tgt` real tokens; `squares` are the sums over its sentences
    of S², T² and S T.
    """
    D, FF, _, L, _ = SHAPES[shape]
    encoder = L * (4 * D * D + 2 * D * FF + 2 * D * D)  # keys and values of the memory, too
    decoder = L * (6 * D * D + 2 * D * FF) + vocabulary * D
    s2, t2, st = squares
    return 6 * (encoder * src + decoder * tgt) + 12 * D * L * (s2 + t2 / 2 + st)


def kernel_seconds(device: torch.device, step: Callable[[], object], count: int) -> float:
    """Seconds of kernels in an update."""
    if device.type != "cuda":
        return float("nan")
    from torch.profiler import ProfilerActivity, profile

    sync(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(count):
            step()
        sync(device)
    events = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    if "--kernels" in sys.argv:
        sums: dict[str, list[float]] = {}
        for event in events:
            row = sums.setdefault(event.name, [0.0, 0])
            row[0] += event.device_time_total / 1e3 / count
            row[1] += 1 / count
        for name, (ms, calls) in sorted(sums.items(), key=lambda item: -item[1][0])[:25]:
            print(f"    {ms:7.3f} ms {calls:6.1f}  {name[:120]}")
    return sum(event.device_time_total for event in events) / 1e6 / count


def measure(args: argparse.Namespace, shape: str, optimizer: str, way: str, peak: float) -> list[object]:
    device = torch.device(args.device)
    captured = WAYS[way][1]
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(build, "CapturedUpdater", build.CapturedUpdater if captured else Updater),
    ):
        run = open_run(config(args, shape, optimizer, way), RunFolder(folder))
        run.model.train()
        results = []

        def step() -> None:
            results.append(run.updater.update(run.batches.next_update(), 1e-4))

        start = time.perf_counter()
        for _ in range(4):
            step()
        sync(device)
        first = time.perf_counter() - start
        for _ in range(WARM):
            step()
        sync(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        times, count = [], args.updates
        for _ in range(3):
            del results[:]
            start = time.perf_counter()
            for _ in range(count):
                step()
            sync(device)
            times.append((time.perf_counter() - start) / count)
        tokens = statistics.mean(result.result().num_tokens for result in results)
        loss = results[-1].result().loss / results[-1].result().num_tokens
        (batch,) = run.batches.next_update()
        padding = 1 - float((batch.src != 0).sum() + (batch.tgt_out != 0).sum()) / (
            batch.src.numel() + batch.tgt_out.numel()
        )
        lengths = run.data.train.lengths(0).astype(float), run.data.train.lengths(1).astype(float)
        share = tokens / lengths[1].sum()
        products = ((lengths[0] ** 2).sum(), (lengths[1] ** 2).sum(), (lengths[0] * lengths[1]).sum())
        squares = tuple(share * product for product in products)
        seconds = statistics.median(times)
        work = flops(shape, run.model.output.out_features, share * lengths[0].sum(), tokens, squares)
        memory = torch.cuda.max_memory_reserved() / 1e9 if device.type == "cuda" else float("nan")
        share_busy = kernel_seconds(device, step, 8) / seconds
        run.close()
    numbers = f"{tokens / seconds:,.0f}", f"{1e3 * seconds:.1f}", f"{work / seconds / peak:.3f}"
    more = f"{share_busy:.2f}", f"{padding:.3f}", f"{first:.1f}", f"{memory:.1f}", f"{loss:.3f}"
    return [shape, optimizer, way, *numbers, *more]


def translating(run: Path, file: Path, device: str, most: int) -> None:
    """Print the sentences a second, text to text, greedy and with a beam."""
    from transformer_mt import Translator

    texts = [json.loads(line)["en"] for line in file.read_text(encoding="utf-8").splitlines()]
    lines = list(dict.fromkeys(texts))[:most]
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # as the command `translate` does
    print("| search | sentences/s, text to text | rounds, s |\n|---|---|---|", flush=True)
    for name, beam in (("greedy", 1), ("beam 5", 5)):
        translator = Translator.load(run, device=device, decode={"beam": beam}, engine="torch")
        translator.translate(lines[:500])
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            translator.translate(lines)
            seconds.append(time.perf_counter() - start)
        rounds = ", ".join(f"{value:.2f}" for value in seconds)
        print(f"| {name} | {len(lines) / statistics.median(seconds):,.0f} | {rounds} |", flush=True)


def main() -> None:
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=kind)
    parser.add_argument("--train", nargs=2, type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--kernels", action="store_true", help="print the 25 kernels that take longest")
    parser.add_argument("--translate", type=Path, metavar="RUN")
    parser.add_argument("--lines", type=Path, help="sentences to translate: JSON lines with the key en")
    parser.add_argument("--most", type=int, default=12_000, help="sentences that are translated")
    parser.add_argument("rows", nargs="*", help="shape:optimizer:way, e.g. base:adamw:compiled")
    args = parser.parse_args()
    device = torch.device(args.device)
    use_device(device)
    if args.translate:
        translating(args.translate, args.lines, args.device, args.most)
        return
    folder = tempfile.TemporaryDirectory()
    args.train = args.train or write_words(Path(folder.name))
    peak = peak_flops(device)
    print(f"bfloat16 product: {peak / 1e12:.0f} TFLOP/s\n", flush=True)
    names = COLUMNS.split(", ")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)
    for row in args.rows:
        shape, optimizer, way = row.split(":")
        print(f"| {' | '.join(map(str, measure(args, shape, optimizer, way, peak)))} |", flush=True)
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
