"""Resident memory of preparing and training on a large generated corpus, above that of the bare model.

    python scripts/bench/memory.py [--pairs 2000000] [--updates 30]

Each stage runs in a process of its own and reports its peak. Prints a Markdown table.
"""

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformer_mt.config import Config


def _config(pairs: int) -> "Config":
    from transformer_mt.config import Config

    return Config.model_validate(
        {
            "name": "bench",
            "data": {
                "source_lang": "en",
                "target_lang": "de",
                "train": {"toy": "train", "size": pairs},
                "valid": {"toy": "valid", "size": 200},
            },
            "tokenizer": {"vocab_size": 1000},
            "model": {
                "d_model": 256,
                "d_ff": 1024,
                "num_heads": 4,
                "num_encoder_layers": 3,
                "num_decoder_layers": 3,
            },
            "train": {"validate_every": 1_000_000, "save_every": 1_000_000},
        }
    )


def _train(pairs: int, updates: int) -> None:
    import torch

    from transformer_mt.data.batches.batch import Rows
    from transformer_mt.data.batches.batching import TrainingBatches
    from transformer_mt.device import keep_freed_memory
    from transformer_mt.model.build_model import build_model
    from transformer_mt.preparation import prepare
    from transformer_mt.ranks import Ranks
    from transformer_mt.update.loss import CrossEntropy
    from transformer_mt.update.optimizer import build_optimizer
    from transformer_mt.update.step import Objective, Updater

    keep_freed_memory()
    config = _config(pairs)
    data = prepare(config)
    vocab = data.tokenizer.src.vocab_size()
    model = build_model(config.model, vocab, vocab, True, 256).train()
    optimizer = build_optimizer(model, config.train)
    objective = Objective(model, CrossEntropy(0.1))
    updater = Updater(objective, optimizer, torch.device("cpu"), torch.float32, 1.0, Ranks())
    batches = TrainingBatches(Rows(data.train), 4096, seed=1)
    for _ in range(updates):
        updater.update(batches.next_update(), 1e-4)


def _prepare(pairs: int, updates: int) -> None:
    from transformer_mt.preparation import prepare

    prepare(_config(pairs))


def _measure(
    stage: Callable[[int, int], None], pairs: int, updates: int, queue: "Queue[tuple[float, float]]"
) -> None:
    start = time.time()
    stage(pairs, updates)
    queue.put((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.time() - start))


def _run(stage: Callable[[int, int], None], pairs: int, updates: int) -> tuple[float, float]:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_measure, args=(stage, pairs, updates, queue))
    process.start()
    result = queue.get()
    process.join()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, default=30)
    arguments = parser.parse_args()
    print("| pairs | stage | peak resident MB | seconds |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRANSFORMER_MT_CACHE"] = cache
        for pairs in (5_000, arguments.pairs):
            for name, stage in (("prepare", _prepare), ("train, data cached", _train)):
                memory, seconds = _run(stage, pairs, arguments.updates)
                print(f"| {pairs:,} | {name} | {memory:,.0f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
