"""A translation model as two ONNX graphs: the encoder, and one step of the decoder.

Letters: L decoder layers, B sentences, W hypotheses of each, N = B x W rows, H heads of keys and values, S
source length, T target tokens so far, K head width, V vocabulary.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.data.vocabulary.tokenizer import PAD
from transformer_mt.model.masks import Positions, attend_to
from transformer_mt.model.positions import SinusoidalPositions
from transformer_mt.model.transformer import DecoderLayer, Transformer

ENCODER, STEP = "encoder.onnx", "step.onnx"


class EncoderGraph(nn.Module):
    """src (B, S), padded with 0 -> source (L, 2, B, H, S, K): each decoder layer's keys and values of it."""

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
    """Remove notes of the exporter: they have the lines of code that made each node, with the folders of this
    machine.
    """
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
