"""What is inside a ghost: values on the host, or only sizes where values do not fit.

Without values an operation runs on torch's meta device: sizes, dtypes and lifetimes are
those of the real one, and what is read is a guess. A model of any size is measured so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any
from typing import Final

import torch

from ...errors import StepError
from .host_memory import available_bytes


MIB: Final = 2**20

CPU: Final = torch.device("cpu")
META: Final = torch.device("meta")

RESERVE: Final = 0.15
"""Share of the memory found free at the start that values must leave free."""

MOST_UNCHECKED_BYTES: Final = 256 * MIB
"""Bytes after which the host is asked again how much is left."""


NO_MEMORY: Final = "DefaultCPUAllocator: "
"""What torch's errors say of memory that the host refused."""


class Insides:
    """Whether new ghosts hold values, and what the host can still hold of them.

    ``switched`` says, once, why values were given up.
    """

    def __init__(self) -> None:
        self.hold_values = True
        self.switched: str | None = None
        self._may_switch = True
        self._available: Callable[[], int | None] = available_bytes
        self._reserve = 0
        self._unchecked = MOST_UNCHECKED_BYTES

    @property
    def device(self) -> Any:
        """Where the inside of a new ghost is made."""
        return CPU if self.hold_values else META

    def begin(
        self,
        values: bool | None,  # noqa: FBT001, three answers
        available: Callable[[], int | None] = available_bytes,
    ) -> None:
        """Hold values, or none, or (``None``) values as long as they fit."""
        self.hold_values = values is not False
        self.switched = None
        self._may_switch = values is None
        self._available = available
        self._reserve = int(RESERVE * (available() or 0))
        self._unchecked = MOST_UNCHECKED_BYTES

    def made(self, nbytes: int) -> None:
        """Count *nbytes* that an operation has made; now and then ask the host."""
        self._unchecked -= nbytes
        if self._unchecked < 0 and self.hold_values:
            self.expect(0)

    def expect(self, nbytes: int) -> None:
        """Give values up if *nbytes* more of them would not fit.

        Raises ``StepError`` where the user has asked for them.
        """
        if not self.hold_values or 0 < nbytes < self._unchecked:
            return
        left = self._available()
        self._unchecked = MOST_UNCHECKED_BYTES
        if left is None or left - self._reserve > nbytes + MOST_UNCHECKED_BYTES:
            return
        self._give_up(left)

    def expect_product(self, args: Sequence[Any]) -> None:
        """Expect the product of the last two matrices among *args*.

        It may be far larger than both, as nothing else that a model makes of its own
        tensors.
        """
        matrices = [t for t in args if isinstance(t, torch.Tensor) and t.dim() > 1]
        if self.hold_values and len(matrices) > 1:
            left, right = matrices[-2:]
            rows = left.numel() // max(1, left.shape[-1])
            self.expect(max(1, rows * right.shape[-1] * left.element_size()))

    def give_up_after(self, error: RuntimeError) -> bool:
        """Give values up if *error* says that the host had no memory for them."""
        if not self.hold_values or NO_MEMORY not in str(error):
            return False
        self._give_up(self._available() or 0)
        return True

    def _give_up(self, left: int) -> None:
        told = (
            f"values on the pretend GPU need more than the {left // MIB} MiB of memory "
            "that this host has left"
        )
        if not self._may_switch:
            msg = f"{told}: leave out values=True, or run it on less"
            raise StepError(msg)
        self.hold_values = False
        self.switched = f"{told}: from there on it runs without values"

    def expect_sizes(self, args: Sequence[Any], dtype: Any) -> None:
        """Expect what a function that takes sizes, or one sequence of them, will make."""
        if self.hold_values:
            sizes = args[0] if args and isinstance(args[0], (list, tuple)) else args
            numbers = [size for size in sizes if isinstance(size, int)]
            itemsize = (dtype or torch.get_default_dtype()).itemsize
            self.expect(math.prod(numbers) * itemsize)


INSIDES: Final = Insides()
"""One a process, as there is one device."""


@contextmanager
def holding(values: bool | None) -> Iterator[None]:  # noqa: FBT001, three answers
    """Hold values inside, or not; see ``Insides.begin``."""
    before = INSIDES.__dict__.copy()
    INSIDES.begin(values)
    try:
        yield
    finally:
        INSIDES.__dict__.update(before)
