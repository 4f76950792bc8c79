"""The numbers inside a Transformer while it translates: attention weights, the states of each layer, its
predictions, the beam of each step, the gradients of its weights.

Letters: S source tokens, T target tokens, D width, V vocabulary, W hypotheses of the beam.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_mt.companions.language_models.text_models import TextModel
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError, Setting
from transformer_mt.model.attention import AttentionRecorder
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.transformer import Transformer
from transformer_mt.run_folder import open_model
from transformer_mt.search.beam import BeamSettings, BestFirst, Continuations, beam_search
from transformer_mt.translation.engines.torch_engine import TorchEngine, load_model
from transformer_mt.translator import Translator
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one sentence and its translation. Rows are queries, columns are keys; a row sums
    to 1 (to less with local_p's Gaussian).
    """

    source: list[str]
    """S tokens with end-of-sentence."""
    target: list[str]
    """T tokens with end-of-sentence: the row of each is the step that chose it."""
    source_text: str
    target_text: str
    weights: dict[str, list[Tensor]]
    """For `cross` (H, T, S), `encoder` (H, S, S) and `decoder` (H, T, T), one tensor a layer."""

    def rows(self, kind: str) -> list[str]:
        return self.source if kind == "encoder" else self.target

    def columns(self, kind: str) -> list[str]:
        """In the decoder a step sees what was chosen before it: beginning-of-sentence first."""
        return ["<s>", *self.target[:-1]] if kind == "decoder" else self.source

    def title(self, kind: str) -> str:
        """The sentences whose tokens are the queries and the keys."""
        texts = {"encoder": [self.source_text], "decoder": [self.target_text]}
        return "\n".join(texts.get(kind, [self.source_text, self.target_text]))


def look(translator: Translator, source: str, target: str | None = None) -> AttentionMaps:
    """The attention weights when `source` is translated into `target`, by default the model's own
    translation.

    InputError if the engine gives no attention weights, if the source is empty, or if a text is too long for
    one segment.
    """
    engine = translator.engine
    if not isinstance(engine, TorchEngine) or not isinstance(engine.model, TranslationModel):
        raise InputError(
            "attention maps require a run's folder, with ", Setting("engine", "torch"),
            " and without an ensemble",
        )  # fmt: skip
    tokenizer = translator.tokenizer
    (src,) = translator.encode_src([source])
    if not source.strip() or len(src) >= translator.max_src_length:
        raise InputError(
            f"the source must have 1 to {translator.max_src_length - 1} tokens, but has "
            f"{len(src) if source.strip() else 0}"
        )
    if target is None:
        (result,) = _unsplit(translator).translate([source])
        tgt = [tokenizer.tgt.piece_to_id(piece) for piece in result.tokens]
    else:
        (tgt,) = tokenizer.encode_tgt([target])
    if translator.max_positions and len(tgt) >= translator.max_positions:
        raise InputError(
            f"the target must have at most {translator.max_positions - 1} tokens, but has {len(tgt)}"
        )
    model = engine.model
    recorder = AttentionRecorder(*(attention for layers in model.attentions.values() for attention in layers))
    ids = torch.tensor([[*src, EOS]], device=engine.device)
    with torch.inference_mode():
        begin = translator.planner.prompt
        tgt_in = torch.tensor([[BOS, *begin, *tgt]], device=engine.device)
        model.hidden(ids, torch.ones_like(ids, dtype=torch.bool), tgt_in, recorder)
    # A Transformer attends with all positions at once, a recurrent network with one after the other.
    weights = {
        kind: [
            _of_tokens(torch.cat(recorder.of(attention), dim=2)[0].float().cpu(), kind, len(begin))
            for attention in layers
        ]
        for kind, layers in model.attentions.items()
    }
    end = ["</s>"]
    return AttentionMaps(
        source=tokenizer.pieces_src(src) + end,
        target=tokenizer.pieces_tgt(tgt) + end,
        source_text=source,
        target_text=tokenizer.decode_tgt(tgt) if target is None else target,
        weights=weights,
    )


def _of_tokens(weights_HTS: torch.Tensor, kind: str, begin: int) -> torch.Tensor:
    """Cut off the first `begin` rows and, in the decoder, columns, which belong to the prompt."""
    if kind == "encoder":
        return weights_HTS
    rows = weights_HTS[:, begin:]
    return rows[:, :, begin:] if kind == "decoder" else rows


def _unsplit(translator: Translator) -> Translator:
    """A translator that takes a text as it is, because the attention is computed for the unchanged text: it
    does not split sentences, does not lowercase capitals and protects nothing.
    """
    return translator.with_settings(
        **dict.fromkeys(("split_sentences", "lowercase_capitals", "protect_usual"), False)
    )


def maps(attentions: AttentionMaps, kind: str, layer: str, head: str) -> list[tuple[str, Tensor]]:
    """(title, weights) of the heat maps asked for: `layer` and `head` are a number from 1 on, `all` or
    `mean`.
    """
    layers = attentions.weights[kind]
    if not layers:
        raise InputError(
            Setting("kind"),
            f" must be cross for this model, but is {kind}: a recurrent {kind} has no self-attention",
        )
    chosen = _select_parts("layer", layer, layers)
    maps_of_lines = []
    for name, weights in chosen:
        for head_name, part in _select_parts("head", head, list(weights)):
            maps_of_lines.append((f"{kind} attention, {name}, {head_name}", part))
    return maps_of_lines


def _select_parts(word: str, wanted: str, parts: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    if wanted == "mean":
        return [
            (
                f"mean of {len(parts)} {word}s" if len(parts) > 1 else f"its one {word}",
                torch.stack(list(parts)).mean(0),
            )
        ]
    if wanted == "all":
        return [(f"{word} {i}", part) for i, part in enumerate(parts, start=1)]
    if not wanted.isdecimal() or not 1 <= int(wanted) <= len(parts):
        raise InputError(Setting(word), f" must be 1 to {len(parts)}, all or mean, but is {wanted}")
    return [(f"{word} {wanted}", parts[int(wanted) - 1])]


def look_at_text(loaded: TextModel, text: str) -> AttentionMaps:
    """The attentions of reading a text. InputError if it is empty or too long."""
    tokenizer, most = loaded.tokenizer, loaded.config.data.max_length - 1
    ids = tokenizer.encode_src([text], num_threads=1)[0]
    if not 1 <= len(ids) <= most:
        raise InputError(f"the text must have 1 to {most} tokens, but has {len(ids)}")
    is_encoder = loaded.config.model.kind == "encoder"
    read = torch.tensor([[BOS, *ids, *([EOS] if is_encoder else [])]], device=loaded.device)
    attentions = loaded.model.attentions
    recorder = AttentionRecorder(*(attention for layers in attentions.values() for attention in layers))
    with torch.inference_mode():
        loaded.model.hidden(read, torch.ones_like(read, dtype=torch.bool), read, recorder)
    weights = {
        kind: [torch.cat(recorder.of(attention), dim=2)[0].float().cpu() for attention in layers]
        for kind, layers in attentions.items()
    }
    pieces = tokenizer.pieces_src(ids)
    return AttentionMaps(["<s>", *pieces, "</s>"], [*pieces, "</s>"], text, text, weights)


@dataclass(frozen=True)
class Inside:
    """A sentence and its translation inside a model; all tensors are float32, on the CPU."""

    attention: AttentionMaps
    """With the tokens of both sides: `attention.weights["cross"][layer][head]` is (T, S)."""
    hidden: dict[str, list[Tensor]]
    """For `encoder` (S, D) and `decoder` (T, D): the embeddings, then the output of each layer, without the
    last norm.
    """
    src: Tensor
    """(1, S) ids of the source."""
    tgt_in: Tensor
    """(1, T) ids that the decoder reads, after the prompt if the model has one."""
    log_probs: Tensor
    """(T, V) log-probabilities of each next token of the target; the last row predicts end-of-sentence."""


def look_inside(translator: Translator, source: str, target: str | None = None) -> Inside:
    """The values inside the model when it translates `source` into `target`, by default its own translation.
    InputError if the model is not a Transformer or does not run in torch.
    """
    seen, model = look(translator, source, target), _model(translator)
    src, tgt = translator.encode_src([source])[0], translator.tokenizer.encode_tgt([seen.target_text])[0]
    begin = translator.planner.prompt
    hidden: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}

    def keep(name: str, module: Any, inputs: Any, output: Tensor) -> None:
        hidden[name].append(output[0].detach().float().cpu())

    parts = [(model.src_embedding, "encoder"), (model.tgt_embedding, "decoder")]
    parts += [(layer, name) for name in hidden for layer in getattr(model, name).layers]
    with ExitStack() as hooks, torch.inference_mode():
        for part, name in parts:
            hooks.callback(part.register_forward_hook(partial(keep, name)).remove)
        device = _engine(translator).device
        ids, tgt_in = (torch.tensor([row], device=device) for row in ([*src, EOS], [BOS, *begin, *tgt]))
        logits = model(ids, torch.ones_like(ids, dtype=torch.bool), tgt_in)[0, len(begin) :]
    hidden["decoder"] = [states[len(begin) :] for states in hidden["decoder"]]
    return Inside(seen, hidden, ids.cpu(), tgt_in.cpu(), logits.float().log_softmax(-1).cpu())


def beam_steps(
    translator: Translator, source: str, beam: int | None = None
) -> list[list[tuple[list[str], float]]]:
    """For each step of the search, returns the tokens and the log-probability of each hypothesis that
    continues or has just ended, best first. The search uses no rules and no length penalty.
    """
    engine, model = _engine(translator), _model(translator)
    (src,) = translator.encode_src([source])
    ids = torch.tensor([[*src, EOS]], device=engine.device)
    steps: list[list[tuple[list[str], float]]] = []
    width = beam or translator.decode.beam
    tokens: list[list[int]] = [[]]

    class Watched(BestFirst):
        def choose(self, scores: Tensor, history: Tensor) -> Continuations:
            choice = super().choose(scores, history)
            of_ends = choice.end_parent[0].tolist(), [EOS] * width, choice.end_scores[0].tolist()
            of_kept = choice.parent[0].tolist(), choice.token[0].tolist(), choice.scores[0].tolist()
            ends, going = (
                [([*tokens[parent], token], score) for parent, token, score in zip(*part)]
                for part in (of_ends, of_kept)
            )
            tokens[:] = [row for row, _ in going]
            both = sorted((one for one in ends + going if one[1] > -torch.inf), key=lambda one: -one[1])
            steps.append([(translator.tokenizer.pieces_tgt(row), score) for row, score in both])
            return choice

    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.inference_mode():
        state = model.start(model.encode(ids, mask), mask)
        *before, first = torch.tensor(
            [[BOS], *([id] for id in translator.planner.prompt)], device=engine.device
        )
        for token in before:
            _, state = model.step(token, state)
        limit = translator.planner.limit(len(src), translator.decode)
        settings = BeamSettings(width, device=engine.device)
        watched = Watched(width, EOS)
        beam_search(model.step, state, [limit], engine.special_ids, settings, first, watched)
    return steps


def gradients(folder: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Tensor | None]:
    """Gradients of the pairs' negative log-likelihood, summed over the target tokens, keyed by the name of
    the weight; None for a weight without a gradient. The weights are read again because an engine packs its
    own.
    """
    translator = Translator.load(folder, engine="torch")
    run = open_model(folder)
    model, tokenizer = load_model(run, run.config())
    sides = translator.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs])
    batch = make_batch(*([np.array(ids, np.int64) for ids in side] for side in sides))
    loss, _ = Objective(model.eval(), CrossEntropy(0.0))(batch)
    weights = dict(model.named_parameters())
    return dict(zip(weights, torch.autograd.grad(loss, list(weights.values()), allow_unused=True)))


def _engine(translator: Translator) -> TorchEngine:
    if not isinstance(translator.engine, TorchEngine):
        raise InputError('to look inside needs torch: Translator.load(folder, engine="torch")')
    return translator.engine


def _model(translator: Translator) -> Transformer:
    model = _engine(translator).model
    if not isinstance(model, Transformer):
        raise InputError(f"to look inside needs one Transformer, but the model is {type(model).__name__}")
    return model
