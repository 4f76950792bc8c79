"""ONNX: encoder and decoder step as two graphs, with the tokenizer and model.json, for any runtime; the proof
searches with onnxruntime.

Letters: L decoder layers, B sentences, W hypotheses of each, N = B x W rows, H heads of keys and values,
S source length, T target tokens so far, K head width, V vocabulary.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.companions.browser.page import FACTS, page_facts
from transformer_mt.companions.exchange.export.format import (
    OURS_ALONE,
    Output,
    TrainedRun,
    reasons_against_text,
)
from transformer_mt.companions.exchange.export.proof import check_cost_of_int8
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.model.attention import AttentionRecorder
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import Positions, attend_to
from transformer_mt.model.positions import SinusoidalPositions
from transformer_mt.model.transformer import DecoderLayer, Transformer
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translator import Translator

ENCODER, STEP = "encoder.onnx", "step.onnx"


class EncoderGraph(nn.Module):
    """src (B, S), padded with 0 -> source (L, 2, B, H, S, K): its keys and values for each decoder layer."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> Tensor:
        memory_BSD = self.model.encode(src, src != PAD)
        layers = self.model.decoder.layers
        attentions = [layer.cross_attention for layer in layers if layer.cross_attention is not None]
        return torch.stack([torch.stack(attention.keys_values(memory_BSD)) for attention in attentions])


class StepGraph(nn.Module):
    """One step of all hypotheses.

    tokens (N,), rows (N,), past (L, 2, M, H, T, K), source (L, 2, B, H, S, K), src (B, S) -> log_probs (N, V)
    of the next token, present (L, 2, N, H, T + 1, K). Row n continues row `rows[n]` of the M rows of the step
    before; the W rows of a sentence stand together.
    """

    def __init__(self, model: Transformer, most: int) -> None:
        super().__init__()
        self.model, self.most = model, most

    def forward(
        self, tokens: Tensor, rows: Tensor, past: Tensor, source: Tensor, src: Tensor
    ) -> tuple[Tensor, Tensor]:
        past = past.index_select(2, rows)
        N, B, T = tokens.size(0), src.size(0), past.size(4)
        newest = torch.zeros(1, dtype=torch.int64) + T  # a tensor: as a number it would be a constant
        of_past = Positions(newest, torch.arange(T + 1), self.most)
        of_source = Positions(newest.expand(N // B), torch.arange(src.size(1)), self.most)
        mask = attend_to(src != PAD)
        present: list[Tensor] = []
        x_N1D = self.model.tgt_embedding(tokens[:, None], newest.expand(N, 1))
        for i, layer in enumerate(self.model.decoder.layers):
            x_N1D = self._layer(layer, x_N1D, past[i], source[i], mask, of_past, of_source, present)
        logits = self.model.output(self.model.decoder.final_norm(x_N1D)[:, 0])
        return F.log_softmax(logits, dim=-1), torch.stack(present)

    def _layer(
        self, layer: DecoderLayer, x_N1D: Tensor, past: Tensor, source: Tensor, mask: Tensor,
        of_past: Positions, of_source: Positions, present: list[Tensor],
    ) -> Tensor:  # fmt: skip
        newest = Positions(of_past.queries, of_past.queries, self.most)

        def attend_to_self(x: Tensor) -> Tensor:
            assert layer.self_attention is not None
            keys, values = layer.self_attention.keys_values(x, newest)
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
            present.append(torch.stack([keys, values]))
            return layer.self_attention(x, keys, values, positions=of_past)

        def attend_to_source(x: Tensor) -> Tensor:
            # The hypotheses of a sentence attend together, as W queries to one copy of its source.
            assert layer.cross_attention is not None
            x_BWD = x.view(mask.size(0), -1, x.size(-1))
            read = layer.cross_attention(x_BWD, source[0], source[1], mask=mask, positions=of_source)
            return read.view(-1, 1, x.size(-1))

        x_N1D = layer.self_residual(x_N1D, attend_to_self)
        x_N1D = layer.cross_residual(x_N1D, attend_to_source)
        return layer.ffn_residual(x_N1D, layer.feed_forward)


@torch.no_grad()
def write_graphs(model: Transformer, folder: Path, most: int) -> None:
    """Write encoder.onnx and step.onnx in float32, for sequences of up to `most` positions."""
    model = model.float().eval()
    for module in model.modules():
        if isinstance(module, SinusoidalPositions):  # in the graph the table cannot grow
            module.table = module.formula(most, module.table.size(1))
    src = torch.full((2, 5), 4)  # any text that shows the shapes
    any_size = torch.export.Dim.DYNAMIC
    with _quiet():
        encoder = EncoderGraph(model)
        source = encoder(src)
        layers, _, _, heads, _, width = source.shape
        past = source.new_zeros(layers, 2, 3, heads, 3, width)
        rows = torch.tensor([0, 0, 1, 2, 2, 1])
        step = StepGraph(model, most)
        _write(encoder, (src,), ["src"], ["source"], [{0: any_size, 1: any_size}], folder / ENCODER)
        _write(
            step, (rows + 4, rows, past, source, src), ["tokens", "rows", "past", "source", "src"],
            ["log_probs", "present"],
            [{0: any_size}, {0: any_size}, {2: any_size, 4: any_size}, {2: any_size, 4: any_size},
             {0: any_size, 1: any_size}], folder / STEP,
        )  # fmt: skip


def _write(
    graph: nn.Module, given: tuple[Tensor, ...], inputs: list[str], outputs: list[str],
    sizes: list[dict[int, Any]], file: Path,
) -> None:  # fmt: skip
    program = torch.onnx.export(
        graph, given, dynamo=True, input_names=inputs, output_names=outputs, dynamic_shapes=tuple(sizes),
        verbose=False,
    )  # fmt: skip
    assert program is not None
    program.save(file, external_data=False)
    _remove_traces(file)


def _remove_traces(file: Path) -> None:
    """Remove the exporter's notes, which quote the code behind each node, with folders of this machine."""
    import onnx

    model = onnx.load(file)
    parts: list[Any] = [model, model.graph, *model.functions]
    for graph in (model.graph, *model.functions):
        parts += [*graph.node, *getattr(graph, "value_info", ()), *getattr(graph, "initializer", ())]
    for part in [*parts, *model.graph.input, *model.graph.output]:
        part.doc_string = ""
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]
    onnx.save(model, file)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings, which name its own parts and missing packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def quantize(folder: Path, names: tuple[str, ...]) -> None:
    """Replace the graphs by ones whose matrices and embeddings are in int8, one scale per output channel.
    Activations are quantised as they come (dynamically), so no calibration set is needed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]

    root = logging.getLogger()  # onnxruntime logs its advice through the root logger
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        for name in names:
            whole = folder / f"float-{name}"
            (folder / name).rename(whole)
            quantize_dynamic(whole, folder / name, weight_type=QuantType.QInt8, per_channel=True)
            whole.unlink()
    finally:
        root.setLevel(level)


@dataclass(frozen=True)
class OnnxState:
    """Keys and values of B sentences, with W rows of each that the next step continues."""

    past: Tensor
    """(L, 2, M, H, T, K)"""
    rows: Tensor
    """(N,) rows of `past`."""
    source: Tensor
    """(L, 2, B, H, S, K)"""
    src: Tensor
    """(B, S)"""

    def select(self, rows: Tensor) -> "OnnxState":
        """Hypothesis w of sentence b continues row `rows[b, w]`; sentences may be left out."""
        kept = rows[:, 0] // (len(self.rows) // len(self.src))
        source, src = self.source, self.src
        if len(kept) < len(src):
            source, src = source.index_select(2, kept), src[kept]
        return OnnxState(self.past, self.rows[rows.flatten()], source, src)


class OnnxModel(TranslationModel):
    """encoder.onnx and step.onnx in a folder, run by onnxruntime."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        onnxruntime = import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        self._encoder, self._step = (
            onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, STEP)
        )
        past = next(given for given in self._step.get_inputs() if given.name == "past")
        self._layers, self._heads, self._width = (past.shape[i] for i in (0, 3, 5))
        self.register_parameter("_any", torch.nn.Parameter(torch.zeros(1)))  # shows device and dtype

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, T, V) log-probabilities, computed step by step: no graph takes all positions at once."""
        state, steps = self.start(self.encode(src, src_mask), src_mask), []
        for tokens in tgt_in.T:
            log_probs, state = self.step(tokens, state)
            steps.append(log_probs)
        return torch.stack(steps, dim=1)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """(B, S) -> (B, S), unchanged. The encoder runs in `start`: its output is not the usual memory."""
        return src

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> OnnxState:
        src, B = memory_BSD, len(memory_BSD)
        (source,) = self._encoder.run(None, {"src": src.numpy()})
        past = torch.zeros(self._layers, 2, B, self._heads, 0, self._width)
        return OnnxState(past, torch.arange(B), torch.from_numpy(source), src)

    def step(
        self, tokens: Tensor, state: Any, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, Any]:
        given = {"tokens": tokens, "rows": state.rows, "past": state.past, "source": state.source}
        given |= {"src": state.src}
        log_probs, present = self._step.run(None, {name: value.numpy() for name, value in given.items()})
        after = OnnxState(torch.from_numpy(present), torch.arange(len(tokens)), state.source, state.src)
        return torch.from_numpy(log_probs), after


def import_onnxruntime() -> Any:
    """The onnxruntime module. If a package for ONNX files is missing, InputError names its extra."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{error.name} must be installed for ONNX files, but is not; install the extra: "
            "pip install 'transformer-mt[browser]'"
        ) from None
    return onnxruntime


_TWO_TOKENIZERS = ["tokenizer.src.model", "tokenizer.tgt.model"]
_USAGE = """\
`encoder.onnx` turns `src` (B, S; int64, padded with 0, `eos` after each sentence) into `source`. `step.onnx`
takes one step of all hypotheses: from `tokens` (N,), the `rows` (N,) of `past` that they continue, `past`,
`source` and `src`, it computes `log_probs` (N, V) and `present`, which is the next `past`. Ids, sizes and
settings are in `model.json`. Greedy search in Python:

```python
import json, pathlib
import numpy as np, onnxruntime as ort, sentencepiece

folder = pathlib.Path("{out}")
facts = json.loads((folder / "model.json").read_text())
encoder, step = (ort.InferenceSession(folder / name) for name in ("encoder.onnx", "step.onnx"))
src_side, tgt_side = (
    sentencepiece.SentencePieceProcessor(str(folder / facts["tokenizers"][i])) for i in (0, -1)
)
direction = facts["directions"][0]
text = src_side.encode("...")
src = np.array([direction["before"] + text + [facts["eos"]]])
(source,) = encoder.run(None, {{"src": src}})
past = np.zeros((facts["layers"], 2, 1, facts["heads"], 0, facts["width"]), np.float32)
tokens, written = [facts["bos"], *direction["prompt"]], []
limit = int(facts["search"]["max_length_ratio"] * len(text)) + 10
while tokens and len(written) < limit:
    given = {{"tokens": np.array([tokens.pop(0)]), "rows": np.array([0])}}
    given |= {{"past": past, "source": source, "src": src}}
    log_probs, past = step.run(None, given)
    if not tokens:
        log_probs[:, facts["never"]] = -np.inf
        written += (tokens := [int(log_probs.argmax())])
        tokens = [] if tokens == [facts["eos"]] else tokens
print(tgt_side.decode([i for i in written if i != facts["eos"]]))
```
"""
_SEARCH = ("beam", "length_penalty", "length_penalty_form", "max_length", "max_length_ratio")


class ToOnnx:
    """A folder with encoder.onnx, step.onnx, the SentencePiece model and model.json."""

    name = "ONNX"
    advice = "Translate with the run's folder."
    least_bleu: ClassVar[float] = 70.0  # low: int8 changes weak models; `pack` uses references
    proof_settings: ClassVar[dict[str, Any]] = {"split_sentences": False, "stop_early": True, **OURS_ALONE}

    def __init__(self, quantization: str = "int8") -> None:
        if quantization not in ("int8", "float32"):
            raise InputError(Setting("quantization"), f" must be int8 or float32, but is {quantization}")
        self.quantization = quantization
        import_onnxruntime()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToOnnx":
        return cls(arguments.quantization or "int8")

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        kept = {key: getattr(settings, key) for key in (*_SEARCH, "split_sentences")}
        supported = DecodeConfig.model_validate({**kept, "stop_early": True, **OURS_ALONE})
        unsaid = {"batch_tokens", "retry", *OURS_ALONE}
        names = set(DecodeConfig.model_fields) - unsaid
        return supported, sorted(n for n in names if getattr(settings, n) != getattr(supported, n))

    def reasons_against(self, config: Config) -> list[str]:
        needed = {"kind": "transformer", "autoregression": "attention"}
        reasons = [
            f"model.{key} must be {value}, but is {present}"
            for key, value in needed.items()
            if (present := getattr(config.model, key)) != value
        ]
        return reasons + reasons_against_text(config.data)

    def write(self, run: TrainedRun, folder: Path) -> None:
        assert isinstance(run.model, Transformer)
        if run.tokenizer.numberings:
            raise InputError(f"{run.folder}: must have a vocabulary of its own, but has an imported one")
        self._run = run
        write_graphs(run.model, folder, _positions(run.config))
        if self.quantization == "int8":
            quantize(folder, (ENCODER, STEP))
        run.tokenizer.save(folder)
        facts = model_facts(run)
        write_text(folder / FACTS, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        results = self._translator(OnnxModel(folder)).translate(sentences)
        return [Output(result.translation, result.score, result.tokens) for result in results]

    def _translator(self, model: TranslationModel) -> Translator:
        config = self._run.config
        decode = config.decode.model_copy(update=self.proof_settings)
        return Translator.of_config(model, self._run.tokenizer, config, decode)

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None  # the other runtime divides or cuts it elsewhere
        return Output(translation.translation, translation.score)

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        return _USAGE.format(out=out)

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        if self.quantization != "float32":
            by_export = self._translator(OnnxModel(folder))

            def translate(lines: Sequence[str], tag: str | None) -> list[str]:
                return [result.translation for result in by_export.stream(lines, Options(tag=tag))]

            check_cost_of_int8(self._run, self.proof_settings, translate)
        folder.rename(out)


def _positions(config: Config) -> int:
    """The longest sequence that the graphs must compute: each position takes a row of a table in them."""
    most = config.data.max_length
    longest = int(config.decode.max_length_ratio * most) + 12
    return most if config.model.position == "learned" else max(most, longest)


def model_facts(run: TrainedRun) -> dict[str, Any]:
    """Everything that a search needs besides graphs and SentencePiece models, as model.json has it."""
    config, tokenizer = run.config, run.tokenizer
    layers = run.model.attentions["decoder"]
    facts = page_facts(run)
    return {
        **facts,
        **{"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS},
        "never": [PAD, UNK, BOS, *tokenizer.never_written],
        "layers": len(layers),
        "heads": layers[0].num_kv_heads,
        "width": config.model.d_model // config.model.num_heads,
        "max_source": config.data.max_length,
        "max_target": _positions(config) - len(facts["directions"][0]["prompt"]),
        "search": {key: getattr(config.decode, key) for key in _SEARCH},
        "tokenizers": ["tokenizer.model"] if len(tokenizer.models) == 1 else _TWO_TOKENIZERS,
    }
