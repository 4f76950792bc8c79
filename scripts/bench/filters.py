"""What each rule of data.filter costs: preparing two line-aligned files with it, compared with no filter.

    python scripts/bench/filters.py en de SOURCE TARGET [--rounds 3]

Each preparation is a process of its own with an empty cache; prints medians as a Markdown table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILTERS: dict[str, dict] = {
    "none": {},
    "copy, markup, numbers": {"copy": True, "markup": True, "numbers": True},
    "script": {"script": True},
    "encoding: drop": {"encoding": "drop"},
    "encoding: repair": {"encoding": "repair"},
    "detokenize": {"detokenize": True},
    "language": {"language": True},
}


def prepare_once(languages: list[str], files: list[str], chosen: dict) -> None:
    """Prepare, and print the seconds, the peak memory in MB and the kept pairs."""
    from transformer_mt.config import Config
    from transformer_mt.preparation import prepare

    values = {
        "name": "bench",
        "data": {
            "source_lang": languages[0],
            "target_lang": languages[1],
            "train": {"source": files[0], "target": files[1]},
            "valid": {"from_train": {"share": 0.001}},
            **({"filter": chosen} if chosen else {}),
        },
        "tokenizer": {"vocab_size": 8000},
    }
    config = Config.model_validate(values)
    begun = time.perf_counter()
    data = prepare(config)
    seconds = time.perf_counter() - begun
    status = Path("/proc/self/status").read_text(encoding="utf-8").split("\n")
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    print(json.dumps([seconds, peak, len(data.train)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("languages", nargs=2)
    parser.add_argument("files", nargs=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=FILTERS, default=list(FILTERS))
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    args = parser.parse_intermixed_args()
    if args.prepare is not None:
        prepare_once(args.languages, args.files, json.loads(args.prepare))
        return
    results: dict[str, list[list[float]]] = {name: [] for name in args.only}
    for _ in range(args.rounds):  # taking turns, so that a slow minute slows all
        for name in args.only:
            command = [sys.executable, __file__, *args.languages, *args.files]
            command += ["--prepare", json.dumps(FILTERS[name])]
            with tempfile.TemporaryDirectory() as cache:
                environment = {**os.environ, "TRANSFORMER_MT_CACHE": cache}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            results[name].append(json.loads(done.stdout.strip().split("\n")[-1]))
    base = statistics.median(seconds for seconds, _, _ in results[args.only[0]])
    print(f"| filter | time, compared with {args.only[0]} | peak MB | pairs kept |\n|---|---|---|---|")
    for name, rounds in results.items():
        seconds, peak = (statistics.median(each[i] for each in rounds) for i in (0, 1))
        print(f"| {name} | {seconds / base:.2f} ({seconds:.1f} s) | {peak:.0f} | {rounds[0][2]:,} |")


if __name__ == "__main__":
    main()
