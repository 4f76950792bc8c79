"""The losses: sums over the target tokens, never means.

Letters: R target tokens, D width, V vocabulary, B sentences, T target length, S source length.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.data.batches.batch import Links
from transformer_mt.model.interface import NEVER


def plain_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(R, D) outputs of the decoder, (V, D) weight and (V,) bias of the output projection, (R,) ids of the
    tokens that follow -> (loss, nll), both summed in float32.

    loss = (1 - e) nll + e * mean over the vocabulary of -log p (paper, section 5.4, e = `smoothing`), without
    the pieces whose bias is NEVER; only it has a gradient. Training computes it in chunks (chunked_loss.py),
    which tests compare with this.
    """
    if bias is not None:
        written = bias > NEVER / 2
        weight, bias, targets = weight[written], bias[written], (written.cumsum(0) - 1)[targets]
    logits = F.linear(hidden, weight, bias).float()
    loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    return loss, F.cross_entropy(logits.detach(), targets, reduction="sum")


def guided_alignment_loss(weights_BTS: Tensor, links: Links) -> Tensor:
    """Cross-entropy of the attention with the links (Garg et al. 2019, equation 4), summed over the target
    pieces that have one, in float32.
    """
    linked = weights_BTS[links.rows, links.tgt, links.src].float()
    return -(links.weights * linked.clamp_min(torch.finfo(torch.float32).tiny).log()).sum()
