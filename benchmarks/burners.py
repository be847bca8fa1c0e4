"""Processes that compute without end, beside what is measured."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final


BURN: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
"""Ends with its parent, however that ends."""


@contextmanager
def burning(burners: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(burners)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
