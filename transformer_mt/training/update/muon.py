"""Muon, for the matrices of a model's layers."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from transformer_mt.training.update.orthogonal import orthogonal
from transformer_mt.training.update.sharding import is_sharded, local_rows
from transformer_mt.training.update.shared_orthogonal import gathered_orthogonal, sharded_orthogonal

# Maximum number of elements that are stacked for one step: enough to use the device fully, while the extra
# memory stays bounded.
_MAX_STACKED_ELEMENTS = 2**24


class Muon(torch.optim.Muon):
    """Muon (Jordan et al. 2024): steps along the orthogonalised momentum. Same as torch's, but batched: all
    matrices of one shape are processed together.

    A model has many matrices but few shapes. One at a time, they need about a thousand products, each too
    small to use the device well. `found_inf` works as in the fused AdamW: the device skips the step if the
    gradient is not finite, without a synchronisation.
    """

    found_inf: Tensor | None = None
    """Tensor on the device; if it is 1, the step changes nothing."""

    def __init__(
        self,
        matrices: list[nn.Parameter],
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        shared: bool = False,
    ) -> None:
        """`dtype` is that of the products; bfloat16 is enough for them, if the device has it. With `shared`
        each rank computes the steps of its share of the matrices, as it always does with sharded ones.
        """
        super().__init__(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._dtype, self._shared, self._next_rank = dtype, shared and dist.is_initialized(), 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            alike: defaultdict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            self._next_rank = 0
            for shape, parameters in alike.items():
                count = max(1, _MAX_STACKED_ELEMENTS // shape.numel())
                if is_sharded(parameters[0]):
                    count *= dist.get_world_size()
                elif self._shared:
                    count = max(count, dist.get_world_size())
                for start in range(0, len(parameters), count):
                    self._step(parameters[start : start + count], group)

    def _step(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices of the same shape."""
        rate, kept = group["lr"], 1 - group["lr"] * group["weight_decay"]
        # Scales the steps to a root mean square of about 0.2, like AdamW's, so that both optimizers can use
        # the same learning rate (Liu et al. 2025).
        rate = rate * (0.2 * max(parameters[0].shape) ** 0.5)  # not in place: it may be a tensor
        momenta = self._momenta(parameters, group["momentum"])
        steps = rate * self._orthogonal(momenta, parameters[0]).float()
        if self.found_inf is not None:
            kept = torch.where(self.found_inf.bool(), 1.0, kept)
            steps *= 1 - self.found_inf
        rows = [local_rows(parameter) for parameter in parameters]
        if group["weight_decay"]:
            torch._foreach_mul_(rows, kept)
        torch._foreach_sub_(rows, list(steps.unbind()))

    def _orthogonal(self, momenta: Tensor, like: Tensor) -> Tensor:
        """Orthogonalised momenta, [N, A, B] -> same shape; this rank's rows of both if `like` is sharded."""
        if is_sharded(like):
            return sharded_orthogonal(momenta, len(like), self._dtype, self._take_ranks(len(momenta)))
        if self._shared:
            return gathered_orthogonal(momenta, self._dtype, self._take_ranks(len(momenta)))
        return orthogonal(momenta.to(self._dtype))

    def _take_ranks(self, matrices: int) -> int:
        """Assign `matrices` matrices to the next ranks in turn. Returns the first of these ranks."""
        first, ranks = self._next_rank, dist.get_world_size()
        per_rank = -(-matrices // ranks)
        self._next_rank = (first + -(-matrices // per_rank)) % ranks
        return first

    def _momenta(self, parameters: list[Tensor], momentum: float) -> Tensor:
        """Nesterov momenta of the parameters, [N, A, B]; if they are sharded, the rows of this rank."""
        buffers = []
        for parameter in parameters:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            buffers.append(local_rows(state["momentum_buffer"]))
        gradients = torch.stack([local_rows(parameter.grad) for parameter in parameters])  # type: ignore[arg-type]
        means = torch.stack(buffers)
        if self.found_inf is not None:
            gradients = torch.where(self.found_inf.bool(), means, gradients)
        means.lerp_(gradients, 1 - momentum)
        torch._foreach_copy_(buffers, list(means.unbind()))
        return gradients.lerp_(means, momentum)
