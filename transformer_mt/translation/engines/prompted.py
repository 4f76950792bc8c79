"""Scores and attention of pairs whose target follows a prompt, such as the piece of its language."""

from collections.abc import Sequence

from transformer_mt.translation.engines.engine import Engine, Ids


def token_log_probs(engine: Engine, prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
    """For each (source, target), without EOS, the log-probability of each target token and of EOS after them,
    given the prompt.
    """
    of_pairs = engine.token_log_probs(_with_prompt(prompt, pairs))
    return [log_probs[len(prompt) :] for log_probs in of_pairs] if prompt else of_pairs


def cross_attention(engine: Engine, prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
    """For each (source, target), without EOS, how much each target token attends to each source token."""
    of_pairs = engine.cross_attention(_with_prompt(prompt, pairs))
    return [rows[len(prompt) :] for rows in of_pairs] if prompt else of_pairs


def _with_prompt(prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> Sequence[tuple[Ids, Ids]]:
    return [(src, [*prompt, *tgt]) for src, tgt in pairs] if prompt else pairs
