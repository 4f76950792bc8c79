"""Changes to existing SentencePiece models: special pieces where training expects them, tags and pieces of
languages at the end.

Neither changes how a text is divided.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from transformer_mt.data.vocabulary.composition import COMPOSE
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.errors import InputError

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_UNKNOWN, _CONTROL = 2, 3


def with_special_ids(model: bytes, location: str) -> bytes:
    """The model with PAD, UNK, BOS and EOS as pieces 0 to 3, whatever ids they had; missing ones are added.
    InputError, which names `location`, if this is no SentencePiece model.
    """
    proto = _parsed(model, location)
    unknown = [piece for piece in proto.pieces if piece.type == _UNKNOWN]
    if not unknown:
        raise InputError(f"{location}: must be a SentencePiece model with an unknown token, but is not")
    names = proto.trainer_spec
    by_name = {piece.piece: piece for piece in proto.pieces}

    def control(name: str) -> Any:
        piece = by_name.get(name) or sentencepiece_model_pb2.ModelProto.SentencePiece(piece=name)
        piece.score, piece.type = 0.0, _CONTROL
        return piece

    special = [
        control(names.pad_piece), unknown[0], control(names.bos_piece), control(names.eos_piece),
    ]  # fmt: skip
    first = {piece.piece for piece in special}
    pieces = [*special, *(piece for piece in proto.pieces if piece.piece not in first)]
    changed = sentencepiece_model_pb2.ModelProto()
    changed.CopyFrom(proto)
    del changed.pieces[:]
    changed.pieces.extend(pieces)
    spec = changed.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    return bytes(changed.SerializeToString())


def with_control_pieces(model: bytes, wanted: Sequence[str]) -> bytes:
    """The model with those of the tags and language pieces that it does not have, after all others."""
    proto = _parsed(model, "the vocabulary")
    types = {piece.piece: piece.type for piece in proto.pieces}
    if all(types.get(name) == _CONTROL for name in wanted):
        return model  # unchanged: protobuf may serialize the same message to other bytes
    for name in wanted:
        if name not in types:
            proto.pieces.add(piece=name, score=0.0, type=_CONTROL)
        elif types[name] != _CONTROL and name.startswith(">>"):
            raise InputError(
                f"a language's token must not be an ordinary token of `tokenizer.file`, which text could "
                f"contain, but {name} is one; train the file with control_symbols={name}"
            )
        elif types[name] != _CONTROL:
            raise InputError(
                f"a tag must not be a vocabulary token, as text could contain it, but {name} is one; "
                "choose another tag"
            )
    return bytes(proto.SerializeToString())


def tokenizer_settings(model: bytes) -> dict[str, Any]:
    """The keys of `tokenizer` that the model has values for."""
    proto = _parsed(model, "the vocabulary")
    spec = proto.trainer_spec
    facts = {
        "kind": _KINDS[spec.model_type],
        "vocab_size": len(proto.pieces),
        "byte_fallback": spec.byte_fallback,
    }
    if proto.normalizer_spec.name in (COMPOSE, "nmt_nfkc", "nfkc", "identity"):
        facts["normalization"] = proto.normalizer_spec.name
    return facts


def _parsed(model: bytes, location: str) -> Any:
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError:
        raise InputError(f"{location}: must be a SentencePiece model, but is not") from None
    return proto
