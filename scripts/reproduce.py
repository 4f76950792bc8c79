"""Train a config again and compare with the receipt in its header: `make reproduce CONFIG=configs/demo.yaml`.

    python scripts/reproduce.py configs/demo.yaml [key=value ...] [--out runs/reproduce-demo] [--reach 38 40]

A receipt is a block of comment lines (YAML after the `#`) with the results of one training. `minutes` is the
wall-clock time of the training from start to end, null if it was interrupted; `peak_mb` is the peak memory of
the last session. `seconds_to` is the time from the start of the command, with an empty cache, to the end of
the first validation with a BLEU of --reach (docs/measurements/speedrun.md). The receipt's settings are
applied again. An interrupted run is resumed by the same command. The script prints a table and a new receipt
that can replace the old one. Exit status 1: BLEU differs from the receipt by more than --tolerance, or a BLEU
of `seconds_to` is not reached.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import metric_names
from transformer_mt.files import read_objects
from transformer_mt.run.report import changes

COMMAND = [sys.executable, "-m", "transformer_mt"]


def receipt_of(path: Path) -> dict:
    """The facts in the header of a config; empty where nobody has measured it yet."""
    block = re.search(r"^# receipt:\n((?:#   .*\n)+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return yaml.safe_load(re.sub("^# ", "", block[1], flags=re.MULTILINE)) if block else {}


def train(command: list[str], out: Path, reach: list[float]) -> dict[float, float | None]:
    """Run the command and wait for it to end, also after Ctrl-C. The command receives the Ctrl-C itself and
    saves; subprocess.run would kill it before that. Returns the seconds to each validation BLEU of `reach`.
    """
    seconds: dict[float, float | None] = dict.fromkeys(reach)
    with tempfile.TemporaryDirectory() as cache:
        begun = time.monotonic()
        environment = {**os.environ, "TRANSFORMER_MT_CACHE": cache} if reach else None
        process = subprocess.Popen(command, env=environment)
        while process.returncode is None:
            with contextlib.suppress(KeyboardInterrupt):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2 if reach else None)
                best = best_bleu(out) if None in seconds.values() else 0.0
                for bound in reach:
                    if best >= bound and seconds[bound] is None:
                        seconds[bound] = round(time.monotonic() - begun, 1)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds


def best_bleu(run: Path) -> float:
    """The highest BLEU of the run's validations so far."""
    journal = read_objects(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []
    scores = [score for entry in journal if entry["event"] == "valid" for score in entry["scores"]]
    return max((score["value"] for score in scores if score["name"] == "BLEU"), default=0.0)


def measure(config: Path, out: Path, overrides: list[str], reach: list[float]) -> tuple[dict, list[str]]:
    """Train, evaluate, and put together what a receipt holds; and the keys that were changed on the way."""
    trained_before = (out / "finished.json").exists()
    if trained_before:
        print(f"{out}: was trained before; that run is compared, --out DIR trains another", file=sys.stderr)
    begun = time.monotonic()
    seconds_to = train([*COMMAND, "train", str(config), *overrides, "--out", str(out)], out, reach)
    minutes = (time.monotonic() - begun) / 60
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
    result = subprocess.run([*COMMAND, "evaluate", str(out), "--json"], check=True, stdout=subprocess.PIPE)
    test = json.loads(result.stdout.decode().split("\n")[0])
    journal = read_objects(out / "metrics.jsonl")
    starts = [entry for entry in journal if entry["event"] == "start"]
    last = [entry for entry in journal if "tokens" in entry][-1]
    trained = load_config(out / "config.yaml")
    bleu = next(score for score in test["scores"] if score["name"] == "BLEU")
    return {
        "test": test["corpus"],
        "bleu": round(bleu["value"], 2),
        "signature": bleu["signature"],
        "beam": trained.decode.beam if trained.decode.search == "beam" else trained.decode.in_words,
        "minutes": None if trained_before or len(starts) > 1 else round(minutes, 1),
        "tokens_per_second": round(last["tokens"] / last["seconds"]),
        "peak_mb": None if trained_before else round(peak),
        **({"seconds_to": seconds_to} if reach and not trained_before and len(starts) == 1 else {}),
        "machine": starts[-1]["gpu"] or f"{starts[-1]['threads']} threads of {starts[-1]['processor']}",
        "commit": starts[-1]["commit"],
        "seed": trained.seed,
        "settings": [word for word in overrides if not word.startswith(("seed=", "data.hub="))],
    }, sorted({key for keys in changes(journal).values() for key in keys})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--tolerance", type=float, default=0.7, help="BLEU points; seeds differ by about half of it"
    )
    parser.add_argument(
        "--reach", type=float, nargs="+", metavar="BLEU", help="measure the time to a validation BLEU"
    )
    options = parser.parse_intermixed_args()
    try:
        receipt = receipt_of(options.config)
        if not receipt:
            print(
                f"{options.config}: has no receipt yet; what is measured now can be its first",
                file=sys.stderr,
            )
        seed = [f"seed={receipt['seed']}"] if "seed" in receipt else []
        overrides = [*seed, *receipt.get("settings", []), *options.overrides]  # the last word on a key wins
        config = load_config(options.config, overrides)
        names = metric_names(config.evaluate, config.data.target_lang) if config.data.translates else []
        if not config.data.test or "BLEU" not in names:
            print(
                f"{options.config}: must have data.test, on which a receipt's BLEU is measured, and BLEU "
                "among evaluate.metrics",
                file=sys.stderr,
            )
            return 2
        out = options.out or Path("runs") / f"reproduce-{options.config.stem}"
        reach = options.reach or list(receipt.get("seconds_to", ()))
        measured, changed = measure(options.config, out, overrides, reach)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:  # what went wrong was said by the command
        return error.returncode if error.returncode > 0 else 128 - error.returncode
    print("\n| | receipt | now |\n|---|---|---|")
    for key, value in measured.items():
        print(f"| {key} | {receipt.get(key, '')} | {value} |")
    if changed:
        print(f"\nno receipt: {', '.join(changed)} changed while {out} was trained; --out DIR trains another")
        return 1
    print("\n# receipt:")
    print(
        "".join(f"#   {line}\n" for line in yaml.safe_dump(measured, sort_keys=False, width=200).splitlines())
    )
    if not receipt:
        return 0
    difference = measured["bleu"] - receipt["bleu"]
    problems = [f"BLEU {difference:+.2f} from the receipt"] if abs(difference) > options.tolerance else []
    problems += [
        f"another {key}"
        for key in ("signature", "beam")
        if unversioned(measured[key]) != unversioned(receipt[key])
    ]
    reached = measured.get("seconds_to", {})
    if receipt.get("seconds_to") and not reached:
        problems.append("no time to a score: the run was trained before, or in several sessions")
    problems += [
        f"validation BLEU below {bleu:g}"
        for bleu, seconds in receipt.get("seconds_to", {}).items()
        if seconds and bleu in reached and reached[bleu] is None
    ]
    if problems:
        print(f"NOT reproduced: {', '.join(problems)}")
        return 1
    print(f"reproduced: BLEU {difference:+.2f} from the receipt")
    return 0


def unversioned(fact: object) -> str:
    """A signature without the version of sacreBLEU; other facts as they are."""
    return re.sub(r"\|version:[^|]*", "", str(fact))


if __name__ == "__main__":
    sys.exit(main())
