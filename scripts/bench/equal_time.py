"""Train the variants of a sweep for equal CPU time: each gets as many updates as fit into it.

    python scripts/bench/equal_time.py scripts/sizing/30k.yaml --cpu-minutes 30 --out runs/sizing-30k \
        data.hub=PATH/TO/multi30k

Updates are measured in CPU time of the whole process, which other load on the machine changes little. The
measured sweep, with `train.max_updates` of each variant, is written to OUT/sweep.yaml and then run by
`transformer-mt sweep`, one thread per job.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

# CPU seconds per update are the difference of two short trainings, so that start and end do not count.
SHORT, LONG = 15, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--cpu-minutes", type=float, required=True, help="CPU time of each training")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--validations", type=int, default=4, help="validations of each training")
    args = parser.parse_intermixed_args()
    os.environ |= {"OMP_NUM_THREADS": "1"}
    plan = args.out / "sweep.yaml"
    if not plan.exists():
        args.out.mkdir(parents=True, exist_ok=True)
        sweep = yaml.safe_load(args.sweep.read_text(encoding="utf-8"))
        base = (args.sweep.parent / sweep["base"]).resolve()
        shared = sweep.get("settings", {})
        for name, settings in sweep["variants"].items():
            chosen = {**shared, **(settings or {})}
            seconds = seconds_per_update(base, chosen, args.overrides)
            updates = max(20, int(args.cpu_minutes * 60 / seconds))
            print(f"{name}: {seconds:.2f} CPU seconds per update, {updates:,} updates", flush=True)
            sweep["variants"][name] = {**(settings or {}), **lengths(updates, args.validations)}
        sweep |= {"name": args.out.name, "base": str(base)}
        plan.write_text(yaml.safe_dump(sweep, sort_keys=False, allow_unicode=True), encoding="utf-8")
    command = ["transformer-mt", "sweep", str(plan), *args.overrides]
    sys.exit(subprocess.call([*command, "--out", str(args.out), "--jobs", str(args.jobs)]))


def lengths(updates: int, validations: int) -> dict[str, int]:
    """The keys that count updates."""
    every = -(-updates // validations)
    return {
        "train.max_updates": updates,
        "train.warmup": max(10, updates // 12),
        "train.validate_every": every,
        "train.save_every": every,
    }


def seconds_per_update(base: Path, settings: dict[str, Any], overrides: list[str]) -> float:
    """CPU seconds of one update, in processes of their own."""
    times = {updates: cpu_seconds(base, settings, overrides, updates) for updates in (2, SHORT, LONG)}
    return (times[LONG] - times[SHORT]) / (LONG - SHORT)


def cpu_seconds(base: Path, settings: dict[str, Any], overrides: list[str], updates: int) -> float:
    """CPU seconds of a training of so many updates. The first one also prepares the data."""
    keys = {**settings, **lengths(updates, 1), "train.validate_sentences": 1, "train.average_checkpoints": 1}
    chosen = [f"{key}={yaml.safe_dump(value, default_flow_style=True)}" for key, value in keys.items()]
    words = [word.removesuffix("\n").removesuffix("\n...") for word in chosen]
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["transformer-mt", "train", str(base), *words, *overrides, "--out", f"{folder}/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
