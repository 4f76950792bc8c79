"""Size, quality and speed of models exported for browsers: in Node and Chromium, by Bergamot's engine (with
and without a shortlist, and in Node with its own products of matrices) and by onnxruntime where each can hold
the model, beside CTranslate2. The runs should have decode.beam 1, as Bergamot is greedy.

python scripts/bench/browser.py RUN [RUN ...] --source val.en --reference val.de --runtime node_modules
"""

import argparse
import contextlib
import functools
import gzip
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from transformer_mt.companions.browser.to_bergamot import ENGINE, ToBergamot
from transformer_mt.companions.browser.to_browser import ToBergamotPage, ToBrowser
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.format import ExportFormat
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.evaluation.metrics import bleu_tokenizer, build_bleu, build_chrf
from transformer_mt.messages import table
from transformer_mt.processes import cpu_name
from transformer_mt.run_folder import RunFolder

WEB = Path("transformer_mt/companions/browser/web")
ROUNDS, LINES = 3, 300
IN_CHROMIUM = """async ([lines]) => {
  const { load } = await import("./engine.js");
  const at = (name) => new URL(name, location.href).href;
  const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const translator = await load(read, at);
  const begun = performance.now();
  await translator.searched(lines.map((line) => translator.encode(line)));
  return (performance.now() - begun) / 1000;
}"""


def in_node(folder: Path, lines: list[str], runtime: Path) -> tuple[list[str], float, float]:
    """Translations, seconds, and the process's most memory in MB."""
    is_page = (folder / "index.html").exists()
    script = "page.mjs" if (folder / "runtime/bergamot.wasm").exists() else "node.mjs" if is_page else ""
    program = [str(WEB / script)] if script else [str(WEB / "bergamot.mjs"), str(runtime / ENGINE / "worker")]
    with tempfile.TemporaryDirectory() as root:
        given, out, said = (Path(root, name) for name in ("in", "out", "err"))
        given.write_text(json.dumps(lines), encoding="utf-8")
        with given.open() as stdin, out.open("w") as stdout, said.open("w") as stderr:
            command = [shutil.which("node") or "node", *program, str(folder), "--time"]
            process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)
            memory = 0.0
            while process.poll() is None:
                with contextlib.suppress(OSError):  # it has ended
                    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                    if "VmHWM" in status:
                        memory = float(status.partition("VmHWM:")[2].split()[0]) / 1e3
                time.sleep(0.02)
        assert process.returncode == 0, said.read_text(encoding="utf-8")
        rows = json.loads(out.read_text(encoding="utf-8"))
        texts = [row if isinstance(row, str) else row["text"] for row in rows]
        return texts, float(said.read_text(encoding="utf-8").split()[0]), memory


def in_chromium(folder: Path, lines: list[str]) -> float:
    """Seconds."""
    from playwright.sync_api import sync_playwright

    http.server.SimpleHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign]
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        return float(page.evaluate(IN_CHROMIUM, [lines]))


def in_ctranslate2(folder: Path, lines: list[str], beam: int) -> float:
    """Seconds, with one thread."""
    import ctranslate2

    tokenizer = RunFolder(folder).tokenizer()
    tokens = [[*tokenizer.pieces_src(ids), "</s>"] for ids in tokenizer.encode_src(lines)]
    translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1, inter_threads=1)
    begun = time.perf_counter()
    translator.translate_batch(tokens, beam_size=beam, max_batch_size=64, batch_type="examples")
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--runtime", type=Path, default=Path("node_modules"))
    parser.add_argument("--weights", nargs="+", default=["int8", "float32"])
    arguments = parser.parse_args()
    lines = Path(arguments.source).read_text(encoding="utf-8").splitlines()
    references = [[line] for line in Path(arguments.reference).read_text(encoding="utf-8").splitlines()]
    rows: list[list[str]] = []
    for name in arguments.runs:
        for quantization in arguments.weights:
            with tempfile.TemporaryDirectory() as root:
                rows += measured(
                    RunFolder(name), quantization, Path(root), arguments.runtime, lines, references
                )
    print(f"{cpu_name()}; one thread, medians of {ROUNDS} rounds of {LINES} lines, beam as in the runs\n")
    names = ["model MB", "page MB", "model gz", "page gz", "BLEU", "chrF"]
    names += ["Node, words/s", "Chromium", "CTranslate2", "Node : CTranslate2", "memory MB"]
    print(table(rows, ["run", "engine", "weights", *names]))


def measured(
    run: RunFolder,
    quantization: str,
    root: Path,
    runtime: Path,
    lines: list[str],
    references: list[list[str]],
) -> Iterator[list[str]]:
    """A row for each engine that can hold the model."""
    config = run.config()
    target = config.data.target_lang
    metrics = build_bleu(target, bleu_tokenizer(target), lowercase=False), build_chrf(False, 0)
    timed = lines[:LINES]
    words = sum(len(line.split()) for line in timed)
    formats: dict[str, ExportFormat] = {
        "Bergamot": ToBergamotPage(quantization, runtime),
        "onnxruntime": ToBrowser(quantization, runtime),
        "CTranslate2": ToCTranslate2(quantization),
    }
    if quantization == "int8":
        formats["Bergamot, its products"] = ToBergamot(quantization, runtime)
        formats["Bergamot, shortlist"] = ToBergamotPage(quantization, runtime, has_shortlist=True)
    folders = {}
    for engine, format in formats.items():
        if not format.reasons_against(config):
            folders[engine] = root / engine
            if engine != "onnxruntime":
                format.least_bleu = 0.0  # type: ignore[attr-defined]  # only its speed is compared
            print(engine, export(run, folders[engine], format, None))
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for engine, folder in folders.items():
            if engine == "CTranslate2":
                seconds[engine, ""].append(in_ctranslate2(folder, timed, config.decode.beam))
            else:
                seconds[engine, "node"].append(in_node(folder, timed, runtime)[1])
                if (folder / "index.html").exists():
                    seconds[engine, "chromium"].append(in_chromium(folder, timed))
    speeds = {each: words / median(times) for each, times in seconds.items()}
    native = speeds.get(("CTranslate2", ""))
    for engine, folder in folders.items():
        if engine != "CTranslate2":
            texts, _, memory = in_node(folder, lines, runtime)
            sizes = [sum(map(size, files_of(folder, kind))) / 1e6 for size in SIZES for kind in KINDS]
            speed = speeds[engine, "node"]
            yield [
                config.name,
                engine,
                quantization,
                *(f"{megabytes:.1f}" for megabytes in sizes),
                *(f"{metric.score([], texts, references).value:.2f}" for metric in metrics),
                f"{speed:,.0f}",
                f"{speeds[engine, 'chromium']:,.0f}" if (engine, "chromium") in speeds else "",
                f"{native:,.0f}" if native else "",
                f"{speed / native:.2f}" if native else "",
                f"{memory:.0f}",
            ]


def bytes_of(file: Path) -> int:
    return file.stat().st_size


def bytes_sent(file: Path) -> int:
    """Of the file as most hosts send it."""
    return len(gzip.compress(file.read_bytes()))


SIZES, KINDS = (bytes_of, bytes_sent), ("model", "all")


def files_of(page: Path, kind: str) -> list[Path]:
    """The files of the model alone, or all that a visitor loads."""
    if not (page / "model.json").exists():
        return [*page.glob("*.bin"), *page.glob("*.spm")]
    facts = json.loads((page / "model.json").read_text(encoding="utf-8"))
    model = [page / name for name in facts["files"] if not name.startswith("runtime/")]
    others = [file for file in page.rglob("*") if file.suffix in (".js", ".html", ".wasm")]
    return model if kind == "model" else sorted({*model, *others})


if __name__ == "__main__":
    main()
