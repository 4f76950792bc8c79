"""Hugging Face: a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` load, without code of ours.

Pre-norm models become Pegasus and post-norm models Marian; with learned positions, pre-norm models become
mBART and post-norm models BART. The tokenizer is Marian's with our ids, or NLLB's or M2M-100's with theirs.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from sentencepiece import sentencepiece_model_pb2

from transformer_mt.checkpoint import write_tensors
from transformer_mt.companions.exchange.export.format import OURS_ALONE, Output, TrainedRun, num_positions
from transformer_mt.companions.exchange.layouts import to_huggingface
from transformer_mt.config import Config, DataConfig, DecodeConfig, ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.messages import show_progress
from transformer_mt.model.transformer import Transformer
from transformer_mt.settings.objectives import MASK
from transformer_mt.translation.result import Translation

_SPECIAL = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}


def orders(tokenizer: Tokenizer) -> list[list[int]]:
    """Our ids in the order of Hugging Face's ids: one list if both sides share a vocabulary, else two."""
    if tokenizer.numberings:
        return [numbering.order for numbering in tokenizer.numberings]
    sides = [tokenizer.src] if tokenizer.shared else [tokenizer.src, tokenizer.tgt]
    return [list(range(side.vocab_size())) for side in sides]


def ids_there(tokenizer: Tokenizer) -> list[int]:
    """Hugging Face's id for each of our target ids."""
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
    """Write tokenizer.json as transformers makes it from the SentencePiece model, but with the other pieces
    in the order of their ids, because transformers numbers them in the order in which it finds them.
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


# Settings that the search of transformers also has; its length limit is the one for the longest source.
_SETTINGS = ("beam", "length_penalty", "max_length", "max_length_ratio", "batch_tokens")
_BATCH = 16
LATER_BLOCKS = {"norm_kind": "layer", "qk_norm": False, "num_kv_heads": None, "share_layers": False}
"""Keys of `model` that Hugging Face's models lack, and the values they must have."""


def said(reason: str) -> str:
    """A reason with values as YAML writes them."""
    for value, word in (("True", "true"), ("False", "false"), ("None", "left out")):
        reason = reason.replace(value, word)
    return reason


class ToHuggingFace:
    """A folder in the layout of the Hugging Face hub."""

    name = "Hugging Face"
    advice = (
        "Train a new model: `transformer-mt new` writes a config for it (see its help), or change the keys: "
        "position: sinusoidal (or learned with embedding_norm: true), feed_forward: relu, "
        "gelu or silu, and the usual attention; norm: pre and position: learned also need one vocabulary and "
        "tied embeddings."
    )
    proof_settings: ClassVar[dict[str, Any]] = {}
    quantization = "float32"

    def __init__(self) -> None:
        import_transformers()
        self._before = ""  # text to put before each source
        self._prompt: list[int] = []  # ids that follow the decoder's start token
        self._pieces: dict[int, str] = {}  # our pieces by Hugging Face's ids

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToHuggingFace":
        if arguments.quantization not in (None, "float32"):
            raise InputError(
                Setting("quantization"), " must be float32 with ", Setting("to", "huggingface"),
                f", but is {arguments.quantization}",
            )  # fmt: skip
        return cls()

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        default = DecodeConfig()
        kept = {key: getattr(settings, key) for key in _SETTINGS}
        if settings.length_penalty_form != "plain":
            kept["length_penalty"] = default.length_penalty
        supported = DecodeConfig.model_validate(
            {**kept, "split_sentences": False, "stop_early": True, **OURS_ALONE}
        )
        names = set(DecodeConfig.model_fields) - {"split_sentences"}
        return supported, sorted(n for n in names if getattr(settings, n) != getattr(supported, n))

    def reasons_against(self, config: Config) -> list[str]:
        model = config.model
        if model.kind != "transformer":
            return [f"model.kind must be transformer, but is {model.kind}"]
        needed: dict[str, tuple[object, object, str]] = {
            "model.autoregression": (model.autoregression, "attention", ""),
            "model.attention.window": (model.attention.window, 0, ""),
            "model.attention.cross": (model.attention.cross, "global", ""),
            "model.attention.hard": (model.attention.hard, False, ""),
        }
        for key, usual in LATER_BLOCKS.items():
            needed[f"model.{key}"] = (getattr(model, key), usual, "")
        is_bart = model.position == "learned"
        with_position = f" with position: {model.position}"
        needed["model.embedding_norm"] = (model.embedding_norm, is_bart, with_position)
        if model.position == "sinusoidal_fairseq":
            needed["data.new_pieces.text"] = (config.data.new_pieces.text, None, with_position)
            needed["model.norm"] = (model.norm, "pre", with_position)
            needed["model.decoder_start"] = (model.decoder_start, "eos", with_position)
            needed["model.output_bias"] = (model.output_bias, False, with_position)
            needed["data.language_pieces"] = (config.data.language_pieces, "both", with_position)
        else:
            if not is_bart:
                needed["model.position"] = (model.position, "sinusoidal", "")
            needed["model.decoder_start"] = (model.decoder_start, "bos", "")
            if config.data.language_pieces == "both":
                needed["data.language_pieces"] = ("both", False, "")
        if model.norm == "pre" or is_bart:
            where = with_position if is_bart else " with norm: pre"
            needed["tokenizer.shared"] = (config.tokenizer.shared, True, where)
            needed["model.tie_embeddings"] = (model.tie_embeddings, True, where)
        reasons = [
            said(f"{key} must be {value}{where}, but is {present}")
            for key, (present, value, where) in needed.items()
            if present != value
        ]
        if model.feed_forward not in ("relu", "gelu", "silu"):
            reasons.append(f"model.feed_forward must be relu, gelu or silu, but is {model.feed_forward}")
        if model.norm not in ("pre", "post"):
            reasons.append(f"model.norm must be pre or post, but is {model.norm}")
        scores = model.attention.scores().model_dump()
        reasons += [
            f"model.attention.score must be scaled_dot, but is {score} ({side})"
            for side, score in scores.items()
            if score != "scaled_dot"
        ]
        return reasons

    def write(self, run: TrainedRun, folder: Path) -> None:
        assert isinstance(run.model, Transformer)
        positions, data = num_positions(run.config), run.config.data
        self._before = "" if _is_m2m(run.config.model) else data.language_piece(data.languages) or ""
        self._pieces = dict(zip(ids_there(run.tokenizer), run.tokenizer.all_pieces_tgt))
        prompt = data.target_piece(data.languages)
        self._prompt = [] if prompt is None else [ids_there(run.tokenizer)[run.tokenizer.control_id(prompt)]]
        weights = {name: parameter.detach() for name, parameter in run.model.named_parameters()}
        tensors = to_huggingface(run.config.model, weights, orders(run.tokenizer), positions)
        write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
        write_json(folder / "config.json", model_config(run.config.model, run.tokenizer, positions))
        write_json(
            folder / "generation_config.json", _generation_config(run.config, run.tokenizer, positions)
        )
        if _is_m2m(run.config.model):
            write_m2m_tokenizer(run.tokenizer, data, folder)
        else:
            write_marian_tokenizer(run.tokenizer, data, folder, positions)

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        transformers = import_transformers()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        outputs: dict[int, Output] = {}
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        with show_progress(None, "proof", len(sentences), unit="sentences") as bar:
            for start in range(0, len(order), _BATCH):
                rows = order[start : start + _BATCH]
                texts = [self._before + sentences[i] for i in rows]
                inputs = tokenizer(texts, return_tensors="pt", padding=True)
                if self._prompt:
                    begin = [model.config.decoder_start_token_id, *self._prompt]
                    inputs["decoder_input_ids"] = torch.tensor([begin] * len(texts))
                generated = model.generate(
                    **inputs, return_dict_in_generate=True, output_logits=True, output_scores=True
                )
                texts = tokenizer.decode(generated.sequences, skip_special_tokens=True)
                scores = _scores(model, generated, 1 + len(self._prompt))
                special = {*tokenizer.all_special_ids, *self._prompt}
                pieces = [
                    [self._pieces[i] for i in ids if i not in special and i in self._pieces]
                    for ids in generated.sequences[:, 1:].tolist()
                ]
                outputs |= {i: Output(*output) for i, output in zip(rows, zip(texts, scores, pieces))}
                bar.update(len(rows))
        return [outputs[i] for i in range(len(sentences))]

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None
        return Output(translation.translation, translation.score)

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        is_m2m = _is_m2m(config.model)
        piece = None if is_m2m else config.data.language_piece(config.data.languages)
        asks = f"\nEach source begins with the token of its target language: `{piece}`.\n" if piece else ""
        if is_m2m:
            asks = (
                "\n`generation_config.json` sets the target language; `forced_bos_token_id` selects another "
                "one, and `tokenizer.src_lang` another source.\n"
            )
        return f"""\
With [transformers](https://github.com/huggingface/transformers) (`pip install transformers sentencepiece
torch`):

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{out}")
model = AutoModelForSeq2SeqLM.from_pretrained("{out}")
inputs = tokenizer(["{piece or ""}..."], return_tensors="pt", padding=True)
print(tokenizer.decode(model.generate(**inputs), skip_special_tokens=True))
```
{asks}
Give it one sentence at a time: it does not split texts. CTranslate2's own converter
(`ct2-transformers-converter`) cannot read this folder; for CTranslate2 export the run itself.
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        folder.rename(out)


def model_config(c: ModelConfig, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    """The contents of their config.json."""
    name, kind = class_of(c)
    sizes = [len(order) for order in orders(tokenizer)]
    facts = {
        "architectures": [name],
        "model_type": kind,
        "vocab_size": sizes[0],
        "d_model": c.d_model,
        "activation_function": "swish" if c.feed_forward == "silu" else c.feed_forward,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.ffn_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "tie_word_embeddings": c.tie_embeddings,
        "is_encoder_decoder": True,
        "dtype": "float32",
        **_special_ids(c, tokenizer),
    }
    for side, layers in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers)):
        facts |= {f"{side}_layers": layers, f"{side}_attention_heads": c.num_heads, f"{side}_ffn_dim": c.d_ff}
    if kind == "marian":
        facts |= {
            "decoder_vocab_size": sizes[-1],
            "share_encoder_decoder_embeddings": tokenizer.shared and c.tie_embeddings,
        }
    return facts


def class_of(c: ModelConfig) -> tuple[str, str]:
    """(its class, its `model_type`) in transformers."""
    if c.position == "learned":
        if c.norm == "pre":
            return "MBartForConditionalGeneration", "mbart"
        return "BartForConditionalGeneration", "bart"
    if c.norm == "post":
        return "MarianMTModel", "marian"
    if _is_m2m(c):
        return "M2M100ForConditionalGeneration", "m2m_100"
    return "PegasusForConditionalGeneration", "pegasus"


def _generation_config(config: Config, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    decode = config.decode
    # Their limit is a fixed length and ours depends on the source, so theirs is the limit of the longest one.
    longest = decode.max_length or int(decode.max_length_ratio * config.data.max_length) + 10
    return {
        "num_beams": decode.beam,
        "length_penalty": decode.length_penalty,
        # transformers refuses this key if there is one beam.
        **({"early_stopping": decode.stop_early} if decode.beam > 1 else {}),
        "max_length": min(longest + 1, positions),
        **_never(config, tokenizer),
        **_special_ids(config.model, tokenizer),
        **_forced(config.data, tokenizer),
    }


def _never(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """The pieces that are never written. Our search removes them after the softmax, as transformers does. The
    PAD of an imported model, however, is removed before it, so that the other pieces share its probability;
    nothing else may be suppressed then.
    """
    foreign = ids_there(tokenizer)
    if config.model.output_bias and tokenizer.numberings:
        return {"suppress_tokens": [foreign[PAD]], "renormalize_logits": True}
    # With `both`, the decoder has to write a language piece, so language pieces are not suppressed.
    tags = [] if config.data.language_pieces == "both" else tokenizer.never_written
    return {"suppress_tokens": [foreign[i] for i in (PAD, UNK, BOS, *tags)]}


def _is_m2m(model: ModelConfig) -> bool:
    return model.position == "sinusoidal_fairseq"


def _forced(data: DataConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The piece of the target language, which follows the decoder's start token."""
    piece = data.target_piece(data.languages)
    return {} if piece is None else {"forced_bos_token_id": ids_there(tokenizer)[tokenizer.control_id(piece)]}


def _special_ids(model: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    foreign = ids_there(tokenizer)
    return {
        "pad_token_id": foreign[PAD],
        "bos_token_id": foreign[BOS],
        "eos_token_id": foreign[EOS],
        "decoder_start_token_id": foreign[EOS if model.decoder_start == "eos" else BOS],
        "forced_eos_token_id": None,
    }


def _scores(model: Any, generated: Any, begin: int) -> list[float]:
    """log P / length^a of each output."""
    if getattr(generated, "sequences_scores", None) is not None:
        return [float(score) for score in generated.sequences_scores]
    # Not from generated.scores, where suppressed pieces have no probability
    steps = model.compute_transition_scores(generated.sequences, generated.logits, normalize_logits=True)
    penalty, end = model.generation_config.length_penalty, model.generation_config.eos_token_id
    scores = []
    for row, tokens in zip(steps.tolist(), generated.sequences[:, begin:].tolist()):
        length = tokens.index(end) + 1 if end in tokens else len(tokens)
        scores.append(math.fsum(row[:length]) / length**penalty)
    return scores


def import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"this needs transformers: pip install 'transformer-mt[huggingface]' ({error})"
        ) from None
    transformers.utils.logging.disable_progress_bar()
    return transformers
