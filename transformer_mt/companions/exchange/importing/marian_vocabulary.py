"""The vocabulary of a Marian model on the hub: two SentencePiece models, and ids of pieces in JSON."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.importing.foreign_model import read_json
from transformer_mt.data.vocabulary.tokenizer import Numbering, Tokenizer, processor_of
from transformer_mt.errors import InputError

_MODEL = "sentencepiece.bpe.model"
_SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
# The languages of M2M-100 and of its successor for WMT21, in the order of their ids after those of
# vocab.json.
_CODES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
    "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
    "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th "
    "tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
_KEYS = ("additional_special_tokens", "extra_special_tokens")


def m2m_tokenizer(folder: Path, config: dict[str, Any], facts: dict[str, Any]) -> Tokenizer:
    """The tokenizer, with a piece for each row of the embeddings; those of languages have our spelling,
    `>>de<<`. InputError where files are missing or name no languages.
    """
    try:
        model = (folder / _MODEL).read_bytes()
    except OSError as error:
        raise InputError(f"{folder}: must hold {_MODEL}, but: {error.strerror}") from None
    if (folder / "vocab.json").exists():  # of M2M-100
        foreign = {str(piece): int(i) for piece, i in read_json(folder / "vocab.json").items()}
        codes = _CODES[facts.get("language_codes", "m2m100")].split()
        form, added = "__{}__", {f"__{code}__": len(foreign) + i for i, code in enumerate(codes)}
    else:
        processor = processor_of(model)
        pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        foreign = _SPECIAL | {
            piece: i + 1 for i, piece in enumerate(pieces) if i + 1 not in _SPECIAL.values()
        }
        form, added = "{}", _added(folder)
    for name in _names(folder, facts):
        if name not in added and name not in foreign:
            added[name] = max([*foreign.values(), *added.values()]) + 1
    languages = [name for name in added if name not in _SPECIAL and name != "<mask>"]
    if not languages:
        raise InputError(f"{folder}: must name its languages in {_KEYS[0]} of tokenizer_config.json")
    foreign |= {f">>{name.strip('_')}<<" if name in languages else name: i for name, i in added.items()}
    free = sorted(set(range(config["vocab_size"])) - set(foreign.values()))
    foreign |= {f"madeupword{number:04d}": i for number, i in enumerate(free)}
    special = {
        "pad": foreign["<pad>"],
        "unk": foreign["<unk>"],
        "bos": foreign["<s>"],
        "eos": foreign["</s>"],
    }
    return Tokenizer(model, numberings=[Numbering.of(foreign, special, form)])


def _added(folder: Path) -> dict[str, int]:
    """The pieces beside those of the SentencePiece model, with the ids that a fast tokenizer has for them."""
    added = read_json(folder / "tokenizer.json", {}).get("added_tokens", [])
    return {str(token["content"]): int(token["id"]) for token in added}


def _names(folder: Path, facts: dict[str, Any]) -> Iterable[str]:
    """The names of the languages' pieces, in the order of their ids."""
    others = read_json(folder / "special_tokens_map.json", {})
    names = [name for said in (facts, others) for key in _KEYS for name in said.get(key) or []]
    return dict.fromkeys(name["content"] if isinstance(name, dict) else str(name) for name in names)


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
