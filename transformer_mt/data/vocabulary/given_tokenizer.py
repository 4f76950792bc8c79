"""Vocabularies that are not learnt from the training pairs: those of a file, or of the run a training begins
from, with new tokens appended.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from transformer_mt.config import Config, TokenizerConfig
from transformer_mt.config.resolve import Known, VocabularyFacts, resolve
from transformer_mt.data.vocabulary.tokenizer import BOS, COMPOSE, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.lines import Pair, read_lines

_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_UNKNOWN, _CONTROL = 2, 3


def with_special_ids(model: bytes, location: str) -> bytes:
    """The model with PAD, UNK, BOS and EOS as pieces 0 to 3, whatever ids they had; missing ones are added.
    InputError, which names `location`, if this is no SentencePiece model.
    """
    proto = _parsed(model, location)
    unknown = [piece for piece in proto.pieces if piece.type == _UNKNOWN]
    if not unknown:
        raise InputError(f"{location}: is not a SentencePiece model with an unknown token")
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
    """The model with the `wanted` tags and language pieces that it lacks, appended after all other pieces."""
    proto = _parsed(model, "the vocabulary")
    types = {piece.piece: piece.type for piece in proto.pieces}
    if all(types.get(name) == _CONTROL for name in wanted):
        return model  # unchanged: protobuf may serialize the same message to other bytes
    for name in wanted:
        if name not in types:
            proto.pieces.add(piece=name, score=0.0, type=_CONTROL)
        elif types[name] != _CONTROL and name.startswith(">>"):
            raise InputError(
                f"in `tokenizer.file` {name} is an ordinary token, which a text could contain; train that "
                f"tokenizer with control_symbols={name}"
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
        raise InputError(f"{location}: is not a SentencePiece model") from None
    return proto


_SHOWN = 20


def lost_letters_notes(tokenizer: Tokenizer, pairs: Sequence[Pair], is_given: bool) -> Iterator[str]:
    """Notes on the letters that the vocabulary lacks or replaces, with the share of the pairs that have such
    letters. Missing letters are noted only if the vocabulary `is_given`; a learnt vocabulary lacks only what
    its settings leave out.
    """
    if is_given:
        yield from _missing(tokenizer, pairs)
    yield from _replaced(tokenizer, pairs)


def _missing(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Iterator[str]:
    letters: Counter[str] = Counter()
    is_hit = [False] * len(pairs)
    for side, encode in enumerate((tokenizer.encode_src, tokenizer.encode_tgt)):
        texts = [pair[side] for pair in pairs]
        hits = [number for number, ids in enumerate(encode(texts)) if UNK in ids]
        is_known = cache(lambda character, encode=encode: UNK not in encode([character])[0])
        for number in hits:
            is_hit[number] = True
            letters.update({c for c in texts[number] if not is_known(c)})
    if any(is_hit):
        yield (
            f"note: the vocabulary lacks {_most_frequent(letters)}, which occur in {_share(is_hit)} of the "
            "pairs: they become <unk>; data.new_pieces (with init_from) adds tokens for them"
        )


def _replaced(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Iterator[str]:
    sides = [(0, tokenizer.src.normalize), (1, tokenizer.tgt.normalize)]
    used = [set().union(*(pair[side] for pair in pairs)) for side, _ in sides]
    changed = [
        {c for c in used[side] if not c.isspace() and not _keeps(normalize, c)} for side, normalize in sides
    ]
    is_hit = [any(not changed[side].isdisjoint(pair[side]) for side, _ in sides) for pair in pairs]
    if any(is_hit):
        letters = Counter(c for pair in pairs for side, _ in sides for c in changed[side] & set(pair[side]))
        yield (
            f"note: the vocabulary's normalisation replaces {_most_frequent(letters)}, in "
            f"{_share(is_hit)} of the pairs; tokenizer.normalization: auto keeps them, if the vocabulary "
            "is learnt"
        )


def _keeps(normalize: Callable[[str], str], character: str) -> bool:
    kept = normalize(character).replace("▁", " ").strip()
    return unicodedata.normalize("NFD", kept) == unicodedata.normalize("NFD", character)


def _most_frequent(letters: Counter[str]) -> str:
    shown = " ".join(
        letter if letter.isprintable() else f"U+{ord(letter):04X}"
        for letter, _ in letters.most_common(_SHOWN)
    )
    return shown + (f" and {len(letters) - _SHOWN:,} more" if len(letters) > _SHOWN else "")


def _share(is_hit: Sequence[bool]) -> str:
    return f"{sum(is_hit) / len(is_hit):.1%}"


_NORMAL = 1


def with_new_pieces(tokenizer: Tokenizer, text: str, size: int) -> Tokenizer:
    """The vocabulary with new pieces appended. Another vocabulary of `size` pieces is learnt from the text;
    the pieces that only it has are added. Old pieces are merged before new ones; the probabilities of old
    unigram pieces stay the same.
    """
    if len(tokenizer.models) > 1:
        raise InputError("data.new_pieces cannot be used with two SentencePiece models")
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
    """For each piece that only the new vocabulary has, the old ids whose mean vector initializes it: the
    pieces it was divided into before, the language given by `like` for a language piece, or else <unk>.
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


def settle(
    written: Config, known: Known, own: Tokenizer | None = None, parent: Tokenizer | None = None
) -> tuple[Known, Config, Tokenizer | None]:
    """Returns (known, config, tokenizer): `known` with the facts of the vocabulary added, the config resolved
    with it, and the vocabulary, or None if it is still to be learnt. `own` is the vocabulary of the run that
    is resumed, `parent` the vocabulary of the run in `init_from`.
    """
    tokenizer = own or given_tokenizer(resolve(written, known), parent)
    if tokenizer is not None:
        known = replace(known, vocabulary=vocabulary_facts(tokenizer))
    return known, resolve(written, known), tokenizer


def vocabulary_facts(tokenizer: Tokenizer) -> VocabularyFacts:
    """The facts of a vocabulary that decide keys of a config."""
    settings = [tokenizer_settings(model) for model in tokenizer.models]
    kinds = [each["kind"] for each in settings]
    return VocabularyFacts({"shared": tokenizer.shared, **settings[0]}, kinds, len(tokenizer.control_ids))


def given_tokenizer(config: Config, parent: Tokenizer | None = None) -> Tokenizer | None:
    """The vocabulary of the run in `init_from` or of `tokenizer.file`, with the tags of the corpora and the
    new pieces; None where one is to be learnt.
    """
    tokenizer, new = _with_tags(config, parent), config.data.new_pieces
    if tokenizer is None or new.text is None:
        return tokenizer
    return with_new_pieces(tokenizer, new.text, new.size)


def _with_tags(config: Config, parent: Tokenizer | None) -> Tokenizer | None:
    wanted = config.data.control_pieces
    if parent is not None and parent.numberings:
        first, *others = parent.numberings
        new = [piece for piece in wanted if piece not in parent.control_ids]
        _refuse_unknown_languages(config, parent, new)
        if taken := [piece for piece in new if piece in first.pieces]:
            raise InputError(
                f"a tag must not be a token of the vocabulary, but {taken[0]} is one; choose another tag"
            )
        return Tokenizer(*parent.models, numberings=[first.with_pieces(new), *others])
    if parent is not None:
        models = parent.models
    elif config.tokenizer.files:
        models = [_read(file) for file in config.tokenizer.files]
    else:
        return None
    return Tokenizer(with_control_pieces(models[0], wanted), *models[1:])


def _refuse_unknown_languages(config: Config, parent: Tokenizer, new: Sequence[str]) -> None:
    """InputError for a language that the parent lacks; a public model has codes of its own."""
    known = [piece[2:-2] for piece in parent.control_ids if piece.startswith(">>")]
    for piece in new:
        code = piece[2:-2]
        if known and piece.startswith(">>") and code not in config.data.new_languages:
            like = [other for other in known if other.startswith(code[:2])]
            hint = f"; did you mean {' or '.join(like[:5])}?" if like else ""
            raise InputError(
                "languages must be the parent's, in its codes, or keys of data.new_languages, but "
                f"{code} is not{hint}"
            )


def _read(file: str) -> bytes:
    try:
        return with_special_ids(Path(file).read_bytes(), file)
    except OSError as error:
        raise InputError(
            f"`tokenizer.file` must be a SentencePiece model, but {file} cannot be read: {error.strerror}"
        ) from None
