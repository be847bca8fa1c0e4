"""The pretend GPU and the real one say the same of the same code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from agreement import compared
from agreement_table import Row
from agreement_table import Standing
from agreement_table import differences


pytestmark = pytest.mark.gpu

LONG = "GPUPERF_OPINFO"
"""Environment variable that asks for what takes minutes."""


def disagreeing(rows: list[Row]) -> list[str]:
    """Print all that is not the same; return what must not be."""
    print(*differences(rows), sep="\n")  # noqa: T201, for who reads the output
    return [row.case for row in rows if row.standing is Standing.DIFFER]


def test_the_corpus_waits_alike_on_both(tmp_path: Path) -> None:
    assert disagreeing(compared("corpus", tmp_path)) == []


@pytest.mark.skipif(LONG not in os.environ, reason=f"long: set {LONG} to run it")
def test_torch_s_own_operations_wait_alike_on_both(tmp_path: Path) -> None:
    pytest.importorskip("expecttest", reason="torch.testing's database needs it")

    assert disagreeing(compared("opinfo", tmp_path)) == []
