"""``--gpuperf-watch``: ordinary tests on the simulated GPU, with their own outcomes."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from desk import Desk, Typed, typing_server


pytest.importorskip("torch")

PACKAGE = """
import torch

CACHE = []

def accuracy(x):
    right = (x > 0).sum()
    return right.item()

def remember(x):
    CACHE.append(x * 2)
"""

TESTS = """
import package, pytest, torch

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs CUDA")

def test_cpu():
    assert package.accuracy(torch.ones(3)) == 3

@needs_gpu
def test_gpu():
    assert package.accuracy(torch.ones(3, device="cuda")) == 3

@needs_gpu
def test_gpu_is_wrong():
    assert torch.ones(3, device="cuda").sum().item() == 4, "why here"

def test_leak():
    package.remember(torch.ones(1000, device=DEVICE))

@pytest.mark.skipif(HAS_GPU, reason="requires only a CPU")
def test_without_gpu():
    assert not HAS_GPU

@pytest.fixture
def without_gpu():
    assert not torch.cuda.is_available()

def test_set_up_without_gpu(without_gpu):
    assert DEVICE == "cpu"

@pytest.fixture(scope="module")
def shared():
    return torch.ones(1000, device=DEVICE)

def test_shared(shared):
    assert shared.sum().item() == 1000
"""


@pytest.fixture
def empty(tmp_path: Path) -> Desk:
    """A folder in which commands are typed that need not import torch."""
    return Desk(tmp_path, typing_server("torch", "torch._dynamo", warm=None))


@pytest.fixture
def suite(empty: Desk) -> Desk:
    empty.write("package.py", PACKAGE)
    empty.write("test_suite.py", TESTS)
    return empty


def watched(suite: Desk, *arguments: str, **environment: str) -> Typed:
    command = ["pytest", "--gpuperf-watch", *arguments]
    return suite.type(shlex.join(command), **environment)


def assert_lines(typed: Typed, *lines: str) -> None:
    """These lines were printed in this order, with others between them."""
    pytest.LineMatcher(typed.output.splitlines()).fnmatch_lines(lines)


MOVES = """
import torch

class Agent:
    def __init__(self):
        self.net = torch.nn.Linear(8, 8)
        self.net.to("cuda")

    def act(self, x, rows):
        return self.net(x).sum().item(), rows.to(x.device)
"""


def test_a_model_that_is_moved_comes_last_and_each_cause_of_a_line_has_its_fix(
    empty: Desk,
) -> None:
    acts = 'Agent().act(torch.ones(2, 8, device="cuda"), torch.ones(8))'
    empty.write("agents.py", MOVES)
    empty.write(
        "test_agents.py",
        f"import torch\nfrom agents import Agent\n\ndef test_agent():\n    {acts}\n",
    )

    assert_lines(
        watched(empty),
        "*agents.py:10 in act",
        "  fix      add it up on the GPU*",
        "  fix      use DataLoader(pin_memory=True)*",
        "*agents.py:7 in __init__",
        "  fix      move a model once, before the loop*",
    )


TRAINER = """
import torch

class Trainer:
    def __init__(self):
        self.net = torch.nn.Linear(8, 4, device="cuda")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def step(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.last = loss.item()
        return loss
"""


@pytest.mark.parametrize("asked", [", same_training=True", ""])
def test_what_a_comparison_of_two_steps_reads_is_not_the_programs_wait(
    empty: Desk, asked: str
) -> None:
    empty.write("trainer.py", TRAINER)
    empty.write(
        "test_trainer.py",
        "import torch\nfrom trainer import Trainer\n\n"
        "def test_sides(gpuperf):\n"
        '    x = torch.ones(2, 8, device="cuda")\n'
        "    torch.manual_seed(0)\n    one = Trainer()\n"
        "    torch.manual_seed(0)\n    other = Trainer()\n"
        "    gpuperf.compare(\n"
        f"        lambda: one.step(x), lambda: other.step(x){asked}\n    )\n",
    )

    found = watched(empty)

    # The one wait of the step, in each of its runs, and nothing in a backward or an update.
    assert "trainer.py:13 in step" in found.words
    assert "on 1 line;" in found.words
    assert "syncs on lines of the tests themselves" not in found.words


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n1")], ids=str)
def test_what_fails_there_is_not_checked_and_all_else_is_reported(
    suite: Desk, workers: tuple[str, ...]
) -> None:
    plain = suite.type("pytest")
    found = watched(suite, *workers)

    assert "5 passed, 2 skipped" in plain.text
    assert "4 passed, 3 skipped" in found.text
    assert found.status == 0
    assert_lines(
        found,
        "* used it; 1 sync on 1 line; 1 test leaked GPU memory",
        "*package.py:8 in accuracy",
        "  fix *",
        "  test_suite.py::test_leak: 1 tensor, 4.000 KiB",
        "  --> package.py:11 in remember",
        "  kept     package.CACHE[[]...]",
        "3 tests not checked: plain pytest says how each ends *",
        "  test_suite.py::test_gpu_is_wrong: failed: *why here*",
        "  test_suite.py::test_without_gpu: skipped: requires only a CPU",
        "  test_suite.py::test_set_up_without_gpu: failed: *",
    )
    assert (
        "simulated-cuda.json: there is no baseline, so nothing is judged" in found.words
    )


def test_gates_name_the_test_the_line_and_the_fix_and_mark_lines_on_github(
    suite: Desk,
) -> None:
    found = watched(suite, "--gpuperf-watch=max-syncs:0,leak:0", GITHUB_ACTIONS="true")

    assert found.status == pytest.ExitCode.TESTS_FAILED
    assert_lines(
        found,
        "2 counts failed:",
        "  test_suite.py::test_gpu: 1 sync, limit 0",
        "  --> package.py:8 in accuracy",
        "  fix *",
        "  test_suite.py::test_leak: 1 tensor leaked, limit 0",
    )
    fix = "%0Afix: add it up on the GPU with .detach(), read it every N steps"
    said = f"title=gpuperf%3A watch::test_suite.py::test_gpu: 1 sync, limit 0{fix}"
    assert f"::error file=package.py,line=8,{said}" in found.output.splitlines()
    assert "\n::error file=package.py,line=11," in found.output


@pytest.mark.parametrize(
    ("until", "status", "said", "level"),
    [
        ("2999-01-01", 0, "would have failed", "warning"),
        ("2020-01-01", 1, "failed", "error"),
    ],
)
def test_until_the_last_day_what_rose_is_a_warning(
    suite: Desk, until: str, status: int, said: str, level: str
) -> None:
    warn = ("-o", f"gpuperf_warn=until {until}")
    found = watched(suite, "--gpuperf-watch=leak:0", *warn, GITHUB_ACTIONS="true")

    assert found.status == status
    assert_lines(found, f"1 count {said}*:", f"*passed*1 count {said}*")
    marks = re.findall(r"^::(\w+) file=package.py", found.output, re.MULTILINE)
    assert marks == [level]


def test_a_gate_that_has_nothing_to_judge_fails_in_ci_unless_that_is_set(
    suite: Desk,
) -> None:
    in_ci = watched(suite, CI="true")
    key = watched(suite, "-o", "gpuperf_missing_baseline=warn", CI="true")

    assert (in_ci.status, key.status) == (1, 0)
    for found in (in_ci, key):
        assert "there is no baseline, so nothing is judged" in found.words


def test_counts_of_an_older_version_are_stored_again_as_the_refusal_says(
    suite: Desk,
) -> None:
    suite.write("baselines/watch/counts.json", '{"format": 2}')

    refused = watched(suite, "-k", "test_cpu")
    [option] = re.findall(r"--gpuperf-update=\w+", refused.errors)
    again = watched(suite, option)

    assert refused.status == pytest.ExitCode.USAGE_ERROR
    assert "expected baselines/watch/simulated-cuda.json" in refused.errors
    assert again.status == 0
    assert watched(suite).status == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--gpuperf-watch=syncs:0"],
            "--gpuperf-watch: found 'syncs:0', expected max-syncs:N, leak:N or both",
        ),
        (
            ["--gpuperf-device=cpu"],
            "--gpuperf-device: found cpu, expected simulated with --gpuperf-watch",
        ),
        (
            ["--gpuperf-device=cuda"],
            "--gpuperf-device: found cuda, expected simulated with --gpuperf-watch",
        ),
        (
            ["--gpuperf-update=drifted"],
            "--gpuperf-update: found 'drifted', expected missing, improved or all with",
        ),
        (["-o", "gpuperf_warn=soon"], "gpuperf_warn: found 'soon'"),
        (["--gpuperf"], "--gpuperf-watch and --gpuperf "),
    ],
)
def test_what_cannot_be_watched_is_a_usage_error(
    suite: Desk, arguments: list[str], sentence: str
) -> None:
    refused = watched(suite, *arguments, CUDA_VISIBLE_DEVICES="")

    assert refused.status == pytest.ExitCode.USAGE_ERROR
    assert sentence in refused.errors


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_the_device_that_a_project_measures_on_does_not_keep_it_from_being_watched(
    suite: Desk, device: str
) -> None:
    suite.write("pytest.ini", f"[pytest]\ngpuperf_device = {device}\n")

    found = watched(suite, "-k", "test_cpu", CUDA_VISIBLE_DEVICES="")

    assert found.status == 0
    assert_lines(found, "* gpuperf: tests on the simulated GPU *")


def test_a_conftest_may_import_what_torch_scripts_itself(suite: Desk) -> None:
    suite.write("conftest.py", "import torch.distributed.optim")

    assert "1 passed" in watched(suite, "-k", "test_cpu").text


def test_a_line_of_the_checkout_next_to_the_rootdir_is_named_and_stored(
    empty: Desk,
) -> None:
    empty.write("package.py", PACKAGE)
    empty.write(".git/keep", "")
    empty.write("one/pytest.ini", "[pytest]\npythonpath = ..\n")
    test = "import package, torch\ndef test_gpu():\n    package.accuracy(torch.ones(3, device='cuda'))\n"
    empty.write("one/test_gpu.py", test)

    found = watched(replace(empty, place="one"), "--gpuperf-update=all")

    assert_lines(found, "*../package.py:8 in accuracy")
    assert "../package.py" in empty.read("one/baselines/watch/simulated-cuda.json")


def test_memory_of_a_test_that_only_the_collector_frees_is_shown_with_its_cycle(
    empty: Desk,
) -> None:
    empty.write("test_suite.py", GARBAGE)

    found = watched(empty)

    assert "5 passed" in found.text
    shown = [x for x in found.output.splitlines() if x.startswith("  test_suite.py::")]
    assert shown == ["  test_suite.py::test_cycle: 1.000 MiB"]
    assert_lines(
        found,
        "tests with device memory that only Python's garbage collector frees:",
        "  test_suite.py::test_cycle: 1.000 MiB",
        "  --> test_suite.py:8 in __init__",
        '    8 | self.me, self.big = self, torch.ones(2**18, device="cuda")',
        "  kept     in a cycle of Node.me",
        "  fix      break the cycle *",
    )


GARBAGE = """
import gc
import pytest
import torch

class Node:
    def __init__(self):
        self.me, self.big = self, torch.ones(2**18, device="cuda")

@pytest.fixture
def tensor(request, tmp_path):
    return torch.ones(2**18, device="cuda")

def test_cycle():
    Node()

@pytest.mark.parametrize("number", [1])
def test_clean(tensor, number, monkeypatch):
    tensor + number

def test_collects():
    Node()
    gc.collect()

def test_error(tensor):
    with pytest.raises(ZeroDivisionError) as error:
        tensor.numel() / 0
    assert error

def test_torch_imports_what_it_wraps(tensor):
    here = tensor + 1
    exec("import torch.fx; torch.fx.wrap('len')", {}, {"here": here})
"""
