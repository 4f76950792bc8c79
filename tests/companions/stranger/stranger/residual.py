"""Another order of norm, sublayer and sum."""

from transformer_mt.model.transformer import Residual


class Sandwich(Residual):
    """x + norm(Sublayer(norm(x))) (Ding et al. 2021, section 2.3)."""

    final_norm = True

    def __init__(self, norm, dropout):
        super().__init__(norm, dropout)
        self.second_norm = norm()

    def forward(self, x, sublayer):
        return x + self.dropout(self.second_norm(sublayer(self.norm(x))))
