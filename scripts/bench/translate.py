"""Speed of translating: our engines beside CTranslate2 called directly, with the same weights, taking turns
in one run.

    python scripts/bench/translate.py RUN SOURCE [--rounds 3] [--sentences 1000] [--growth | --busy]

RUN is a run's folder; it is exported to a temporary folder first. SOURCE has sentences, one a line. Figures
are medians over the rounds; loading is not counted, except in the last table: one short sentence, from the
start of the process to its end.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from unittest import mock

from transformer_mt.device import keep_freed_memory
from transformer_mt.run_folder import RunFolder

BEAMS = (5, 1)


def direct(
    folder: Path, workers: int, lines: Sequence[str], beam: int, batch: tuple[int, str], device: str = "cpu"
) -> Callable:
    """CTranslate2 by its own Python interface, on sentences that are pieces already."""
    import ctranslate2

    from transformer_mt.data.vocabulary.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(folder)
    pieces = [tokenizer.pieces_src(ids) for ids in tokenizer.encode_src(lines)]
    cores = len(os.sched_getaffinity(0))
    threads = {"inter_threads": workers, "intra_threads": max(1, cores // workers)} if device == "cpu" else {}
    model = ctranslate2.Translator(str(folder), device, **threads)
    return lambda: model.translate_batch(
        pieces, beam_size=beam, max_batch_size=batch[0], batch_type=batch[1], max_decoding_length=256
    )


def whole(
    model: Path,
    lines: Sequence[str],
    beam: int,
    dtype: str | None,
    one_by_one: bool,
    device: str = "cpu",
    **decode: int,
) -> Callable:
    """Our Translator, text to text."""
    from transformer_mt import Translator

    translator = Translator.load(model, device=device, dtype=dtype, decode={"beam": beam, **decode})
    if one_by_one:
        return lambda: [translator.translate([line]) for line in lines]
    return lambda: translator.translate(lines)


def _serve(pipe: Connection, make: Callable[..., Callable], arguments: tuple, options: dict) -> None:
    """In a process of its own: load, then run and say the seconds, as often as asked."""
    keep_freed_memory(one_heap=True)  # as the translate command does
    run = make(*arguments, **options)
    pipe.send(None)
    while pipe.recv():
        run()  # the system may have taken an idle process's memory
        start = time.perf_counter()
        run()
        pipe.send(time.perf_counter() - start)


def measure(variants: dict[str, tuple], rounds: int) -> dict[str, float]:
    """Median seconds of each (function that makes it, its arguments); they take turns of two runs, of which
    the second counts.

    Each has a process of its own: two libraries in one would meet in OpenMP's settings. `environment` is an
    option of any variant: the variables its process starts with.
    """
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for name, (make, *arguments) in variants.items():
        options = dict(arguments.pop()) if arguments and isinstance(arguments[-1], dict) else {}
        environment = options.pop("environment", {})
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=_serve, args=(theirs, make, tuple(arguments), options)))
        with mock.patch.dict(os.environ, environment):
            processes[-1].start()
        theirs.close()  # so that a process that fails is an error here, not a wait without end
        pipes[name].recv()
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, pipe in pipes.items():
            pipe.send(True)
            seconds[name].append(pipe.recv())
    for pipe, process in zip(pipes.values(), processes):
        pipe.send(False)
        process.join()
    return {name: statistics.median(values) for name, values in seconds.items()}


def throughput(run: Path, exports: dict[str, Path], lines: list[str], rounds: int) -> None:
    from transformer_mt import Translator

    few, cores = lines[:100], len(os.sched_getaffinity(0))
    for beam in BEAMS:
        found = Translator.load(exports["float32"], device="cpu", decode={"beam": beam}).translate(lines)
        tokens = sum(len(result.tokens) + 1 for result in found)
        variants: dict[str, tuple] = {}
        for kind in ("float32", "int8"):
            for workers, batch in (
                (1, (64, "examples")),
                (cores, (64, "examples")),
                (cores, (1024, "tokens")),
            ):
                name = f"CTranslate2 {kind}, {workers} x {cores // workers}, batches of {batch[0]} {batch[1]}"
                variants[name] = (direct, exports[kind], workers, lines, beam, batch)
            variants[f"our ctranslate2 engine, {kind}"] = (whole, exports[kind], lines, beam, None, False)
        for dtype in ("float32", "bfloat16"):
            variants[f"our torch engine, {dtype}"] = (whole, run, lines, beam, dtype, False)
        seconds = measure(variants, rounds)
        print(
            f"\n| beam {beam}, {len(lines):,} sentences | sentences/s | output tokens/s | to the fastest "
            "|\n|---|---|---|---|"
        )
        for name, value in seconds.items():
            kind = "int8" if "int8" in name else "float32"
            fastest = min(v for n, v in seconds.items() if n.startswith(f"CTranslate2 {kind}"))
            speeds = f"{len(lines) / value:.0f} | {tokens / value:,.0f}"
            print(f"| {name} | {speeds} | {fastest / value:.2f} |", flush=True)
        singles: dict[str, tuple] = {
            "our torch engine, float32": (whole, run, few, beam, "float32", True),
            "our ctranslate2 engine, float32": (whole, exports["float32"], few, beam, None, True),
            "our ctranslate2 engine, int8": (whole, exports["int8"], few, beam, None, True),
        }
        print(f"\n| beam {beam}, one sentence at a time | sentences/s |\n|---|---|")
        for name, value in measure(singles, rounds).items():
            print(f"| {name} | {len(few) / value:.1f} |", flush=True)


def on_gpu(run: Path, exports: dict[str, Path], lines: list[str], rounds: int, device: str) -> None:
    """Sentences per second of both engines on one GPU; larger batches than on a CPU."""
    import ctranslate2

    where, few = {"device": device}, lines[:100]
    has_ctranslate2 = device == "cpu" or ctranslate2.get_cuda_device_count() > 0
    for beam in BEAMS:
        variants: dict[str, tuple] = {}
        for dtype in ("float32", "bfloat16", "float16") if device != "cpu" else ("float32",):
            for budget in (8192, 65536):
                name = f"our torch engine, {dtype}, decode.batch_tokens {budget:,}"
                variants[name] = (whole, run, lines, beam, dtype, False, {**where, "batch_tokens": budget})
        if has_ctranslate2:
            for kind, folder in exports.items():
                variants[f"our ctranslate2 engine, {kind}"] = (whole, folder, lines, beam, None, False, where)
                variants[f"CTranslate2 {kind}"] = (direct, folder, 1, lines, beam, (4096, "tokens"), where)
        variants["our torch engine, float32, one sentence at a time"] = (
            whole,
            run,
            few,
            beam,
            "float32",
            True,
            where,
        )
        print(f"\n| beam {beam}, {len(lines):,} sentences | sentences/s |\n|---|---|")
        for name, seconds in measure(variants, rounds).items():
            print(f"| {name} | {len(few if 'one sentence' in name else lines) / seconds:.1f} |", flush=True)
    if not has_ctranslate2:
        print("\nThis CTranslate2 finds no GPU: it was not measured.")


def growth(run: Path, lines: list[str], rounds: int) -> None:
    """Time by source length, beam and batch, of the torch engine in float32."""

    def table(head: str, variants: dict[str, tuple]) -> None:
        print(f"\n| {head} | seconds |\n|---|---|")
        for name, seconds in measure(variants, rounds).items():
            print(f"| {name} | {seconds:.2f} |", flush=True)

    words = " ".join(lines).split()
    of_length = {n: [" ".join(words[i * n : (i + 1) * n]) for i in range(50)] for n in (5, 10, 20, 40)}
    table(
        "source words, 50 sentences, beam 5",
        {str(n): (whole, run, texts, 5, "float32", False) for n, texts in of_length.items()},
    )
    beams = (1, 2, 5, 10, 20)
    table("beam, 200 sentences", {str(b): (whole, run, lines[:200], b, "float32", False) for b in beams})
    budgets = (256, 1024, 4096, 8192, 16384)
    table(
        "decode.batch_tokens, 500 sentences, beam 5",
        {f"{n:,}": (whole, run, lines[:500], 5, "float32", False, {"batch_tokens": n}) for n in budgets},
    )


def beside_another_program(run: Path, export: Path, lines: list[str], rounds: int) -> None:
    """Sentences per second while nothing else runs and while one other process is busy all the time: with
    libgomp's own spinning (300,000 iterations) and with ours.
    """
    spinning = {"environment": {"GOMP_SPINCOUNT": "300000"}}
    variants: dict[str, tuple] = {}
    for beam in BEAMS:
        for dtype in ("float32", "bfloat16"):
            engine = (whole, run, lines, beam, dtype, False)
            variants[f"torch engine, {dtype} | {beam} | libgomp's"] = (*engine, spinning)
            variants[f"torch engine, {dtype} | {beam} | ours"] = engine
        variants[f"ctranslate2 engine, int8 | {beam} | "] = (whole, export, lines, beam, None, False)
    quiet = measure(variants, rounds)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    busy = measure(variants, rounds)
    other.kill()
    print("\n| | beam | spinning | sentences/s, quiet | busy | busy to quiet |\n|---|---|---|---|---|---|")
    for name in variants:
        speeds = [len(lines) / seconds[name] for seconds in (quiet, busy)]
        print(f"| {name} | {speeds[0]:.0f} | {speeds[1]:.0f} | {speeds[1] / speeds[0]:.2f} |", flush=True)


def start_up(run: Path, exports: dict[str, Path], rounds: int) -> None:
    print("\n| one short sentence, process start to exit | seconds | peak MB |\n|---|---|---|")
    for name, model in (
        ("exported, float32", exports["float32"]),
        ("exported, int8", exports["int8"]),
        ("run's folder", run),
    ):
        command = [sys.executable, "-m", "transformer_mt", "translate", str(model), "A man is sleeping."]
        seconds = []
        for _ in range(2 * rounds + 1):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True); "
        code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        peak = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True)
        print(f"| {name} | {statistics.median(seconds[1:]):.2f} | {int(peak.stdout) // 1024} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument(
        "--growth", action="store_true", help="also how time grows with length, beam and batch"
    )
    parser.add_argument(
        "--busy", action="store_true", help="only: beside another program that is busy all the time"
    )
    parser.add_argument("--device", help="cuda: the tables of a GPU (default: those of the CPU)")
    arguments = parser.parse_args()
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    lines = arguments.source.read_text(encoding="utf-8").split("\n")[: arguments.sentences]
    lines = [line for line in lines if line]
    with tempfile.TemporaryDirectory() as folder:
        exports = {}
        run = RunFolder(arguments.run)
        for kind in ("float32", "int8"):
            exports[kind] = Path(folder) / kind
            print(export(run, exports[kind], ToCTranslate2(kind), str(arguments.source)))
        if arguments.busy:
            beside_another_program(arguments.run, exports["int8"], lines, arguments.rounds)
            return
        if arguments.device:
            on_gpu(arguments.run, exports, lines, arguments.rounds, arguments.device)
            return
        start_up(arguments.run, exports, arguments.rounds)
        throughput(arguments.run, exports, lines, arguments.rounds)
        if arguments.growth:
            growth(arguments.run, lines, arguments.rounds)


if __name__ == "__main__":
    main()
