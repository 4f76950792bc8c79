"""Adam, AdamW and Muon, and their state as named tensors."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import TrainConfig
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.device import choose_precision
from transformer_mt.model.interface import TranslationModel
from transformer_mt.update.sharding import copy_full, is_sharded, local_rows, on_cpu

# (a, b, c) of four polynomials a x + b x³ + c x⁵, each applied to the result of the one before. Together they
# are the best such approximation of 1 between 0.01 and 1, to within 0.013 (Amsel et al. 2025, Polar Express,
# theorem 3.1).
POLYNOMIALS = (
    (8.0934, -23.6204, 17.4462),
    (3.6366, -2.7219, 0.5365),
    (2.6613, -1.9772, 0.4526),
    (1.9562, -1.3375, 0.3839),
)

# In bfloat16 a norm may come out too small by half a percent, and the first polynomial is steep beyond 1.
_ROUNDING = 1.02


def orthogonal(matrices: Tensor) -> Tensor:
    """[N, A, B] or [N, B, A] -> the same shape. Brings near 1 all singular values that are at least 1 % of
    the norm.

    Runs four iterations X <- a X + b (X Xᵀ) X + c (X Xᵀ)² X. The norm is (sum of sigma⁴)^¼: it is the largest
    singular value or a little more, and the first product gives it. With the usual norm, (sum of sigma²)^½,
    the values would start smaller by a factor of up to A^¼ and need another iteration.
    """
    is_wide = matrices.size(1) <= matrices.size(2)
    x_NAB = matrices if is_wide else matrices.mT
    x_NAB = x_NAB / x_NAB.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # so that no square is too small
    gram_NAA = x_NAB @ x_NAB.mT
    norm_squared = _ROUNDING * gram_NAA.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x_NAB, gram_NAA = x_NAB / norm_squared.sqrt(), gram_NAA / norm_squared
    for i, (a, b, c) in enumerate(POLYNOMIALS):
        gram_NAA = x_NAB @ x_NAB.mT if i else gram_NAA
        even_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)
        x_NAB = torch.baddbmm(x_NAB, even_NAA, x_NAB, beta=a)
    return x_NAB if is_wide else x_NAB.mT


def gathered_orthogonal(matrices: Tensor, dtype: torch.dtype, first_rank: int = 0) -> Tensor:
    """Orthogonalise matrices [N, A, B] that are the same on each rank; each rank computes a share of them.
    Each returns all results, in `dtype`. `first_rank` computes the first share. A collective operation.
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
    """Orthogonalise N matrices of `num_rows` rows, which are sharded by rows. [N, rows, B], this rank's rows
    -> the same shape in `dtype`. `first_rank` computes the first share. A collective operation.

    Two exchanges: first, each rank receives all rows of its share of the matrices; then it receives its own
    rows of all results.
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


class Muon(torch.optim.Muon):
    """Muon (Jordan et al. 2024): steps along the orthogonalised momentum. Same as torch's, but batched: all
    matrices of one shape are processed together.

    A model has many matrices but few shapes. One at a time, they need about a thousand products, each too
    small to use the device well. `found_inf` works as in the fused AdamW: the device skips the step if the
    gradient is not finite, without a synchronisation.
    """

    found_inf: Tensor | None = None
    """Tensor on the device; if it is 1, the step changes nothing."""
    iteration = staticmethod(orthogonal)
    """Orthogonalises matrices (N, A, B)."""
    most_elements = 2**24
    """Elements of the matrices that are processed together: enough to use the device fully, while the extra
    memory stays bounded.
    """

    def __init__(
        self,
        matrices: list[nn.Parameter],
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        shared: bool = False,
    ) -> None:
        """`dtype`: the type in which products are computed; bfloat16 is precise enough, if the device has it.
        `shared`: each rank computes the steps of its share of the matrices. For sharded matrices this is
        always so.
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
                count = max(1, self.most_elements // shape.numel())
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
        return self.iteration(momenta.to(self._dtype))

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


class CombinedOptimizer(torch.optim.Optimizer):
    """Optimizers of different parameters as one: one list of groups, one state, one step.

    Like the fused AdamW, it skips the step if `found_inf` is set and equals 1.
    """

    found_inf: Tensor | None = None

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        fused = all(part.defaults.get("fused") or isinstance(part, Muon) for part in parts)
        super().__init__([group for part in parts for group in part.param_groups], {"fused": fused})
        self._parts = parts
        self._step_supports_amp_scaling = (
            fused  # if True, the gradient scaler sets `found_inf` instead of reading it
        )
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        for part in parts:
            first = {id(parameter) for group in part.param_groups for parameter in group["params"]}
            part.param_groups = [group for group in self.param_groups if id(group["params"][0]) in first]
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for part in self._parts:
            part.found_inf = self.found_inf  # type: ignore[attr-defined]
            part.step()


def build_optimizer(model: TranslationModel, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer of `train.optimizer` over all parameters. If its class has a classmethod
    `of(model, config)`, as ours do, that builds it; otherwise it gets `groups` and the learning rate.
    """
    key = "train.optimizer"
    kind: Any = part_class("optimizer", config.optimizer, key, torch.optim.Optimizer)
    settings = part_settings(kind, config.optimizer, key)
    if hasattr(kind, "of"):
        made: torch.optim.Optimizer = kind.of(model, config, **settings)
        return made
    made = kind(groups(model.parameters(), config), lr=config.learning_rate, **settings)
    return made


def groups(parameters: Iterable[nn.Parameter], config: TrainConfig) -> list[dict[str, Any]]:
    """The trained parameters: matrices with weight decay, biases and norms without."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = {"params": [p for p in trained if p.dim() > 1], "weight_decay": config.weight_decay}
    others = {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}
    return [group for group in (matrices, others) if group["params"]]


def _adam_settings(groups: list[dict[str, Any]], config: TrainConfig) -> dict[str, Any]:
    beta_1, beta_2 = config.betas
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda", "mps")
    return {"lr": config.learning_rate, "betas": (beta_1, beta_2), "eps": config.eps, "fused": fused}


class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    @classmethod
    def of(cls, model: nn.Module, config: TrainConfig) -> "AdamW":
        of_model = groups(model.parameters(), config)
        return cls(of_model, **_adam_settings(of_model, config))


class Adam(torch.optim.Adam):
    """Adam (paper, section 5.3), whose weight decay is added to the gradient."""

    @classmethod
    def of(cls, model: nn.Module, config: TrainConfig) -> "Adam":
        of_model = groups(model.parameters(), config)
        return cls(of_model, **_adam_settings(of_model, config))


class MuonAndAdamW(CombinedOptimizer):
    """Muon for the matrices of the layers, AdamW for the rest."""

    @classmethod
    def of(cls, model: TranslationModel, config: TrainConfig) -> torch.optim.Optimizer:
        # Only matrices that turn one activation into another: a row of an embedding, or of the output
        # projection, is the vector of one token, and most of them get no gradient in an update.
        modules = [module for block in model.blocks for module in block.modules()]
        weights = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
        hidden = [p for p in model.parameters() if p.requires_grad and p.dim() > 1 and id(p) in weights]
        if not hidden or config.lora.rank:  # thin matrices are AdamW's
            return AdamW.of(model, config)
        # Without instructions for it, bfloat16 is many times slower than float32.
        fast = choose_precision("auto", hidden[0].device) == torch.bfloat16
        dtype = torch.bfloat16 if fast else torch.float32
        muon = Muon(hidden, config.learning_rate, config.weight_decay, dtype, config.share_muon)
        ids = {id(parameter) for parameter in hidden}
        rest = groups((p for p in model.parameters() if id(p) not in ids), config)
        return cls(muon, torch.optim.AdamW(rest, **_adam_settings(rest, config)))


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, keep: bool = True
) -> dict[str, Tensor]:
    """The moments and step counts of each parameter under `parameter/moment`; none on a rank that need not
    `keep` them. A collective operation.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    full = {
        f"{names[parameter]}/{key}": on_cpu(value, keep)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }
    return {name: tensor for name, tensor in full.items() if tensor is not None}


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        if name not in parameters:
            raise CheckpointError(f"the optimizer's state does not fit the model, which has no weight {name}")
        parameter = parameters[name]
        if value.dim():  # moments are sharded like their parameter; step counts are single numbers
            moment = torch.zeros_like(parameter)
            copy_full(moment, value)
            optimizer.state[parameter][key] = moment
        else:
            optimizer.state[parameter][key] = value.to(parameter.device)
