"""Speed of the trainer's update, with the real data path, compared with a bare PyTorch loop on random full
batches ("the limit").

    python scripts/bench/train.py --data ../shared/data/multi30k [--shapes small base] [--variants ...]

Each variant is a process of its own, so that its peak memory is its own; they take turns, so that drift
cancels. The figures are medians over the rounds. The corpus's first run trains its vocabulary; later ones
find it in the cache.
"""

import argparse
import multiprocessing
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

SHAPES = {  # d_model, d_ff, heads, layers on each side
    "demo": (128, 512, 4, 2),
    "small": (256, 1024, 4, 3),
    "base": (512, 2048, 8, 6),
    "big": (1024, 4096, 16, 6),
}
VOCABULARY = 8000
BARE_LENGTH = 16  # the usual length of a Multi30k batch, so that attention has the same work in both loops


@dataclass(frozen=True)
class Variant:
    name: str
    ours: bool
    precision: str = "fp32"
    optimizer: str = "adamw"
    compile: bool | str = False
    keep_memory: bool = False
    """Of the bare loop; the trainer does it by itself."""
    without: str = ""
    """The part of the trainer that is replaced by torch's own version. Otherwise the variant equals ours-bf16
    (for muon and threads: ours-auto).
    """
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that are set when the process starts."""
    pinned: bool = False
    """Each gradient thread stays on a core of its own."""


VARIANTS = [
    Variant("bare", ours=False),
    Variant("bare-kept", ours=False, keep_memory=True),
    Variant("bare-bf16", ours=False, precision="bf16"),
    Variant("bare-bf16-kept", ours=False, precision="bf16", keep_memory=True),
    Variant("ours-fp32", ours=True),
    Variant("ours-fp32-muon", ours=True, optimizer="muon"),
    Variant("ours-bf16", ours=True, precision="bf16"),
    Variant("ours-auto", ours=True, precision="auto", optimizer="muon", compile="auto"),
    Variant(
        "without-threads", True, "auto", "muon", without="threads", environment={"GOMP_SPINCOUNT": "300000"}
    ),  # libgomp's own number
    *(
        Variant(name, True, "auto", "muon", "auto", environment=environment)
        for name, environment in {
            "huge-pages-torch": {"THP_MEM_ALLOC_ENABLE": "1"},
            "huge-pages-glibc": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
            "one-heap": {"MALLOC_ARENA_MAX": "1"},
            "jemalloc": {"LD_PRELOAD": "libjemalloc.so.2"},  # Debian: libjemalloc2
            "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},  # Debian: libtcmalloc-minimal4
        }.items()
    ),
    Variant("cpp-wrapper", True, "auto", "muon", "auto", environment={"TORCHINDUCTOR_CPP_WRAPPER": "1"}),
    Variant("pinned", True, "auto", "muon", "auto", pinned=True),
    Variant("without-muon", ours=True, precision="auto", optimizer="muon", compile="auto", without="muon"),
    Variant("ours-fp32-compile", ours=True, compile=True),
    Variant("ours-bf16-compile", ours=True, precision="bf16", compile=True),
    *(
        Variant(f"without-{part}", ours=True, precision="bf16", without=part)
        for part in ("buffers", "dropout", "attention", "loss")
    ),
]


def use_torch_version(part: str) -> None:
    """Undo one of the trainer's own parts in this process."""
    import torch
    import torch.nn.functional as F

    from transformer_mt import training
    from transformer_mt.model import fast_attention
    from transformer_mt.update import build_updater as build
    from transformer_mt.update import loss, optimizer

    class OneByOne(torch.optim.Muon):
        def __init__(self, matrices: Any, lr: float, weight_decay: float, *_: Any) -> None:
            super().__init__(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")

    def float_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, p: float, causal: bool
    ) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), mask, p, is_causal=causal
            ).to(q.dtype)

    def plain_loss(
        hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, smoothing: float,
        bias: torch.Tensor | None, *_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        return loss.plain_cross_entropy(hidden, weight, targets, smoothing, bias)

    parts = {
        "buffers": (training, "keep_freed_memory", lambda: None),
        "dropout": (fast_attention._RandomBitsDropout, "apply", staticmethod(F.dropout)),
        "attention": (fast_attention, "cpu_attention", float_attention),
        "loss": (loss, "projected_cross_entropy", plain_loss),
        "muon": (optimizer, "Muon", OneByOne),
        "threads": (build, "gradient_threads", lambda *_: 1),
    }
    if part:
        owner, name, plain = parts[part]
        getattr(owner, name)  # were it renamed, nothing would be put back, and nobody would notice
        setattr(owner, name, plain)


def pin_gradient_threads() -> None:
    """Keep each gradient thread on a core of its own."""
    from concurrent.futures import ThreadPoolExecutor

    from transformer_mt.update import acceleration as compiled

    cores = iter(sorted(os.sched_getaffinity(0)))

    def pool(threads: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, name, lambda: os.sched_setaffinity(0, {next(cores)}))

    compiled.ThreadPoolExecutor = pool  # type: ignore[misc, assignment]


def corpora(data: str) -> dict:
    """The training and validation sets: the toy language, a folder with train.jsonl and val.jsonl, or a set
    of the hub.
    """
    if data == "toy":
        return {"train": {"toy": "train"}, "valid": {"toy": "valid"}}
    files = [Path(data) / f"{name}.jsonl" for name in ("train", "val")]
    if all(file.exists() for file in files):
        return {"train": {"file": str(files[0])}, "valid": {"file": str(files[1])}}
    return {"hub": data, "train": {"split": "train"}, "valid": {"split": "validation"}}


class Ours:
    """The run `transformer-mt train` would open: its batches, its updater."""

    def __init__(self, variant: Variant, options: argparse.Namespace, shape: str, folder: str) -> None:
        from transformer_mt.config import Config
        from transformer_mt.run_folder import RunFolder
        from transformer_mt.training import open_run

        use_torch_version(variant.without)
        if variant.pinned:
            pin_gradient_threads()
        d_model, d_ff, heads, layers = SHAPES[shape]
        corpus = corpora(options.data)
        sizes = {"d_model": d_model, "d_ff": d_ff, "num_heads": heads, "dropout": options.dropout}
        depth = {"num_encoder_layers": layers, "num_decoder_layers": layers}
        how = {"precision": variant.precision, "compile": variant.compile, "optimizer": variant.optimizer}
        self.run = open_run(
            Config.model_validate(
                {
                    "name": "bench",
                    "data": {"source_lang": "en", "target_lang": "de", "max_length": 128, **corpus},
                    "tokenizer": {"vocab_size": 1000 if options.data == "toy" else VOCABULARY},
                    "model": {**sizes, **depth},
                    "train": {"batch_tokens": options.batch_tokens, "device": options.device, **how},
                }
            ),
            RunFolder(folder),
            fresh=False,
        )
        self.run.model.train()
        self.device, self.dtype = self.run.device, str(self.run.updater.dtype)

    def update(self) -> tuple[int, int, int, int]:
        """(real source tokens, real target tokens, source positions, target positions) of one update."""
        (batch,) = self.run.batches.next_update()
        self.run.updater.update([batch], 1e-4)
        return int(batch.src_mask.sum()), batch.num_tokens, batch.src.numel(), batch.tgt_in.numel()


class Bare:
    """What PyTorch offers, put together without care: nn.Transformer, cross_entropy, AdamW."""

    def __init__(self, variant: Variant, options: argparse.Namespace, shape: str, folder: str) -> None:
        import torch
        from torch import nn

        from transformer_mt.device import choose_device, keep_freed_memory

        self.device = choose_device(options.device)
        if variant.keep_memory and self.device.type == "cpu":
            keep_freed_memory()
        d_model, d_ff, heads, layers = SHAPES[shape]
        torch.manual_seed(1)
        core = nn.Transformer(
            d_model, heads, layers, layers, d_ff, options.dropout, batch_first=True, norm_first=True
        )
        for module in core.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = (
                    0.0  # as in the trainer's default; attention dropout would double the attention
                )
        self.tokens = nn.Embedding(VOCABULARY, d_model)
        self.model = nn.ModuleDict({"tokens": self.tokens, "core": core}).to(self.device)
        self.dropout = nn.Dropout(options.dropout)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=variant.precision == "bf16")
        self.dtype = "torch.bfloat16" if variant.precision == "bf16" else "torch.float32"
        self.batch = options.batch_tokens // BARE_LENGTH
        self.causal = nn.Transformer.generate_square_subsequent_mask(BARE_LENGTH, device=self.device)

    def update(self) -> tuple[int, int, int, int]:
        import torch
        import torch.nn.functional as F

        src, tgt = torch.randint(4, VOCABULARY, (2, self.batch, BARE_LENGTH), device=self.device)
        with self.autocast:
            tokens = self.tokens
            x, y = self.dropout(tokens(src) * 16), self.dropout(tokens(tgt) * 16)
            hidden = self.model["core"](x, y, tgt_mask=self.causal, tgt_is_causal=True)
            logits = F.linear(hidden, tokens.weight)
            loss = F.cross_entropy(logits.flatten(0, 1), tgt.flatten(), label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return src.numel(), tgt.numel(), src.numel(), tgt.numel()


def serve(connection: Connection, variant: Variant, options: argparse.Namespace, shape: str) -> None:
    """Run the requested number of updates for each message; at the end send the peak memory."""
    if variant.ours:
        import transformer_mt  # noqa: F401 before torch: it decides how torch's threads wait
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        loop = (Ours if variant.ours else Bare)(variant, options, shape, folder)
        on_gpu = loop.device.type == "cuda"
        while updates := connection.recv():
            start, counts = time.perf_counter(), [0, 0, 0, 0]
            for _ in range(updates):
                counts = [a + b for a, b in zip(counts, loop.update())]
            if on_gpu:
                torch.cuda.synchronize()
            connection.send((time.perf_counter() - start, *counts))
        unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        connection.send(((torch.cuda.max_memory_allocated() if on_gpu else resident) / 1e6, loop.dtype))


def flops(shape: str, src: float, tgt: float) -> float:
    """Of one update on so many tokens: 2 for each weight and token forward, twice that backward; attention's
    own left out.
    """
    d_model, d_ff, _, layers = SHAPES[shape]
    # And the decoder's view of it
    encoder = layers * (4 * d_model**2 + 2 * d_model * d_ff) + layers * 2 * d_model**2
    decoder = layers * (6 * d_model**2 + 2 * d_model * d_ff) + VOCABULARY * d_model
    return 6 * (encoder * src + decoder * tgt)


def peak(device: str, dtype_name: str, threads: int) -> float:
    """FLOP/s of a 2048-cubed matrix product (8192 on a GPU), the best of several."""
    import torch

    from transformer_mt.device import choose_device

    if threads:
        torch.set_num_threads(threads)
    place = choose_device(device)
    size = 8192 if place.type == "cuda" else 2048
    a = torch.randn(size, size, device=place).to(getattr(torch, dtype_name.removeprefix("torch.")))
    best = 0.0
    for _ in range(12):
        start = time.perf_counter()
        a @ a
        if place.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def measure(shape: str, options: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    chosen = [variant for variant in VARIANTS if variant.name in options.variants]
    workers = []
    for variant in chosen:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, variant, options, shape), daemon=True)
        with patch.dict(os.environ, variant.environment):
            process.start()
        theirs.close()  # so that a child's death is an error here, not silence
        ours.send(options.warmup)
        workers.append((variant, process, ours))
    for _, _, connection in workers:  # all compile at once
        connection.recv()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if options.busy else None
    rounds: dict[str, list[tuple[float, ...]]] = {variant.name: [] for variant in chosen}
    for turn in range(options.rounds):
        for variant, _, connection in workers if turn % 2 == 0 else reversed(workers):
            connection.send(options.updates)
            rounds[variant.name].append(connection.recv())
    if busy is not None:
        busy.kill()
    limit = None
    peaks: dict[str, float] = {}
    for variant, process, connection in workers:
        connection.send(0)
        memory, dtype = connection.recv()
        process.join()
        peaks.setdefault(dtype, peak(options.device, dtype, options.threads))
        _, src, tgt, src_positions, tgt_positions = map(sum, zip(*rounds[variant.name]))
        speed = statistics.median(r[2] / r[0] for r in rounds[variant.name])
        limit = speed if variant.name == "bare" else limit
        used = flops(shape, src / tgt * speed, speed) / peaks[dtype]
        of_limit = f"{speed / limit:.2f}" if limit else "–"
        padding = 1 - (src + tgt) / (src_positions + tgt_positions)
        print(
            f"| {shape} | {variant.name} | {dtype.removeprefix('torch.')} | {speed:,.0f} | {padding:.1%} | "
            f"{of_limit} | {used:.0%} | {memory:,.0f} |",
            flush=True,
        )


KINDS = {  # the first whose words an operation's name has
    "matrix products": r"::(mm|addmm|bmm|baddbmm|matmul|_?linear|mkldnn_\w*linear)",
    "copies and casts": r"::(copy_|_to_copy|to|clone|contiguous|cat|_reshape_alias)$",
    "softmax": r"softmax|logsumexp",
    "norms": r"layer_norm|rms_norm",
    "dropout": r"dropout|bernoulli|random_",
    "embeddings": r"embedding|index|gather|scatter",
}


def by_kind(events: Any, seconds: float) -> dict[str, float]:
    """The share of these seconds in each kind of operation on the CPU; what none took is Python's."""
    shares: dict[str, float] = {}
    for event in events:
        parent = event
        while parent is not None and not parent.name.startswith("Optimizer.step"):
            parent = parent.cpu_parent
        kinds = (kind for kind, words in KINDS.items() if re.search(words, event.name))
        kind = "optimizer" if parent is not None else next(kinds, "other operations")
        shares[kind] = shares.get(kind, 0.0) + event.self_cpu_time_total / 1e6 / seconds
    return {**dict(sorted(shares.items(), key=lambda item: -item[1])), "Python": 1 - sum(shares.values())}


def profile(shape: str, options: argparse.Namespace) -> None:
    """The operations that take the most time in the update a user gets who sets nothing."""
    import torch
    from torch.profiler import ProfilerActivity

    if options.threads:
        torch.set_num_threads(options.threads)
    (variant,) = (variant for variant in VARIANTS if variant.name == "ours-auto")
    with tempfile.TemporaryDirectory() as folder:
        loop = Ours(variant, options, shape, folder)
        on_gpu = loop.device.type == "cuda"
        for _ in range(options.warmup):
            loop.update()
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with torch.profiler.profile(activities=activities) as taken:
            start = time.perf_counter()
            for _ in range(options.updates):
                loop.update()
            if on_gpu:
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
    if not on_gpu and options.threads == 1:  # with more, their times overlap
        print(f"\n| {shape}, {seconds / options.updates:.2f} s per update | share |\n|---|---|")
        for kind, share in by_kind(taken.events(), seconds).items():
            print(f"| {kind} | {share:.1%} |")
    total = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    print(f"\n{shape}:\n{taken.key_averages().table(sort_by=total, row_limit=20)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="Multi30k: its folder or its name on the hub; or toy")
    parser.add_argument("--shapes", nargs="+", default=["small", "base"], choices=SHAPES)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument(
        "--variants", nargs="+", default=["bare", "bare-kept", "ours-fp32", "ours-auto"], choices=names
    )
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6, help="in each round")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument(
        "--busy", action="store_true", help="while another process keeps a core busy all the time"
    )
    parser.add_argument(
        "--profile", action="store_true", help="where the time of ours-auto's update goes, and no table"
    )
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True
    ).stdout.strip()
    if options.profile:
        print(f"commit {commit}, {options.batch_tokens:,}-token batches")
        for shape in options.shapes:
            profile(shape, options)
        return
    print(f"commit {commit}, {options.batch_tokens:,}-token batches, median of {options.rounds} rounds\n")
    print(
        "| shape | loop | matrix products | real target tokens/s | padding | of the limit | MFU | peak MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shape in options.shapes:
        measure(shape, options)


if __name__ == "__main__":
    main()
