"""Searching the model this project trains."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.checkpoint import CheckpointError, load_model_weights
from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.device import allow_tf32, choose_device, use_device
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.model.attention import AttentionRecorder
from transformer_mt.model.build_model import build_model
from transformer_mt.model.interface import TranslationModel
from transformer_mt.parts import load_part
from transformer_mt.run_folder import RunFolder
from transformer_mt.search.beam import BeamSettings, SpecialIds, Step, beam_search
from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, NotFiniteError
from transformer_mt.search.rules import BannedText, MinLength, NoRepeatNgram, Prefix, Rule
from transformer_mt.search.sampling import Distribution, Ensemble, sample
from transformer_mt.translation.engines.engine import Engine, Ids, Request, batches


class PackedLinear(nn.Module):
    """x Wᵀ + b like the given layer, with the weights in oneDNN's own layout.

    About a tenth faster than nn.Linear in float32, and twice as fast for few rows in bfloat16
    (docs/measurements/performance.md); it cannot be trained or saved.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        operators: Any = torch.ops.mkldnn
        self.multiply = operators._linear_pointwise
        self.weight = operators._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight, self.bias, "none", [], "")


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a model on a CPU, if oneDNN's operators are there for its dtype."""
    weight = next(model.parameters())
    if weight.device.type != "cpu" or not _is_supported(weight.dtype):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child))


def _is_supported(dtype: torch.dtype) -> bool:
    operators: Any = torch.ops.mkldnn
    if not (torch.backends.mkldnn.is_available() and hasattr(operators, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and operators._is_mkldnn_bf16_supported())


Done = list[tuple[int, list[Hypothesis]]]
Work = Callable[[list[int]], Done]

_GPU_CHECKS_EVERY = 8


class TorchEngine(Engine):
    """A model, or an ensemble, on a device."""

    name = "torch"
    selects = True

    def __init__(self, model: TranslationModel | Ensemble, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        weight = next(model.parameters())
        self.device, self.dtype = weight.device, str(weight.dtype).removeprefix("torch.")
        self.is_on_cpu = self.device.type == "cpu"
        self.special_ids = SpecialIds(bos=BOS, eos=EOS, never=(PAD, UNK, BOS, *tokenizer.never_written))

    @classmethod
    def load(
        cls, runs: Sequence[RunFolder], configs: Sequence[Config], device: str, dtype: str
    ) -> "TorchEngine":
        """The models in the folders of runs; several are an ensemble, and must have one tokenizer."""
        chosen = choose_device(device)
        use_device(chosen)
        allow_tf32(chosen)
        if dtype not in ("float32", "bfloat16", "float16"):
            raise InputError(
                Setting("dtype"), " must be float32, bfloat16 or float16 with ", Setting("engine", "torch"),
                f", but is {dtype}",
            )  # fmt: skip
        models: list[TranslationModel] = []
        for run, config in zip(runs, configs):
            model, of_run = load_model(run, config)
            if not models:
                tokenizer = of_run
            elif of_run.fingerprint != tokenizer.fingerprint:
                raise InputError(
                    f"{run}: must have the tokenizer of {runs[0]} to translate together, but has another"
                )
            model.to(chosen, getattr(torch, dtype)).eval()
            pack(model)
            models.append(model)
        return cls(models[0] if len(models) == 1 else Ensemble(models), tokenizer)

    def check(self, settings: DecodeConfig) -> None:
        """All settings are possible."""

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        rules = self._rules(settings)
        lengths = [len(r.src) + 1 for r in requests]
        on_gpu = self.device.type == "cuda"
        memory = torch.cuda.get_device_properties(self.device).total_memory if on_gpu else 0
        budget = settings.batch_budget(memory, len(self.tokenizer.all_pieces_tgt))
        # All requests of a batch have the same selection of hypotheses; those without one come first.
        selections = [r.wanted and r.wanted.selection for r in requests]
        plan = [
            [numbers[i] for i in rows]
            for selection in dict.fromkeys([None, *selections])
            if (numbers := [i for i, wanted in enumerate(selections) if wanted == selection])
            for rows in batches([lengths[i] for i in numbers], settings.num_hypotheses, budget)
        ]

        def searched(rows: list[int]) -> Done:
            try:
                of_rows = self._search([requests[i] for i in rows], settings, rules, n_best)
            except NotFiniteError:
                raise WorkError(
                    "the model's output is not finite; its weights are damaged, or too large for the dtype, "
                    "or "
                    "its training diverged (train.learning_rate): use ", Setting("dtype", "float32"),
                    " or an earlier checkpoint",
                ) from None  # fmt: skip
            return [(i, hypotheses[:n_best]) for i, hypotheses in zip(rows, of_rows)]

        return (hypotheses for done in self._in_parallel(searched, plan) for hypotheses in done)

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        results: list[list[float]] = [[] for _ in pairs]
        for rows in batches([max(len(src), len(tgt)) + 1 for src, tgt in pairs], 1, 4096):
            src = self._padded([*pairs[i][0], EOS] for i in rows)
            tgt_in = self._padded([BOS, *pairs[i][1]] for i in rows)
            tgt_out = self._padded([*pairs[i][1], EOS] for i in rows)
            with torch.inference_mode():
                log_probs = F.log_softmax(self.model(src, src != PAD, tgt_in).float(), dim=-1)
                of_targets = log_probs.gather(2, tgt_out[:, :, None])[:, :, 0].tolist()
            for i, values in zip(rows, of_targets):
                results[i] = values[: len(pairs[i][1]) + 1]
        return results

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        results: list[list[list[float]]] = [[] for _ in pairs]
        model = self.model.models[0] if isinstance(self.model, Ensemble) else self.model
        assert isinstance(model, TranslationModel)
        for rows in batches([max(len(src), len(tgt)) + 1 for src, tgt in pairs], 1, 4096):
            src = self._padded([*pairs[i][0], EOS] for i in rows)
            tgt_in = self._padded([BOS, *pairs[i][1]] for i in rows)
            recorder = AttentionRecorder(model.alignment_attention)
            with torch.inference_mode():
                model.hidden(src, src != PAD, tgt_in, recorder)
            weights_BHTS = torch.cat(recorder.of(model.alignment_attention), dim=2)
            for i, of_tokens in zip(rows, model.as_alignment(weights_BHTS).tolist()):
                src_length, tgt_length = map(len, pairs[i])
                results[i] = [row[:src_length] for row in of_tokens[:tgt_length]]
        return results

    def _rules(self, settings: DecodeConfig) -> list[Rule]:
        """The rules of a search that are the same for all sentences."""
        rules: list[Rule] = []
        if settings.no_repeat_ngram:
            rules.append(NoRepeatNgram(settings.no_repeat_ngram))
        if settings.banned:
            texts = self.tokenizer.as_written(settings.banned)
            rules.append(BannedText(texts, self.tokenizer.all_pieces_tgt, (PAD, UNK, BOS, EOS), self.device))
        for name in settings.rules:
            kind = part_class("rule", name, "decode.rules", Rule)
            rules.append(kind(self.tokenizer, self.device, **part_settings(kind, name, "decode.rules")))
        return rules

    @torch.inference_mode()
    def _search(
        self, requests: list[Request], settings: DecodeConfig, rules: list[Rule], n_best: int
    ) -> list[list[Hypothesis]]:
        src = self._padded([*r.src, EOS] for r in requests)
        src_mask = src != PAD
        if settings.min_length:
            rules = [MinLength(settings.min_length, EOS, [r.given for r in requests], self.device), *rules]
        if any(r.prefix for r in requests):
            rules = [Prefix([r.prefix for r in requests], rules, self.device)]
        limits = [r.limit for r in requests]
        penalty = LengthPenalty(settings.length_penalty, settings.length_penalty_form)
        model: Any = self.model
        state = model.start(model.encode(src, src_mask), src_mask)
        state, first = _prompted(model.step, state, [r.prompt for r in requests], BOS, self.device)
        check_every = 1 if self.is_on_cpu else _GPU_CHECKS_EVERY
        if settings.search != "beam":
            generators = [
                [random.Random(f"{settings.seed} {k} {r.src}") for k in range(settings.samples)]
                for r in requests
            ]
            part = Distribution(settings.temperature, settings.top_k, settings.top_p)
            return sample(
                model.step, state, limits, self.special_ids, generators, part, penalty, rules, check_every,
                self.device, first,
            )  # fmt: skip
        selection, most = None, n_best
        if requests[0].wanted:
            kind = load_part("selection", requests[0].wanted.selection)
            values = [r.wanted.value for r in requests if r.wanted]
            selection, most = kind(values, settings.beam, self.tokenizer, self.device), settings.beam
        of_beam = BeamSettings(
            settings.beam, penalty, rules, settings.stop_early, most, check_every, self.device
        )
        return beam_search(model.step, state, limits, self.special_ids, of_beam, first, selection)

    def _padded(self, rows: Iterable[Ids]) -> Tensor:
        """(B, longest), PAD after each row, on the device."""
        rows = list(rows)
        lengths = np.fromiter(map(len, rows), np.int64)
        padded = np.full((len(rows), lengths.max()), PAD)
        padded[np.arange(lengths.max()) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
        return torch.from_numpy(padded).to(self.device)

    def _in_parallel(self, work: Work, plan: list[list[int]]) -> Iterator[Done]:
        """The results of `work` for each batch, as they are done. On a CPU each core works on a batch of its
        own, which is a fifth faster than all cores on one batch.
        """
        threads = torch.get_num_threads()
        if self.device.type != "cpu" or threads == 1 or len(plan) < 2:
            yield from map(work, plan)
            return
        pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        try:
            waiting = iter(plan)
            running: set[Future] = {pool.submit(work, rows) for _, rows in zip(range(2 * threads), waiting)}
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(work, rows) for _, rows in zip(done, waiting)}
                for finished in done:
                    yield finished.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # all is done, or the caller stopped
            torch.set_num_threads(threads)


def load_model(run: RunFolder, config: Config) -> tuple[TranslationModel, Tokenizer]:
    """The model of a run, on the CPU, and its tokenizer."""
    weights, tokenizer = run.weights(), run.tokenizer()
    sizes = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    model = build_model(
        config.model,
        *sizes,
        tokenizer.shared,
        config.data.max_length,
        config.train.guided_alignment.guided_layer,
    )
    try:
        load_model_weights(model, weights, str(run.weights_file))
    except CheckpointError as error:
        raise WorkError(f"{error}; copy the run's folder again, or resume the training") from None
    return model, tokenizer


def _prompted(
    step: Step[Any], state: Any, prompts: Sequence[Sequence[int]], bos: int, device: torch.device
) -> tuple[Any, Tensor | None]:
    """Returns (state, token): the state after BOS and all but the last token of each sentence's prompt, and
    the last tokens, (B,). Without prompts, `state` is unchanged and the token is None.
    """
    if not prompts[0]:
        return state, None
    given = torch.tensor(prompts, device=device)  # (B, P)
    seen = torch.cat([torch.full_like(given[:, :1], bos), given], dim=1)
    for tokens in seen[:, :-1].unbind(1):
        _, state = step(tokens, state)
    return state, seen[:, -1]
