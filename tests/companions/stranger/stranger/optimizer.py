"""The optimizer Lion."""

import torch


class Lion(torch.optim.Optimizer):
    """Steps of one size, in the direction of an average of gradients (Chen et al. 2023, algorithm 2)."""

    def __init__(self, params, lr, weight_decay=0.0, betas=(0.9, 0.99)):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            (beta_1, beta_2), rate = group["betas"], group["lr"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                step = (beta_1 * average + (1 - beta_1) * weight.grad).sign()
                weight.mul_(1 - rate * group["weight_decay"]).sub_(rate * step)
                average.lerp_(weight.grad, 1 - beta_2)
