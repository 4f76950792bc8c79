"""The vocabulary of a Marian model on the hub: two SentencePiece models, and ids of pieces in JSON."""

from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.importing.json_file import read_json
from transformer_mt.data.vocabulary.tokenizer import Numbering, Tokenizer, processor_of
from transformer_mt.errors import InputError


def marian_tokenizer(folder: Path, config: dict[str, Any], facts: dict[str, Any]) -> Tokenizer:
    """Two SentencePiece models, and one vocabulary or two. InputError where they do not fit each other."""
    try:
        models = [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
    except OSError as error:
        raise InputError(f"{folder}: must hold source.spm and target.spm, but: {error.strerror}") from None
    is_separate = facts.get("separate_vocabs", (folder / "target_vocab.json").exists())
    vocabularies = ["vocab.json", *["target_vocab.json"] * bool(is_separate)]
    numberings = [_numbering(folder / name, config, facts) for name in vocabularies]
    if models[0] == models[1]:
        models = models[:1]
    tokenizer = Tokenizer(*models, numberings=numberings)
    size = tokenizer.src.vocab_size()
    known = size - sum(tokenizer.src.is_control(i) for i in range(size))
    if known < size // 4:
        raise InputError(
            f"{folder}: vocab.json must hold the tokens of source.spm, but has {known} of them among its "
            f"{size}"
        )
    return tokenizer


def numbered_by_its_model(tokenizer: Tokenizer) -> Tokenizer:
    """Without a numbering where the SentencePiece model has the same, as in what this project exports."""
    if len(tokenizer.models) == 1 and len(tokenizer.numberings) == 1:
        processor = processor_of(tokenizer.models[0])
        names = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        if names == tokenizer.numberings[0].pieces:
            return Tokenizer(tokenizer.models[0])
    return tokenizer


def _numbering(file: Path, config: dict[str, Any], facts: dict[str, Any]) -> Numbering:
    foreign = read_json(file)
    usual = {"unk": "<unk>", "eos": "</s>", "pad": "<pad>"}
    said = {name: facts.get(f"{name}_token") or piece for name, piece in usual.items()}
    names = {
        name: str(piece["content"] if isinstance(piece, dict) else piece) for name, piece in said.items()
    }
    if missing := [piece for piece in names.values() if piece not in foreign]:
        raise InputError(f"{file}: must hold {', '.join(names.values())}, but has no {missing[0]}")
    special = {name: int(foreign[piece]) for name, piece in names.items()}
    start = config.get("decoder_start_token_id", special["pad"])
    is_joint = config.get("decoder_vocab_size", len(foreign)) == len(foreign)
    special["bos"] = int(start) if is_joint and 0 <= int(start) < len(foreign) else special["pad"]
    if special["bos"] == special["eos"]:
        raise InputError(f"{file.parent}: decoder_start_token_id must not be that of {names['eos']}, but is")
    return Numbering.of({str(piece): int(i) for piece, i in foreign.items()}, special)
