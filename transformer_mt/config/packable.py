"""Trainings that can have packed batches: several sentences in each row (data/batches/packing.py)."""

from typing import Any

from transformer_mt.parts import load_part

LONGEST_ROW = 512
"""Attention takes time with the square of a row: longer rows cost more than padding does."""


def why_padded(model: Any, train: Any, data: Any) -> str | None:
    """Why batches must have one sentence in a row, by these sections; None where they may have several."""
    if model.kind in ("recurrent", "encoder"):
        return f"model.kind is {model.kind}"
    if model.attention.cross != "global" or model.attention.hard:
        return "model.attention looks at one part of a source"
    if train.guided_alignment.weight:
        return "train.guided_alignment is on"
    # cross_entropy may: a usual config is read without importing torch
    if train.loss != "cross_entropy" and not getattr(load_part("loss", train.loss), "packed", True):
        return f"train.loss is {train.loss}, which reads one sentence in a row"
    if data.max_length > LONGEST_ROW:
        return f"data.max_length is {data.max_length}, above {LONGEST_ROW}"
    return None
