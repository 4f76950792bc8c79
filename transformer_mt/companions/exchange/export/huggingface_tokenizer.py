"""The vocabulary as the tokenizers of transformers read it: Marian's, NLLB's or M2M-100's."""

import json
from pathlib import Path
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from transformer_mt.config import DataConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.settings.objectives import MASK

_SPECIAL = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}


def orders(tokenizer: Tokenizer) -> list[list[int]]:
    """Our ids in the order of the ids there, of both sides or of each."""
    if tokenizer.numberings:
        return [numbering.order for numbering in tokenizer.numberings]
    sides = [tokenizer.src] if tokenizer.shared else [tokenizer.src, tokenizer.tgt]
    return [list(range(side.vocab_size())) for side in sides]


def ids_there(tokenizer: Tokenizer) -> list[int]:
    """For each of our target ids the id there."""
    if tokenizer.numberings:
        return tokenizer.numberings[-1].foreign_ids()
    return list(range(tokenizer.tgt.vocab_size()))


def write_marian_tokenizer(tokenizer: Tokenizer, data: DataConfig, folder: Path, positions: int) -> None:
    """MarianTokenizer: two SentencePiece models, and the ids of their pieces."""
    (folder / "source.spm").write_bytes(tokenizer.models[0])
    (folder / "target.spm").write_bytes(tokenizer.models[-1])
    sides, special = [tokenizer.all_pieces_src, tokenizer.all_pieces_tgt], dict(_SPECIAL)
    if ids_there(tokenizer)[BOS] == ids_there(tokenizer)[PAD]:
        # The decoder begins with the row of BOS under the name of PAD.
        sides = [[*pieces[:BOS], pieces[PAD], *pieces[BOS + 1 :]] for pieces in sides]
        del special["bos"]
    for name, order, pieces in zip(("vocab.json", "target_vocab.json"), orders(tokenizer), sides):
        write_json(folder / name, {pieces[ours]: i for i, ours in enumerate(order)})
    facts = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.source_lang,
        "target_lang": data.target_lang,
        "separate_vocabs": not tokenizer.shared,
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # `</s>` in a text is text
        **{f"{name}_token": sides[1][i] for name, i in special.items()},
    }
    write_json(folder / "tokenizer_config.json", facts)


def write_m2m_tokenizer(tokenizer: Tokenizer, data: DataConfig, folder: Path) -> None:
    """NllbTokenizer or M2M100Tokenizer: one SentencePiece model, and pieces of languages after its own."""
    if not tokenizer.numberings:
        raise InputError(
            "model.position must be sinusoidal or learned for Hugging Face, but is sinusoidal_fairseq; that "
            "is for models built on M2M-100 or NLLB"
        )
    (numbering,) = tokenizer.numberings
    (folder / "sentencepiece.bpe.model").write_bytes(tokenizer.models[0])
    names = [numbering.name_there(numbering.pieces[ours]) for ours in numbering.order]
    languages = [numbering.name_there(piece) for piece in numbering.pieces if piece.startswith(">>")]
    is_nllb = numbering.language_form == "{}"
    facts = {
        "tokenizer_class": "NllbTokenizer" if is_nllb else "M2M100Tokenizer",
        "src_lang": data.source_lang,
        "tgt_lang": data.target_lang,
        "additional_special_tokens": languages,
        **{f"{name}_token": numbering.pieces[i] for name, i in _SPECIAL.items()},
    }
    write_json(folder / "tokenizer_config.json", facts)
    if not is_nllb:
        others = set(languages)
        is_text = [name not in others and not name.startswith("madeupword") for name in names]
        write_json(folder / "vocab.json", {names[i]: i for i, kept in enumerate(is_text) if kept})
        return
    _with_ids(folder, names)


def _with_ids(folder: Path, names: list[str]) -> None:
    """Write tokenizer.json, as the library makes it of the SentencePiece model, with the other pieces in the
    order of their ids: the library gives them ids in the order in which it finds them.
    """
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    file = folder / "tokenizer.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = facts["model"]["vocab"]
    known = {token["content"]: token for token in facts["added_tokens"]}
    usual = {**next(iter(known.values()))}
    last = max(i for i, name in enumerate(names) if name in known)
    facts["added_tokens"] = [
        {**known.get(name, usual), "id": i, "content": name}
        for i, name in enumerate(names[: last + 1])
        if name in known or name not in vocabulary
    ]
    write_json(file, facts)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as JSON."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


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
