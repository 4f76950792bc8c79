"""Size, quality and speed of models exported for browsers: in Node and Chromium, beside CTranslate2.

python scripts/bench/browser.py RUN [RUN ...] --source val.en --reference val.de --runtime node_modules
"""

import argparse
import functools
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from transformer_mt.companions.browser.to_browser import ToBrowser
from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2
from transformer_mt.evaluation.metrics import bleu_tokenizer, build_bleu, build_chrf
from transformer_mt.messages import table
from transformer_mt.processes import cpu_name
from transformer_mt.run_folder import RunFolder

WEB = Path("transformer_mt/companions/browser/web")
ROUNDS, LINES = 3, 300
IN_CHROMIUM = """async ([lines]) => {
  const ort = await import("./runtime/ort.wasm.min.js");
  const { loadTokenizer } = await import("./runtime/sentencepiece.js");
  const { Translator } = await import("./translator.js");
  const at = (name) => new URL(`runtime/${name}`, location.href).href;
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = { mjs: at("ort-wasm.js"), wasm: at("ort-wasm.wasm") };
  const read = async (name) => new Uint8Array(await (await fetch(name)).arrayBuffer());
  const translator = await Translator.load(ort, loadTokenizer, read);
  const begun = performance.now();
  await translator.searched(lines.map((line) => translator.encode(line)));
  return (performance.now() - begun) / 1000;
}"""


def in_node(folder: Path, lines: list[str]) -> tuple[list[str], float]:
    """Translations, and seconds."""
    command = [shutil.which("node") or "node", str(WEB / "node.mjs"), str(folder), "--time"]
    done = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, check=True)
    return [row["text"] for row in json.loads(done.stdout)], float(done.stderr.split()[0])


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
    timed = lines[:LINES]
    words = sum(len(line.split()) for line in timed)
    rows = []
    for name in arguments.runs:
        run = RunFolder(name)
        config = run.config()
        target = config.data.target_lang
        metrics = build_bleu(target, bleu_tokenizer(target), lowercase=False), build_chrf(False, 0)
        for quantization in arguments.weights:
            with tempfile.TemporaryDirectory() as root:
                page, native = Path(root, "page"), Path(root, "ctranslate2")
                export(run, page, ToBrowser(quantization, arguments.runtime), None)
                to_native = ToCTranslate2(quantization)
                to_native.least_bleu = 0.0  # type: ignore[attr-defined]  # only its speed is compared
                export(run, native, to_native, None)
                model = sum((page / file).stat().st_size for file in ("encoder.onnx", "step.onnx")) / 1e6
                seconds: dict[str, list[float]] = {"node": [], "chromium": [], "native": []}
                texts, _ = in_node(page, lines)
                for _ in range(ROUNDS):
                    seconds["node"].append(in_node(page, timed)[1])
                    seconds["chromium"].append(in_chromium(page, timed))
                    seconds["native"].append(in_ctranslate2(native, timed, config.decode.beam))
                speeds = [words / median(each) for each in seconds.values()]
                scores = [f"{metric.score([], texts, references).value:.2f}" for metric in metrics]
                shown = [f"{speed:,.0f}" for speed in speeds]
                ratio = f"{speeds[0] / speeds[2]:.2f}"
                rows.append([config.name, quantization, f"{model:.1f}", *scores, *shown, ratio])
    print(f"{cpu_name()}; one thread, medians of {ROUNDS} rounds of {len(timed)} lines\n")
    names = ["Node, words/s", "Chromium", "CTranslate2", "ratio"]
    print(table(rows, ["run", "weights", "MB", "BLEU", "chrF", *names]))


if __name__ == "__main__":
    main()
