"""The polynomials by which torch computes ``matrix_exp``, whose degree follows the norm.

The bounds of the norms and the coefficients are those of ``mexp`` in torch's
LinearAlgebra.cpp, after P. Bader, S. Blanes and F. Casas, "Computing the Matrix
Exponential with an Optimized Taylor Polynomial Approximation", Mathematics 7 (2019) 1174.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Final

import torch

from .operation import OpCall
from .sync_conditions import Condition
from .sync_conditions import one_matrix
from .sync_conditions import several_matrices


HIGHEST_DEGREE: Final = 18
"""Beyond the last bound the matrix is scaled, and the result squared; also that of a batch."""

DEGREES: Final = (1, 2, 4, 8, 12)
SINGLE_BOUNDS: Final = (1.1921e-07, 5.9789e-04, 5.1166e-02, 5.8005e-01, 1.4617)
DOUBLE_BOUNDS: Final = (2.2204e-16, 2.5810e-08, 3.3972e-04, 4.9912e-02, 2.9962e-01)

COEFFICIENTS: Final[Mapping[int, tuple[int, ...]]] = {
    4: (3, 4),
    8: (2, 4, 2, 5),
    12: (16,),
    18: (25,),
}
"""Numbers that are copied to the GPU, one copy each, by degree."""


def of_degree(degree: int) -> Condition:
    """The polynomial has this degree."""
    return lambda call: int(_degree(call) == degree)


def one_of_highest_degree(call: OpCall) -> int:
    """A single matrix of a large norm."""
    return one_matrix(call) and int(_degree(call) == HIGHEST_DEGREE)


def numbers(count: int) -> Condition:
    """Bytes of so many elements, or of their absolute values."""
    return lambda call: count * int(next(call.tensors()).element_size())


def two_places(_: OpCall) -> int:
    """Bytes of two indices."""
    return 2 * int(torch.int64.itemsize)


def _degree(call: OpCall) -> int:
    """The degree, or 0 if nothing is computed or the values are not known."""
    if several_matrices(call):
        return HIGHEST_DEGREE
    matrix = next(call.tensors())
    if not one_matrix(call) or matrix.inside.is_meta:
        return 0
    norm = _norm(matrix.inside)
    is_double = matrix.dtype in {torch.float64, torch.complex128}
    bounds = DOUBLE_BOUNDS if is_double else SINGLE_BOUNDS
    fitting = (d for d, most in zip(DEGREES, bounds, strict=True) if norm <= most)
    return next(fitting, HIGHEST_DEGREE)


def _norm(inside: Any) -> float:
    """The largest sum of absolute values of a column."""
    return float(inside.detach().abs().sum(-2).max())
