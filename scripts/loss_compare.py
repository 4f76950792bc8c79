"""Compare what two commits compute: `python scripts/loss_compare.py COMMIT [COMMIT] [--only NAME ...]`.

Each commit is checked out into a folder of its own and trains the tiny configs below, once without a break
and once killed (SIGKILL) and resumed. Losses, weights, an evaluation and translations by each engine must be
equal, bit for bit on a CPU. The second commit defaults to the working tree, with what is not committed.
Exit status: 0 all equal, 1 something differs. --keep DIR keeps the folders of both.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from safetensors import safe_open

BASE: dict[str, Any] = {
    "data": {
        "source_lang": "en",
        "target_lang": "de",
        "train": {"toy": "train", "size": 1500},
        "valid": {"toy": "valid", "size": 60},
        "test": [{"toy": "test", "size": 40}],
        "max_length": 64,
    },
    "tokenizer": {"vocab_size": 450},
    "model": {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "train": {
        "max_updates": 60,
        "batch_tokens": 600,
        "learning_rate": 0.006,
        "warmup": 10,
        "log_every": 1,
        "validate_every": 30,
        "save_every": 10,
        "average_checkpoints": 2,
    },
}
ENGLISH = {"language": "en", "objective": "masked_lm"}
BACK = {"reverse": True, "name": "back", "tag": "<back>"}
CONFIGS: dict[str, dict[str, Any]] = {
    "demo": {"train": {"schedule": "cosine"}},
    "post_norm": {
        "model": {"norm": "post"},
        "tokenizer": {"bpe_dropout": 0.1},
        "train": {"optimizer": "adamw"},
    },
    "recurrent": {"model": {"kind": "recurrent"}, "train": {"optimizer": "adamw"}},
    "languages": {
        "data": {
            "train": [{"toy": "train", "size": 800}, {"toy": "train", "size": 700, **BACK}],
            "valid": [
                {"toy": "valid", "size": 30},
                {"toy": "valid", "size": 30, **BACK, "name": "valid back"},
            ],
            "test": [{"toy": "test", "size": 20}, {"toy": "test", "size": 20, **BACK, "name": "test back"}],
        }
    },
    "terms": {"data": {"changes": [{"terms": {"share": 0.5}}]}},
    "guided": {"train": {"guided_alignment": {"weight": 0.05}}},
    "masked": {
        "data": {
            "train": {"toy": "train", "size": 1500, **ENGLISH},
            "valid": {"toy": "valid", "size": 60, **ENGLISH},
            "test": [{"toy": "test", "size": 40, **ENGLISH}],
        },
        "model": {"kind": "encoder"},
    },
    # Blocks have 100,000 pairs, and a window at least one block and 1,000 batches.
    "windows": {"data": {"train": {"toy": "train", "size": 210_000}, "window_pairs": 100_000}},
}
LINES = ["The dog sleeps.", "A small bird sees the old teacher in the garden. Today he sings.", "", "X 12 %"]


def config_of(name: str) -> dict[str, Any]:
    """The values of one of the CONFIGS."""
    values = {section: {**keys} for section, keys in BASE.items()}
    for section, keys in CONFIGS[name].items():
        values[section] |= keys
    if values["model"].get("kind") in ("encoder", "recurrent"):
        del values["model"]["num_decoder_layers"]
        values["model"] |= {} if values["model"]["kind"] == "encoder" else {"num_encoder_layers": 1}
    return {"name": name, **values}


class Checkout:
    """The package of a commit, and a folder to train in."""

    def __init__(self, commit: str, folder: Path) -> None:
        self.commit, self.source, self.work = commit, folder / "source", folder / "work"
        shutil.rmtree(folder, ignore_errors=True)
        self.work.mkdir(parents=True)
        if commit == "worktree":
            self.source = Path(__file__).resolve().parent.parent
        else:
            subprocess.run(["git", "worktree", "add", "--detach", "-q", str(self.source), commit], check=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "TRANSFORMER_MT_CACHE": str(folder / "cache"),
            "HF_HUB_OFFLINE": "1",
        }

    def remove(self) -> None:
        if self.commit != "worktree":
            subprocess.run(["git", "worktree", "remove", "--force", str(self.source)], check=True)

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "transformer_mt", *words], cwd=self.work, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(self, *words: str, text: str = "") -> str:
        """The standard output of a command."""
        process = self.start(*words, stdin=subprocess.PIPE)
        out, errors = process.communicate(text)
        if process.returncode:
            raise SystemExit(f"{self.commit}: {' '.join(words)} failed:\n{errors}")
        return out

    def results(self, name: str) -> dict[str, Any]:
        """Losses, digests and translations of a config, by what they are."""
        (self.work / f"{name}.yaml").write_text(yaml.safe_dump(config_of(name)), encoding="utf-8")
        run, killed = f"runs/{name}", f"runs/{name}-killed"
        self.run("train", f"{name}.yaml")
        self._kill(name, killed)
        self.run("train", f"{name}.yaml", "--out", killed)
        entries = [json.loads(line) for line in (self.work / run / "metrics.jsonl").read_text().splitlines()]
        losses = [
            {k: v for k, v in entry.items() if k in ("step", "loss", "lr", "bleu")} for entry in entries
        ]
        found: dict[str, Any] = {
            "losses": losses,
            "weights": _weights(self.work / run / "model.safetensors"),
            "weights after a kill": _weights(self.work / killed / "model.safetensors"),
            "vocabulary": _digest(self.work / run / "tokenizer.model"),
            "scores": self.run("evaluate", run, "--json", "--device", "cpu"),
        }
        if name == "masked":
            found["filled"] = self.run("fill", run, "The dog [MASK].", "--json")
            return found
        target = ["--to", "de"] if name == "languages" else []
        export = self.work / run / "ctranslate2"
        found["export"] = _digest(export / "model.bin")
        for engine in ("torch", *(["ctranslate2"] if export.exists() else [])):
            words = (
                "translate",
                run,
                "--json",
                "--n-best",
                "2",
                "--device",
                "cpu",
                "--engine",
                engine,
                *target,
            )
            found[f"translations by {engine}"] = self.run(*words, text="\n".join(LINES) + "\n")
        return found

    def _kill(self, name: str, out: str) -> None:
        """Train until a checkpoint is there, and kill the process."""
        process = self.start("train", f"{name}.yaml", "--out", out)
        while process.poll() is None and not list((self.work / out).glob("checkpoints/step-*")):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else "none"


def _weights(file: Path) -> str:
    """A digest of the tensors in a file, whatever their names."""
    with safe_open(file, framework="numpy") as saved:
        tensors = [saved.get_tensor(name) for name in list(saved.keys())]
    parts = sorted(hashlib.sha256(tensor.tobytes()).digest() for tensor in tensors)
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", metavar="COMMIT")
    parser.add_argument("after", metavar="COMMIT", nargs="?", default="worktree")
    parser.add_argument("--only", metavar="NAME", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--keep", metavar="DIR", type=Path, help="a folder for the runs and results of both")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        before = results_of(arguments.before, folder / arguments.before, arguments.only)
        after = results_of(arguments.after, folder / arguments.after, arguments.only)
    differences = 0
    for name in arguments.only:
        for part in sorted({*before[name], *after[name]}):
            values = before[name].get(part), after[name].get(part)
            print(f"{name:<10} {part:<28} {'equal' if values[0] == values[1] else 'DIFFERENT'}")
            if values[0] != values[1]:
                differences += 1
                print(f"    before: {values[0]}\n    after:  {values[1]}")
        for side in (before[name], after[name]):
            if side["weights"] != side["weights after a kill"]:
                print(f"{name:<10} a killed training ends with other weights")
                differences += 1
    return 1 if differences else 0


def results_of(commit: str, folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """The results of a commit by config; those that were kept are not computed again."""
    kept = folder.parent / f"{folder.name}.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() and commit != "worktree" else {}
    if missing := [name for name in names if name not in results]:
        checkout = Checkout(commit, folder)
        try:
            for name in missing:
                results[name] = checkout.results(name)
                kept.write_text(json.dumps(results), encoding="utf-8")
        finally:
            checkout.remove()
    return results


if __name__ == "__main__":
    raise SystemExit(main())
