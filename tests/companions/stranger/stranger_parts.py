"""An attention score, a loss, a stage of translation and a command."""

from dataclasses import replace

from transformer_mt.model.variants.attention_scores import Score
from transformer_mt.training.update.loss_kinds import Loss
from transformer_mt.translation.stages.stage import Stage


class Sigmoid(Score):
    """log sigmoid(q · k): large scores saturate."""

    def __init__(self, num_heads, head_width):
        super().__init__()

    def forward(self, q_BHTK, k_BHSK):
        return (q_BHTK @ k_BHSK.transpose(-2, -1)).sigmoid().log()


class Focal(Loss):
    """(1 - p)^2 -log p (Lin et al. 2017, equation 4): tokens that are right already count less."""

    def __call__(self, batch, forward):
        predicted = forward(batch)
        nll_R = predicted.nll()
        return ((1 - (-nll_R).exp()) ** 2 * nll_R).sum(), nll_R.detach().sum()


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
