"""Muon's orthogonal matrices, computed by all ranks together: each makes those of its share of the matrices.

Alone, each rank would compute all of them. What sharing costs is sending each number of the matrices once
more (two bytes in bfloat16), with sharded matrices twice.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.training.update.orthogonal import orthogonal


def gathered_orthogonal(matrices: Tensor, dtype: torch.dtype, first_rank: int = 0) -> Tensor:
    """[N, A, B], the same on each rank -> the same shape in `dtype`, the same on each rank. The first ones
    are made by `first_rank`. A collective operation.
    """
    ranks = dist.get_world_size()
    per_rank = -(-len(matrices) // ranks)
    first = (dist.get_rank() - first_rank) % ranks * per_rank
    of_rank = matrices[first : first + per_rank].to(dtype)
    shares_NAB = of_rank.new_zeros(per_rank * ranks, *matrices.shape[1:])
    share_NAB = of_rank.new_zeros(per_rank, *matrices.shape[1:])
    if len(of_rank):
        share_NAB[: len(of_rank)] = orthogonal(of_rank)
    dist.all_gather_into_tensor(shares_NAB, share_NAB)
    return shares_NAB.roll(-first_rank * per_rank, 0)[: len(matrices)]


def sharded_orthogonal(matrices: Tensor, num_rows: int, dtype: torch.dtype, first_rank: int = 0) -> Tensor:
    """This rank's rows of N matrices of `num_rows` rows [N, rows, B] -> the same shape in `dtype`. The first
    ones are made by `first_rank`. A collective operation.

    Two exchanges: first every rank gets all rows of its share of the matrices, then each gets its rows of
    the results.
    """
    ranks, num_own_rows = dist.get_world_size(), matrices.size(1)
    most_rows, per_rank = -(-num_rows // ranks), -(-len(matrices) // ranks)
    local = matrices.to(dtype)
    # (R, N/R, rows, B): the first dimension is the rank that receives, afterwards the rank that sent.
    shape = (ranks, per_rank, most_rows, local.size(2))
    sent = F.pad(local, (0, 0, 0, most_rows - num_own_rows, 0, ranks * per_rank - len(matrices))).view(shape)
    whole = _exchanged(sent.roll(first_rank, 0)).transpose(0, 1).flatten(1, 2)[:, :num_rows]
    made = F.pad(orthogonal(whole), (0, 0, 0, ranks * most_rows - num_rows))
    rows = _exchanged(made.view(per_rank, ranks, most_rows, -1).transpose(0, 1)).roll(-first_rank, 0)
    return rows.flatten(0, 1)[: len(matrices), :num_own_rows]


def _exchanged(sent: Tensor) -> Tensor:
    """`sent[r]` goes to rank r; the result's r-th part came from rank r."""
    received = torch.empty_like(sent, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, sent.contiguous())
    return received
