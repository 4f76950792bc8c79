"""Hugging Face: a folder that `AutoModelForSeq2SeqLM` and `AutoTokenizer` load, without code of ours.

Pre-norm models are Pegasus there, post-norm ones Marian; the tokenizer is Marian's, with our ids.
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
from transformer_mt.export.format import (
    OURS_ALONE,
    Output,
    TrainedRun,
    num_positions,
    reasons_against_language_pieces,
)
from transformer_mt.export.huggingface_weights import weights
from transformer_mt.files import write_text
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
        "Train one with position: sinusoidal, activation: relu or gelu, the usual attention and, with "
        "norm: pre, one vocabulary and tied embeddings."
    )
    quantization = "float32"

    def __init__(self) -> None:
        _import_transformers()

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
        reasons += reasons_against_language_pieces(config.data)
        if model.activation == "swiglu":
            reasons.append("model.activation must be relu or gelu, but is swiglu")
        scores = model.attention.scores().model_dump()
        reasons += [
            f"model.attention.score must be scaled_dot, but is {score} ({side})"
            for side, score in scores.items()
            if score != "scaled_dot"
        ]
        return reasons

    def write(self, run: TrainedRun, folder: Path) -> None:
        assert isinstance(run.model, Transformer)
        positions = num_positions(run.config)
        tensors = weights(run.model, positions)
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
                inputs = tokenizer([sentences[i] for i in rows], return_tensors="pt", padding=True)
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
        return f"""\
With [transformers](https://github.com/huggingface/transformers) (`pip install transformers sentencepiece
torch`):

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{out}")
model = AutoModelForSeq2SeqLM.from_pretrained("{out}")
inputs = tokenizer(["..."], return_tensors="pt", padding=True)
print(tokenizer.decode(model.generate(**inputs), skip_special_tokens=True))
```

Give it one sentence at a time: it does not divide texts. CTranslate2's own converter
(`ct2-transformers-converter`) cannot read this folder; for CTranslate2 export the run itself.
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        folder.rename(out)


def _config(c: ModelConfig, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    pre_norm = c.norm == "pre"
    sizes = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    found = {
        "architectures": ["PegasusForConditionalGeneration" if pre_norm else "MarianMTModel"],
        "model_type": "pegasus" if pre_norm else "marian",
        "vocab_size": sizes[0],
        "d_model": c.d_model,
        "activation_function": c.activation,
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.ffn_dropout,
        "max_position_embeddings": positions,
        "scale_embedding": True,
        "tie_word_embeddings": c.tie_embeddings,
        "is_encoder_decoder": True,
        "dtype": "float32",
        **_special_ids(),
    }
    for side, layers in (("encoder", c.num_encoder_layers), ("decoder", c.num_decoder_layers)):
        found |= {f"{side}_layers": layers, f"{side}_attention_heads": c.num_heads, f"{side}_ffn_dim": c.d_ff}
    if not pre_norm:
        found |= {
            "decoder_vocab_size": sizes[1],
            "share_encoder_decoder_embeddings": tokenizer.shared and c.tie_embeddings,
        }
    return found


def _generation_config(config: Config, tokenizer: Tokenizer, positions: int) -> dict[str, Any]:
    decode = config.decode
    tags = tokenizer.control_ids.values() if tokenizer.shared else []
    # Theirs is a length, ours depends on the source: theirs is that of the longest one.
    longest = decode.max_length or int(decode.max_length_ratio * config.data.max_length) + 10
    return {
        "num_beams": decode.beam,
        "length_penalty": decode.length_penalty,
        # One beam refuses the key.
        **({"early_stopping": decode.stop_early} if decode.beam > 1 else {}),
        "max_length": min(longest + 1, positions),
        "suppress_tokens": [PAD, UNK, BOS, *tags],
        **_special_ids(),
    }


def _special_ids() -> dict[str, Any]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def _write_tokenizer(run: TrainedRun, folder: Path, positions: int) -> None:
    tokenizer = run.tokenizer
    (folder / "source.spm").write_bytes(tokenizer.models[0])
    (folder / "target.spm").write_bytes(tokenizer.models[-1])
    _write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(tokenizer.all_pieces_src)})
    if not tokenizer.shared:
        ids = {piece: i for i, piece in enumerate(tokenizer.all_pieces_tgt)}
        _write_json(folder / "target_vocab.json", ids)
    special = {f"{name}_token": tokenizer.all_pieces_tgt[i] for name, i in
               (("pad", PAD), ("unk", UNK), ("bos", BOS), ("eos", EOS))}  # fmt: skip
    facts = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": run.config.data.source_lang,
        "target_lang": run.config.data.target_lang,
        "separate_vocabs": not tokenizer.shared,
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # `</s>` in a text is text
        **special,
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
