"""Runs that torchrun starts: its ranks are the ranks of a test, and rank 0 reports."""

from __future__ import annotations

import json
import sys
from xml.etree import ElementTree as ET

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch.distributed.run")

ON_CPU = ("--gpuperf", "--gpuperf-device=cpu", "--gpuperf-seconds=20")

TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "-m",
    "pytest",
)

BEGINNING = """
import os
import torch
from torch import distributed, nn
"""

GREEN = (
    BEGINNING
    + """
@gpuperf.ranks(2)
@gpuperf.budget(collectives=1)
def test_ddp(gpuperf):
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
    torch.manual_seed(distributed.get_rank())
    rows = torch.randn(16, 64)
    gpuperf(lambda: model(rows).sum().backward())
    gradient = model.module.weight.grad
    seen = [torch.empty_like(gradient) for _ in range(2)]
    distributed.all_gather(seen, gradient)
    assert torch.equal(*seen)

@gpuperf.ranks(3)
def test_three(gpuperf): gpuperf(int)

def test_alone(gpuperf): gpuperf(int)

def test_ordinary():
    with open("ordinary" + os.environ["RANK"], "w"): pass
"""
)

RED = (
    BEGINNING
    + """
pytestmark = gpuperf.ranks(2)

def test_raises(gpuperf):
    def step():
        if distributed.get_rank() == 1:
            raise ValueError("boom")
        distributed.all_reduce(torch.ones(3))
    gpuperf(step)

def test_ordinary():
    assert os.environ["RANK"] == "0"
"""
)


def torchrun(project: ScriptedProject, *arguments: str) -> pytest.RunResult:
    return project.pytester.run(*TORCHRUN, *ON_CPU, *arguments)


def test_torchruns_ranks_are_those_of_a_test_and_rank_0_reports_alone(
    project: ScriptedProject,
) -> None:
    project.file(GREEN)

    result = torchrun(project, "-rs", "--junitxml=junit.xml")

    assert result.ret == 0, result.stderr.str()
    result.assert_outcomes(passed=2, skipped=2)
    text = " ".join(result.stdout.str().split())
    assert text.count("test session starts") == 1
    assert "a step has 1 all_reduce (2.031 KiB)" in text
    assert (
        "gpuperf.ranks(3) and 2 ranks that torchrun started: start as many, or run "
        "pytest --gpuperf, which starts 3 itself"
    ) in text
    assert (
        "torchrun started 2 ranks, and this test asks for none: code that reads "
        "WORLD_SIZE would wait for them; measure it with pytest --gpuperf"
    ) in text
    (pending,) = (project.path / ".gpuperf").glob("pending-cpu-*.json")
    ddp = json.loads(pending.read_text())["tests"]["test_it.py::test_ddp"]
    assert ddp["software"]["ranks"] == "2"
    assert ET.parse(project.path / "junit.xml").getroot()[0].get("tests") == "4"
    assert {path.name for path in project.path.glob("ordinary?")} == {
        "ordinary0",
        "ordinary1",
    }


def test_what_becomes_of_another_rank_is_in_the_verdict_of_rank_0(
    project: ScriptedProject,
) -> None:
    project.file(RED)
    source = (project.path / "test_it.py").read_text().splitlines()
    boom = next(i for i, text in enumerate(source, 1) if "boom" in text)

    result = torchrun(project)

    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "rank 1 of 2 failed first:",
            f"test_it.py:{boom}: ValueError",
            "rank 0 *",
        ]
    )
    result.stderr.fnmatch_lines(
        ["rank 1: test_it.py::test_ordinary failed", "E * assert '1' == '0'"]
    )


def test_a_rank_that_cannot_collect_fails_the_run_and_says_why(
    project: ScriptedProject,
) -> None:
    project.file(
        BEGINNING
        + """
assert os.environ["RANK"] == "0"
@gpuperf.ranks(2)
def test_step(gpuperf): gpuperf(int)
"""
    )

    result = torchrun(project)

    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["rank 1 takes no part: its tests could not be collected [GP612]"]
    )
    result.stderr.fnmatch_lines(["rank 1: test_it.py failed"])


LAUNCHED = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


@pytest.mark.parametrize(
    ("arguments", "missing", "message"),
    [
        (
            ["-p", "xdist", "-n2"],
            "",
            (
                "torchrun started 2 ranks of pytest, and pytest-xdist would start workers "
                "in each: leave out -n and --dist [GP611]"
            ),
        ),
        (
            [],
            "TORCHELASTIC_RUN_ID",
            (
                "RANK=0 and WORLD_SIZE=2 are set, and torchrun did not set them: each "
                "rank would measure for itself; start them by torchrun -m pytest, or "
                "unset both [GP609]"
            ),
        ),
    ],
)
def test_what_each_rank_would_do_for_itself_is_refused(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    missing: str,
    message: str,
) -> None:
    if "xdist" in arguments:
        pytest.importorskip("xdist")
    for name, value in LAUNCHED.items():
        if name != missing:
            monkeypatch.setenv(name, value)
    project.file("def test_step(gpuperf): gpuperf(int)\n")

    result = project.run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {message}" in result.errlines
