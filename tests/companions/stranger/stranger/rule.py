"""A rule of the search."""

import torch

from transformer_mt.search.rules import Rule


class NoDigits(Rule):
    """Translations have no digits."""

    def __init__(self, tokenizer, device):
        super().__init__(tokenizer, device)
        digits = [any(map(str.isdigit, text)) for text in tokenizer.all_pieces_tgt]
        self.has_digit_V = torch.tensor(digits, device=device)

    def __call__(self, tokens, log_probs, sentences):
        log_probs.masked_fill_(self.has_digit_V, -torch.inf)
