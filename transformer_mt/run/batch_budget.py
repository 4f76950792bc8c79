"""`train.batch_tokens: auto`: the largest budget of padded tokens whose update fits the memory of
the device.
"""

from collections.abc import Callable

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Batch, make_batch, make_packed_batch
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.device import choose_precision, free_memory, peak_memory, reset_peak
from transformer_mt.errors import WorkError
from transformer_mt.run.run import model_for
from transformer_mt.update.build_updater import adapt, build_trial_updater

_STEP = 512
# Largest budget: with larger batches an epoch has too few updates to learn from.
_MOST = 2**19


def largest_budget(measure: Callable[[int], int], limit: int, least: int, update_tokens: int = 0) -> int:
    """The largest number of tokens (`least` or a multiple of 512) for which `measure`, the peak memory in
    bytes, stays within `limit`. At most `update_tokens`, the tokens of a whole update, unless that is 0.

    An update's memory is a constant (weights, optimizer) plus a part proportional to its tokens. Two
    measurements give a linear estimate. The tokens are doubled, which improves the estimate, until it
    predicts that the next doubling would not fit. If a doubling does not fit although it was predicted to,
    memory does not grow linearly, and the result is found by measurements instead.
    """
    tokens, used, fits = least, measure(least), 2 * least
    most = update_tokens or _MOST
    if used > limit:
        return least
    while 2 * tokens <= min(fits, most):
        more = measure(2 * tokens)
        if more > limit:
            return _between(tokens, 2 * tokens, lambda middle: measure(middle) <= limit)
        slope = max((more - used) / tokens, 1.0)  # an earlier peak may hide the growth at first
        fits = int(tokens + (limit - used) / slope)
        tokens, used = 2 * tokens, more
    return most if least <= most <= fits else max(least, min(fits, most) // _STEP * _STEP)


def _between(fitting: int, too_many: int, fits: Callable[[int], bool]) -> int:
    """The largest number of tokens that fits, found by bisection to within an eighth."""
    while too_many - fitting > max(_STEP, fitting // 8):
        middle = (fitting + too_many) // 2 // _STEP * _STEP
        fitting, too_many = (middle, too_many) if fits(middle) else (fitting, middle)
    return fitting


def find_budget(config: Config, data: PreparedData, device: torch.device) -> int:
    """The largest budget for this config on this device, found by updates of a model that is then thrown
    away.
    """
    model = model_for(config, data.tokenizer)
    adapt(model, config.train)
    model = model.to(device)

    # Each rank tries its own sizes: none may wait for another's step.
    dtype = choose_precision(config.train.precision, device)
    updater = build_trial_updater(config, model, device, dtype, may_halve=False)
    limit = free_memory(device)

    def measure(tokens: int) -> int:
        reset_peak(device)
        try:
            shape = data.shape(tokens, data.longest)
            updater.update([trial_batch(config, tokens, data.longest, shape)], 1e-6).result()
        except (torch.OutOfMemoryError, WorkError):
            return 2 * limit
        return peak_memory(device)

    least = max(1024, config.data.max_length)
    return largest_budget(measure, limit, least, config.train.update_tokens)


def trial_batch(config: Config, tokens: int, longest: int, shape: RowShape) -> Batch:
    """The batch of `tokens` tokens that needs the most memory, packed in this shape, or padded."""
    if config.train.packed is not True:
        return longest_batch(longest, tokens)
    src, tgt = (Column.of([np.full(n - 1, 4)] * shape.rows) for n in (shape.src, shape.tgt))
    return make_packed_batch(src, tgt, np.arange(shape.rows), shape)


def longest_batch(longest: int, tokens: int) -> Batch:
    """The padded batch of `tokens` tokens with the longest sentences, which needs the most memory."""
    ids = np.full(longest - 1, 4)
    rows = [ids] * max(1, tokens // longest)
    return make_batch(rows, rows)
