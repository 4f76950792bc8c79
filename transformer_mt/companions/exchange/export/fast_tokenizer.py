"""A SentencePiece model as the file tokenizer.json, which transformers reads for any model."""

from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from transformer_mt.companions.exchange.export.huggingface_tokenizer import write_json
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.settings.corpus_keys import MASK

_UNIGRAM, _BPE = 1, 2
_CONTROL, _BYTE = 3, 6


def write_fast_tokenizer(
    tokenizer: Tokenizer, folder: Path, positions: int, has_begin: bool, has_end: bool
) -> None:
    """tokenizer.json and its config. `has_begin` puts BOS before each text, `has_end` EOS after it."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers import Tokenizer as FastTokenizer

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(tokenizer.models[0])
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    unknown, has_bytes = pieces[UNK][0], bool(proto.trainer_spec.byte_fallback)
    if proto.trainer_spec.model_type == _UNIGRAM:
        fast = FastTokenizer(models.Unigram(pieces, unk_id=UNK, byte_fallback=has_bytes))
    else:
        fast = FastTokenizer(
            models.BPE(ids, _merges(proto, ids), unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes)
        )
    steps = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        steps.insert(0, normalizers.Precompiled(charsmap))
    fast.normalizer = normalizers.Sequence(steps)
    fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bos, eos = pieces[BOS][0], pieces[EOS][0]
    fast.post_processor = processors.TemplateProcessing(
        single=" ".join([*[bos] * has_begin, "$A", *[eos] * has_end]), special_tokens=[(bos, BOS), (eos, EOS)]
    )
    special = [pieces[i][0] for i in (PAD, UNK, BOS, EOS)]
    control = [piece.piece for piece in proto.pieces if piece.type == _CONTROL and piece.piece not in special]
    # The space before what is hidden belongs to it
    fast.add_special_tokens(
        [AddedToken(piece, lstrip=piece == MASK, normalized=False) for piece in [*special, *control]]
    )
    fast.save(str(folder / "tokenizer.json"))
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        **{f"{name}_token": pieces[i][0] for name, i in
           (("pad", PAD), ("unk", UNK), ("bos", BOS), ("eos", EOS), ("cls", BOS), ("sep", EOS))},
        **({"mask_token": MASK} if MASK in ids else {}),
    }  # fmt: skip
    write_json(folder / "tokenizer_config.json", facts)


def _merges(proto: sentencepiece_model_pb2.ModelProto, ids: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of pieces that make a piece, the best score first, as SentencePiece merges them."""
    merges: list[tuple[float, int, tuple[str, str]]] = []
    for piece in proto.pieces:
        if piece.type in (_CONTROL, _BYTE):
            continue
        text = piece.piece
        for cut in range(1, len(text)):
            if text[:cut] in ids and text[cut:] in ids:
                merges.append((-piece.score, len(merges), (text[:cut], text[cut:])))
    return [pair for _, _, pair in sorted(merges)]
