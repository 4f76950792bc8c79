"""Models of plain text for Hugging Face: encoders as BertForMaskedLM, decoders as GPT2LMHeadModel, denoisers
as BART and its like, with a proof of the logits and a model card.
"""

from pathlib import Path
from typing import Any

import torch

from transformer_mt.checkpoint import write_tensors
from transformer_mt.companions.exchange.export.export import unproven_folder
from transformer_mt.companions.exchange.export.format import TrainedRun, num_positions
from transformer_mt.companions.exchange.export.to_huggingface import (
    LATER_BLOCKS,
    ToHuggingFace,
    class_of,
    import_transformers,
    model_config,
    orders,
    said,
    write_fast_tokenizer,
    write_json,
)
from transformer_mt.companions.exchange.layouts import to_bert, to_gpt2, to_huggingface
from transformer_mt.companions.exchange.verify import write_sums
from transformer_mt.config import Config
from transformer_mt.corpora.held_out import evenly_spaced, read_set
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import check_is_new, write_text
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.objectives import MASK, objective_class
from transformer_mt.text.languages import base_code, is_natural
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.engines.torch_engine import load_model

_PROBES, _LOGITS = 50, 1e-4
_LAYER_NORM = 1e-5
_FILL_MASKS = ("BertForMaskedLM", "BartForConditionalGeneration", "MBartForConditionalGeneration")
_HALVES = {"encoder": "BertForMaskedLM", "decoder": "GPT2LMHeadModel"}


def export_text_model(run: RunFolder, out: Path, probe: str | None, license: str | None) -> str:
    """Write the model of `run` to `out`, and compare its ids and its logits on texts of the validation set,
    or of the file `probe`, with the run's; on failure nothing is kept. Returns the proof in words.

    InputError with every reason if the class has no such model; WorkError if the numbers differ.
    """
    config = run.config()
    run.check_weights()
    check_is_new(out)
    if reasons := _reasons_against(config):
        name = _HALVES.get(config.model.kind, ToHuggingFace.name)
        raise InputError("\n".join(f"{name} cannot hold this model: {reason}" for reason in reasons))
    import_transformers()
    trained = TrainedRun(run, config, *load_model(run, config))
    trained.model.eval()
    texts = _texts(run, config, probe)
    with unproven_folder(out) as unproven:
        _write(trained, unproven)
        proof = _prove(trained, unproven, texts)
        write_text(unproven / "README.md", _card(config, proof, out.name, license))
        write_sums(unproven)
        unproven.chmod(0o755)
        unproven.rename(out)
    return proof


def _reasons_against(config: Config) -> list[str]:
    if config.model.kind not in _HALVES:
        reasons = ToHuggingFace().reasons_against(config)
        shared = [] if config.tokenizer.shared else ["tokenizer.shared must be true, but is false"]
        return [*reasons, *(reason for reason in shared if not reasons)]
    c, is_encoder = config.model, config.model.kind == "encoder"
    needed: dict[str, tuple[object, object]] = {
        "model.norm": (c.norm, "post" if is_encoder else "pre"),
        "model.position": (c.position, "learned"),
        "model.embedding_norm": (c.embedding_norm, is_encoder),
        "model.attention.score": (set(c.attention.scores().model_dump().values()), {"scaled_dot"}),
        "model.attention.window": (c.attention.window, 0),
    }
    needed |= {f"model.{key}": (getattr(c, key), usual) for key, usual in LATER_BLOCKS.items()}
    if not is_encoder:
        needed["model.output_bias"] = (c.output_bias, False)
    reasons = [
        said(f"{key} must be {value}, but is {present}")
        for key, (present, value) in needed.items()
        if present != value
    ]
    if c.feed_forward not in ("relu", "gelu", "silu"):
        reasons.append(f"model.feed_forward must be relu, gelu or silu, but is {c.feed_forward}")
    return reasons


def _texts(run: RunFolder, config: Config, probe: str | None) -> list[str]:
    """Texts that both models read."""
    if probe:
        lines = read_lines(probe)
    else:
        valid = config.data.valid_sets[0]
        lines = (src for src, _ in read_set(valid, config.data.languages, run.path, "valid"))
    texts = evenly_spaced([line for line in lines if line.strip()], _PROBES)
    if not texts:
        raise InputError(f"{probe or run}: must have texts to compare the models on, but has none")
    return texts


def _write(run: TrainedRun, folder: Path) -> None:
    c, weights = run.config.model, {name: p.detach() for name, p in run.model.named_parameters()}
    positions = num_positions(run.config)
    if c.kind == "encoder":
        positions += 1  # it reads BOS, too
        tensors, facts = to_bert(c, weights), _bert_config(run, positions)
    elif c.kind == "decoder":
        tensors, facts = to_gpt2(c, weights), _gpt2_config(run, positions)
    else:
        tensors = to_huggingface(c, weights, orders(run.tokenizer), positions)
        facts = model_config(c, run.tokenizer, positions)
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_json(folder / "config.json", facts)
    has_begin, has_end = c.kind in _HALVES, c.kind != "decoder"
    write_fast_tokenizer(run.tokenizer, folder, positions, has_begin, has_end)


def _shared_facts(run: TrainedRun) -> dict[str, Any]:
    return {
        "architectures": [_HALVES[run.config.model.kind]],
        "vocab_size": run.tokenizer.src.vocab_size(),
        "tie_word_embeddings": False,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "dtype": "float32",
    }


def _bert_config(run: TrainedRun, positions: int) -> dict[str, Any]:
    c = run.config.model
    return _shared_facts(run) | {
        "model_type": "bert",
        "hidden_size": c.d_model,
        "num_hidden_layers": c.num_encoder_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.d_ff,
        "hidden_act": c.feed_forward,
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "layer_norm_eps": _LAYER_NORM,
    }


def _gpt2_config(run: TrainedRun, positions: int) -> dict[str, Any]:
    c = run.config.model
    return _shared_facts(run) | {
        "model_type": "gpt2",
        "n_embd": c.d_model,
        "n_layer": c.num_decoder_layers,
        "n_head": c.num_heads,
        "n_inner": c.d_ff,
        "n_positions": positions,
        "activation_function": c.feed_forward,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": _LAYER_NORM,
    }


@torch.inference_mode()
def _prove(run: TrainedRun, folder: Path, texts: list[str]) -> str:
    """Compare both tokenizers and both models on the same texts. WorkError if they differ."""
    transformers = import_transformers()
    kind, most = run.config.model.kind, run.config.data.max_length - 1
    auto = {"encoder": transformers.AutoModelForMaskedLM, "decoder": transformers.AutoModelForCausalLM}.get(
        kind, transformers.AutoModelForSeq2SeqLM
    )
    theirs = auto.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    largest, compared = 0.0, 0
    for text in texts:
        ids = run.tokenizer.encode_src([text], num_threads=1)[0]
        if len(ids) > most:
            continue
        ours = [*[BOS] * (kind in _HALVES), *ids, *[EOS] * (kind != "decoder")]
        foreign = tokenizer(text)["input_ids"]
        if foreign != ours:
            raise WorkError(
                f"the export must split texts as the run does, but gives {text!r} the ids {foreign}, and the "
                f"run gives it {ours}; the export was not kept"
            )
        read, written = torch.tensor([ours]), torch.tensor([[BOS, *ids]])
        logits = run.model(
            read, torch.ones_like(read, dtype=torch.bool), read if kind in _HALVES else written
        )
        foreign = theirs(read) if kind in _HALVES else theirs(read, decoder_input_ids=written)
        difference = (foreign.logits - logits).abs().max()
        largest, compared = max(largest, float(difference)), compared + 1
    if largest > _LOGITS or not compared:
        raise WorkError(
            f"the export's logits must be within {_LOGITS} of the run's, but differ by {largest:.1e} on "
            f"{compared} texts; it was not kept"
        )
    return f"float32: the same ids and logits within {largest:.1e} on {compared} texts"


def _card(config: Config, proof: str, name: str, license: str | None) -> str:
    codes = dict.fromkeys(base_code(code) for code in config.data.languages_used if is_natural(code))
    languages = "\n".join(f'- "{code}"' for code in codes)  # quoted, because YAML reads `no` as false
    name_there = _HALVES.get(config.model.kind) or class_of(config.model)[0]
    task, example = "fill-mask", "A <mask> text."
    if config.model.kind == "decoder":
        task, example = "text-generation", "A text"
    has_masks = any(MASK in objective_class(name).control_tokens for name in config.data.objectives)
    in_pipeline = task == "text-generation" or (has_masks and name_there in _FILL_MASKS)
    use = (
        f'from transformers import pipeline\n\nprint(pipeline("{task}", model="{name}")("{example}"))'
        if in_pipeline
        else f'from transformers import {name_there}\n\nmodel = {name_there}.from_pretrained("{name}")'
    )
    header = f"license: {license}\n" if license else ""
    header += f"pipeline_tag: {task}\n" if in_pipeline else ""
    return f"""\
---
language:
{languages}
library_name: transformers
{header}---

# {config.name}

A {name_there}, trained with transformer_mt.

```python
{use}
```

It reads texts of at most {config.data.max_length - 1:,} tokens.

## Proof of this export

Compared with the run it comes from: {proof}.
"""
