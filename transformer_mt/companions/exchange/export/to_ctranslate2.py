"""CTranslate2: a folder that translates without torch, quantised where asked."""

import argparse
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from transformer_mt.companions.exchange.ctranslate2_engine import (
    SAME_SEARCH,
    advice_on_int8,
    import_ctranslate2,
    supported_settings,
)
from transformer_mt.companions.exchange.export.format import (
    Output,
    TrainedRun,
    num_positions,
    reasons_against_text,
    shared_config,
    shared_files,
)
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.load import dump_config
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import write_text
from transformer_mt.model.attention import MultiHeadAttention, RMSNorm
from transformer_mt.model.interface import TranslationModel, alignment_layer
from transformer_mt.model.positions import LearnedPositions, NoPositions, SinusoidalPositions
from transformer_mt.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    GatedFeedForward,
    Residual,
    Transformer,
)
from transformer_mt.model.variants.position_bias import Relative
from transformer_mt.model.variants.variants import VariantAttention
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Translation
from transformer_mt.translator import Translator

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int16", "int8")


def reasons_against(model: ModelConfig) -> list[str]:
    """Every reason why CTranslate2 cannot run such a model, each a key with what it must be; empty where it
    can.
    """
    scores = model.attention.scores()
    possible = {
        "kind": ("transformer",),
        "norm": ("pre", "post"),
        "norm_kind": ("layer", "rms"),
        "autoregression": ("attention",),
        "feed_forward": ("relu", "gelu", "silu", "swiglu"),
        "position": (
            "sinusoidal",
            "sinusoidal_marian",
            "sinusoidal_fairseq",
            "learned",
            "relative",
            "rotary",
            "none",
        ),
    }
    reasons = [
        f"model.{key} must be {' or '.join(values)}, but is {getattr(model, key)}"
        for key, values in possible.items()
        if getattr(model, key) not in values
    ]
    if model.kind != "transformer":
        return reasons  # nothing else would help
    for side in ("encoder", "decoder", "cross"):
        if (score := getattr(scores, side)) != "scaled_dot":
            reasons.append(f"model.attention.score must be scaled_dot, but is {score} ({side})")
    if model.qk_norm:  # tried with 4.8: its encoder and cross-attention compute something else
        reasons.append("model.qk_norm must be false, but is true")
    for key, value in (("window", 0), ("cross", "global"), ("hard", False)):
        if (present := getattr(model.attention, key)) != value:
            reasons.append(f"model.attention.{key} must be {value}, but is {present}")
    return reasons


def write_model(
    model: TranslationModel, tokenizer: Tokenizer, config: Config, folder: Path, quantization: str
) -> None:
    """Write the model to `folder` as CTranslate2 has it: model.bin, config.json, the vocabularies."""
    if reasons := reasons_against(config.model):
        raise InputError("\n".join(f"CTranslate2 cannot run this model: {reason}" for reason in reasons))
    assert isinstance(model, Transformer)
    import_ctranslate2()
    from ctranslate2.specs import TransformerSpec, common_spec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    c, guided = config.model, model.guided_layer
    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
        "swiglu": common_spec.Activation.SWISH,
    }
    shape: dict[str, Any] = {
        "pre_norm": c.norm == "pre",
        "activation": activations[c.feed_forward],
        "ffn_glu": c.feed_forward == "swiglu",
        "layernorm_embedding": c.embedding_norm,
        "relative_position": c.position == "relative",
        "rms_norm": c.norm_kind == "rms",
        "num_heads_kv": c.num_kv_heads,
        "rotary_dim": 0 if c.position == "rotary" else None,  # 0: the whole head
    }
    spec = TransformerSpec(
        TransformerEncoderSpec(c.num_encoder_layers, c.num_heads, **shape),
        TransformerDecoderSpec(
            c.num_decoder_layers,
            c.num_heads,
            alignment_layer=alignment_layer(c.num_decoder_layers) if guided is None else guided,
            alignment_heads=c.num_heads if guided is None else 1,  # the mean of this many heads is taken
            **shape,
        ),
    )
    for ours, theirs in (
        (model.src_embedding, spec.encoder.embeddings[0]),
        (model.tgt_embedding, spec.decoder.embeddings),
    ):
        theirs.weight = _array(ours.tokens.weight)
    for embedding, stack in ((model.src_embedding, spec.encoder), (model.tgt_embedding, spec.decoder)):
        if c.position not in ("relative", "rotary"):  # these two are inside attention
            stack.position_encodings.encodings = _positions(embedding.positions, config)
        if c.embedding_norm:
            _set_norm(embedding.norm, stack.layernorm_embedding)
    for our_layers, their_layers in (
        (model.encoder.layers, spec.encoder.layer),
        (model.decoder.layers, spec.decoder.layer),
    ):
        for layer, target in zip(our_layers, their_layers):
            _set_layer(layer, target)
    if c.norm == "pre":
        for norm, stack in (
            (model.encoder.final_norm, spec.encoder),
            (model.decoder.final_norm, spec.decoder),
        ):
            _set_norm(norm, stack.layer_norm)
    spec.decoder.projection.weight = _array(model.output.weight)
    if model.output.bias is not None:
        spec.decoder.projection.bias = _array(model.output.bias)
    spec.register_source_vocabulary(tokenizer.all_pieces_src)
    spec.register_target_vocabulary(tokenizer.all_pieces_tgt)
    names = {key: tokenizer.tgt.id_to_piece(i) for key, i in (("unk", UNK), ("bos", BOS), ("eos", EOS))}
    for key, name in names.items():
        setattr(spec.config, f"{key}_token", name)
    spec.decoder.start_from_zero_embedding = c.decoder_start == "zeros"
    spec.config.decoder_start_token = names.get(c.decoder_start, names["bos"])
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def _positions(positions: nn.Module, config: Config) -> np.ndarray:
    if isinstance(positions, LearnedPositions):
        return _array(positions.embedding.weight)
    shape = num_positions(config), config.model.d_model
    if isinstance(positions, NoPositions):
        return np.zeros(shape, np.float32)
    assert isinstance(positions, SinusoidalPositions)
    return positions.formula(*shape).numpy()


def _set_layer(layer: nn.Module, spec: Any) -> None:
    assert isinstance(layer, (EncoderLayer, DecoderLayer)) and layer.self_attention is not None
    _set_attention(layer.self_attention, layer.self_residual, spec.self_attention, self_attention=True)
    if isinstance(layer, DecoderLayer) and layer.cross_attention is not None:
        _set_attention(layer.cross_attention, layer.cross_residual, spec.attention, self_attention=False)
    _set_norm(layer.ffn_residual.norm, spec.ffn.layer_norm)
    ffn: Any = layer.feed_forward
    if isinstance(ffn, GatedFeedForward):
        _set_linear([ffn.gate], spec.ffn.linear_0)
        _set_linear([ffn.inner], spec.ffn.linear_0_noact)
    else:
        _set_linear([ffn.inner], spec.ffn.linear_0)
    _set_linear([ffn.outer], spec.ffn.linear_1)


def _set_attention(
    attention: MultiHeadAttention, residual: Residual, spec: Any, self_attention: bool
) -> None:
    a = attention
    parts = (
        [[a.query, a.key, a.value], [a.output]]
        if self_attention
        else [[a.query], [a.key, a.value], [a.output]]
    )
    for linears, target in zip(parts, spec.linear):
        _set_linear(linears, target)
    if isinstance(a, VariantAttention) and isinstance(a.relation, Relative):
        spec.relative_position_keys = _array(a.relation.keys)
        spec.relative_position_values = _array(a.relation.values)
    _set_norm(residual.norm, spec.layer_norm)


def _set_linear(linears: list[nn.Linear], spec: Any) -> None:
    """The layers stacked as one, as CTranslate2 computes them."""
    spec.weight = np.concatenate([_array(linear.weight) for linear in linears])
    spec.bias = np.concatenate([_array(linear.bias) for linear in linears])


def _set_norm(norm: nn.Module, spec: Any) -> None:
    assert isinstance(norm, nn.LayerNorm | RMSNorm)
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(tensor: Any) -> np.ndarray:
    # A copy, because CTranslate2 scales and quantises the arrays it is given in place.
    return tensor.detach().float().cpu().numpy().copy()


class ToCTranslate2:
    """A folder that is a MODEL for our commands."""

    name = "CTranslate2"
    advice = "Translate with the run's folder."
    proof_settings: ClassVar[dict[str, Any]] = SAME_SEARCH

    def __init__(self, quantization: str = "float32") -> None:
        self.quantization, self.low_bleu_advice = quantization, advice_on_int8()
        import_ctranslate2()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "ToCTranslate2":
        return cls(arguments.quantization or "float32")

    def supported_settings(self, settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
        return supported_settings(settings)

    def reasons_against(self, config: Config) -> list[str]:
        return reasons_against(config.model) + reasons_against_text(config.data)

    def write(self, run: TrainedRun, folder: Path) -> None:
        write_model(run.model, run.tokenizer, run.config, folder, self.quantization)
        for file in shared_files(run.folder, run.extras):
            shutil.copyfile(file, folder / file.name)
        exported, weights = RunFolder(folder), run.folder.weights_digest()
        write_text(exported.config_file, dump_config(shared_config(run.config, run.extras)))
        facts = {"run": run.config.name, "weights": weights, "positions": num_positions(run.config)}
        write_text(exported.export_facts_file, json.dumps(facts, indent=1) + "\n")

    def translate(self, folder: Path, sentences: Sequence[str]) -> Sequence[Output]:
        translator = Translator.load(folder, device="cpu", decode=dict(self.proof_settings))
        results = translator.translate(sentences)
        return [Output(result.translation, result.score, result.tokens) for result in results]

    def expected(self, translation: Translation) -> Output | None:
        return Output(translation.translation, translation.score)  # our code divides lines here, too

    def metadata(self, config: Config) -> dict[str, Any]:
        return {}

    def usage(self, config: Config, out: str) -> str:
        return f"""\
On the command line and from Python, with transformer_mt:

```bash
pip install 'transformer-mt[ctranslate2]'
translate {shlex.quote(str(out))} < in.txt
```

```python
from transformer_mt import Translator

for result in Translator.load("{out}").translate(["..."]):
    print(result.translation)
```
"""

    def pack(self, folder: Path, out: Path, config: Config) -> None:
        folder.rename(out)
