"""A selection of hypotheses in beam search, for requests that want it."""

import torch

from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.search.beam import BestFirst


class AtLeast(BestFirst):
    """The usual beam, without hypotheses that end before they have a number of tokens."""

    needs_history = True

    def __init__(self, wanted, beam, tokenizer, device):
        super().__init__(beam, EOS)
        self.fewest_B = torch.tensor(wanted, device=device)

    def restrict(self, history, log_probs, raw):
        _, hypotheses, length = history.shape
        is_too_short = (self.fewest_B > length).repeat_interleave(hypotheses)
        log_probs[:, EOS] += torch.where(is_too_short, -torch.inf, 0.0)

    def keep(self, rows):
        self.fewest_B = self.fewest_B[rows]
