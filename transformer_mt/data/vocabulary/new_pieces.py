"""Pieces that a vocabulary gets in fine-tuning, and which of its old ones their vectors begin with."""

from collections.abc import Mapping

from sentencepiece import sentencepiece_model_pb2

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.vocabulary.sentencepiece_file import tokenizer_settings
from transformer_mt.data.vocabulary.tokenizer import EOS, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.lines import read_lines

_NORMAL = 1


def with_new_pieces(tokenizer: Tokenizer, text: str, size: int) -> Tokenizer:
    """The vocabulary and after it the pieces that only another one has, of this size and learnt from the
    text. Merges of old pieces come before those of new ones; the probabilities of unigrams stay what they
    are.
    """
    if len(tokenizer.models) > 1:
        raise InputError("data.new_pieces must be left out with two SentencePiece models, but is given")
    (model,) = tokenizer.models
    kept = {
        key: value for key, value in tokenizer_settings(model).items() if key in ("kind", "normalization")
    }
    keys = TokenizerConfig.model_validate({**kept, "vocab_size": size, "byte_fallback": False})
    if not any(line.strip() for line in read_lines(text)):
        raise InputError(f"data.new_pieces.text must be a file with text, but {text} is empty")
    try:
        learnt = Tokenizer.train(((line, line) for line in read_lines(text)), keys)
    except InputError as error:
        raise InputError(str(error).replace("tokenizer.vocab_size", "data.new_pieces.size")) from None
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    known = {*tokenizer.all_pieces_src, *(piece.piece for piece in proto.pieces)}
    pieces = enumerate(learnt.all_pieces_src)
    new = {piece: learnt.src.get_score(i) for i, piece in pieces if i > EOS and piece not in known}
    least = min(piece.score for piece in proto.pieces)
    for rank, (piece, score) in enumerate(new.items(), start=1):
        proto.pieces.add(piece=piece, score=score if keys.kind == "unigram" else least - rank, type=_NORMAL)
    numberings = [numbering.with_pieces(list(new)) for numbering in tokenizer.numberings]
    return Tokenizer(bytes(proto.SerializeToString()), numberings=numberings)


def origins(old: Tokenizer, new: Tokenizer, like: Mapping[str, str]) -> list[list[int]]:
    """For each piece that only the new vocabulary has, the ids whose mean vector it begins with: of the
    pieces it was divided into before, of the language that its language is `like`, else of <unk>.
    """
    languages = {f">>{code}<<": f">>{other}<<" for code, other in like.items()}
    rows = []
    for i in range(len(old.all_pieces_src), len(new.all_pieces_src)):
        piece = new.all_pieces_src[i]
        if piece in languages:
            rows.append([_language(old, languages[piece])])
        elif piece in new.control_ids:
            rows.append([UNK])
        else:
            rows.append(_divided(old, piece))
    return rows


def _language(old: Tokenizer, piece: str) -> int:
    if piece not in old.control_ids:
        raise InputError(
            f"data.new_languages must map to languages of the parent, but {piece[2:-2]} is not one"
        )
    return old.control_ids[piece]


def _divided(old: Tokenizer, piece: str) -> list[int]:
    ids = old.encode_src([piece.replace("▁", " ").strip()], num_threads=1)[0]
    begins_word = piece.startswith("▁")
    return (ids if begins_word or old.pieces_src(ids[:1]) != ["▁"] else ids[1:]) or [UNK]
