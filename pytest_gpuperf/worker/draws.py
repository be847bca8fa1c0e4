"""The random numbers of a test: others in each run, the same in that run of the next session.

Runs are forked from one process. Without a seed of its own each would inherit the same
state, and draw what the others draw: that they agree would prove nothing.
"""

from __future__ import annotations

import os
import random
import sys
from zlib import crc32


def seed_of(test: str, run: int, base: int) -> int:
    """Return where the draws of a *run*, counted from 0, of *test* begin, below 2**32.

    Another *base* gives others. Each rank draws its own, as it does without us.
    """
    rank = os.environ.get("RANK", "0")
    return crc32(f"{base} {run} {rank} {test}".encode())


def begin(seed: int) -> None:
    """Seed Python's ``random``, and of numpy and torch what has been imported."""
    random.seed(seed)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Not torch.manual_seed: its first call imports the compiler.
        torch.default_generator.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
