"""Hugging Face: a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` load, without code of ours.

Pre-norm models are Pegasus there, post-norm ones Marian; the tokenizer is Marian's, with our ids, or with
those that an imported model had.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from transformer_mt.config import Config, DecodeConfig, ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.export.format import OURS_ALONE, Output, TrainedRun, num_positions
from transformer_mt.files import write_text
from transformer_mt.layouts.huggingface import to_huggingface
from transformer_mt.model.transformer import Transformer
from transformer_mt.progress_bar import show_progress
from transformer_mt.translation.result import Translation

# What the search of transformers has, too; its limit of lengths is that of the longest source.
_SETTINGS = ("beam", "length_penalty", "max_length", "max_length_ratio", "batch_tokens")
_BATCH = 16


class ToHuggingFace:
    """A folder in the layout of the Hugging Face hub."""

    name = "Hugging Face"
    advice = (
        "Train one with position: sinusoidal, activation: relu, gelu or silu, the usual attention and, with "
        "norm: pre, one vocabulary and tied embeddings."
    )
    quantization = "float32"

    def __init__(self) -> None:
        _import_transformers()
        self._before = ""  # each source

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
            "model.position": (model.position, "sinusoidal", ""),
            "model.attention.window": (model.attention.window, 0, ""),
            "model.attention.cross": (model.attention.cross, "global", ""),
            "model.attention.hard": (model.attention.hard, False, ""),
        }
        if model.norm == "pre":
            needed["tokenizer.shared"] = (config.tokenizer.shared, True, " with norm: pre")
            needed["model.tie_embeddings"] = (model.tie_embeddings, True, " with norm: pre")
        reasons = [
            f"{key} must be {value}{where}, but is {found}".replace("True", "true").replace("False", "false")
            for key, (found, value, where) in needed.items()
            if found != value
        ]
        if model.activation == "swiglu":
            reasons.append("model.activation must be relu, gelu or silu, but is swiglu")
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
        self._before = data.language_piece(data.target_lang) or ""
        weights = {name: parameter.detach() for name, parameter in run.model.named_parameters()}
        tensors = to_huggingface(run.config.model, weights, _orders(run.tokenizer), positions)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        _write_json(folder / "config.json", _config(run.config.model, run.tokenizer, positions))
        _write_json(
            folder / "generation_config.json", _generation_config(run.config, run.tokenizer, positions)
        )
        _write_tokenizer(run, folder, positions)

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        transformers = _import_transformers()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        outputs: dict[int, Output] = {}
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        with show_progress(None, "proof", len(sentences), unit="sentences") as bar:
            for start in range(0, len(order), _BATCH):
                rows = order[start : start + _BATCH]
                inputs = tokenizer(
                    [self._before + sentences[i] for i in rows], return_tensors="pt", padding=True
                )
                found = model.generate(
                    **inputs, return_dict_in_generate=True, output_logits=True, output_scores=True
                )
                texts = tokenizer.decode(found.sequences, skip_special_tokens=True)
                outputs |= {i: Output(*output) for i, output in zip(rows, zip(texts, _scores(model, found)))}
                bar.update(len(rows))
        return [outputs[i] for i in range(len(sentences))]

    def expected(self, translation: Translation) -> Output | None:
        if translation.segments or {"truncated", "unchanged"} & set(translation.flags):
            return None
        return Output(translation.translation, translation.score)

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        piece = config.data.language_piece(config.data.target_lang)
        asks = f"\nEach source begins with the piece of its target language: `{piece}`.\n" if piece else ""
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
Give it one sentence at a time: it does not divide texts. CTranslate2's own converter
(`ct2-transformers-converter`) cannot read this folder; for CTranslate2 export the run itself.
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        folder.rename(out)


def _config(c: ModelConfig, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    pre_norm = c.norm == "pre"
    sizes = [len(order) for order in _orders(tokenizer)]
    found = {
        "architectures": ["PegasusForConditionalGeneration" if pre_norm else "MarianMTModel"],
        "model_type": "pegasus" if pre_norm else "marian",
        "vocab_size": sizes[0],
        "d_model": c.d_model,
        "activation_function": "swish" if c.activation == "silu" else c.activation,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.ffn_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "tie_word_embeddings": c.tie_embeddings,
        "is_encoder_decoder": True,
        "dtype": "float32",
        **_special_ids(tokenizer),
    }
    for side, layers in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers)):
        found |= {f"{side}_layers": layers, f"{side}_attention_heads": c.num_heads, f"{side}_ffn_dim": c.d_ff}
    if not pre_norm:
        found |= {
            "decoder_vocab_size": sizes[-1],
            "share_encoder_decoder_embeddings": tokenizer.shared and c.tie_embeddings,
        }
    return found


def _generation_config(config: Config, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    decode = config.decode
    # Theirs is a length, ours depends on the source: theirs is that of the longest one.
    longest = decode.max_length or int(decode.max_length_ratio * config.data.max_length) + 10
    return {
        "num_beams": decode.beam,
        "length_penalty": decode.length_penalty,
        # One beam refuses the key.
        **({"early_stopping": decode.stop_early} if decode.beam > 1 else {}),
        "max_length": min(longest + 1, positions),
        **_never(config, tokenizer),
        **_special_ids(tokenizer),
    }


def _never(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """What is never written. Ours takes it out of the probabilities after the softmax, as they do, but for
    PAD of an imported model before: there the others share out its probability, and nothing else may be taken
    out.
    """
    there = _ids_there(tokenizer)
    if config.model.output_bias and tokenizer.numberings:
        return {"suppress_tokens": [there[PAD]], "renormalize_logits": True}
    tags = tokenizer.control_ids.values() if tokenizer.shared else []
    return {"suppress_tokens": [there[i] for i in (PAD, UNK, BOS, *tags)]}


def _orders(tokenizer: Tokenizer) -> list[list[int]]:
    """Our ids in the order of the ids there, of both sides or of each."""
    if tokenizer.numberings:
        return [numbering.order for numbering in tokenizer.numberings]
    sides = [tokenizer.src] if tokenizer.shared else [tokenizer.src, tokenizer.tgt]
    return [list(range(side.vocab_size())) for side in sides]


def _ids_there(tokenizer: Tokenizer) -> list[int]:
    """For each of our target ids the id there."""
    return (
        tokenizer.numberings[-1].places() if tokenizer.numberings else list(range(tokenizer.tgt.vocab_size()))
    )


def _special_ids(tokenizer: Tokenizer) -> dict[str, Any]:
    there = _ids_there(tokenizer)
    return {
        "pad_token_id": there[PAD],
        "bos_token_id": there[BOS],
        "eos_token_id": there[EOS],
        "decoder_start_token_id": there[BOS],
        "forced_eos_token_id": None,
    }


def _write_tokenizer(run: TrainedRun, folder: Path, positions: int) -> None:
    tokenizer = run.tokenizer
    (folder / "source.spm").write_bytes(tokenizer.models[0])
    (folder / "target.spm").write_bytes(tokenizer.models[-1])
    orders, sides = _orders(tokenizer), [tokenizer.all_pieces_src, tokenizer.all_pieces_tgt]
    special = dict(zip(("pad", "unk", "bos", "eos"), (PAD, UNK, BOS, EOS)))
    if _ids_there(tokenizer)[BOS] == _ids_there(tokenizer)[PAD]:
        # The decoder begins with the row of BOS under the name of PAD.
        sides = [[*pieces[:BOS], pieces[PAD], *pieces[BOS + 1 :]] for pieces in sides]
        del special["bos"]
    for name, order, pieces in zip(("vocab.json", "target_vocab.json"), orders, sides):
        _write_json(folder / name, {pieces[ours]: i for i, ours in enumerate(order)})
    facts = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": run.config.data.source_lang,
        "target_lang": run.config.data.target_lang,
        "separate_vocabs": not tokenizer.shared,
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # `</s>` in a text is text
        **{f"{name}_token": sides[1][i] for name, i in special.items()},
    }
    _write_json(folder / "tokenizer_config.json", facts)


def _scores(model: Any, found: Any) -> list[float]:
    """log P / length^a of each output."""
    if getattr(found, "sequences_scores", None) is not None:
        return [float(score) for score in found.sequences_scores]
    # Not from found.scores, in which what is suppressed has no probability
    steps = model.compute_transition_scores(found.sequences, found.logits, normalize_logits=True)
    penalty = model.generation_config.length_penalty
    scores = []
    for row, tokens in zip(steps.tolist(), found.sequences[:, 1:].tolist()):
        length = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
        scores.append(math.fsum(row[:length]) / length**penalty)
    return scores


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise InputError(
            f"this needs transformers: pip install 'transformer-mt[huggingface]' ({error})"
        ) from None
    transformers.utils.logging.disable_progress_bar()
    return transformers
