"""Marian's models: an .npz or .bin file with the options in it; vocabularies in YAML or SentencePiece."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from transformer_mt.companions.exchange.importing.foreign_model import (
    ForeignModel,
    languages_of,
    marian_files,
    papers_in,
    read_json,
)
from transformer_mt.companions.exchange.marian_layout import OPTIONS, from_marian, read_bin
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import Numbering, Tokenizer, processor_of
from transformer_mt.errors import InputError
from transformer_mt.settings.part import PartName

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
    """The tokenizer, with a piece for each row of the embeddings; language pieces have our spelling,
    `>>de<<`. InputError if files are missing or name no languages.
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
    numberings = [_numbering_of_json(folder / name, config, facts) for name in vocabularies]
    if models[0] == models[1]:
        models = models[:1]
    tokenizer = Tokenizer(*models, numberings=numberings)
    size = tokenizer.src.vocab_size()
    known = size - sum(tokenizer.src.is_control(i) for i in range(size))
    if known < size // 4:
        raise InputError(
            f"{folder}: vocab.json must hold the tokens of source.spm, but has only {known} of them among "
            f"its {size} tokens"
        )
    return tokenizer


def numbered_by_its_model(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, without its numbering if that is the SentencePiece model's own, as in our exports."""
    if len(tokenizer.models) == 1 and len(tokenizer.numberings) == 1:
        processor = processor_of(tokenizer.models[0])
        names = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        if names == tokenizer.numberings[0].pieces:
            return Tokenizer(tokenizer.models[0])
    return tokenizer


def _numbering_of_json(file: Path, config: dict[str, Any], facts: dict[str, Any]) -> Numbering:
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
        raise InputError(f"{file.parent}: decoder_start_token_id must not be the id of {names['eos']}")
    return Numbering.of({str(piece): int(i) for piece, i in foreign.items()}, special)


_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
_AUTOREGRESSION = {"self-attention": "attention", "rnn": "ssru"}
# Options and their supported values, the usual one first; any other value means a different network.
_ONLY: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": tuple(_AUTOREGRESSION),
    "transformer-no-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    # Operations before and after each sublayer and after the last layer: d is dropout, a adds the residual,
    # n is the norm. Before a sublayer, Marian normalises the queries, but neither keys nor values.
    "transformer-preprocess": ("", None),
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-top": ("", None),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-dim-ffn": (0,),
    "transformer-tied-layers": ([],),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-pool": (False,),
    "output-omit-bias": (False,),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
}
_ONLY_RECURRENT: dict[str, tuple[Any, ...]] = {
    "dec-cell": ("ssru",),
    "layer-normalization": (False,),
    "transformer-rnn-projection": (False,),
}
"""The same where the decoder is recurrent."""


def read_marian(path: Path) -> ForeignModel:
    """The model in the file (.npz or .bin), or in a folder with one such file. InputError, with all reasons,
    where it is not one that can be held exactly.
    """
    file, decoder = _files(path)
    arrays, options = _contents(file)
    _check(file, options)
    is_joint = "Wemb" in arrays
    tokenizer = _tokenizer(file, decoder, is_joint)
    model = ModelConfig(
        d_model=options["dim-emb"],
        d_ff=options["transformer-dim-ffn"],
        num_heads=options["transformer-heads"],
        num_encoder_layers=options["enc-depth"],
        num_decoder_layers=options["dec-depth"],
        norm=PartName("post"),
        feed_forward=PartName(_ACTIVATIONS[options["transformer-ffn-activation"]]),
        position=PartName("sinusoidal_marian"),
        autoregression=_AUTOREGRESSION[options.get("transformer-decoder-autoreg", "self-attention")],  # type: ignore[arg-type]
        decoder_start="zeros",
        tie_embeddings=not any(name.startswith("decoder_ff_logit_out_W") for name in arrays),
        output_bias=True,
    )
    try:
        weights = from_marian(model, arrays, tokenizer.numberings, is_joint)
    except ValueError as error:
        raise InputError(f"{file}: {error}") from None
    source, targets = languages_of(file.parent, tokenizer, *_stated_languages(file))
    return ForeignModel(
        architecture="marian",
        model=model.model_dump(),
        decode=_decode(decoder),
        max_length=512,
        tokenizer=tokenizer,
        weights=weights,
        source_lang=source,
        target_langs=targets,
        language_pieces=any(piece.startswith(">>") for piece in tokenizer.control_ids) or "auto",
        papers=papers_in(file.parent),
    )


def _stated_languages(file: Path) -> tuple[str | None, str | None]:
    """The languages that translateLocally's model_info.json tells, or those of a model that is named as
    Firefox's are: model.ende.intgemm.alphas.bin.
    """
    info = read_json(file.parent / "model_info.json", {})
    if (sources := list(info.get("srcTags") or {})) and info.get("trgTag"):
        return str(sources[0]), str(info["trgTag"])
    named = re.match(r"model\.([a-z]{2})([a-z]{2})\.", file.name)
    return (named[1], named[2]) if named else (None, None)


def _contents(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The weights in float32, and the options."""
    if file.suffix == ".bin":
        arrays, text = read_bin(file)
    else:
        try:
            with np.load(file) as stored:
                arrays = {name: stored[name] for name in stored.files}
            text = arrays.pop(OPTIONS).tobytes().split(b"\0")[0].decode()
        except Exception as error:  # of zipfile, zlib, tokenize and numpy, which reads headers as Python
            reason = str(error).strip().split("\n")[0][:200]
            raise InputError(f"{file}: must be a model of Marian, but cannot be read: {reason}") from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":  # a member of another kind
            raise InputError(f"{file}: {name} must hold numbers, but does not")
    options = yaml.safe_load(text)
    if not isinstance(options, dict):
        raise InputError(f"{file}: must hold its options ({OPTIONS}), but does not")
    return arrays, options


def _files(path: Path) -> tuple[Path, dict[str, Any]]:
    """The model's file, and what decoder.yml, or another config in its folder, says."""
    files = [path] if path.is_file() else marian_files(path)
    if len(files) != 1:
        raise InputError(f"{path}: must hold one .npz or .bin file, but holds {len(files)}; name the file")
    folder = files[0].parent
    for config in (folder / "decoder.yml", *sorted(folder.glob("config*.yml"))):
        said = yaml.safe_load(config.read_text(encoding="utf-8")) if config.exists() else None
        if isinstance(said, dict) and "vocabs" in said:
            return files[0], said
    return files[0], {}


def _check(file: Path, options: dict[str, Any]) -> None:
    """InputError, with all reasons, where an option is not one of ours."""
    is_recurrent = options.get("transformer-decoder-autoreg") == "rnn"
    reasons = [
        f"{key} must be {' or '.join(map(repr, values))}, but is {options[key]!r}"
        for key, values in (_ONLY | _ONLY_RECURRENT if is_recurrent else _ONLY).items()
        if key in options and options[key] not in values
    ]
    if (activation := options.get("transformer-ffn-activation")) not in _ACTIVATIONS:
        reasons.append(f"transformer-ffn-activation must be {' or '.join(_ACTIVATIONS)}, but is {activation}")
    if reasons:
        raise InputError("\n".join(f"{file}: {reason}" for reason in reasons))


def _tokenizer(file: Path, decoder: dict[str, Any], is_joint: bool) -> Tokenizer:
    folder = file.parent
    named = [folder / Path(str(name)).name for name in decoder.get("vocabs", [])]
    vocabularies = named or sorted([*folder.glob("*vocab*.yml"), *folder.glob("*vocab*.spm")])
    if not vocabularies or not all(vocabulary.exists() for vocabulary in vocabularies):
        raise InputError(f"{folder}: must hold the vocabularies that decoder.yml names, or vocab.yml")
    models = [folder / f"{side}.spm" for side in ("source", "target")]
    if all(vocabulary.suffix == ".spm" for vocabulary in vocabularies):
        models = [vocabularies[0], vocabularies[-1]]
    numberings = [_numbering(vocabulary) for vocabulary in dict.fromkeys([vocabularies[0], vocabularies[-1]])]
    if is_joint:
        numberings = numberings[:1]
    elif len(numberings) == 1:
        numberings *= 2  # the same pieces, with vectors of their own on each side
    try:
        contents = [model.read_bytes() for model in dict.fromkeys(models)]
    except OSError as error:
        raise InputError(f"{folder}: must hold source.spm and target.spm, but: {error.strerror}") from None
    return Tokenizer(*dict.fromkeys(contents), numberings=numberings)


def _numbering(file: Path) -> Numbering:
    pieces = _pieces_of_model(file) if file.suffix == ".spm" else _pieces_of_yaml(file)
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in pieces]:
        raise InputError(f"{file}: must hold </s> and <unk>, but has no {missing[0]}")
    foreign = {piece: i for piece, i in pieces.items() if piece != "<pad>"}
    foreign["<pad>"] = len(foreign)
    pad = foreign["<pad>"]
    return Numbering.of(foreign, {"pad": pad, "unk": foreign["<unk>"], "bos": pad, "eos": foreign["</s>"]})


def _pieces_of_model(file: Path) -> dict[str, int]:
    side = processor_of(file.read_bytes())
    return {side.id_to_piece(i): i for i in range(side.vocab_size())}


def _pieces_of_yaml(file: Path) -> dict[str, int]:
    """Pieces and their ids, read without a YAML loader, which would take some for numbers, dates or null."""
    ids: dict[str, int] = {}
    text = re.sub(r"^\? (.*)\n: ", r"\1: ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, line in enumerate(text.split("\n"), start=1):
        match = re.fullmatch(r"(.+?): +(\d+)\s*", line)
        if match is None:
            if line.strip() not in ("", "---", "...") and not line.startswith("#"):
                raise InputError(f"{file}:{number}: must be a token and its number, but is {line[:60]!r}")
            continue
        piece = match[1]
        ids[yaml.safe_load(piece) if piece[0] in "\"'" else piece] = int(match[2])
    return ids


def _decode(decoder: dict[str, Any]) -> dict[str, Any]:
    """The search that decoder.yml describes."""
    decode: dict[str, Any] = {"split_sentences": True}
    if beam := decoder.get("beam-size"):
        decode["beam"] = int(beam)
    if (normalize := decoder.get("normalize")) is not None:
        decode["length_penalty"] = float(normalize)
    return decode
