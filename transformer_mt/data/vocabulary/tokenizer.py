"""SentencePiece vocabularies: train, load, encode, decode, number as other software does. The special ids
live here.
"""

import hashlib
import io
import json
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise, permutations
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece import SentencePieceNormalizer, set_min_log_level
from sentencepiece.sentencepiece_model_pb2 import NormalizerSpec

from transformer_mt.config import TokenizerConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_bytes
from transformer_mt.processes import usable_cores
from transformer_mt.settings.objectives import MASK
from transformer_mt.text.languages import count_unsegmented

PAD, UNK, BOS, EOS = 0, 1, 2, 3

_SPECIAL = ("pad", "unk", "bos", "eos")


@dataclass(frozen=True)
class Numbering:
    """The pieces of a foreign vocabulary ("there") in our order: PAD, UNK, BOS, EOS, then all others in the
    order that they have there.
    """

    pieces: list[str]
    """Indexed by our ids."""
    special: dict[str, int]
    """The ids there of pad, unk, bos and eos. Special tokens with the same id are one piece there; the first
    of them keeps its name here.
    """
    language_form: str = ">>{}<<"
    """How pieces of languages are written there; here they are `>>de<<`."""

    @classmethod
    def of(
        cls, foreign: Mapping[str, int], special: Mapping[str, int], language_form: str = ">>{}<<"
    ) -> "Numbering":
        """From the ids of all pieces there; those of the special ones are 0 to 3 here."""
        by_id = {i: piece for piece, i in foreign.items()}
        if len(by_id) < len(foreign) or sorted(by_id) != list(range(len(by_id))):
            raise InputError(
                f"the vocabulary must number its {len(foreign)} tokens from 0 to {len(foreign) - 1}, but "
                "does not"
            )
        names = ["" if special[name] in _before(special, name) else by_id[special[name]] for name in _SPECIAL]
        new = iter(name for name in ("<s>", "<start>", "<begin>") if name not in foreign)
        others = [by_id[i] for i in range(len(by_id)) if i not in special.values()]
        return cls([*(name or next(new) for name in names), *others], dict(special), language_form)

    @property
    def order(self) -> list[int]:
        """For each id there, our id of the same piece. If several special tokens share an id there, the last
        of them counts, because Marian's decoder begins with its PAD.
        """
        special = {self.special[name]: ours for ours, name in enumerate(_SPECIAL)}
        others = iter(range(len(_SPECIAL), len(self.pieces)))
        size = len(self.pieces) - len(_SPECIAL) + len(special)
        return [special[i] if i in special else next(others) for i in range(size)]

    def foreign_ids(self) -> list[int]:
        """For each of our ids the one in the other vocabulary."""
        foreign = {ours: i for i, ours in enumerate(self.order)}
        return [
            self.special[_SPECIAL[i]] if i < len(_SPECIAL) else foreign[i] for i in range(len(self.pieces))
        ]

    def with_pieces(self, new: Sequence[str]) -> "Numbering":
        """With new pieces after all others."""
        return replace(self, pieces=[*self.pieces, *new])

    def name_there(self, piece: str) -> str:
        """The name of a piece there."""
        return self.language_form.format(piece[2:-2]) if piece.startswith(">>") else piece

    def facts(self) -> dict[str, Any]:
        """The facts from which `Numbering(**facts)` makes the same again."""
        return {"special": self.special, "language_form": self.language_form, "pieces": self.pieces}


def _before(special: Mapping[str, int], name: str) -> list[int]:
    return [special[other] for other in _SPECIAL[: _SPECIAL.index(name)]]


COMPOSE = "compose"


@cache
def normalizer_of(normalization: str) -> SentencePieceNormalizer:
    """SentencePiece's rule for a value of `tokenizer.normalization`."""
    if normalization not in ("auto", COMPOSE):
        return SentencePieceNormalizer(rule_name=normalization)
    set_min_log_level(2)  # no warnings
    rules = SentencePieceNormalizer(norm_map=list(_composing_rules()))
    spec = NormalizerSpec.FromString(rules.serialized_normalizer_spec())
    spec.name = COMPOSE
    return SentencePieceNormalizer(normalizer_spec=spec)


def _composing_rules() -> Iterator[tuple[str, str]]:
    """Pairs of a spelling and the character that replaces it."""
    for character in map(chr, range(sys.maxunicode + 1)):
        if character.isspace() and character != " " and unicodedata.category(character) == "Zs":
            yield character, " "
        elif not unicodedata.is_normalized("NFD", character):
            yield from ((spelling, character) for spelling in _other_spellings(character))


def _other_spellings(character: str) -> set[str]:
    """All decomposed spellings of a character: a base character, then marks in any order."""
    letter, *marks = list(unicodedata.normalize("NFD", character))
    spellings: set[str] = set()
    if not marks or not unicodedata.is_normalized("NFC", character):
        return spellings
    for order in permutations(marks):
        for count in range(len(order)):
            spelling = unicodedata.normalize("NFC", letter + "".join(order[:count]))
            spelling += "".join(order[count:])
            if unicodedata.normalize("NFC", spelling) == character:
                spellings.add(spelling)
    return spellings


class Renumbered:
    """Divides text as the model does, but the id of a piece is its index in `pieces`, or `unknown` if it is
    not there.

    It has the methods of SentencePieceProcessor that the project uses, under the same names.
    """

    def __init__(
        self, model: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], unknown: int
    ) -> None:
        self._model, self._pieces, self._unknown = model, list(pieces), unknown
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._id_of = [self.piece_to_id(model.id_to_piece(i)) for i in range(model.vocab_size())]

    def vocab_size(self) -> int:
        return len(self._pieces)

    def normalize(self, text: str) -> str:
        return str(self._model.normalize(text))

    def piece_to_id(self, piece: str) -> int:
        return self._ids.get(piece, self._unknown)

    def id_to_piece(self, id: int) -> str:
        return self._pieces[id]

    def is_unknown(self, id: int) -> bool:
        return id == self._unknown

    def is_byte(self, id: int) -> bool:
        return bool(self._model.is_byte(self._in_model[id]))

    def is_control(self, id: int) -> bool:
        """True if no text is ever divided into this piece. A text can also be divided into a piece that the
        model does not know but the vocabulary has: `encode` looks it up by its spelling.
        """
        in_model = self._in_model[id]
        if id == self._unknown or not (self._model.is_control(in_model) or self._model.is_unknown(in_model)):
            return False
        piece = self._pieces[id]
        return self._model.is_control(in_model) or piece not in self._model.encode(piece, out_type=str)

    def get_score(self, id: int) -> float:
        return float(self._model.get_score(self._in_model[id]))

    def encode(self, text: Any, **options: Any) -> Any:
        """The ids of a text, or a list of ids for each text of a list. With return_type="proto", the model's
        own result with the model's own ids.
        """
        encoded = self._model.encode(text, **options)
        if "return_type" in options:
            return encoded
        if isinstance(text, str):
            return self._renumbered(text, encoded)
        return [self._renumbered(line, ids) for line, ids in zip(text, encoded)]

    def _renumbered(self, text: str, ids: list[int]) -> list[int]:
        if self._model.unk_id() in ids:  # tokens that only the other model knows
            return [self.piece_to_id(piece) for piece in self._model.encode(text, out_type=str)]
        return [self._id_of[i] for i in ids]

    def decode(self, ids: Sequence[int], **options: Any) -> Any:
        """The text of the ids. Pieces that only the other language's model has are written as they stand."""
        decoded = self._model.decode([self._pieces[i] for i in ids], **options)
        return decoded if options else decoded.replace("▁", " ")

    @cached_property
    def _in_model(self) -> list[int]:
        return [self._model.piece_to_id(piece) for piece in self._pieces]


PieceModel = sentencepiece.SentencePieceProcessor | Renumbered

_NUMBERINGS = "vocabulary.json"

_NO_TAGS = (MASK, "<term>", "<as>", "</term>")
"""Control tokens inside texts; the companion `terms` writes those around terms."""
_LANGUAGE_PIECE = re.compile(r">>.+<<")
# Line breaks are removed from translations, even if byte tokens wrote them: one line in, one line out.
_LINE_BREAKS = re.compile(r"\s*[\r\n]+\s*")
_THREADS = 16
"""SentencePiece adds up probabilities thread by thread and writes the number of threads into the model: with
one thread per core, two machines would learn different vocabularies.
"""


class VocabularySizeError(InputError):
    """No vocabulary of this size can be learnt from the text; `nearest` is the nearest size that can."""

    def __init__(self, text: str, nearest: int) -> None:
        super().__init__(text)
        self.nearest = nearest


class Tokenizer:
    """A SentencePiece model for each side; the same one where both divide texts alike.

    The ids of pieces are those of the models, or of an imported vocabulary: one for both sides, or one each.
    """

    def __init__(self, *models: bytes, numberings: Sequence[Numbering] = ()) -> None:
        """`models` are one for both sides, or the source's and the target's."""
        self._models = list(models)
        self.numberings = list(numberings)
        sides = [processor_of(model) for model in self._models]
        self.src: PieceModel = sides[0]
        self.tgt: PieceModel = sides[-1]
        if self.numberings:
            self.src, self.tgt = (Renumbered(sides[k], self.numberings[k].pieces, UNK) for k in (0, -1))
            return
        for side in sides:
            ids = (side.pad_id(), side.unk_id(), side.bos_id(), side.eos_id())
            if ids != (PAD, UNK, BOS, EOS):
                raise InputError(
                    f"the tokenizer must have the ids PAD 0, UNK 1, BOS 2, EOS 3, but has {ids}; is it whole?"
                )

    @property
    def models(self) -> list[bytes]:
        """The SentencePiece models: one, or the source's and the target's."""
        return self._models

    @property
    def shared(self) -> bool:
        """True if an id is the same piece on both sides."""
        return len(self.numberings or self._models) == 1

    @property
    def fingerprint(self) -> str:
        """A hash of everything in the vocabularies."""
        numberings = [json.dumps(one.facts(), sort_keys=True).encode() for one in self.numberings]
        return hashlib.sha256(b"\0".join([*self._models, *numberings])).hexdigest()

    def encode_src(self, lines: Sequence[str], num_threads: int | None = None) -> list[list[int]]:
        """Piece ids of source lines, without BOS and EOS; by default on all cores."""
        return self.src.encode(list(lines), num_threads=num_threads or usable_cores())

    def encode_tgt(self, lines: Sequence[str], num_threads: int | None = None) -> list[list[int]]:
        """Piece ids of target lines, without BOS and EOS; by default on all cores."""
        return self.tgt.encode(list(lines), num_threads=num_threads or usable_cores())

    def decode_tgt(self, ids: Sequence[int]) -> str:
        """Text of target ids, on one line; special ids have no text."""
        return _LINE_BREAKS.sub(" ", self.tgt.decode([i for i in ids if i not in (PAD, BOS, EOS)])).strip()

    def spans_src(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a source text, and the characters (begin, end) that each piece was made of."""
        pieces = self.src.encode(text, return_type="proto").pieces
        return self.src.encode(text), _spans(pieces, text)

    def spans_tgt(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """The characters (begin, end) of each id in the text that `decode_tgt` makes of all the ids."""
        decoded = self.tgt.decode(list(ids), return_type="proto")
        text = self.decode_tgt(ids)
        written = decoded.text.replace("▁", " ") if self.numberings else decoded.text
        start = len(written) - len(written.lstrip())
        return [
            (min(max(begin - start, 0), len(text)), min(max(end - start, 0), len(text)))
            for begin, end in _spans(decoded.pieces, decoded.text)
        ]

    def ids_tgt(self, pieces: Sequence[str]) -> list[int]:
        """The ids of target pieces."""
        return [self.tgt.piece_to_id(piece) for piece in pieces]

    def pieces_tgt(self, ids: Sequence[int]) -> list[str]:
        return [self.all_pieces_tgt[i] for i in ids]

    def pieces_src(self, ids: Sequence[int]) -> list[str]:
        return [self.all_pieces_src[i] for i in ids]

    @cached_property
    def all_pieces_tgt(self) -> list[str]:
        """Every target piece; its index is its id."""
        return _pieces(self.tgt)

    @cached_property
    def all_pieces_src(self) -> list[str]:
        """Every source piece; its index is its id."""
        return self.all_pieces_tgt if self.shared else _pieces(self.src)

    @property
    def num_ids(self) -> int:
        """The size of the larger side's vocabulary; all ids are below it."""
        return max(len(self.all_pieces_src), len(self.all_pieces_tgt))

    def as_written(self, words: Sequence[str]) -> list[str]:
        """Target words spelled by their pieces, with ▁ for each space and one ▁ in front.

        There is no ▁ in front of a word without letters or digits, such as a full stop, because it follows
        other words directly, nor in front of a word that begins with a character of a script without spaces.
        """
        written = ["".join(self.pieces_tgt(self.tgt.encode(word))) for word in words]
        return [
            text
            if any(map(str.isalnum, word)) and not count_unsegmented(word.lstrip()[:1])
            else text.removeprefix("▁")
            for text, word in zip(written, words)
        ]

    def save(self, folder: Path) -> None:
        for other in tokenizer_files(folder):
            # Remove the files of an earlier run in this folder, so that `load` does not read them
            other.unlink(missing_ok=True)
        for path, model in zip(_paths(folder, len(self._models)), self._models):
            write_bytes(path, model)
        if self.numberings:
            text = json.dumps([one.facts() for one in self.numberings], ensure_ascii=False, indent=0)
            write_bytes(folder / _NUMBERINGS, f"{text}\n".encode())

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer in a run's folder: tokenizer.model, or tokenizer.src.model and tokenizer.tgt.model,
        and for an imported one vocabulary.json.
        """
        one, two, file = _paths(folder, 1), _paths(folder, 2), Path(folder) / _NUMBERINGS
        try:
            models = [path.read_bytes() for path in (one if one[0].exists() else two)]
            facts = json.loads(file.read_bytes()) if file.exists() else []
            return cls(*models, numberings=[Numbering(**one) for one in facts])
        except FileNotFoundError:
            raise InputError(f"{folder}: there is no tokenizer.model in it; is it a run's folder?") from None
        except InputError as error:
            raise InputError(f"{folder}: {error}") from None
        except (ValueError, TypeError):
            raise InputError(f"{file}: must be the list of tokens as written, but is damaged") from None

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """The ids of tags and language pieces: pieces that no text is ever encoded to."""
        sides = [self.src, self.tgt] if self.shared else [self.src]
        pieces = enumerate(self.all_pieces_src)
        return {piece: i for i, piece in pieces if i > EOS and all(side.is_control(i) for side in sides)}

    def control_id(self, piece: str) -> int:
        """The id of a control piece. InputError if the vocabulary does not have it."""
        return self.control_ids[piece] if piece in self.control_ids else self.tag_id(piece)

    @cached_property
    def never_written(self) -> list[int]:
        """The control pieces among the target's pieces that no translation has."""
        return list(self.control_ids.values()) if self.shared else []

    def tag_id(self, piece: str) -> int:
        """The id of a tag. InputError if the vocabulary does not have it."""
        tags = [tag for tag in self.control_ids if not (_LANGUAGE_PIECE.fullmatch(tag) or tag in _NO_TAGS)]
        if piece not in tags:
            allowed = f"one of {', '.join(tags)}" if tags else "left out, because the model has no tags"
            raise InputError(Setting("tag"), f" must be {allowed}, but is {piece}")
        return self.control_ids[piece]

    @classmethod
    def train(
        cls, pairs: Iterable[tuple[str, str]], config: TokenizerConfig, control_pieces: Sequence[str] = ()
    ) -> "Tokenizer":
        """Learn the pieces of both sides of `pairs`, one vocabulary or two; control pieces are the
        source's.
        """
        if config.shared:
            return cls(_train((side for pair in pairs for side in pair), config, control_pieces))
        pairs = list(pairs)
        return cls(
            _train((src for src, _ in pairs), config, control_pieces),
            _train((tgt for _, tgt in pairs), config),
        )


def processor_of(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """The SentencePiece model. InputError if it is damaged."""
    if not model:  # SentencePiece would silently load nothing
        raise InputError("the tokenizer must be a SentencePiece model, but is damaged: it is empty")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"the tokenizer must be a SentencePiece model, but is damaged: {reason}") from None


def tokenizer_files(folder: Path) -> list[Path]:
    """The files that `save` may have written into the folder."""
    return [*_paths(folder, 1), *_paths(folder, 2), Path(folder) / _NUMBERINGS]


def _paths(folder: Path, models: int) -> list[Path]:
    names = ["tokenizer.model"] if models == 1 else ["tokenizer.src.model", "tokenizer.tgt.model"]
    return [Path(folder) / name for name in names]


def _pieces(model: PieceModel) -> list[str]:
    return [model.id_to_piece(i) for i in range(model.vocab_size())]


def _spans(pieces: Sequence[Any], text: str) -> list[tuple[int, int]]:
    # `begin` and `end` of a piece count bytes. The surfaces together are the text, without outer white space.
    start = max(0, text.find("".join(piece.surface for piece in pieces)))
    ends = list(accumulate((len(piece.surface) for piece in pieces), initial=start))
    return list(pairwise(ends))


def _train(lines: Iterable[str], config: TokenizerConfig, control_pieces: Sequence[str] = ()) -> bytes:
    model = io.BytesIO()
    try:
        with _stoppable():
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=config.kind,
                vocab_size=config.vocab_size,
                # With char and word the text may have fewer tokens than vocab_size.
                hard_vocab_limit=config.kind not in ("char", "word"),
                byte_fallback=config.byte_fallback,
                character_coverage=config.character_coverage,
                normalizer=normalizer_of(config.normalization),
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                control_symbols=list(control_pieces),
                max_sentence_length=1 << 20,  # bytes; longer lines are left out
                num_threads=_THREADS,
                minloglevel=2,
            )
    except RuntimeError as error:
        if "KeyboardInterrupt" in str(error):  # raised in the iterator, wrapped by SentencePiece
            raise KeyboardInterrupt from None
        raise _in_words_of_the_yaml(str(error), config) from None
    return model.getvalue()


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process at once. Python's handlers would only run when SentencePiece
    has finished, after minutes.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_words_of_the_yaml(message: str, config: TokenizerConfig) -> InputError:
    """Convert an error message of SentencePiece to an InputError that names the config's keys."""
    most = re.search(r"Vocabulary size too high \((\d+)\).*?<= (\d+)", message, re.DOTALL)
    if most:
        return VocabularySizeError(
            f"`tokenizer.vocab_size` must be at most {most[2]} for this corpus, but is {config.vocab_size}",
            int(most[2]),
        )
    numbers = re.search(r"smaller than required_chars.*?(\d+)\D+(\d+)", message, re.DOTALL)
    if numbers:
        least = max(map(int, numbers.groups()))
        return VocabularySizeError(
            f"`tokenizer.vocab_size` must be more than {least}, the characters, bytes and special tokens of "
            f"this corpus, but is {config.vocab_size}",
            least + 1,
        )
    reason = message.splitlines()[-1]
    return InputError(f"SentencePiece could not learn {config.vocab_size} tokens from this corpus: {reason}")
