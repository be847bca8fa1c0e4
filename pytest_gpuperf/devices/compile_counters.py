"""Counters of torch.compile that stand still once compiling is over."""

from __future__ import annotations

import sys
from typing import Any


def compile_counters() -> tuple[int, ...]:
    """Compilations, compiled graphs and frames seen so far; zeros without dynamo.

    Dynamo is not imported for the question: a process that never loaded it never
    compiled. The list of compilations is a ring of 64 entries
    (``torch._dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT``), so its length alone
    would miss a later recompile; the frame count does not stop.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return (0, 0, 0)
    return (
        len(dynamo.get_compilation_metrics()),
        dynamo.counters["stats"]["unique_graphs"],
        dynamo.counters["frames"]["total"],
    )
