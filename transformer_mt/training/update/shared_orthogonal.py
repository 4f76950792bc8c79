"""Muon's orthogonal matrices, computed by all ranks together: each makes those of its share of the matrices.

Alone, each rank would compute all of them. What sharing costs is sending each number of the matrices once
more (two bytes in bfloat16), with sharded matrices twice.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.training.parallel.sharding import local_rows
from transformer_mt.training.update.orthogonal import orthogonal


def gathered_orthogonal(matrices: Sequence[Tensor], dtype: torch.dtype, first_rank: int = 0) -> Tensor:
    """N matrices (A, B), the same on each rank -> [N, A, B] in `dtype`, the same on each rank. The first ones
    are made by `first_rank`. A collective operation.
    """
    ranks = dist.get_world_size()
    each = -(-len(matrices) // ranks)
    first = (dist.get_rank() - first_rank) % ranks * each
    mine = [matrix.to(dtype) for matrix in matrices[first : first + each]]
    shares_NAB = matrices[0].new_zeros(each * ranks, *matrices[0].shape, dtype=dtype)
    share_NAB = shares_NAB.new_zeros(each, *matrices[0].shape)
    if mine:
        share_NAB[: len(mine)] = orthogonal(torch.stack(mine))
    dist.all_gather_into_tensor(shares_NAB, share_NAB)
    return shares_NAB.roll(-first_rank * each, 0)[: len(matrices)]


def sharded_orthogonal(matrices: Sequence[Tensor], dtype: torch.dtype, first_rank: int = 0) -> Tensor:
    """N matrices (A, B), of which each rank has some rows (DTensor) -> [N, rows, B] in `dtype`, the rows of
    this rank. The first ones are made by `first_rank`. A collective operation.

    Two exchanges: first every rank gets all rows of its share of the matrices, then each gets its rows of
    the results.
    """
    ranks, num_rows = dist.get_world_size(), matrices[0].size(0)
    most_rows, each = -(-num_rows // ranks), -(-len(matrices) // ranks)
    local = torch.stack([local_rows(matrix).to(dtype) for matrix in matrices])
    mine = local.size(1)
    # (R, N/R, rows, B): the first dimension is the rank that receives, afterwards the rank that sent.
    shape = (ranks, each, most_rows, local.size(2))
    sent = F.pad(local, (0, 0, 0, most_rows - mine, 0, ranks * each - len(matrices))).view(shape)
    whole = _exchanged(sent.roll(first_rank, 0)).transpose(0, 1).flatten(1, 2)[:, :num_rows]
    made = F.pad(orthogonal(whole), (0, 0, 0, ranks * most_rows - num_rows))
    rows = _exchanged(made.view(each, ranks, most_rows, -1).transpose(0, 1)).roll(-first_rank, 0)
    return rows.flatten(0, 1)[: len(matrices), :mine]


def _exchanged(sent: Tensor) -> Tensor:
    """`sent[r]` goes to rank r; the result's r-th part came from rank r."""
    received = torch.empty_like(sent, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, sent.contiguous())
    return received
