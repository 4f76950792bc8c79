"""A folder that any browser opens: a model, the engine that runs it there, and the page.

The engine is Bergamot's where it can run the model, else onnxruntime with a search of our own in JavaScript.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from transformer_mt.cli.arguments import Parser
from transformer_mt.companions.browser.page import FACTS, page_facts, seal_page, web_file, write_page
from transformer_mt.companions.browser.to_bergamot import ToBergamot, check_npm_package, run_in_node
from transformer_mt.companions.browser.to_bergamot import reasons_against as reasons_against_bergamot
from transformer_mt.companions.browser.to_onnx import ENCODER, STEP, ToOnnx
from transformer_mt.companions.exchange.export.format import ExportFormat, Output, TrainedRun
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import open_model


def add_options(parser: Parser) -> None:
    """Add --runtime and --shortlist."""
    parser.add_argument(
        "--runtime",
        metavar="FOLDER",
        default="node_modules",
        help="for --to browser or bergamot: a node_modules folder with their engine (default: node_modules)",
    )
    parser.add_argument(
        "--shortlist",
        action="store_true",
        help="for --to bergamot, or browser with such a model: learn from the training pairs which target "
        "tokens are probable with each source token, and score these alone",
    )


_PACKAGES = {"onnxruntime-web": "1.22.0", "sentencepiece-js": "1.1.0"}
_RUNTIME = {
    "ort.wasm.min.js": "onnxruntime-web/dist/ort.wasm.min.mjs",
    "ort-wasm.js": "onnxruntime-web/dist/ort-wasm-simd-threaded.mjs",
    "ort-wasm.wasm": "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
    "sentencepiece.js": "sentencepiece-js/dist/index.js",
}
"""Files of the export's folder `runtime`, and the files of node_modules that they are copied from."""
_WASM, _PRODUCTS = "runtime/bergamot.wasm", "runtime/int8_products.wasm"
_BERGAMOT_LICENCE = (
    "Bergamot's engine (runtime/bergamot.js, runtime/bergamot.wasm): Mozilla Public License 2.0, "
    "https://mozilla.org/MPL/2.0/. Its source code: https://github.com/browsermt/bergamot-translator."
)
_USAGE = (
    "Publish the folder `{out}` on any static web server, or try it with `python3 -m http.server -d {out}`. "
    "The page works without a network once it was loaded."
)
_BY_RULES = ("lowercase_capitals", "match_ends")
"""Settings that the page follows, besides those of the search (page.py)."""

# sentencepiece-js is written for Node's `require` and reads its model from a file. Between these two strings
# it runs anywhere, and gets the model as bytes.
_BEFORE = """\
const process = undefined, window = undefined, importScripts = undefined, document = undefined;
const __filename = "/sentencepiece.js", module = { exports: {} }, exports = module.exports;
let model;
const require = (name) => (name === "fs" ? { readFileSync: () => model } : { URL });
"""
_AFTER = """
export async function loadTokenizer(bytes) {
  model = bytes;
  const processor = new exports.SentencePieceProcessor();
  await processor.load("model");
  return processor;
}
"""


def npm_packages() -> list[str]:
    """The arguments of `npm install` that bring the JavaScript libraries."""
    return [f"{name}@{version}" for name, version in _PACKAGES.items()]


class ToBrowser(ToOnnx):
    """A folder for a static web server. `translate` runs the page's own JavaScript in Node."""

    name = "browser"

    def __init__(self, quantization: str = "int8", runtime: Path = Path("node_modules")) -> None:
        super().__init__(quantization)
        self._runtime = runtime
        for package, version in _PACKAGES.items():
            check_npm_package(runtime, package, version, npm_packages())

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ExportFormat":  # type: ignore[override]
        """The page's format: with Bergamot's engine where the model fits it."""
        if not reasons_against_bergamot(open_model(arguments.model).config()):
            return ToBergamotPage.of(arguments)
        if arguments.shortlist:
            raise InputError(
                Setting("shortlist"), f" must be left out: {arguments.model} does not fit Bergamot's engine, "
                "and a page with onnxruntime has no shortlist",
            )  # fmt: skip
        return cls(arguments.quantization or "int8", Path(arguments.runtime))

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        return _with_rules(settings, *super().supported_settings(settings))

    def write(self, run: TrainedRun, folder: Path) -> None:
        super().write(run, folder)
        runtime = folder / "runtime"
        runtime.mkdir()
        for name, source in _RUNTIME.items():
            shutil.copyfile(self._runtime / source, runtime / name)
        tokenizer = runtime / "sentencepiece.js"
        write_text(tokenizer, _BEFORE + tokenizer.read_text(encoding="utf-8") + _AFTER)
        licences = [
            f"{package}\n\n{(self._runtime / package / 'LICENSE').read_text(encoding='utf-8')}"
            for package in _PACKAGES
            if (self._runtime / package / "LICENSE").is_file()
        ]
        write_page(folder, "onnx.js", [web_file("onnxruntime-licence.txt"), *licences])

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        by_python = super().translate(folder, sentences)
        node = shutil.which("node")
        if node is None:
            say("note: Node is not installed, so the page's JavaScript itself was not compared")
            return by_python
        by_page = translate_in_node(node, folder, sentences)
        same = sum(a.translation == b.translation for a, b in zip(by_python, by_page))
        say(f"the page's JavaScript and onnxruntime in Python translate {same} of {len(by_page)} lines alike")
        return by_page

    def usage(self, config: Config, out: str) -> str:
        return _USAGE.format(out=out)

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        seal_page(folder, [ENCODER, STEP, *facts["tokenizers"]])
        super().pack(folder, out, config)


def _with_rules(
    settings: DecodeConfig, supported: DecodeConfig, others: Sequence[str]
) -> tuple[DecodeConfig, list[str]]:
    """The supported settings and those of the rules that the page follows; the names of all others."""
    by_rules = {name: getattr(settings, name) for name in _BY_RULES}
    return supported.model_copy(update=by_rules), [name for name in others if name not in by_rules]


def translate_in_node(node: str, folder: Path, sentences: Sequence[str]) -> list[Output]:
    """The translations of whole lines by the JavaScript in the folder."""
    rows = run_in_node(node, "node.mjs", [folder.resolve()], sentences)
    return [Output(row["text"], row["score"]) for row in rows]


class ToBergamotPage(ToBergamot):
    """The same page with Bergamot's engine, which is half as large as onnxruntime."""

    name = "browser"

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        return _with_rules(settings, *super().supported_settings(settings))

    def write(self, run: TrainedRun, folder: Path) -> None:
        super().write(run, folder)
        runtime, worker = folder / "runtime", self.engine / "worker" / "bergamot-translator-worker"
        runtime.mkdir()
        shutil.copyfile(worker.with_suffix(".wasm"), folder / _WASM)
        (folder / _PRODUCTS).write_bytes((files(__package__) / "web/int8_products.wasm").read_bytes())
        # A module has no `this`.
        glue = (
            worker.with_suffix(".js")
            .read_text(encoding="utf-8")
            .replace("object = this;", "object = globalThis;")
        )
        write_text(runtime / "bergamot.js", f"export default function (Module) {{\n{glue}\n}}\n")
        facts = {**page_facts(run), "engine": self.metadata(run.config)["files"]}
        write_text(folder / FACTS, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
        write_page(folder, "bergamot.js", [_BERGAMOT_LICENCE])

    def translated(self, folder: Path, sentences: Sequence[str]) -> list[str]:
        return [str(text) for text in run_in_node(self.node, "page.mjs", [folder.resolve()], sentences)]

    def usage(self, config: Config, out: str) -> str:
        return _USAGE.format(out=out)

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        self.check_cost(folder)
        seal_page(folder, [*self._registered.values(), self._files["config"], _WASM, _PRODUCTS])
        folder.rename(out)
