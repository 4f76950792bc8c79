"""Losses that compare two passes of a model, or a model with its teacher."""

from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Batch
from transformer_mt.data.vocabulary.given_tokenizer import given_tokenizer
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.run_folder import open_model, parent_of
from transformer_mt.settings.section import Probability, Section
from transformer_mt.translation.engines.torch_engine import load_model
from transformer_mt.update.loss import CrossEntropy, Forward, Loss, Predictions
from transformer_mt.update.step import Objective


class RDrop(Loss):
    """Half of the paper's loss, so that it is as large as the loss of one pass: the mean of the smoothed
    cross-entropies of both passes, plus half of `weight` times the mean of both divergences.
    """

    class Settings(Section):
        """Keys of r_drop."""

        weight: float = Field(5.0, ge=0.0)
        """The paper's alpha."""

    settings: Settings

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        first = forward(batch)
        if not self.settings.weight:
            return first.cross_entropy(self.config.label_smoothing)
        return first.summed(partial(self._of_tokens, first), forward(batch))

    def _of_tokens(
        self, predictions: Predictions, targets_C: Tensor, log_p_CV: Tensor, log_q_CV: Tensor
    ) -> Tensor:
        smoothing = self.config.label_smoothing
        nll_C = sum(predictions.smoothed_nll(targets_C, log_CV, smoothing) for log_CV in (log_p_CV, log_q_CV))
        # KL(p, q) + KL(q, p)
        divergence_C = ((log_p_CV.exp() - log_q_CV.exp()) * (log_p_CV - log_q_CV)).sum(dim=-1)
        return nll_C / 2 + self.settings.weight / 4 * divergence_C


class SimCut(Loss):
    """Smoothed cross-entropy plus `weight` times KL(p, q), where p is predicted from the whole sentences and
    q from sentences with tokens cut off on both sides. The gradient goes through both, which the paper found
    to be better.
    """

    class Settings(Section):
        """Keys of simcut."""

        weight: float = Field(3.0, ge=0.0)
        """The paper's alpha."""
        cut_off: Probability = 0.05
        """Share of the tokens that are cut off."""

    settings: Settings

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        whole = forward(batch)
        if not self.settings.weight:
            return whole.cross_entropy(self.config.label_smoothing)
        cut = forward(batch, cut_off=self.settings.cut_off)
        return whole.summed(partial(self._of_tokens, whole), cut)

    def _of_tokens(self, whole: Predictions, targets_C: Tensor, log_p_CV: Tensor, log_q_CV: Tensor) -> Tensor:
        nll_C = whole.smoothed_nll(targets_C, log_p_CV, self.config.label_smoothing)
        divergence_C = (log_p_CV.exp() * (log_p_CV - log_q_CV)).sum(dim=-1)
        return nll_C + self.settings.weight * divergence_C


class TokenDistillation(Loss):
    """(1 - weight) times the smoothed cross-entropy, plus `weight` times the cross-entropy with the teacher's
    probabilities.
    """

    class Settings(Section):
        """Keys of token_distillation."""

        teacher: str
        """The folder of the teacher's run, which has the same vocabulary."""
        weight: float = Field(0.5, ge=0.0, le=1.0)
        """The paper's alpha."""

    settings: Settings
    _teacher: Objective

    def facts(self) -> dict[str, str]:
        weights = open_model(self.settings.teacher).weights_digest()
        return {} if weights is None else {f"the weights of the teacher {self.settings.teacher}": weights}

    def check(self, config: Config) -> None:
        run = open_model(self.settings.teacher)
        run.check_weights()
        own: Tokenizer | None = parent_of(config).tokenizer() if config.init_from else given_tokenizer(config)
        if own is None or own.fingerprint != run.tokenizer().fingerprint:
            key = "init_from to a model with that vocabulary" if config.init_from else "tokenizer.file to it"
            raise InputError(
                f"train.loss: token_distillation requires the vocabulary of {run}; set {key}, and give the "
                "corpora the tags of the teacher's corpora"
            )

    def start(self, config: Config, device: torch.device) -> None:
        run = open_model(self.settings.teacher)
        model, _ = load_model(run, run.config())
        self._teacher = Objective(model.eval().requires_grad_(False).to(device), CrossEntropy(0.0))

    def __call__(self, batch: Batch, forward: Forward) -> tuple[Tensor, Tensor]:
        student = forward(batch)
        if not self.settings.weight:
            return student.cross_entropy(self.config.label_smoothing)
        with torch.no_grad():
            teacher = self._teacher.predictions(batch)
        return student.summed(partial(self._of_tokens, student), teacher)

    def _of_tokens(
        self, student: Predictions, targets_C: Tensor, log_p_CV: Tensor, log_teacher_CV: Tensor
    ) -> Tensor:
        nll_C = student.smoothed_nll(targets_C, log_p_CV, self.config.label_smoothing)
        weight = self.settings.weight
        return (1 - weight) * nll_C - weight * (log_teacher_CV.exp() * log_p_CV).sum(dim=-1)
