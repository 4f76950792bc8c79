"""Prepare and train on millions of pairs with both engines, and plan a thousand million.

    python scripts/bench/scaling.py --data /folder/with/general_en_de [--pairs 10000000] [--folder /with/room]

The pairs are those of Europarl, Tatoeba and news, repeated with other numbers at their ends. Each step is a
process of its own. Prints Markdown tables.
"""

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

PART = 1_000_000
UPDATES = 50
LAYERS = "num_encoder_layers", "num_decoder_layers"


def texts(data: Path) -> list[tuple[str, str]]:
    pairs = []
    with gzip.open(data / "europarl.en.gz", "rt") as en, gzip.open(data / "europarl.de.gz", "rt") as de:
        pairs += [(a.strip(), b.strip()) for a, b in zip(en, de)]
    with gzip.open(data / "tatoeba.tsv.gz", "rt") as rows:
        pairs += [(row[0], row[1]) for row in (line.rstrip("\n").split("\t") for line in rows)]
    with gzip.open(data / "news2008_2012.jsonl.gz", "rt") as rows:
        pairs += [(row["en"], row["de"]) for row in map(json.loads, rows)]
    return pairs


def varied(pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield from pairs
    for number in count(1):
        for en, de in pairs:
            yield f"{en} ({number})", f"{de} ({number})"


def write_corpus(data: Path, folder: Path, pairs: int) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = islice(varied(texts(data)), pairs)
    for part in count():
        if not (some := list(islice(rows, PART))):
            return
        table = pyarrow.table({"en": [en for en, _ in some], "de": [de for _, de in some]})
        pyarrow.parquet.write_table(table, folder / f"part-{part:05d}.parquet")


def config(folder: Path, data: Path, engine: str) -> str:
    text = {
        "name": "scaling",
        "data": {
            "source_lang": "en",
            "target_lang": "de",
            "train": {"file": str(folder / "part-*.parquet")},
            "valid": {"source": str(data / "newstest2013.en"), "target": str(data / "newstest2013.de")},
            "window_pairs": 1_000_000,
            "preparation": {"engine": engine, "address": "local", "folder": str(folder / engine)},
        },
        "tokenizer": {"vocab_size": 16_000},
        "model": {"d_model": 128, "d_ff": 512, "num_heads": 4, **dict.fromkeys(LAYERS, 2)},
        "train": {"compile": False, "batch_tokens": 4096, "validate_every": 1000, "max_updates": UPDATES},
    }
    file = folder / f"{engine}.json"
    file.write_text(json.dumps(text), encoding="utf-8")
    return str(file)


class Watch:
    """CPU seconds, and the largest sum of private memory, of all processes below this one."""

    def __init__(self) -> None:
        self._peak, self._cpu, self._ended = 0, dict[int, float](), threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            below = _below(os.getpid())
            self._peak = max(self._peak, sum(map(_private, below)))
            self._cpu |= below

    def end(self) -> tuple[float, float]:
        """CPU seconds and GB."""
        self._ended.set()
        return sum(self._cpu.values()), self._peak / 1e9


def _below(pid: int) -> dict[int, float]:
    """The processes below one, and the CPU seconds of each."""
    children: dict[int, list[tuple[int, float]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), ticks))
    below, left = dict[int, float](), [pid]
    while left:
        of_parent = dict(children.get(left.pop(), []))
        below |= of_parent
        left += of_parent
    return below


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").split("\n")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


def measured(words: list[str]) -> tuple[float, float, float]:
    """(seconds, CPU seconds, GB) of a command."""
    begun, watch = time.perf_counter(), Watch()
    subprocess.run([sys.executable, "-m", "transformer_mt", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun, *watch.end()


def manifest(folder: Path) -> str:
    (file,) = folder.glob("*/facts.json")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def real_shares(folder: Path, data: Path) -> Iterator[str]:
    """The share of real positions for windows of different sizes and two sizes of batches."""
    import numpy as np

    from transformer_mt.config.load import load_config
    from transformer_mt.data.batches.batching import plan_epoch
    from transformer_mt.training import prepared

    pairs = prepared(load_config(config(folder, data, "local"), []))[1].train
    for window in (200_000, 1_000_000, 16_000_000):
        rows = range(min(window, len(pairs)))
        src, tgt = pairs.lengths(0, rows), pairs.lengths(1, rows)
        shares = []
        for tokens in (25_000, 400_000):
            plan = plan_epoch(src, tgt, tokens, 1, 0)
            positions = sum(len(b) * (int(src[b].max()) + int(tgt[b].max())) for b in plan)
            shares.append(float(np.sum(src, dtype=np.int64) + np.sum(tgt, dtype=np.int64)) / positions)
        yield f"| {len(rows):,} | {shares[0]:.3f} | {shares[1]:.3f} |"


class ManyPairs:
    """The lengths of a thousand million pairs in blocks of 100,000; their ids are nowhere."""

    def __len__(self) -> int:
        return 10**9

    def lengths(self, side: int, rows: range) -> Any:
        import numpy as np

        return np.random.default_rng([side, rows.start]).integers(2, 80, len(rows), dtype=np.int32)

    def close_all_but(self, rows: object) -> None:
        pass


def plan_many() -> None:
    """Plan two windows of a thousand million pairs; prints seconds and the memory before and after, in GB."""
    from transformer_mt.data.batches.batch import Rows
    from transformer_mt.data.batches.batching import Mixture, TrainingBatches, num_windows

    def peak() -> float:
        status = Path("/proc/self/status").read_text(encoding="utf-8")  # getrusage has the parent's, too
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9

    windows = num_windows(1e9, 4e10, 16_000_000, 25_000)
    imported, begun = peak(), time.perf_counter()
    mixture = Mixture([100_000] * 10_000, [1.0] * 10_000, 1, windows)
    batches = TrainingBatches(Rows(ManyPairs()), 25_000, 1, mixture=mixture)  # type: ignore[arg-type]
    mixture.parts(0, 0)
    without = peak()
    batches._next_rows()
    first = time.perf_counter() - begun
    batches.settle()  # the next window is planned meanwhile
    print(json.dumps([windows, first, without - imported, peak() - imported, batches.state_dict()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of the general corpora")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where there is room: 4 GB for 10 million")
    parser.add_argument("--plan", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plan:
        plan_many()
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        os.environ["TRANSFORMER_MT_CACHE"] = str(folder / "cache")
        write_corpus(options.data, folder, options.pairs)
        print("| engine | seconds | CPU s per million | peak memory | manifest | weights |")
        print("|---|---|---|---|---|---|")
        for engine in ("local", "ray"):
            file = config(folder, options.data, engine)
            seconds, cpu, memory = measured(["prepare", file])
            run = folder / f"run-{engine}"
            measured(["train", file, "data.preparation.engine=local", "--out", str(run)])
            weights = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()[:12]
            per_million = cpu / options.pairs * 1e6
            row = [
                f"{seconds:,.0f}",
                f"{per_million:.1f}",
                f"{memory:.1f} GB",
                manifest(folder / engine),
                weights,
            ]
            print("|", " | ".join([engine, *row]), "|", flush=True)
        print("\n| window | 25,000 tokens | 400,000 tokens |\n|---|---|---|")
        for line in real_shares(folder, options.data):
            print(line, flush=True)
    done = subprocess.run([sys.executable, __file__, "--plan"], check=True, capture_output=True, text=True)
    windows, seconds, without, peak, state = json.loads(done.stdout)
    print(
        f"\n1,000,000,000 pairs: {windows} windows, {seconds:.1f} s to the first batch, {without:.2f} GB "
        f"without a window, {peak:.2f} GB with two ({state})"
    )


if __name__ == "__main__":
    main()
