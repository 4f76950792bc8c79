"""The losses of `train.loss`: sums over the target tokens of a batch. The label-smoothed cross-entropy of
most trainings is computed in chunked_loss.py.

Letters: R target tokens, C target tokens of a chunk, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.companion import shown
from transformer_mt.config import Config, TrainConfig
from transformer_mt.data.batches.batch import Batch, Links
from transformer_mt.errors import InputError
from transformer_mt.model.interface import NEVER
from transformer_mt.settings.section import Section
from transformer_mt.update.chunked_loss import Formula, projected_cross_entropy, summed_formula


def plain_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(R, D) outputs of the decoder, (V, D) weight and (V,) bias of the output projection, (R,) ids of the
    tokens that follow -> (loss, nll), both summed in float32.

    loss = (1 - e) nll + e * mean over the vocabulary of -log p (paper, section 5.4, e = `smoothing`). Tokens
    whose bias is NEVER are left out. Only the loss has a gradient. Training computes it in chunks
    (chunked_loss.py); tests compare that code with this function.
    """
    if bias is not None:
        written = bias > NEVER / 2
        weight, bias, targets = weight[written], bias[written], (written.cumsum(0) - 1)[targets]
    logits = F.linear(hidden, weight, bias).float()
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    return loss, F.cross_entropy(logits.detach(), targets, reduction="sum")


def guided_alignment_loss(weights_BTS: Tensor, links: Links) -> Tensor:
    """Cross-entropy of the attention with the links (Garg et al. 2019, equation 4), summed over the target
    tokens that have one, in float32.
    """
    linked = weights_BTS[links.rows, links.tgt, links.src].float()
    return -(links.weights * linked.clamp_min(torch.finfo(torch.float32).tiny).log()).sum()


@dataclass(frozen=True)
class Predictions:
    """The outputs of the decoder at the target tokens of a batch, before their projection to logits."""

    hidden_RD: Tensor
    targets_R: Tensor
    """Ids of the tokens that follow."""
    output: nn.Linear
    is_real_R: Tensor | None
    """In a batch of fixed shape, False for targets that do not count; None in other batches."""
    compiled: bool

    def cross_entropy(self, smoothing: float) -> tuple[Tensor, Tensor]:
        """The label-smoothed loss and the nll, both summed, without all logits in memory at a time."""
        weight, bias = self.output.weight, self.output.bias
        return projected_cross_entropy(
            self.hidden_RD, weight, self.targets_R, smoothing, bias, self.is_real_R, self.compiled
        )

    def summed(self, formula: Formula, *others: "Predictions") -> tuple[Tensor, Tensor]:
        """Returns (loss, nll): the sum of `formula(targets_C, log_probs_CV, ...)` over the target tokens,
        with the log-probabilities of this pass and of `others`, and the nll of this pass. Never has all
        logits in memory at once.
        """
        passes = (self, *others)
        tensors = (tensor for one in passes for tensor in (one.hidden_RD, one.output.weight, one.output.bias))
        return summed_formula(formula, self.targets_R, self.is_real_R, *tensors)

    def smoothed_nll(self, targets_C: Tensor, log_probs_CV: Tensor, smoothing: float) -> Tensor:
        """(C,) label-smoothed losses, for use in a formula. Alone, `cross_entropy` is faster."""
        nll_C = -log_probs_CV.gather(1, targets_C[:, None])[:, 0]
        if not smoothing:
            return nll_C
        if self.output.bias is None:
            mean_C = log_probs_CV.mean(dim=-1)
        else:  # over the tokens that are written
            is_written_V = self.output.bias.detach() > NEVER / 2
            mean_C = (log_probs_CV * is_written_V).sum(dim=-1) / is_written_V.sum()
        return (1 - smoothing) * nll_C - smoothing * mean_C


class Forward(Protocol):
    """Computes the model."""

    def __call__(self, batch: Batch, /, cut_off: float = 0.0) -> Predictions:
        """`cut_off`: the share of tokens, of source and target, whose embeddings are zero in this pass."""


class Loss:
    """The base of the losses that `train.loss` names. Companions and programs bring subclasses."""

    class Settings(Section):
        """The keys below the name of the loss."""

    packed: ClassVar[bool] = True
    """Whether batches may hold several sentences in a row."""
    captured: ClassVar[bool] = True
    """Whether an update may be recorded as a CUDA graph. Not if the loss reads numbers from tensors."""

    def __init__(self, config: TrainConfig, settings: Any) -> None:
        """`settings` are of the class's own `Settings`."""
        self.config, self.settings = config, settings

    @classmethod
    def of(cls, config: TrainConfig, settings: Any) -> "Loss":
        """The loss of this config."""
        return cls(config, settings)

    def facts(self) -> dict[str, str]:
        """Digests of the files that the loss reads, keyed by a description of each; missing files are left
        out. A run is not resumed if a file has changed.
        """
        return {}

    def check(self, config: Config) -> None:
        """InputError if the loss does not fit the config, as far as is known before the data are prepared."""

    def start(self, config: Config, device: torch.device) -> None:
        """Slow set-up, such as loading another model; called once before the first update."""

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        """(loss, nll), both summed over the target tokens of the batch; only the loss has a gradient.

        `forward` computes the model, and may be called several times, also with a changed batch or with
        tokens cut off. The caller divides by the target tokens of the whole update.
        """
        raise NotImplementedError


def check_result(loss: Loss, result: Any, has_computed: bool) -> None:
    """InputError unless the result of a loss is (loss, nll), two numbers computed by its `forward`, of which
    the first has a gradient.
    """
    must = f"{shown(type(loss))} must return (loss, nll), two tensors of one number each"
    if not (isinstance(result, tuple) and len(result) == 2 and all(isinstance(x, Tensor) for x in result)):
        raise InputError(f"{must}, but returns {type(result).__name__}")
    if any(tensor.dim() for tensor in result):
        raise InputError(f"{must}, but returns shapes {[list(tensor.shape) for tensor in result]}")
    if not has_computed:
        raise InputError(f"{must}, computed by `forward`, but never calls it")
    if torch.is_grad_enabled() and not result[0].requires_grad:
        raise InputError(f"{must}; the loss needs a gradient, but it has none (is it detached?)")


class CrossEntropy(Loss):
    """Label-smoothed cross-entropy (paper, section 5.4)."""

    def __init__(self, smoothing: float) -> None:
        self._smoothing = smoothing

    @classmethod
    def of(cls, config: TrainConfig, settings: Any) -> "CrossEntropy":
        return cls(config.label_smoothing)

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        return forward(batch).cross_entropy(self._smoothing)
