"""A recurrence in place of the decoder's self-attention: `model.autoregression: ssru`.

Letters: B sentences, T target length, D width, W hypotheses of a sentence, E entries of its cache.
"""

import torch
from torch import Tensor, nn

from transformer_mt.model.state import DecoderState


class SSRU(nn.Module):
    """The simpler simple recurrent unit (Kim et al. 2019, section 3.1):

        f_t = sigmoid(W_f x_t + b_f),   c_t = f_t * c_(t-1) + (1 - f_t) * W x_t,   output relu(c_t)

    Its cell is all that a step has to know of the target so far.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(d_model, d_model, bias=False)
        self.forget = nn.Linear(d_model, d_model)

    def forward(self, x_BTD: Tensor, self_mask: Tensor | None = None) -> Tensor:
        """All positions at once, as in training. `self_mask` (B, 1, T, T) is the mask of packed rows, where a
        sentence begins with the first position that may not attend to the one before.
        """
        keep, new = self._gates(x_BTD)
        if self_mask is not None:
            continues = self_mask[:, 0].diagonal(offset=-1, dim1=1, dim2=2)  # (B, T - 1)
            keep = torch.cat([keep[:, :1], keep[:, 1:] * continues[..., None]], dim=1)
        return linear_recurrence(keep, new).relu().to(x_BTD.dtype)

    def step(self, x_BWD: Tensor, cells_BED: Tensor, state: DecoderState) -> tuple[Tensor, Tensor]:
        """One position of each hypothesis -> (B, W, D) its cell, and the output. `cells_BED` are the cells of
        the entries so far.
        """
        keep, cell = self._gates(x_BWD)
        if state.length > 1:
            parents = state.parents[..., None].expand(-1, -1, cells_BED.size(-1))
            cell = cell + keep * cells_BED.gather(1, parents)
        return cell, cell.relu().to(x_BWD.dtype)

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """How much of the cell is kept, and what is added to it; in float32, as sums over many positions."""
        forget = self.forget(x).float().sigmoid()
        return forget, (1 - forget) * self.candidate(x).float()


def linear_recurrence(keep: Tensor, new: Tensor) -> Tensor:
    """c_t = keep_t * c_(t-1) + new_t along the second axis, from c = 0. The number of positions summed
    doubles in each round (Hillis and Steele 1986), so T positions take log2(T) rounds instead of T.
    """
    reach = 1
    while reach < new.size(1):
        new = torch.cat([new[:, :reach], new[:, reach:] + keep[:, reach:] * new[:, :-reach]], dim=1)
        keep = torch.cat([keep[:, :reach], keep[:, reach:] * keep[:, :-reach]], dim=1)
        reach *= 2
    return new
