"""The name of a file that keeps what was seen of a test."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final


READABLE: Final = 75
"""Characters of the test's own name: with its digest and a suffix they stay below 100."""


def file_name(test: str) -> str:
    """Return a name for every file system, its readable end first: no two tests share one."""
    readable = re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII)[-READABLE:].strip("-.")
    encoded = test.encode("utf-8", "surrogatepass")
    return "-".join(
        filter(None, (readable, blake2b(encoded, digest_size=4).hexdigest()))
    )
