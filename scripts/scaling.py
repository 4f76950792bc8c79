"""Plan configs for several numbers of GPUs, by the lengths of a sample of their corpus: a Markdown table.

    python scripts/scaling.py configs/wmt14_en_de_base.yaml configs/wmt14_en_de_big.yaml --pairs 4500000 \
        data.hub=PATH/TO/wmt_en_de_sample "data.test=[]" tokenizer.file=joint.model

The numbers are computed (`training/planning/plan.py`), not measured.
"""

import argparse
import dataclasses

import numpy as np

from transformer_mt.config import load_config
from transformer_mt.progress_bar import duration
from transformer_mt.training.planning.cluster import cluster_named
from transformer_mt.training.planning.lengths import lengths_of
from transformer_mt.training.planning.plan import plan_training

# A sample is repeated until it fills so many pairs: batches are made of pairs of similar length.
_ENOUGH = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="+", metavar="CONFIG|key=value")
    parser.add_argument("--pairs", type=int, required=True, help="of the whole corpus")
    parser.add_argument("--device", default="H100")
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 8, 64])
    options = parser.parse_intermixed_args()
    overrides = [word for word in options.words if "=" in word]
    columns = ["config", "devices", "padded tokens of an update", "memory, GB", "sent, GB", "sending"]
    columns += ["an update", "training", "advice"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for path in (word for word in options.words if "=" not in word):
        config, sample = lengths_of(load_config(path, overrides))
        times = max(1, _ENOUGH // len(sample.src))
        src, tgt = np.tile(sample.src, times), np.tile(sample.tgt, times)
        lengths = dataclasses.replace(sample, src=src, tgt=tgt, copies=options.pairs / len(src))
        for count in options.counts:
            plan = plan_training(config, lengths, cluster_named(f"{count}x{options.device}"))
            advice = "; ".join(f"`{change.keys}`" for change in plan.changes)
            print(
                f"| {config.name} | {count} | {plan.update_tokens:,} | {plan.peak_bytes / 1e9:.1f} "
                f"| {plan.sent_bytes / 1e9:.2f} | {1000 * plan.sending_seconds:.1f} ms "
                f"| {1000 * plan.seconds:.0f} ms | {duration(plan.seconds * plan.updates)} | {advice} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
