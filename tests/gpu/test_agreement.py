"""The simulated GPU and the real one say the same of the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import agreement_bytes
from agreement import compared
from agreement_table import KNOWN, Row, differences, unexplained


pytestmark = pytest.mark.gpu

OPERATIONS = Path(__file__).parents[2] / "benchmarks" / "agreement_operations.py"

KNOWN_OF = "2.13."
"""What the table of known differences is about."""

LONG = "GPUPERF_OPINFO"
"""Environment variable that asks for what takes minutes."""


SCRIPT = "GPUPERF_RESULTS"
"""Environment variable that benchmarks/gpu.sh sets, which compares all corpora and programs."""

once = pytest.mark.skipif(SCRIPT in os.environ, reason="gpu.sh compares all of them")


def disagreeing(rows: list[Row]) -> list[str]:
    """Print all that is not the same; return what must not be."""
    print(*differences(rows), sep="\n")  # noqa: T201, for who reads the output
    return [row.case for row in unexplained(rows, KNOWN["snippets"])]


@once
def test_the_corpus_waits_alike_on_both(tmp_path: Path) -> None:
    """The first of the corpora."""
    assert disagreeing(compared(tmp_path, only="main: ")) == []


def asked_about_operations(part: str) -> subprocess.CompletedProcess[str]:
    """Compare them in a process that has not begun to use CUDA, so that it can fork."""
    pytest.importorskip("expecttest", reason="torch.testing's database needs it")
    program = [sys.executable, "-W", "ignore", OPERATIONS]
    return subprocess.run(
        [*program, "--part", part],
        env=os.environ | {"GPUPERF_STUB_CLOCK": "off"},  # no kernel need take time
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.stub
@pytest.mark.skipif(
    not torch.__version__.startswith(KNOWN_OF), reason=f"known of torch {KNOWN_OF}"
)
def test_some_operations_of_torch_differ_as_is_known() -> None:
    """Each 24th; `make agreement` asks about all."""
    done = asked_about_operations("1/24")

    assert (done.stdout.strip(), done.returncode) == ("", 0)


@pytest.mark.skipif(LONG not in os.environ, reason=f"long: set {LONG} to run it")
def test_each_operation_of_torch_differs_as_is_known() -> None:
    done = asked_about_operations("1/1")

    assert (done.stdout.strip(), done.returncode) == ("", 0)


@once
@pytest.mark.stub
def test_the_memory_of_a_step_is_predicted_to_the_byte() -> None:
    """One program that takes a second."""
    rows = agreement_bytes.compared("MLP, SGD")

    print(*agreement_bytes.as_markdown(rows), sep="\n")  # noqa: T201, for who reads it
    assert [row.is_exact for row in rows] == [True]
