"""Marian's models: the names and shapes of their weights, and their binary files, in both directions.

The formats as read in marian-dev, src/common/binary.cpp and src/models/transformer.h.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transformer_mt.companions.exchange.layouts import ForeignWeight, stream_order
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, PAD, Numbering
from transformer_mt.errors import InputError
from transformer_mt.model.build_model import build_model
from transformer_mt.model.interface import NEVER

OPTIONS = "special:model.yml"
"""The tensor that holds the options, as YAML that ends with a zero byte."""
BIAS = "decoder_ff_logit_out_b"
OUTPUT = "decoder_ff_logit_out_Wt"


def marian_weights(c: ModelConfig, shared: bool) -> Iterator[ForeignWeight]:
    """Every weight but the bias of the output, tied ones once, of a model with post-norm: with norms before
    its sublayers, Marian normalises the queries of self-attention, but neither its keys nor its values.
    Matrices of layers are transposed there, vectors have two axes, and the residual stream has another order.
    """
    if c.tie_embeddings and shared:
        yield ForeignWeight("src_embedding.tokens.weight", "Wemb", (1,), "src")
    else:
        yield ForeignWeight("src_embedding.tokens.weight", "encoder_Wemb", (1,), "src")
        yield ForeignWeight("tgt_embedding.tokens.weight", "decoder_Wemb", (1,), "tgt")
    if not c.tie_embeddings:
        yield ForeignWeight("output.weight", OUTPUT, (1,), "tgt")
    for side, depth in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers)):
        for number in range(depth):
            ours, theirs = f"{side}.layers.{number}", f"{side}_l{number + 1}"
            if side == "decoder" and c.autoregression == "ssru":
                yield ForeignWeight(f"{ours}.recurrence.candidate.weight", f"{theirs}_rnn_W", (0, 1))
                yield from _linear(f"{ours}.recurrence.forget", f"{theirs}_rnn_", "f", (0, 1))
                yield from _norm(f"{ours}.self_residual.norm", f"{theirs}_rnn_ffn")
            else:
                yield from _attention(f"{ours}.self", f"{theirs}_self")
            if side == "decoder":
                yield from _attention(f"{ours}.cross", f"{theirs}_context")
            yield from _linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn_", "1", (1,))
            yield from _linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn_", "2", (0,))
            yield from _norm(f"{ours}.ffn_residual.norm", f"{theirs}_ffn_ffn")


def _attention(ours: str, theirs: str) -> Iterator[ForeignWeight]:
    for part, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        yield from _linear(f"{ours}_attention.{part}", f"{theirs}_", letter, (1,))
    yield from _linear(f"{ours}_attention.output", f"{theirs}_", "o", (0,))
    yield from _norm(f"{ours}_residual.norm", f"{theirs}_Wo")


def _linear(ours: str, theirs: str, letter: str, stream: tuple[int, ...]) -> Iterator[ForeignWeight]:
    yield ForeignWeight(f"{ours}.weight", f"{theirs}W{letter}", stream)
    yield ForeignWeight(f"{ours}.bias", f"{theirs}b{letter}", (0,) if 0 in stream else ())


def _norm(ours: str, theirs: str) -> Iterator[ForeignWeight]:
    yield ForeignWeight(f"{ours}.weight", f"{theirs}_ln_scale", (0,))
    yield ForeignWeight(f"{ours}.bias", f"{theirs}_ln_bias", (0,))


def to_marian(
    c: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[Sequence[int]]
) -> dict[str, np.ndarray]:
    """Our weights as Marian's. `rows` are, for each row of the vocabulary there, our id, or -1 for a row that
    is only there: one list if both sides share a vocabulary, else two.
    """
    order, of_side = stream_order(c.d_model), {"src": list(rows[0]), "tgt": list(rows[-1])}
    arrays: dict[str, np.ndarray] = {}
    for weight in marian_weights(c, len(rows) == 1):
        tensor = weights[weight.ours].detach().float().cpu()
        for axis in weight.stream:
            tensor = tensor.index_select(axis, order)
        if weight.vocabulary is not None:
            ids = torch.tensor(of_side[weight.vocabulary])
            tensor = tensor[ids.clamp(min=0)] * (ids >= 0)[:, None]
        elif tensor.ndim == 2:
            tensor = tensor.T
        arrays[weight.theirs] = np.ascontiguousarray(tensor.reshape(-1, tensor.shape[-1]).numpy())
    ids = torch.tensor(of_side["tgt"])
    bias = weights["output.bias"].detach().float().cpu() if c.output_bias else torch.zeros(int(ids.max()) + 1)
    arrays[BIAS] = torch.where(ids >= 0, bias[ids.clamp(min=0)], NEVER)[None].numpy()
    return arrays


def from_marian(
    c: ModelConfig, arrays: Mapping[str, np.ndarray], numberings: Sequence[Numbering], shared: bool
) -> dict[str, Tensor]:
    """Marian's weights as ours. The numberings have one piece more than Marian's vocabulary: the last, which
    stands for padding and has a vector of zeros. ValueError if a weight is missing, has another shape, or
    belongs to another network.
    """
    order, of_side = stream_order(c.d_model).argsort(), {"src": numberings[0], "tgt": numberings[-1]}
    wanted = list(marian_weights(c, shared))
    known = {BIAS, OUTPUT, OUTPUT[:-1], "Wemb", *(weight.theirs for weight in wanted)}
    if extra := [name for name in arrays if name not in known and not name.endswith("_QuantMultA")]:
        raise ValueError(f"the weights hold {extra[0]}, which this kind of model does not have")
    sizes = len(numberings[0].pieces), len(numberings[-1].pieces)
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in build_model(c, *sizes, shared, 1).named_parameters()}
    tensors: dict[str, Tensor] = {}
    for weight in wanted:
        tensor = _found(arrays, weight.theirs)
        if weight.vocabulary is not None:
            tensor = _with_rows_of(of_side[weight.vocabulary], tensor, weight.theirs)
        tensor = tensor.reshape(-1) if len(shapes[weight.ours]) == 1 else tensor
        tensor = tensor if weight.vocabulary is not None or tensor.ndim == 1 else tensor.T
        if tensor.shape != (shape := shapes[weight.ours]):
            raise ValueError(
                f"{weight.theirs} must have the shape of {weight.ours}, {tuple(shape)}, but has "
                f"{tuple(tensor.shape)}"
            )
        for axis in weight.stream:
            tensor = tensor.index_select(axis, order)
        tensors[weight.ours] = tensor.contiguous()
    bias = _with_rows_of(of_side["tgt"], _found(arrays, BIAS).reshape(-1, 1), BIAS)[:, 0]
    bias[[PAD, BOS]] = NEVER
    return {**tensors, "output.bias": bias}


def _found(arrays: Mapping[str, np.ndarray], name: str) -> Tensor:
    """The matrix or vector of this name. Older versions of Marian keep the output's matrix transposed; a
    vocabulary of both sides may have one matrix although the output has its own.
    """
    if name == OUTPUT and name not in arrays and OUTPUT[:-1] in arrays:
        return _found(arrays, OUTPUT[:-1]).T
    if name not in arrays and name in ("encoder_Wemb", "decoder_Wemb"):
        return _found(arrays, "Wemb")
    if name not in arrays:
        raise ValueError(f"the weights must hold {name}, but do not")
    return torch.from_numpy(np.array(arrays[name], np.float32))


def _with_rows_of(numbering: Numbering, matrix: Tensor, name: str) -> Tensor:
    """The rows in the order of our ids, with zeros for padding."""
    rows = len(numbering.order) - 1
    if len(matrix) != rows:
        raise ValueError(f"{name} must have {rows} rows (tokens), but has {len(matrix)}")
    return torch.cat([matrix, torch.zeros_like(matrix[:1])])[numbering.foreign_ids()]


# Binary files: version, number of tensors, a header for each (length of its name, type, number of axes,
# number of bytes), the names, the shapes, padding, the tensors.

_VERSION, _ALIGNMENT = 1, 256
_INT8, _FLOAT32, _INTGEMM8 = 0x0101, 0x0404, 0x4101
_MOST_TENSORS = 100_000


def is_quantized(name: str) -> bool:
    """True for the matrices that are stored in int8: those of layers, and embeddings."""
    return name.rpartition("_")[2] in ("W", "Wemb") or (name[-3:-1] == "_W" and not name.endswith("_Wt"))


def quantized(matrix: np.ndarray, name: str) -> bytes:
    """A matrix as int8 and its multiplier. Matrices of layers are stored transposed, embeddings are not."""
    multiplier = np.float32(127.0 / max(float(np.abs(matrix).max()), 1e-9))
    values = np.clip(np.rint(matrix * multiplier), -127, 127).astype(np.int8)
    return (values if name.endswith("Wemb") else values.T).tobytes() + multiplier.tobytes()


def write_bin(file: Path, arrays: Mapping[str, np.ndarray], options: str, int8: bool) -> None:
    """Write a model as Marian's binary file, in float32 or with `intgemm8` matrices."""
    said = np.frombuffer(options.encode() + b"\0", np.int8)
    tensors: list[tuple[str, int, Sequence[int], bytes]] = [(OPTIONS, _INT8, said.shape, said.tobytes())]
    for name, array in arrays.items():
        if int8 and is_quantized(name):
            tensors.append((name, _INTGEMM8, array.shape, quantized(array, name)))
        else:
            tensors.append((name, _FLOAT32, array.shape, array.astype("<f4").tobytes()))
    padded = [data + b"\0" * (-len(data) % _ALIGNMENT) for *_, data in tensors]
    with file.open("wb") as out:
        out.write(struct.pack("<QQ", _VERSION, len(tensors)))
        for (name, kind, shape, _), data in zip(tensors, padded):
            out.write(struct.pack("<4Q", len(name.encode()) + 1, kind, len(shape), len(data)))
        out.write(b"".join(name.encode() + b"\0" for name, *_ in tensors))
        out.write(b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in tensors))
        padding = -(out.tell() + 8) % _ALIGNMENT
        out.write(struct.pack("<Q", padding) + b"\0" * padding)
        out.writelines(padded)


def read_bin(file: Path) -> tuple[dict[str, np.ndarray], str]:
    """The weights in float32, int8 ones multiplied out, and the options. InputError if it is no such file, is
    cut, or has sizes that it cannot have.
    """
    data, at = memoryview(file.read_bytes()), 0

    def wrong(reason: str) -> InputError:
        return InputError(f"{file}: must be a binary model of Marian, but {reason}")

    def numbers(kind: str, count: int) -> tuple[int, ...]:
        nonlocal at
        size = struct.calcsize(f"<{kind}") * count
        if at + size > len(data):
            raise wrong("is cut")
        values = struct.unpack_from(f"<{count}{kind}", data, at)
        at += size
        return values

    version, count = numbers("Q", 2)
    if version != _VERSION or count > _MOST_TENSORS:
        raise wrong(f"begins with version {version} and {count} tensors")
    headers = [numbers("Q", 4) for _ in range(count)]
    if sum(header[0] + 4 * header[2] + header[3] for header in headers) > len(data):
        raise wrong("is cut")
    names = [bytes(numbers("B", header[0]))[:-1].decode(errors="replace") for header in headers]
    shapes = [numbers("i", header[2]) for header in headers]
    (padding,) = numbers("Q", 1)
    at += padding
    arrays: dict[str, np.ndarray] = {}
    options = ""
    for name, (_, kind, _, size), shape in zip(names, headers, shapes):
        body, elements = data[at : at + size], 1
        for length in shape:
            elements *= length
        width = {_INT8: 1, _FLOAT32: 4, _INTGEMM8: 1}.get(kind)
        if width is None:
            raise wrong(f"{name} is of the kind {kind:#x}, which is neither float32 nor intgemm8")
        if min(shape, default=1) < 1 or width * elements + 4 * (kind == _INTGEMM8) > len(body):
            raise wrong(f"{name} has the shape {shape} and {len(body)} bytes")
        if name == OPTIONS:
            options = bytes(body[:elements]).split(b"\0")[0].decode(errors="replace")
        elif kind == _FLOAT32:
            arrays[name] = np.frombuffer(body, "<f4", elements).reshape(shape)
        else:
            values = np.frombuffer(body, np.int8, elements).astype(np.float32)
            multiplier = np.frombuffer(body[elements:], "<f4", 1)[0] if kind == _INTGEMM8 else 1.0
            turned = values.reshape(shape) if name.endswith("Wemb") else values.reshape(shape[::-1]).T
            arrays[name] = turned / multiplier
        at += size
    return arrays, options
