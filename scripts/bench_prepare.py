"""Prepare a large generated corpus: time, memory, an interruption, the second start, and the speed of
SentencePiece alone.

    python scripts/bench_prepare.py [--pairs 5000000] [--stop-after 40] [--folder /somewhere/with/room]

Two text files are generated from the toy language first. Each start is a process of its own. Prints a
Markdown table.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its import is part of what is measured
    from transformer_mt.config import Config


def config_of(folder: Path) -> "Config":
    from transformer_mt.config import Config

    text = {"source": str(folder / "big.en"), "target": str(folder / "big.de")}
    return Config.model_validate(
        {
            "name": "bench",
            "data": {
                "source_lang": "en",
                "target_lang": "de",
                "train": text,
                "valid": {"toy": "valid", "size": 200},
            },
            "tokenizer": {"vocab_size": 1000},
        }
    )


def generate(folder: Path, pairs: int) -> None:
    from transformer_mt.corpora import toy

    with (
        (folder / "big.en").open("w", encoding="utf-8") as src,
        (folder / "big.de").open("w", encoding="utf-8") as tgt,
    ):
        for source, target in toy.generate("train", pairs):
            src.write(f"{source}\n")
            tgt.write(f"{target}\n")


def start(folder: Path) -> None:
    """Do what a training does before its first update."""
    from transformer_mt.data.batches.batching import TrainingBatches
    from transformer_mt.data.preparation.prepare import prepare

    begun = time.perf_counter()
    data = prepare(config_of(folder))
    prepared = time.perf_counter()
    # Not ru_maxrss, which begins with the parent's.
    status = Path("/proc/self/status").read_text(encoding="utf-8").split("\n")
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    TrainingBatches(data.train, 4096, seed=1).next_update()
    print(prepared - begun, time.perf_counter() - prepared, peak)


def sentencepiece_alone(folder: Path, pairs: int) -> float:
    """Pairs a second that SentencePiece encodes with all cores when it does nothing else."""
    from itertools import islice

    from transformer_mt.data.preparation.prepare import prepare
    from transformer_mt.text.lines import read_lines

    tokenizer = prepare(config_of(folder)).tokenizer
    src, tgt = (
        list(islice(read_lines(str(folder / f"big.{side}")), min(pairs, 200_000))) for side in ("en", "de")
    )
    begun = time.perf_counter()
    tokenizer.encode_src(src)
    tokenizer.encode_tgt(tgt)
    return len(src) / (time.perf_counter() - begun)


def run(folder: Path, cache: str, stop_after: float | None = None) -> tuple[float, float, float] | None:
    """(seconds of preparation, seconds to the first batch, peak MB) of one start; None if it was stopped."""
    environment = {**os.environ, "TRANSFORMER_MT_CACHE": str(folder / cache)}
    command = [sys.executable, __file__, "--folder", str(folder), "--start"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        output, _ = process.communicate(timeout=stop_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    if process.returncode:
        sys.exit(process.returncode)
    seconds, first, peak = map(float, output.split())
    return seconds, first, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument(
        "--stop-after", type=float, default=40, help="seconds after which one preparation is killed"
    )
    parser.add_argument(
        "--folder", type=Path, help="where the corpus and two caches of it have room, 3 GB for 5 million"
    )
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        start(options.folder)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        generate(folder, options.pairs)
        first, second = run(folder, "cache"), run(folder, "cache")
        was_killed = run(folder, "interrupted", options.stop_after) is None
        rest = run(folder, "interrupted")
        os.environ["TRANSFORMER_MT_CACHE"] = str(folder / "cache")
        alone = sentencepiece_alone(folder, options.pairs)
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    print(f"commit {commit}, {options.pairs:,} pairs\n\n| | |\n|---|---|")
    assert first and second and rest
    what = "first start: read, find duplicates, learn the pieces, encode"
    print(f"| {what} | {first[0]:.0f} s, {first[2]:,.0f} MB at the peak |")
    print(f"| SentencePiece alone, all cores | {alone:,.0f} pairs/s |")
    if was_killed:
        print(f"| killed after {options.stop_after:.0f} s and started again | {rest[0]:.0f} s more |")
    print(
        f"| second start | {second[0]:.1f} s until the data is there, {second[1]:.1f} s more to the first "
        "batch |"
    )


if __name__ == "__main__":
    main()
