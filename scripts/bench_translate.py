"""Speed of translating: our engines beside CTranslate2 called directly, with the same weights, taking turns in one run.

    python scripts/bench_translate.py RUN SOURCE [--rounds 3] [--sentences 1000] [--growth]

RUN is a run's folder; it is exported to a temporary folder first. SOURCE has sentences, one a line. Figures are medians over
the rounds; loading is not counted, except in the last table: one short sentence, from the start of the process to its end.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BEAMS = (5, 1)


def direct(folder: Path, workers: int, pieces: Sequence[Sequence[str]], beam: int, batch: tuple[int, str]) -> Callable:
    """CTranslate2 by its own Python interface, on sentences that are pieces already."""
    import ctranslate2

    cores = len(os.sched_getaffinity(0))
    model = ctranslate2.Translator(str(folder), inter_threads=workers, intra_threads=max(1, cores // workers))
    return lambda: model.translate_batch(
        pieces, beam_size=beam, max_batch_size=batch[0], batch_type=batch[1], max_decoding_length=256
    )


def whole(model: Path, lines: Sequence[str], beam: int, dtype: str | None, one_by_one: bool = False) -> Callable:
    """Our Translator, text to text."""
    from transformer_mt import Translator

    translator = Translator.load(model, device="cpu", dtype=dtype, decode={"beam": beam})
    if one_by_one:
        return lambda: [translator.translate([line]) for line in lines]
    return lambda: translator.translate(lines)


def measure(variants: dict[str, Callable], rounds: int) -> dict[str, float]:
    """Median seconds of each; they take turns, after one turn that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, run in variants.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def throughput(run: Path, exports: dict[str, Path], lines: list[str], rounds: int) -> None:
    from transformer_mt import Translator
    from transformer_mt.data.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(run)
    pieces = [tokenizer.pieces_src(ids) for ids in tokenizer.encode_src(lines)]
    few = lines[:100]
    for beam in BEAMS:
        tokens = sum(
            len(r.tokens) + 1 for r in Translator.load(run, device="cpu", decode={"beam": beam}).translate(lines)
        )
        variants: dict[str, Callable] = {}
        for kind in ("float32", "int8"):
            for workers in (1, 2):
                for batch in ((64, "examples"), (1024, "tokens")):
                    name = f"CTranslate2 {kind}, {workers} x {2 // workers}, batches of {batch[0]} {batch[1]}"
                    variants[name] = direct(exports[kind], workers, pieces, beam, batch)
            variants[f"our ctranslate2 engine, {kind}"] = whole(exports[kind], lines, beam, None)
        for dtype in ("float32", "bfloat16"):
            variants[f"our torch engine, {dtype}"] = whole(run, lines, beam, dtype)
        seconds = measure(variants, rounds)
        print(f"\n| beam {beam}, {len(lines):,} sentences | sentences/s | output tokens/s |\n|---|---|---|")
        for name, value in seconds.items():
            print(f"| {name} | {len(lines) / value:.0f} | {tokens / value:,.0f} |", flush=True)
        singles = {
            "our torch engine, float32": whole(run, few, beam, "float32", one_by_one=True),
            "our ctranslate2 engine, float32": whole(exports["float32"], few, beam, None, one_by_one=True),
            "our ctranslate2 engine, int8": whole(exports["int8"], few, beam, None, one_by_one=True),
        }
        print(f"\n| beam {beam}, one sentence at a time | sentences/s |\n|---|---|")
        for name, value in measure(singles, rounds).items():
            print(f"| {name} | {len(few) / value:.1f} |", flush=True)


def growth(run: Path, lines: list[str], rounds: int) -> None:
    """Time by source length, beam and batch, of the torch engine in float32."""
    from transformer_mt import Translator

    words = " ".join(lines).split()
    print("\n| source words, 50 sentences, beam 5 | seconds |\n|---|---|")
    for length in (5, 10, 20, 40):
        texts = [" ".join(words[i * length : (i + 1) * length]) for i in range(50)]
        seconds = measure({"": whole(run, texts, 5, "float32")}, rounds)[""]
        print(f"| {length} | {seconds:.2f} |", flush=True)
    print("\n| beam, 200 sentences | seconds |\n|---|---|")
    for beam in (1, 2, 5, 10, 20):
        print(f"| {beam} | {measure({'': whole(run, lines[:200], beam, 'float32')}, rounds)['']:.2f} |", flush=True)
    print("\n| decode.batch_tokens, 500 sentences, beam 5 | seconds |\n|---|---|")
    for budget in (256, 1024, 4096, 8192, 16384):
        translator = Translator.load(run, device="cpu", decode={"batch_tokens": budget})
        print(
            f"| {budget:,} | {measure({'': lambda t=translator: t.translate(lines[:500])}, rounds)['']:.2f} |",
            flush=True,
        )


def start_up(run: Path, exports: dict[str, Path], rounds: int) -> None:
    print("\n| one short sentence, process start to exit | seconds | peak MB |\n|---|---|---|")
    for name, model in (
        ("exported, float32", exports["float32"]),
        ("exported, int8", exports["int8"]),
        ("run's folder", run),
    ):
        command = [sys.executable, "-m", "transformer_mt", "translate", str(model), "A man is sleeping."]
        seconds, peaks = [], []
        for _ in range(2 * rounds + 1):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
        code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], capture_output=True); "
        code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        peak = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True)
        peaks.append(int(peak.stdout) // 1024)
        print(f"| {name} | {statistics.median(seconds[1:]):.2f} | {max(peaks)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--growth", action="store_true", help="also how time grows with length, beam and batch")
    arguments = parser.parse_args()
    from transformer_mt.device import keep_large_buffers
    from transformer_mt.export.export import export

    keep_large_buffers(one_heap=True)  # as the translate command does
    lines = arguments.source.read_text(encoding="utf-8").split("\n")[: arguments.sentences]
    lines = [line for line in lines if line]
    with tempfile.TemporaryDirectory() as folder:
        exports = {}
        for kind in ("float32", "int8"):
            exports[kind] = Path(folder) / kind
            print(export(arguments.run, exports[kind], kind, str(arguments.source), print))
        start_up(arguments.run, exports, arguments.rounds)
        throughput(arguments.run, exports, lines, arguments.rounds)
        if arguments.growth:
            growth(arguments.run, lines, arguments.rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print("\n" + json.dumps({"peak_mb_of_this_process": peak}))


if __name__ == "__main__":
    main()
