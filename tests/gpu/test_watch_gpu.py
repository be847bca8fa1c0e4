"""``--gpuperf-watch`` on a GPU: waits, memory and outcomes of ordinary tests."""

from __future__ import annotations

import json

import pytest
from watched_suite import watched_suite


pytestmark = [pytest.mark.gpu]

PACKAGE = """
import torch

CACHE = []

def accuracy(x):
    right = (x > 0).sum()
    return right.item()

def remember(x):
    CACHE.append(x * 2)

def train(layer, x):
    layer(x).sum().backward()
    torch.cuda.synchronize()
"""

TESTS = """
import package, pytest, torch, warnings
from torch import nn

def test_first_without_the_gpu():
    assert package.accuracy(torch.ones(3)) == 3
    assert not torch.cuda.is_initialized()

@pytest.fixture(scope="module")
def shared():
    return torch.ones(1000, device="cuda")

def test_shared(shared):
    assert shared.shape == (1000,)

def test_reads():
    for _ in range(2):
        package.accuracy(torch.ones(3, device="cuda"))

def test_leaks():
    package.remember(torch.ones(1000, device="cuda"))

def test_trains():
    package.train(nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda"))

def test_is_strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        package.accuracy(torch.ones(3, device="cuda"))

def test_fails():
    assert package.accuracy(torch.ones(3, device="cuda")) == "no number"
"""


@pytest.fixture
def suite(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    return watched_suite(pytester, monkeypatch, package=PACKAGE, test_suite=TESTS)


def test_what_a_failed_test_keeps_alive_is_not_left_by_the_next(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        test_suite="""
import package, torch

def test_fails():
    kept = torch.ones(5000, device="cuda")
    assert kept is None

def test_leaks():
    package.remember(torch.ones(1000, device="cuda"))
"""
    )

    result = suite.runpytest_subprocess("--gpuperf-watch")

    result.stdout.fnmatch_lines(
        [
            "tests that leave device memory to the next:",
            "  test_suite.py::test_leaks: 1 tensor, 4.000 KiB",
        ]
    )


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n2")], ids=str)
def test_waits_and_leaks_have_their_lines_and_outcomes_stay(
    suite: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    plain = suite.runpytest_subprocess()
    watched = suite.runpytest_subprocess("--gpuperf-watch", *workers)

    plain.assert_outcomes(passed=6, failed=1)
    watched.assert_outcomes(passed=6, failed=1)
    watched.stdout.no_fnmatch_line("*called a synchronizing CUDA operation*")
    watched.stdout.no_fnmatch_line("*debug mode is a prototype*")
    watched.stdout.fnmatch_lines(
        [
            "* gpuperf: tests on the GPU *",
            "6 of 7 tests used it; 4 waits on 2 lines; 1 test left device memory to the*",
            "*package.py:7 in accuracy",
            "*package.py:14 in train",
            "  test_suite.py::test_leaks: 1 tensor, 4.000 KiB",
            "  --> package.py:10 in remember",
            "  kept by  package.CACHE[[]...]",
            "1 test ended otherwise while being watched; *",
            "  test_suite.py::test_is_strict: failed: UserWarning: *",
        ],
        consecutive=False,
    )


def test_counts_are_stored_apart_from_those_of_the_simulated_gpu(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(test_suite=TESTS.partition("def test_is_strict")[0])

    stored = suite.runpytest_subprocess("--gpuperf-watch", "--gpuperf-update=missing")
    again = suite.runpytest_subprocess("--gpuperf-watch")
    suite.makepyfile(
        package=PACKAGE.replace("right.item()", "right.item() * bool(x[0])")
    )
    worse = suite.runpytest_subprocess("--gpuperf-watch")
    simulated = suite.runpytest_subprocess(
        "--gpuperf-watch", "--gpuperf-device=pretend"
    )

    assert (stored.ret, again.ret, worse.ret, simulated.ret) == (0, 0, 1, 0)
    counts = json.loads((suite.path / "baselines/watch/counts-cuda.json").read_text())
    rows = counts["lines"].items()
    assert {line: max(r["waits"] for r in row.values()) for line, row in rows} == {
        "package.py accuracy: return right.item()": 2,
        "package.py train: torch.cuda.synchronize()": 1,
    }
    assert counts["leaks"] == {"test_suite.py::test_leaks": {"tensors": 1}}
    worse.stdout.fnmatch_lines(
        ["  test_suite.py::test_reads: 4 waits in one test, baseline 2"]
    )


def test_memory_that_only_the_collector_frees_is_told_with_its_line_and_cycle(
    suite: pytest.Pytester,
) -> None:
    suite.makepyfile(
        test_suite="""
import torch

class Node:
    def __init__(self):
        self.me, self.big = self, torch.ones(2**18, device="cuda")

def test_cycle():
    Node()

def test_plain():
    torch.ones(2**18, device="cuda")
"""
    )

    result = suite.runpytest_subprocess("--gpuperf-watch")

    result.stdout.fnmatch_lines(
        [
            "tests with device memory that only Python's garbage collector frees:",
            "  test_suite.py::test_cycle: 1.000 MiB",
            "  --> test_suite.py:5 in __init__",
            "  kept     in a cycle of Node.me",
        ]
    )
    result.stdout.no_fnmatch_line("  test_suite.py::test_plain: *")
