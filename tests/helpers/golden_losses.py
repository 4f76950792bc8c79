"""Losses of the first updates of tiny trainings, for each kind of CPU and GPU.

`python -m tests.helpers.golden_losses` writes tests/golden/losses/KIND.json for this machine: after a change
that is meant to alter them, and on a kind that has no file yet.
"""

import json
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

FOLDER = ROOT / "tests/golden/losses"
NAMES = ("demo", "post_norm", "recurrent", "languages", "masked")
UPDATES = 16


def kind() -> str:
    """The kind of this machine: its GPU, or the instructions that torch uses on its CPU."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name().lower().replace(" ", "-")
    return torch.backends.cpu.get_cpu_capability().lower()


def losses(name: str, folder: Path) -> list[float]:
    """The loss of each update of one of the configs of scripts/loss_compare.py, in float32."""
    import torch

    from transformer_mt.config import Config
    from transformer_mt.files import read_objects
    from transformer_mt.training import train

    values: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/loss_compare.py"))["config_of"](name)
    values["train"] |= {
        "max_updates": UPDATES, "validate_every": UPDATES, "save_every": UPDATES, "average_checkpoints": 1,
        "precision": "fp32",
    }  # fmt: skip
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # each thread has dropout masks of its own
    try:
        train(Config.model_validate(values), folder)
    finally:
        torch.set_num_threads(threads)
    return [entry["loss"] for entry in read_objects(folder / "metrics.jsonl") if entry["event"] == "train"]


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TRANSFORMER_MT_CACHE"] = f"{temporary}/cache"
        expected = {name: losses(name, Path(temporary) / name) for name in NAMES}
    file = FOLDER / f"{kind()}.json"
    file.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    sys.stderr.write(f"written: {file}\n")
