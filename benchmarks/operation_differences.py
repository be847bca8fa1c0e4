"""Operations in which the simulated GPU and CUDA are known to differ, and why.

The comparison ends red for one that is not here, and for one that has become equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


DIFFERENCES: Final[Mapping[str, str]] = {}
"""By operation: what in torch's source makes the difference."""

UNJUDGED: Final[Mapping[str, str]] = {}
"""By operation: why one side, or both, cannot be asked."""
