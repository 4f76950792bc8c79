"""One sentence traced through a Transformer, as tables: `transformer-mt trace RUN SENTENCE`.

Letters: S source tokens, T target tokens, D width, F inner width, H heads, V vocabulary.
"""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from transformer_mt.cli.arguments import Parser
from transformer_mt.errors import InputError
from transformer_mt.messages import table

if TYPE_CHECKING:
    from torch import nn

    from transformer_mt.companions.lab.inside import Inside
    from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_OTHERS = 3
"""How many other tokens are shown with their probabilities."""

_MEANINGS = {
    "src_embedding": "source tokens as vectors, times √D, plus positions",
    "tgt_embedding": "target tokens as vectors, times √D, plus positions",
    "encoder.final_norm": "the memory: what the decoder sees of the source",
    "decoder.final_norm": "the last states",
    "output": "logits: a number for each token of the vocabulary",
    "query": "Q, all heads side by side",
    "key": "K, all heads side by side",
    "value": "V, all heads side by side",
    "candidate": "what enters the recurrent cell",
    "forget": "how much of the cell stays, before the sigmoid",
    "weights": "softmax of the scores: each row sums to 1",
    "attention.output": "weights times V, heads joined, times W^O",
    "inner": "x W1 + b1, wider",
    "gate": "what opens and closes the wider vector",
    "outer": "the activation, then W2 and b2: narrow again",
    "layer": "the same, with its own weights",
}
"""What a module computes, by its name or the end of it."""
_SUBLAYERS = {
    "self_residual": "self-attention", "cross_residual": "cross-attention", "ffn_residual": "feed-forward",
}  # fmt: skip


class Row(NamedTuple):
    """A module that the sentence went through."""

    module: str
    """Its name in the model: `encoder.layers.0.self_attention.query`."""
    meaning: str
    shape: tuple[int, ...]
    """The shape of its output, for one sentence."""
    parameters: int | None
    """Of the module; None for what has none of its own."""


def add_arguments(parser: Parser) -> None:
    parser.description = (
        "Show what a Transformer does to a sentence: each module with the shape of its output, and each step "
        "with the tokens that were probable and the source token that it attended to most."
    )
    parser.add_argument("model", metavar="RUN", help="a run's folder, such as runs/demo")
    parser.add_argument("source", metavar="SOURCE", help="a sentence")
    parser.add_argument("--target", metavar="TEXT", help="a translation of it (default: the model's own)")
    parser.set_defaults(command=_trace)


def _trace(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.lab.inside import look_inside
    from transformer_mt.model.interface import count_by_part
    from transformer_mt.run_folder import open_model
    from transformer_mt.translation.engines.torch_engine import load_model
    from transformer_mt.translator import Translator

    run = open_model(arguments.model)
    config = run.config()  # says which folders there are, if this is none
    run.check_weights()
    if arguments.target is not None and not arguments.target.strip():
        raise InputError("--target must be a translation, but is empty")
    translator = Translator.load(arguments.model, engine="torch")
    seen = look_inside(translator, arguments.source, arguments.target)
    model, tokenizer = load_model(run, config)  # as it was trained: an engine packs its weights
    source, target = seen.attention.source, seen.attention.target
    print(f"source, S = {len(source)}: {' '.join(source)}\ntarget, T = {len(target)}: {' '.join(target)}\n")
    rows = [
        (row.module, row.meaning, " x ".join(map(str, row.shape)), _number(row.parameters))
        for row in modules(model, seen)
    ]
    print(table(rows, ["module", "its output", "shape", "parameters"]))
    counts = count_by_part(model)
    parts = ", ".join(f"{part} {count:,}" for part, count in counts.items())
    print(f"\nparameters: {sum(counts.values()):,} ({parts}; shared ones are counted once)\n")
    head = ["step", "reads", "target", "p", "other tokens", "attends most to"]
    print(table(list(steps(seen, tokenizer)), head))
    print(
        "\nattends most to: the source token with the largest weight of the cross-attention, its number and "
        "this weight, in the mean of all heads and layers"
    )
    return 0


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def modules(model: "nn.Module", seen: "Inside") -> Iterator[Row]:
    """The modules in the order of the computation: those of each stack's first layer, and its other layers as
    one each.
    """
    import torch
    from torch import Tensor, nn

    shapes: dict[str, tuple[int, ...]] = {}

    def keep(name: str) -> None:
        def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
            shapes.setdefault(name, tuple(output.shape[1:]))

        hooks.append(model.get_submodule(name).register_forward_hook(hook))

    hooks: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in model.named_modules():
        if _is_shown(name, isinstance(module, nn.Linear) or name.endswith("residual.norm")):
            keep(name)
    with torch.inference_mode():
        model.eval()(seen.src, torch.ones_like(seen.src, dtype=torch.bool), seen.tgt_in)
    for hook in hooks:
        hook.remove()
    kinds = {"encoder.self_attention": "encoder", "decoder.self_attention": "decoder"}
    for name, shape in shapes.items():
        parts = name.split(".")
        stack, last = parts[0], parts[-1]
        attention = parts[-2] if last == "output" and len(parts) > 1 else ""
        if attention:  # its weights are no module
            kind = kinds.get(f"{stack}.{attention}", "cross")
            weights = seen.attention.weights[kind][0]
            of = f"{name.removesuffix('.output')} weights"
            yield Row(of, _MEANINGS["weights"], tuple(weights.shape), None)
        key = "layer" if last.isdecimal() else "attention.output" if attention else last
        meaning = _MEANINGS.get(name) or _MEANINGS.get(key, "")
        if last == "norm":
            is_first = model.get_submodule(name.removesuffix(".norm")).final_norm  # pre-norm
            layer = model.get_submodule(name.rpartition(f".{parts[-2]}")[0])
            is_recurrent = parts[-2] == "self_residual" and getattr(layer, "recurrence", None) is not None
            sublayer = "the recurrent unit" if is_recurrent else _SUBLAYERS[parts[-2]]
            meaning = f"norm {'before' if is_first else 'after'} {sublayer}"
        yield Row(name, meaning, shape, sum(w.numel() for w in model.get_submodule(name).parameters()))


def _is_shown(name: str, has_weights: bool) -> bool:
    """Whether a module has a row: the parts of the model, what has weights in first layers, other layers."""
    parts = name.split(".")
    if len(parts) == 1:
        return name not in ("", "encoder", "decoder")
    if parts[1] == "final_norm":
        return len(parts) == 2
    return has_weights if parts[2:3] == ["0"] else len(parts) == 3 and parts[1] == "layers"


def steps(seen: "Inside", tokenizer: "Tokenizer") -> Iterator[tuple[str, ...]]:
    """What each step of the decoder reads, the probability of the token that follows, other probable tokens,
    and the source token with the largest weight in the mean of all heads and layers.
    """
    import torch

    from transformer_mt.data.vocabulary.tokenizer import EOS

    attention, pieces = seen.attention, tokenizer.all_pieces_tgt
    mean_TS = torch.stack([layer.mean(0) for layer in attention.weights["cross"]]).mean(0)
    read = ["<s>", *attention.target[:-1]]
    chosen = [*seen.tgt_in[0].tolist(), EOS][-len(read) :]
    for t, (before, token) in enumerate(zip(read, chosen)):
        best = seen.log_probs[t].exp().topk(_OTHERS + 1)
        likely = zip(best.indices.tolist(), best.values.tolist())
        others = [f"{pieces[other]} {p:.2g}" for other, p in likely if other != token][:_OTHERS]
        source = int(mean_TS[t].argmax())
        yield (
            str(t + 1),
            before,
            attention.target[t],
            f"{seen.log_probs[t, token].exp():.3f}",
            ", ".join(others),
            f"{attention.source[source]} ({source + 1}) {mean_TS[t, source]:.2f}",
        )
