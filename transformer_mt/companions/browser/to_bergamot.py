"""A folder for Bergamot, the engine of Firefox and translateLocally: Marian's binary model in int8, its
vocabulary, and the files by which these programs know a model.
"""

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import yaml
from sentencepiece import sentencepiece_model_pb2
from torch import nn

from transformer_mt.companions.browser.shortlist import BEST, COMMON, write_shortlist
from transformer_mt.companions.exchange.export.format import (
    OURS_ALONE,
    Output,
    TrainedRun,
    reasons_against_language_pieces,
    reasons_against_text,
)
from transformer_mt.companions.exchange.export.proof import check_cost_of_int8
from transformer_mt.companions.exchange.export.to_huggingface import LATER_BLOCKS
from transformer_mt.companions.exchange.marian_layout import OUTPUT, marian_weights, to_marian, write_bin
from transformer_mt.companions.exchange.verify import write_sums
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.files import write_text
from transformer_mt.model.transformer import Transformer
from transformer_mt.text.languages import language_name
from transformer_mt.translation.result import Translation
from transformer_mt.translator import Translator

ENGINE, VERSION = "@browsermt/bergamot-translator", "0.4.9"
ACTIVATIONS = {"relu": "relu", "silu": "swish"}
"""Our names of activations, and Marian's; what is called gelu there is another function."""
_CONFIG, _REGISTRY = "config.intgemm8bitalpha.yml", "registry.json"
_INNER, _COLUMNS = 64, 8
"""The engine multiplies matrices of so many rows and columns, or multiples of them."""
_TINY = 2**25
"""Bytes below which translateLocally's lists call a model tiny."""
_SPREAD = 1.1
"""Inputs of a matrix are cut at the mean of their largest values in each batch plus so many deviations."""


def reasons_against(config: Config) -> list[str]:
    """Every reason why the engine cannot run such a model, each a key with what it must be."""
    model = config.model
    if model.kind != "transformer":
        return [f"model.kind must be transformer, but is {model.kind}"]
    needed: dict[str, Sequence[Any]] = {
        "norm": ("post",),
        "feed_forward": tuple(ACTIVATIONS),
        "position": ("sinusoidal_marian",),
        "decoder_start": ("zeros",),
        "tie_embeddings": (True,),
        "embedding_norm": (False,),
        **{key: (usual,) for key, usual in LATER_BLOCKS.items()},
    }
    reasons = [
        f"model.{key} must be {' or '.join(str(value).lower() for value in values)}, but is "
        f"{str(getattr(model, key)).lower()}"
        for key, values in needed.items()
        if getattr(model, key) not in values
    ]
    for key in ("d_model", "d_ff"):
        if (size := getattr(model, key)) % _INNER:
            reasons.append(f"model.{key} must be a multiple of {_INNER}, but is {size}")
    scores = model.attention.scores().model_dump()
    if set(scores.values()) != {"scaled_dot"}:
        reasons.append(f"model.attention.score must be scaled_dot, but is {scores}")
    for key, value in (("window", 0), ("cross", "global"), ("hard", False)):
        if (present := getattr(model.attention, key)) != value:
            reasons.append(f"model.attention.{key} must be {value}, but is {present}")
    if config.data.tags:
        reasons.append(f"data.train must have no tags, but has {', '.join(config.data.tags)}")
    return reasons + reasons_against_text(config.data) + reasons_against_language_pieces(config.data)


def vocabulary_there(tokenizer: Tokenizer, side: int) -> tuple[bytes, list[int]]:
    """A SentencePiece model as Marian numbers it (0 is the end, 1 unknown, no padding, no beginning), and for
    each of its pieces our id, or -1 for pieces that fill it up to a multiple of eight. InputError for a
    vocabulary that is numbered by another file.
    """
    proto = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.models[side])
    ids = [EOS, UNK, *(i for i in range(len(proto.pieces)) if i not in (PAD, UNK, BOS, EOS))]
    order = ids
    if tokenizer.numberings:
        numbering = tokenizer.numberings[side]
        ids, order = list(range(len(proto.pieces))), numbering.order[: len(proto.pieces)]
        if [numbering.pieces[i] for i in order] != [piece.piece for piece in proto.pieces]:
            raise InputError(
                "tokenizer.model must number its own tokens, but the tokens of this model are numbered by "
                "another file; such a vocabulary cannot be written for Bergamot"
            )
    pieces = [proto.pieces[i] for i in ids]
    fill = -len(pieces) % _COLUMNS
    kind = sentencepiece_model_pb2.ModelProto.SentencePiece
    filled = [kind(piece=f"<unused{i}>", type=kind.UNUSED) for i in range(fill)]
    changed = sentencepiece_model_pb2.ModelProto()
    changed.CopyFrom(proto)
    del changed.pieces[:]
    changed.pieces.extend([*pieces, *filled])
    if not tokenizer.numberings:
        spec = changed.trainer_spec
        spec.eos_id, spec.unk_id, spec.bos_id, spec.pad_id = 0, 1, -1, -1
        spec.vocab_size = len(changed.pieces)
    return changed.SerializeToString(), [*order, *[-1] * fill]


def model_options(c: ModelConfig, sizes: Sequence[int], shared: bool) -> dict[str, Any]:
    """The options of Marian that describe the network."""
    return {
        "type": "transformer",
        "dim-emb": c.d_model,
        "dim-vocabs": list(sizes),
        "enc-depth": c.num_encoder_layers,
        "dec-depth": c.num_decoder_layers,
        "dec-cell": "ssru",
        "dropout-rnn": 0,
        "layer-normalization": False,
        "input-types": [],
        "lemma-dim-emb": 0,
        "max-length": 1000,
        "output-omit-bias": False,
        "skip": False,
        "tied-embeddings": not shared,
        "tied-embeddings-all": shared,
        "tied-embeddings-src": False,
        "transformer-decoder-autoreg": "rnn" if c.autoregression == "ssru" else "self-attention",
        "transformer-decoder-ffn-depth": 0,
        "transformer-dim-ffn": c.d_ff,
        "transformer-dropout": 0,
        "transformer-dropout-attention": 0,
        "transformer-dropout-ffn": 0,
        "transformer-ffn-activation": ACTIVATIONS[c.feed_forward],
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": c.num_heads,
        "transformer-no-projection": False,
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "transformer-preprocess": "",
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "ulr": False,
        "version": "v1.9.56",
    }


@contextmanager
def largest_inputs(model: nn.Module) -> Iterator[dict[str, list[float]]]:
    """Inside this context, the largest absolute value of each input of each linear layer, by its name."""
    found: dict[str, list[float]] = defaultdict(list)

    def recorder(name: str) -> Any:
        return lambda _, inputs: found[name].append(float(inputs[0].abs().max()))

    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(recorder(name)) for name, module in linears]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def check_npm_package(runtime: Path, package: str, version: str, install: Sequence[str]) -> None:
    """InputError if the folder `runtime` has no such package, with what `npm install` has to be given."""
    file = runtime / package / "package.json"
    present = json.loads(file.read_text(encoding="utf-8"))["version"] if file.is_file() else "missing"
    if present != version:
        raise InputError(
            f"{runtime}: must hold {package} {version}, but it is {present}; run `npm install "
            f"{' '.join(install)}` and give its node_modules with ",
            Setting("runtime"),
        )


class ToBergamot:
    """A folder for Firefox's engine, as translateLocally keeps its models."""

    name = "Bergamot"
    advice = "A config that `transformer-mt new` writes for bergamot fits."
    least_bleu: ClassVar[float] = 70.0  # low: int8 changes weak models; `pack` uses references
    proof_settings: ClassVar[dict[str, Any]] = {
        "beam": 1, "split_sentences": False, "stop_early": True, **OURS_ALONE,
    }  # fmt: skip

    def __init__(
        self, quantization: str = "int8", runtime: Path = Path("node_modules"), has_shortlist: bool = False
    ) -> None:
        if quantization not in ("int8", "float32"):
            raise InputError(Setting("quantization"), f" must be int8 or float32, but is {quantization}")
        if has_shortlist and quantization == "float32":
            raise InputError(
                Setting("shortlist"), " must be left out with ", Setting("quantization", "float32"),
                ", whose proof needs identical translations, which a shortlist changes",
            )  # fmt: skip
        if has_shortlist:
            self.low_bleu_advice = "; or leave out ", Setting("shortlist")
        self.quantization, self.runtime, self.has_shortlist = quantization, runtime, has_shortlist
        self.engine, self.node = runtime / ENGINE, ""

    def _find_engine(self) -> None:
        """InputError if the engine or Node is not there."""
        check_npm_package(self.runtime, ENGINE, VERSION, [f"{ENGINE}@{VERSION}"])
        self.node = shutil.which("node") or ""
        if not self.node:
            raise InputError("Node must be installed: the export is proven by the engine in WebAssembly")

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToBergamot":
        return cls(arguments.quantization or "int8", Path(arguments.runtime), arguments.shortlist)

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        same = {key: getattr(settings, key) for key in ("max_length_ratio", "split_sentences")}
        supported = DecodeConfig.model_validate({**same, "beam": 1, "stop_early": True, **OURS_ALONE})
        unsaid = {"batch_tokens", "retry", "length_penalty", *OURS_ALONE}
        names = set(DecodeConfig.model_fields) - unsaid
        return supported, sorted(n for n in names if getattr(settings, n) != getattr(supported, n))

    def reasons_against(self, config: Config) -> list[str]:
        return reasons_against(config)

    def write(self, run: TrainedRun, folder: Path) -> None:
        assert isinstance(run.model, Transformer)
        self._find_engine()
        self._run, c = run, run.config.model
        pair = "".join(run.config.data.languages)
        shared = run.tokenizer.shared
        kinds = ["vocab"] if shared else ["srcvocab", "trgvocab"]
        names = [f"{kind}.{pair}.spm" for kind in kinds]
        rows = []
        for side, name in enumerate(names):
            model, order = vocabulary_there(run.tokenizer, min(side, len(run.tokenizer.models) - 1))
            (folder / name).write_bytes(model)
            rows.append(order)
        is_int8 = self.quantization == "int8"
        model_file = f"model.{pair}.{'intgemm.alphas' if is_int8 else 'float32'}.bin"
        self._registered = {"model": model_file, **dict(zip(kinds, names))}
        both = [names[0], names[-1]]
        self._files: dict[str, Any] = {"model": model_file, "vocabularies": both, "config": _CONFIG}
        if self.has_shortlist:  # first, since it may be impossible
            lex = self._registered["lex"] = self._files["shortlist"] = f"lex.{BEST}.{COMMON}.{pair}.s2t.bin"
            write_shortlist(run, rows, folder / lex)
        weights = {name: parameter.detach() for name, parameter in run.model.named_parameters()}
        arrays = to_marian(c, weights, rows)
        if is_int8:
            arrays |= self._alphas(run, shared)
        options = model_options(c, [len(rows[0]), len(rows[-1])], shared)
        write_bin(folder / model_file, arrays, yaml.safe_dump(options), is_int8)
        ratio = run.config.decode.max_length_ratio
        search = {
            "relative-paths": True,
            "models": [model_file],
            "vocabs": self._files["vocabularies"],
            **({"shortlist": [self._files["shortlist"], False]} if self.has_shortlist else {}),
            "beam-size": 1,
            "normalize": 1.0,
            "word-penalty": 0,
            "max-length-break": run.config.data.max_length,
            "max-length-factor": float(ratio),
            "mini-batch-words": 1024,
            "workspace": 128,
            "skip-cost": True,
            "cpu-threads": 0,
            "quiet": True,
            "quiet-translation": True,
            "gemm-precision": "int8shiftAlphaAll" if is_int8 else "float32",
        }
        write_text(folder / _CONFIG, yaml.safe_dump(search, sort_keys=False))

    def _alphas(self, run: TrainedRun, shared: bool) -> dict[str, np.ndarray]:
        """By how much the inputs of each matrix are multiplied before they are rounded to int8."""
        c = run.config.model
        decode = run.config.decode.model_copy(update=self.proof_settings)
        with largest_inputs(run.model) as largest:
            Translator.of_config(run.model, run.tokenizer, run.config, decode).translate(run.sentences)
        names = {weight.ours.removesuffix(".weight"): weight.theirs for weight in marian_weights(c, shared)}
        names["output"] = "Wemb" if shared else "decoder_Wemb" if c.tie_embeddings else OUTPUT
        alphas = {}
        for ours, values in largest.items():
            alpha = np.array([127 / (np.mean(values) + _SPREAD * np.std(values))], np.float32)
            for name in [names[ours], *["none"] * (ours == "output")]:  # none: with a shortlist
                alphas[f"{name}_QuantMultA"] = alpha
        return alphas

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        return [Output(text, None) for text in self.translated(folder, sentences)]

    def translated(self, folder: Path, sentences: Sequence[str]) -> list[str]:
        """Translate with the engine in WebAssembly, each line as one sentence."""
        folders = [(self.engine / "worker").resolve(), folder.resolve()]
        return [str(text) for text in run_in_node(self.node, "bergamot.mjs", folders, sentences)]

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None  # the engine divides or cuts it elsewhere
        return Output(translation.translation, translation.score)

    def metadata(self, config: Config) -> dict[str, Any]:
        return {"files": self._files}

    def usage(self, config: Config, out: str) -> str:
        return f"""\
For translateLocally, pack the folder (`tar -czf {out}.tar.gz {out}`) and open the archive in Edit, Translator
Settings, Languages, Import model. `{_REGISTRY}` is the entry that Firefox's engine in JavaScript
(`{ENGINE}`) wants for it.
"""

    def check_cost(self, folder: Path) -> None:
        """WorkError if int8 costs too much of the validation set's BLEU."""
        if self.quantization == "int8":
            advice = ("leave out ", Setting("shortlist")) if self.has_shortlist else ("use float32",)
            check_cost_of_int8(
                self._run, self.proof_settings, lambda lines, _: self.translated(folder, lines), advice
            )

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        self.check_cost(folder)
        source, target = config.data.languages
        titles = [language_name(code) for code in (source, target)]
        size = sum((folder / name).stat().st_size for name in self._registered.values())
        info = {
            "shortName": f"{source}-{target}-{re.sub(r'[^A-Za-z0-9]', '', config.name) or 'model'}",
            "modelName": f"{titles[0]}-{titles[1]} {config.name}",
            "src": titles[0],
            "trg": titles[1],
            "srcTags": {source: titles[0]},
            "trgTag": target,
            "type": "tiny" if size < _TINY else "base",
            "version": 1,
            "API": 1,
        }
        write_text(folder / "model_info.json", json.dumps(info, indent=1, ensure_ascii=False) + "\n")
        entries = {kind: _entry(folder / name) for kind, name in self._registered.items()}
        registry = {f"{source}{target}": entries}
        write_text(folder / _REGISTRY, json.dumps(registry, indent=1) + "\n")
        write_sums(folder)  # of the files as they are now
        folder.rename(out)


def _entry(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return {
        "name": file.name,
        "size": len(content),
        "estimatedCompressedSize": len(gzip.compress(content, mtime=0)),
        "expectedSha256Hash": hashlib.sha256(content).hexdigest(),
        "modelType": "prod",
    }


def run_in_node(node: str, script: str, folders: Sequence[Path], sentences: Sequence[str]) -> list[Any]:
    """What a script of `web/` prints for sentences: a list with an entry for each. WorkError if it fails."""
    command = [node, str(files(__package__) / "web" / script), *map(str, folders)]
    lines = json.dumps(list(sentences))
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8")
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if re.match(r"\w*Error\b", line)]
        raise WorkError(
            f"the export's JavaScript failed in Node: {(errors or [f'status {done.returncode}'])[0][:300]}"
        )
    return list(json.loads(done.stdout))
