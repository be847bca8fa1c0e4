"""Where every source of random numbers stands that a step may draw from."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomState:
    """States of Python, torch with its CUDA devices, and NumPy, where it is loaded."""

    python: Any
    torch: Any = None
    cuda: Any = None
    numpy: Any = None

    @classmethod
    def now(cls) -> RandomState:
        """Read them all, loading nothing for the question."""
        torch: Any = sys.modules.get("torch")
        numpy: Any = sys.modules.get("numpy.random")
        return cls(
            python=random.getstate(),
            torch=None if torch is None else torch.get_rng_state(),
            cuda=torch.cuda.get_rng_state_all() if _has_cuda(torch) else None,
            numpy=None if numpy is None else numpy.get_state(legacy=False),
        )

    def restore(self) -> None:
        """Go on from here; a source that was not loaded then keeps its state."""
        random.setstate(self.python)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)
        if self.cuda is not None:
            sys.modules["torch"].cuda.set_rng_state_all(self.cuda)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)


def _has_cuda(torch: Any) -> bool:
    return torch is not None and bool(torch.cuda.is_initialized())
