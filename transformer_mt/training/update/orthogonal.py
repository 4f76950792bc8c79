"""The orthogonal matrices nearest to given ones, about, for Muon's steps.

Letters: N matrices, A rows and B columns of each, A <= B.
"""

import torch
from torch import Tensor

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
    """[N, A, B] or [N, B, A] -> the same shape: the singular values are brought near 1, all that are at least
    1 % of a norm.

    Four iterations X <- a X + b (X Xᵀ) X + c (X Xᵀ)² X. The norm is (sum of sigma⁴)^¼, the largest singular
    value or a little more, which comes with the first product. With the usual one, (sum of sigma²)^½, the
    values would begin smaller by up to A^¼, and need another iteration.
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
