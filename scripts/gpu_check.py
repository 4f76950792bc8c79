"""Check and measure one part of the project on a CUDA GPU, and append the result to docs/measurements/gpu.md.

    python scripts/gpu_check.py tests|train|translate|run [--data FOLDER] [--device cpu] [--no-record]

`tests` runs the tests marked `gpu`; `train` and `translate` run the benchmarks; `run` trains a config from
its beginning to its end. FOLDER holds train.jsonl, val.jsonl and test.jsonl with the keys en and de, as
Multi30k does; without it the built-in toy language is used. Each part takes less than eight minutes on one
GPU. `--device cpu` is a dry run, not recorded: it finds mistakes in the scripts on a machine without a GPU.
"""

import argparse
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


def commands(part: str, data: Path | None, device: str, folder: Path) -> list[list[str]]:
    """The commands of a part, one after the other; a dry run makes less of everything."""
    python, module, dry = sys.executable, [sys.executable, "-m", "transformer_mt"], device == "cpu"
    if part == "tests":
        return [[python, "-m", "pytest", "-m", "gpu", str(ROOT / "tests" / "gpu"), "--durations=10"]]
    if part == "train":
        bench = [python, str(SCRIPTS / "bench_train.py"), "--data", str(data or "toy"), "--device", device]
        if dry:
            few = ["--batch-tokens", "1024", "--updates", "1", "--rounds", "1"]
            return [[*bench, *few, "--shapes", "small", "--variants", "bare", "ours-fp32", "ours-auto"]]
        many = ["--batch-tokens", "16384", "--updates", "20", "--rounds", "3", "--warmup", "10"]
        base = ["bare", "bare-bf16", "ours-fp32", "ours-bf16", "ours-bf16-compile", "ours-auto"]
        return [
            [*bench, *many, "--shapes", "base", "--variants", *base],
            [*bench, *many, "--shapes", "big", "--variants", "bare-bf16", "ours-auto"],
        ]
    if part == "translate":
        run, lines = folder / "gpu-check-translate", folder / "gpu-check-source.txt"
        train = [
            *module,
            "train",
            str(ROOT / "configs/demo.yaml"),
            f"train.device={device}",
            "--out",
            str(run),
        ]
        measure = [python, str(SCRIPTS / "bench_translate.py"), str(run), str(lines), "--device", device]
        few = ["--rounds", "1", "--sentences", "20"] if dry else ["--rounds", "3"]
        return [[*train, *(["train.max_updates=400"] if dry else [])], [*measure, *few]]
    config = ROOT / "configs" / ("multi30k_en_de.yaml" if data else "demo.yaml")
    words = [f"train.device={device}", *corpora(data), *(["train.max_updates=20"] if dry else [])]
    out = folder / f"gpu-check-run-{time.strftime('%Y%m%d-%H%M%S')}"
    return [
        [python, str(SCRIPTS / "reproduce.py"), str(config), *words, "--out", str(out), "--tolerance", "100"]
    ]


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
    parser.add_argument("part", choices=["tests", "train", "translate", "run"])
    parser.add_argument("--data", type=Path)
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
    if options.part == "translate":
        from transformer_mt.data.corpora import toy

        lines = "".join(f"{english}\n" for english, _ in toy.generate("test", 1000))
        (folder / "gpu-check-source.txt").write_text(lines, encoding="utf-8")
    environment = {**os.environ, "GPU_CHECK_DEVICE": options.device, "PYTHONPATH": str(ROOT)}
    start, output, status = time.perf_counter(), "", 0
    for command in commands(options.part, options.data, options.device, folder):
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            output += line
        if status := process.wait():
            output += f"\nfailed with status {status}: {' '.join(command[1:])}\n"
            break
    minutes = (time.perf_counter() - start) / 60
    if options.device == "cuda" and not options.no_record:
        block = output if "|---" in output and options.part != "tests" else f"```\n{output.strip()}\n```\n"
        with RECORD.open("a", encoding="utf-8") as record:
            record.write(f"\n{heading(options.part)}\n{block.strip()}\n\nTook {minutes:.1f} minutes.\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
