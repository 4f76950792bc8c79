"""A loss of which tokens that are right already cost less."""

from transformer_mt.settings.section import Section
from transformer_mt.update.loss import Loss


class Focal(Loss):
    """(1 - p)^gamma times -log p (Lin et al. 2017, equation 4)."""

    class Settings(Section):
        """Keys of focal."""

        gamma: float = 2.0
        """0 is cross-entropy."""

    def __call__(self, batch, forward):
        return forward(batch).summed(self.of_tokens)

    def of_tokens(self, targets, log_probs):
        nll = -log_probs.gather(1, targets[:, None])[:, 0]
        return (1 - (-nll).exp()) ** self.settings.gamma * nll
