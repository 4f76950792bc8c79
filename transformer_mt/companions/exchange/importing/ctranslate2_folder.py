"""CTranslate2 models that other tools made, and packages of Argos Translate, that have SentencePiece models.

Reading one gives a folder as this project exports it, with links to the model's files.
"""

import json
from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.importing.foreign_model import (
    MODEL_BIN,
    ForeignModel,
    ctranslate2_inside,
    languages_of,
    papers_in,
    read_json,
)
from transformer_mt.data.vocabulary.tokenizer import Numbering, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import write_text

# Most positions that all converters write; longer sources are divided.
_POSITIONS, _LONGEST_SOURCE = 512, 200


def read_ctranslate2(folder: Path) -> ForeignModel:
    """The model in the folder, without its weights. InputError where its text cannot be divided into pieces
    as it was in training.
    """
    inside = ctranslate2_inside(folder)
    config, facts = read_json(inside / "config.json", {}), read_json(folder / "metadata.json", {})
    said = read_json(folder / "tokenizer_config.json", {})
    lists = _lists(inside)
    if any(piece in ("__en__", "eng_Latn") for piece in lists[0]):
        raise InputError(
            f"{folder}: must not need language tokens, but is M2M-100 or NLLB; import it from the hub"
        )
    models = dict.fromkeys(_sentencepiece(folder))
    tokenizer = Tokenizer(*models, numberings=[_numbering(pieces, config) for pieces in lists])
    source, targets = languages_of(
        folder,
        tokenizer,
        _of_argos(facts.get("from_code")) or said.get("source_lang"),
        _of_argos(facts.get("to_code")) or said.get("target_lang"),
    )
    return ForeignModel(
        architecture="ctranslate2",
        model={},
        decode={"split_sentences": True, "stop_early": True},
        max_length=_LONGEST_SOURCE,
        tokenizer=tokenizer,
        weights={},
        source_lang=source,
        target_langs=targets,
        language_pieces=any(piece.startswith(">>") for piece in tokenizer.control_ids) or "auto",
        papers=papers_in(folder),
    )


def _of_argos(code: Any) -> Any:
    """A language by its usual code: Argos has two of its own."""
    return {"zt": "zh_Hant", "pb": "pt_BR"}.get(code, code)


def link_model(folder: Path, out: Path, name: str) -> None:
    """Put links to the model's files into `out`, and what the engine must know of them."""
    inside = ctranslate2_inside(folder)
    for file in inside.iterdir():
        if file.name in (MODEL_BIN, "config.json") or "vocabulary" in file.name:
            (out / file.name).symlink_to(file.resolve())
    config = read_json(inside / "config.json", {})
    # Models of Hugging Face expect the end of the source among its pieces.
    needs_end = (folder / "source.spm").exists() and not config.get("add_source_eos", False)
    facts = {
        "run": name, "weights": None, "positions": _POSITIONS, "source_end": needs_end,
        "target_pieces": len(_lists(inside)[-1]),
    }  # fmt: skip
    write_text(out / "export.json", json.dumps(facts, indent=1) + "\n")


def _lists(inside: Path) -> list[list[str]]:
    """The pieces of the shared vocabulary, or of the source and the target vocabulary."""
    is_shared = any(inside.glob("shared_vocabulary.*"))
    names = ["shared_vocabulary"] if is_shared else ["source_vocabulary", "target_vocabulary"]
    return [_pieces(inside, name) for name in names]


def _pieces(folder: Path, name: str) -> list[str]:
    """The pieces by their ids."""
    for file in (folder / f"{name}.json", folder / f"{name}.txt"):
        if file.exists():
            text = file.read_text(encoding="utf-8")
            return list(json.loads(text)) if file.suffix == ".json" else text.removesuffix("\n").split("\n")
    raise InputError(f"{folder}: must hold {name}.json, but does not")


def _sentencepiece(folder: Path) -> list[bytes]:
    for names in (["source.spm", "target.spm"], ["sentencepiece.model"], ["spm.model"]):
        if all((folder / name).exists() for name in names):
            return [(folder / name).read_bytes() for name in names]
    present = "bpe.model, of Moses and subword-nmt" if (folder / "bpe.model").exists() else "neither"
    raise InputError(
        f"{folder}: must hold source.spm and target.spm, or sentencepiece.model, but holds {present}"
    )


def _numbering(pieces: list[str], config: dict[str, Any]) -> Numbering:
    """The numbering of the pieces. Special tokens that they lack, such as padding, get the last ids."""
    foreign = {piece: i for i, piece in enumerate(pieces)}
    names = {
        "pad": "<blank>" if "<blank>" in foreign else "<pad>",
        "unk": config.get("unk_token", "<unk>"),
        "bos": config.get("bos_token", "<s>"),
        "eos": config.get("eos_token", "</s>"),
    }
    special = {key: foreign.setdefault(name, len(foreign)) for key, name in names.items()}
    return Numbering.of(foreign, special)
