"""BLEU against speed of models of one direction, in float32 and in int8: a Markdown table and a picture.

    python scripts/bench/student_curve.py runs/students/*/ --source test.en --reference test.de --plot a.png

Each run is exported for CTranslate2 in both precisions, and each export translates SOURCE on all cores with
beam search, as the translate command does. Speeds are medians over the rounds, in which all take turns;
loading is not counted. BLEU is sacreBLEU's (13a, or --tokenize). An export that fails its proof is left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import sacrebleu
from translate import measure, whole

from transformer_mt import Translator
from transformer_mt.companions.exchange.ctranslate2_engine import has_exact_int8_products
from transformer_mt.text.lines import read_lines

KINDS = ("float32", "int8")


@dataclass(frozen=True)
class Point:
    """One model in one precision."""

    name: str
    kind: str
    megabytes: float
    bleu: float
    speed: float
    """Sentences per second."""


def points(
    runs: list[Path], source: Path, reference: Path, tokenize: str, beam: int, rounds: int
) -> list[Point]:
    lines, references = (list(read_lines(path)) for path in (source, reference))
    with tempfile.TemporaryDirectory() as folder:
        exports, bleu = {}, {}
        # Without int8 instructions the int8 products are fast or exact: the proof takes exact ones.
        exact = os.environ if has_exact_int8_products() else {**os.environ, "CT2_USE_MKL": "1"}
        for run in runs:
            for kind in KINDS:
                out = Path(folder) / run.name / kind
                command = ["export", str(run), str(out), "--quantization", kind, "--probe", str(source)]
                if subprocess.run([sys.executable, "-m", "transformer_mt", *command], env=exact).returncode:
                    continue
                exports[run.name, kind] = out
                translator = Translator.load(out, device="cpu", decode={"beam": beam})
                found = [result.translation for result in translator.translate(lines)]
                bleu[run.name, kind] = sacrebleu.corpus_bleu(found, [references], tokenize=tokenize).score
        seconds = measure(
            {" ".join(key): (whole, out, lines, beam, None, False) for key, out in exports.items()}, rounds
        )
        return [
            Point(
                name=name,
                kind=kind,
                megabytes=(out / "model.bin").stat().st_size / 1e6,
                bleu=bleu[name, kind],
                speed=len(lines) / seconds[f"{name} {kind}"],
            )
            for (name, kind), out in exports.items()
        ]


def best_for_its_speed(found: list[Point]) -> list[Point]:
    """Those that no other one surpasses in both BLEU and speed, the fastest first."""
    best: list[Point] = []
    for point in sorted(found, key=lambda point: point.speed, reverse=True):
        if not best or point.bleu > best[-1].bleu:
            best.append(point)
    return best


def table(found: list[Point]) -> str:
    best = best_for_its_speed(found)
    rows = ["| model | weights | MB | BLEU | sentences/s |", "|---|---|---|---|---|"]
    for point in sorted(found, key=lambda point: point.speed, reverse=True):
        cells = [point.name, point.kind, f"{point.megabytes:.1f}", f"{point.bleu:.2f}", f"{point.speed:.0f}"]
        rows.append(f"| {' | '.join(f'**{cell}**' if point in best else cell for cell in cells)} |")
    return "\n".join(rows)


def draw(found: list[Point], path: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, ScalarFormatter

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots()
    for kind, colour in zip(KINDS, ("tab:orange", "tab:blue")):
        of_kind = [point for point in found if point.kind == kind]
        axes.scatter([p.speed for p in of_kind], [p.bleu for p in of_kind], color=colour, label=kind)
    best = best_for_its_speed(found)
    axes.plot([p.speed for p in best], [p.bleu for p in best], color="0.6", lw=1, zorder=0)
    for point in found:
        axes.annotate(
            point.name, (point.speed, point.bleu), xytext=(4, 3), textcoords="offset points", size=7
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel("sentences per second")
    axes.set_ylabel("BLEU")
    axes.grid(alpha=0.3, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--tokenize", default="13a", help="of BLEU (default: 13a)")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", type=Path, required=True, help="the picture")
    options = parser.parse_args()
    found = points(
        options.runs, options.source, options.reference, options.tokenize, options.beam, options.rounds
    )
    print(f"\n{table(found)}")
    draw(found, options.plot)


if __name__ == "__main__":
    main()
