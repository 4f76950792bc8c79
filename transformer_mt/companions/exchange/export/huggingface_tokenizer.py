"""The vocabulary as the tokenizers of transformers read it: Marian's, NLLB's or M2M-100's."""

import json
from pathlib import Path
from typing import Any

from transformer_mt.config import DataConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import write_text

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
