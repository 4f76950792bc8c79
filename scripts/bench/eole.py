"""Speed of training beside Eole's, taking turns: real target tokens per second of wall time.

    python scripts/bench/eole.py RUN --eole ENV/bin/eole --data ../shared/data/multi30k [--shapes small base]

Eole (https://github.com/eole-nlp/eole) is installed in an environment of its own. Both train English to
German on the pairs of DATA/train.jsonl in batches of 4,096 tokens, with dropout 0.1, label smoothing 0.1 and
tied embeddings: Eole in float32 with Adam, ours as a user gets it who sets nothing. Eole reads the pieces of
RUN, a run's folder with a vocabulary of 8,000. Figures are medians over the rounds.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import yaml
from train import SHAPES

from transformer_mt.data.vocabulary.tokenizer import Tokenizer

# Eole reports this often, in updates. Its first report is left out, in which memory is asked for.
REPORT_EVERY = {"demo": 40, "small": 8, "base": 3, "big": 1}
REPORTS = 4


def write_pieces(run: Path, data: Path, folder: Path) -> None:
    """The training pairs as pieces with spaces between them, and the vocabulary."""
    tokenizer = Tokenizer.load(run)
    lines = (data / "train.jsonl").read_text(encoding="utf-8").splitlines()
    for language in ("en", "de"):
        texts = [json.loads(line)[language] for line in lines]
        pieces = map(tokenizer.pieces_src, tokenizer.encode_src(texts))
        write(folder / language, (" ".join(each) for each in pieces))
    write(folder / "pieces", (tokenizer.src.id_to_piece(i) for i in range(4, tokenizer.src.vocab_size())))


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def eole_config(folder: Path, shape: str) -> dict:
    d_model, d_ff, heads, layers = SHAPES[shape]
    pairs = {"path_src": str(folder / "en"), "path_tgt": str(folder / "de")}
    updates = REPORTS * REPORT_EVERY[shape]
    return {
        "src_vocab": str(folder / "pieces"),
        "tgt_vocab": str(folder / "pieces"),
        "share_vocab": True,
        "save_data": str(folder / "saved"),
        "overwrite": True,
        "report_every": REPORT_EVERY[shape],
        "data": {"corpus": pairs},
        "training": {
            "world_size": 0,
            "gpu_ranks": [],
            "num_workers": 0,
            "bucket_size": 29000,
            "batch_type": "tokens",
            "batch_size": 4096,
            "normalization": "tokens",
            "accum_count": [1],
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": 2,
            "decay_method": "noam",
            "warmup_steps": 400,
            "dropout": [0.1],
            "attention_dropout": [0.0],
            "label_smoothing": 0.1,
            "compute_dtype": "fp32",
            "train_steps": updates,
            "valid_steps": 10 * updates,
            "save_checkpoint_steps": 10 * updates,
            "model_path": str(folder / "model"),
        },
        "model": {
            "architecture": "transformer",
            "hidden_size": d_model,
            "transformer_ff": d_ff,
            "heads": heads,
            "layers": layers,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": d_model,
                "position_encoding": True,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
    }


def of_eole(eole: Path, folder: Path, shape: str) -> float:
    """Target tokens per second between its first report and its last."""
    config = folder / "eole.yaml"
    config.write_text(yaml.safe_dump(eole_config(folder, shape)), encoding="utf-8")
    done = subprocess.run([eole, "train", "--config", config], capture_output=True, text=True)
    # "[2026-11-23 17:00:16,869 INFO] Step  5/ 10; ... bsz: 3166/3453/201; ...": source and target tokens and
    # sentences of an update
    found = re.findall(r"\[([\d-]+ [\d:]+,\d+) INFO\] Step .* bsz: +\d+/ *(\d+)/", done.stderr + done.stdout)
    if len(found) != REPORTS:
        raise SystemExit(
            f"{eole}: must report {REPORTS} times, but did {len(found)} times:\n{done.stderr[-2000:]}"
        )
    first, last = (datetime.strptime(found[i][0], "%Y-%m-%d %H:%M:%S,%f") for i in (0, -1))
    tokens = sum(int(of_update) * REPORT_EVERY[shape] for _, of_update in found[1:])
    return tokens / (last - first).total_seconds()


def of_ours(data: Path, shape: str) -> float:
    script = Path(__file__).with_name("train.py")
    updates = (REPORTS - 1) * REPORT_EVERY[shape]
    words = [
        "--data",
        data,
        "--shapes",
        shape,
        "--variants",
        "ours-auto",
        "--rounds",
        1,
        "--updates",
        updates,
    ]
    done = subprocess.run(
        [sys.executable, script, *map(str, words)], capture_output=True, text=True, check=True
    )
    row = next(line for line in done.stdout.splitlines() if line.startswith(f"| {shape} | ours-auto"))
    return float(row.split("|")[4].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--eole", type=Path, required=True, help="the program `eole` of its environment")
    parser.add_argument("--data", type=Path, required=True, help="a folder with train.jsonl and val.jsonl")
    parser.add_argument("--shapes", nargs="+", default=["small", "base"], choices=SHAPES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| shape | Eole, tokens/s | ours | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        write_pieces(options.run, options.data, Path(name))
        for shape in options.shapes:
            speeds: list[tuple[float, float]] = []
            for _ in range(options.rounds):
                speeds.append((of_eole(options.eole, Path(name), shape), of_ours(options.data, shape)))
            eole, ours = (statistics.median(each) for each in zip(*speeds))
            ratio = statistics.median(ours / eole for eole, ours in speeds)
            print(f"| {shape} | {eole:,.0f} | {ours:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
