"""Check and measure the project on a CUDA GPU, best things first, and append the result to
docs/measurements/gpu.md.

    python scripts/gpu_check.py [train] [tests] [run] [translate] [--data FOLDER] [--device cpu] [--no-record]

Without a part all of them, in less than eight minutes on one GPU. `train` measures updates
(scripts/bench/gpu.py); `tests` runs the tests of packed, captured and compiled updates, or with --all-tests
all of tests/gpu; `run` trains a config from its beginning to its end; `translate` translates with its model.
FOLDER holds train.jsonl, val.jsonl and test.jsonl with the keys en and de, as Multi30k does; without it the
built-in toy language is used. --text and --tokenizer name the text for `train`; by default it is random
words. `--device cpu` is a dry run, not recorded: it finds mistakes in the scripts on a machine without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "measurements" / "gpu.md"
SCRIPTS = ROOT / "scripts"


def corpora(data: Path | None) -> list[str]:
    """Overrides that name the training, validation and test sets."""
    if data is None:
        return ["data.train={toy: train}", "data.valid={toy: valid}", "data.test=[{toy: test}]"]
    train, valid, test = (data / f"{name}.jsonl" for name in ("train", "val", "test"))
    return [f"data.train={{file: {train}}}", f"data.valid={{file: {valid}}}", f"data.test=[{{file: {test}}}]"]


PARTS = ("train", "tests", "run", "translate")
ROWS = [
    *("small:adamw:padded", "small:adamw:captured", "small:adamw:compiled", "small:muon:compiled"),
    *("base:adamw:captured", "base:adamw:compiled", "base:muon:compiled", "big:adamw:compiled"),
]


def commands(part: str, options: argparse.Namespace, out: Path) -> list[list[str]]:
    """The commands of a part, one after the other; a dry run makes less of everything."""
    python, device, dry = sys.executable, options.device, options.device == "cpu"
    bench = [python, str(SCRIPTS / "bench/gpu.py"), "--device", device]
    if part == "train":
        text = ["--train", *options.text, "--tokenizer", options.tokenizer] if options.text else []
        rows = ["--updates", "1", "tiny:adamw:padded", "tiny:muon:captured"] if dry else ROWS
        return [[*bench, *text, *rows]]
    if part == "tests":
        tests = ROOT / "tests" / "gpu"
        which = tests if options.all_tests else tests / "test_captured.py"
        return [[python, "-m", "pytest", "-m", "gpu", "-q", "-n", "4", str(which)]]
    config = ROOT / "configs" / ("multi30k_en_de.yaml" if options.data else "demo.yaml")
    words = [f"train.device={device}", *corpora(options.data), *(["train.max_updates=20"] if dry else [])]
    train = [python, "-m", "transformer_mt", "train", str(config), *words, "--out", str(out)]
    if part == "run":
        return [train]
    lines = str(options.data / "train.jsonl") if options.data else str(out) + ".jsonl"
    few = ["--most", "20"] if dry else []
    translate = [*bench, "--translate", str(out), "--lines", lines, *few]
    return [translate] if out.exists() else [train, translate]


def heading(part: str) -> str:
    """When, where and with what it was measured."""
    import torch

    git = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "unknown"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    date = time.strftime("%Y-%m-%d")
    return (
        f"## {part}, {date}\n\n{gpu}, torch {torch.__version__}, CUDA {torch.version.cuda}, commit {commit}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--text", nargs=2, metavar=("SRC", "TGT"))
    parser.add_argument("--tokenizer", metavar="MODEL")
    parser.add_argument("--all-tests", action="store_true")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print(
            "gpu-check must have a CUDA GPU, but there is none; --device cpu makes a dry run", file=sys.stderr
        )
        return 2
    folder = ROOT / "runs"
    folder.mkdir(exist_ok=True)
    out = folder / f"gpu-check-{time.strftime('%Y%m%d-%H%M%S')}"
    from transformer_mt.corpora import toy

    lines = "".join(json.dumps({"en": english}) + "\n" for english, _ in toy.generate("train", 12_000))
    Path(f"{out}.jsonl").write_text(lines, encoding="utf-8")
    environment = {**os.environ, "GPU_CHECK_DEVICE": options.device, "PYTHONPATH": _search_path()}
    record = options.device == "cuda" and not options.no_record
    statuses = []
    for part in options.parts or PARTS:
        start, output, status = time.perf_counter(), "", 0
        for command in commands(part, options, out):
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                output += line
            if status := process.wait():
                output += f"failed with status {status}\n"
        statuses.append(status)
        if record:
            seconds = time.perf_counter() - start
            with RECORD.open("a", encoding="utf-8") as file:
                file.write(f"\n{heading(part)}\n{_shown(output)}\n\nTook {seconds:.0f} s.\n")
    return max(statuses)


def _search_path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def _shown(output: str) -> str:
    """The tables of the output, or the lines that say how it went."""
    lines = output.splitlines()
    if tables := [line for line in lines if line.startswith("|") or "TFLOP/s" in line]:
        return "\n".join(tables).replace("TFLOP/s\n", "TFLOP/s\n\n")
    told = ("validation at", "packed batches", "done:", "failed", "FAILED", "passed", "update ")
    return "```\n" + "\n".join(line for line in lines if any(word in line for word in told)) + "\n```"


if __name__ == "__main__":
    sys.exit(main())
