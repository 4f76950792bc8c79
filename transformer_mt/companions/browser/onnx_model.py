"""The two graphs of a model as a model: our own search runs on onnxruntime."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt.companions.browser.graphs import ENCODER, STEP
from transformer_mt.errors import InputError
from transformer_mt.model.attention import AttentionRecorder
from transformer_mt.model.interface import TranslationModel


def quantize(folder: Path, names: tuple[str, ...]) -> None:
    """Replace the graphs by ones whose matrices and embeddings are in int8, one scale per output channel.
    Activations are quantised as they come (dynamically), so no calibration set is needed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped]

    root = logging.getLogger()  # through it, onnxruntime advises a step that this is
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
        """(B, T, V) log-probabilities, one step after the other: no graph has all positions."""
        state, steps = self.start(self.encode(src, src_mask), src_mask), []
        for tokens in tgt_in.T:
            log_probs, state = self.step(tokens, state)
            steps.append(log_probs)
        return torch.stack(steps, dim=1)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """(B, S) -> (B, S): the encoder runs in `start`, as its result is no memory."""
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
    """The module; InputError names the extra that brings it and what writes its files."""
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
