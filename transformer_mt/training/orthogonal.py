"""The orthogonal matrices nearest to given ones, about, for Muon's steps.

Letters: N matrices, A rows and B columns of each, A <= B.
"""

import torch
from torch import Tensor

# (a, b, c) of three polynomials a x + b x³ + c x⁵, each applied to the result of the one before. Together
# they are the best such approximation of 1 between 0.02 and 1, to within 0.093 (Amsel et al. 2025, Polar
# Express, theorem 3.1).
POLYNOMIALS = ((7.7110, -22.1138, 16.2487), (3.2153, -2.4112, 0.5013), (2.2183, -1.5940, 0.4107))

# In bfloat16 a norm may come out too small by half a percent, and the first polynomial is steep beyond 1.
_ROUNDING = 1.02

# From this ratio of the sides on, iterating on the Gram matrix takes less arithmetic.
_LONG = 2


def orthogonal(matrices: Tensor) -> Tensor:
    """[N, A, B] or [N, B, A] -> the same shape: the singular values are brought near 1, all that are at least
    2 % of a norm.

    Three iterations X <- a X + b (X Xᵀ) X + c (X Xᵀ)² X. The norm is (sum of sigma⁴)^¼, the largest singular
    value or a little more, which comes with the first product. With the usual one, (sum of sigma²)^½, the
    values would begin smaller by up to A^¼, and need two more iterations.
    """
    is_wide = matrices.size(1) <= matrices.size(2)
    x_NAB = matrices if is_wide else matrices.mT
    x_NAB = x_NAB / x_NAB.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # so that no square is too small
    gram_NAA = x_NAB @ x_NAB.mT
    norm_squared = _ROUNDING * gram_NAA.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    x_NAB, gram_NAA = x_NAB / norm_squared.sqrt(), gram_NAA / norm_squared
    iterate = _by_gram_matrix if x_NAB.size(2) >= _LONG * x_NAB.size(1) else _by_matrix
    x_NAB = iterate(x_NAB, gram_NAA)
    return x_NAB if is_wide else x_NAB.mT


def orthogonal_flops(a: int, b: int) -> float:
    """Arithmetic of `orthogonal` for one matrix of a <= b rows and columns."""
    long_products, short_products = (2, 10) if b >= _LONG * a else (6, 3)
    return 2.0 * (long_products * a * a * b + short_products * a**3)


def _by_matrix(x_NAB: Tensor, gram_NAA: Tensor) -> Tensor:
    for i, (a, b, c) in enumerate(POLYNOMIALS):
        gram_NAA = x_NAB @ x_NAB.mT if i else gram_NAA
        even_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)
        x_NAB = torch.baddbmm(x_NAB, even_NAA, x_NAB, beta=a)
    return x_NAB


def _by_gram_matrix(x_NAB: Tensor, gram_NAA: Tensor) -> Tensor:
    """X <- P X makes X Xᵀ into P (X Xᵀ) P. So the product of all P is found without X."""
    product_NAA = torch.eye(gram_NAA.size(1), dtype=gram_NAA.dtype, device=gram_NAA.device).expand_as(
        gram_NAA
    )
    for i, (a, b, c) in enumerate(POLYNOMIALS):
        even_NAA = torch.baddbmm(gram_NAA, gram_NAA, gram_NAA, beta=b, alpha=c)  # P is this plus a I
        product_NAA = torch.baddbmm(product_NAA, even_NAA, product_NAA, beta=a)
        if i + 1 < len(POLYNOMIALS):
            half_NAA = torch.baddbmm(gram_NAA, even_NAA, gram_NAA, beta=a)
            gram_NAA = torch.baddbmm(half_NAA, half_NAA, even_NAA, beta=a)
    return product_NAA @ x_NAB
