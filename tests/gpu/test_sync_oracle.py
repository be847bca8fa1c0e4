"""The detector of syncs against an oracle that asks no API which calls wait."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "unit"), str(TESTS / "gpu")]

import simulated_corpus
from sync_oracle import Oracle

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.syncs import find_syncs


pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

BEHIND_THE_SLEEP = """
event.record()
stream.wait_stream(torch.cuda.current_stream())
"""
"""What the setting's event and stream wait for, so that waiting for them is a sync."""


JUDGES_VALUES = {
    "assert_close(": "it compares values of kernels, and raises where they are zero",
    "istft(": "it raises where the window that it summed up is zero",
    "Normal(row, row.abs() + 1, validate_args=True)": "it raises where a scale is zero",
}
"""Parts of snippets that raise for values that nobody computed: the stubs' mirror does."""

MIRROR = {"GPUPERF_STUB_VALUES": "mirror"}


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle.of(torch)


def snippets() -> list[str]:
    parts = (simulated_corpus.WAITS, simulated_corpus.RUNS_ON)
    return [s for topics in parts for topic in topics.values() for s in topic]


def prepared(snippet: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """What is enqueued behind the sleep, and the snippet, in a fresh setting."""
    names: dict[str, Any] = {}
    exec(simulated_corpus.SETTING, names)  # noqa: S102, our own corpus
    code = compile(snippet, "snippet", "exec")
    return (
        lambda: exec(BEHIND_THE_SLEEP, names),  # noqa: S102
        lambda: exec(code, names),  # noqa: S102
    )


def test_the_oracle_knows_a_wait_from_none(oracle: Oracle) -> None:
    x = torch.ones(3, device="cuda")

    def nothing() -> None:
        """Enqueue nothing."""

    assert oracle.waits(lambda: (nothing, x.sum().item)) is True
    assert oracle.waits(lambda: (nothing, x.sum)) is False


def in_turn(snippet: str) -> object:
    """The snippet, with a mark where it raises unless kernels compute."""
    judged = [part for part in JUDGES_VALUES if part in snippet]
    if not judged:
        return snippet
    has_values = os.environ.items() >= MIRROR.items()
    mark = pytest.mark.hardware(JUDGES_VALUES[judged[0]])
    return pytest.param(
        snippet, id=f"values:{judged[0]}", marks=[] if has_values else [mark]
    )


@pytest.mark.parametrize("snippet", [*map(in_turn, dict.fromkeys(snippets()))])
def test_the_detector_says_what_the_oracle_says(oracle: Oracle, snippet: str) -> None:
    _, warm = prepared(snippet)
    warm()
    _, code = prepared(snippet)

    found = find_syncs(CudaDevice.open().profile(code, [()]))

    assert (found.per_step > 0) is oracle.waits(lambda: prepared(snippet))


@pytest.mark.stub
def test_snippets_that_judge_values_are_asked_about_with_the_mirror() -> None:
    pytest_here = ("-m", "pytest", "-q", "-p", "no:cacheprovider", __file__)
    done = subprocess.run(
        [sys.executable, *pytest_here, "-k", "values:"],
        env={**os.environ, **MIRROR, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
