"""A few numbers for a tensor, from which two processes see how far two are apart.

Each is a sum of all its numbers with signs that are drawn once and for all: the "tug of
war" sketch of Alon, Matias and Szegedy (1996), which keeps distances as Johnson and
Lindenstrauss (1984) show. The mean of the squares of ``SUMS`` of them estimates the
square of the norm, so the norm of a difference is off by 1 / sqrt(2 * 16), 18 %, one time
in three. A sign is the product of that of a row and that of a column (Indyk and McGregor,
2008), which takes one multiplication of matrices; where all of a tensor is one row times
one column, the estimate is off by twice as much.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from typing import Final

from ..model.training import Sketch
from .same_training import numbers_of


SUMS: Final = 16
COLUMNS: Final = 4096
ROWS: Final = 32
"""Rows of a block: what is copied at a time is 1 MiB, which a cache holds."""


def sketch_of(tensor: Any) -> Sketch:
    """Return the sketch of *tensor*, wherever it is and whatever its type is."""
    return of_numbers(numbers_of(tensor), tuple(tensor.shape))


def of_numbers(vector: Any, shape: tuple[int, ...] | None = None) -> Sketch:
    """Return the sketch of a dense *vector* of real numbers on the host."""
    import torch

    shape = (len(vector),) if shape is None else shape
    norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
    if not torch.isfinite(torch.tensor(norm)):
        return Sketch(shape=shape, finite=False)
    return Sketch(shape=shape, norm=norm, sums=tuple(_sums(vector).tolist()))


def _sums(vector: Any) -> Any:
    """Sum up; few numbers are kept as they are, so that nothing of them is lost."""
    import torch

    if len(vector) <= SUMS:
        return vector.double()
    columns = _signs(0, COLUMNS).T
    total = torch.zeros(SUMS, dtype=torch.float64, device="cpu")
    for number, block in enumerate(vector.split(ROWS * COLUMNS), start=1):
        filled = torch.nn.functional.pad(block.double(), (0, -len(block) % COLUMNS))
        rows = filled.reshape(-1, COLUMNS) @ columns
        total += (rows * _signs(number, ROWS)[:, : len(rows)].T).sum(dim=0)
    return total


@cache
def _signs(seed: int, length: int) -> Any:
    """Draw what every process draws, from a generator of our own."""
    import torch

    generator = torch.Generator("cpu").manual_seed(seed)
    size = {"size": (SUMS, length), "device": "cpu", "dtype": torch.float64}
    return torch.randint(0, 2, generator=generator, **size) * 2 - 1
