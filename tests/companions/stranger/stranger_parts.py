"""An attention score, a loss, a stage of translation and a command."""

from dataclasses import replace

from transformer_mt.model.variants.attention_scores import Score
from transformer_mt.settings.section import Section
from transformer_mt.training.update.loss_kinds import Loss
from transformer_mt.translation.stages.stage import Stage


class Sigmoid(Score):
    """log sigmoid(q · k): large scores saturate."""

    def __init__(self, num_heads, head_width):
        super().__init__()

    def forward(self, q_BHTK, k_BHSK):
        return (q_BHTK @ k_BHSK.transpose(-2, -1)).sigmoid().log()


class Focal(Loss):
    """(1 - p)^gamma times -log p (Lin et al. 2017, equation 4): tokens that are right already count less."""

    class Settings(Section):
        gamma: float = 2.0

    def __call__(self, batch, forward):
        return forward(batch).summed(self.of_tokens)

    def of_tokens(self, targets, log_probs):
        nll = -log_probs.gather(1, targets[:, None])[:, 0]
        return (1 - (-nll).exp()) ** self.settings.gamma * nll


class Vowels(Stage):
    """Reports how many vowels a translation has."""

    def finish(self, line, result):
        count = sum(letter in "aeiou" for letter in result.translation.lower())
        return replace(result, problems=[*result.problems, f"{count} vowels"])


def add_arguments(parser):
    parser.add_argument("text", nargs="+")
    parser.set_defaults(command=_count)


def _count(arguments):
    print(sum(map("".join(arguments.text).count, "aeiou")))
