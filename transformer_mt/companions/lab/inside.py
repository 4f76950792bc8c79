"""The numbers inside a Transformer while it translates: the states of each layer, its predictions, the beam
of each step, the gradients of its weights.

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

from transformer_mt.companions.lab.attention_maps import AttentionMaps, look
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer
from transformer_mt.run_folder import open_model
from transformer_mt.search.beam import BeamSettings, BestFirst, Continuations, beam_search
from transformer_mt.translation.engines.torch_engine import TorchEngine, load_model
from transformer_mt.translator import Translator
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.step import Objective


@dataclass(frozen=True)
class Inside:
    """A sentence and its translation inside a model; all tensors are float32, on the CPU."""

    attention: AttentionMaps
    """With the tokens of both sides: `attention.weights["cross"][layer][head]` is (T, S)."""
    hidden: dict[str, list[Tensor]]
    """For `encoder` (S, D) and `decoder` (T, D): the embeddings, then the output of each layer, without the
    last norm.
    """
    log_probs: Tensor
    """(T, V) of each next token of the target, end-of-sentence last."""


def look_inside(translator: Translator, source: str, target: str | None = None) -> Inside:
    """Inside the translation of `source` into `target`, by default into the model's own translation.
    InputError if the model is no Transformer, or runs without torch.
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
    return Inside(seen, hidden, logits.float().log_softmax(-1).cpu())


def beam_steps(
    translator: Translator, source: str, beam: int | None = None
) -> list[list[tuple[list[str], float]]]:
    """For each step of the search the tokens and the log-probability of each hypothesis that goes on or has
    just ended, best first. Without rules of the search, and without length penalty.
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
    """By the name of a weight of a run, the gradient of the negative log-likelihood of the pairs, summed over
    their target tokens; None of a weight without one. The weights are read again, as an engine packs its own.
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
