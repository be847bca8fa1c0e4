"""Annotations and outputs for GitHub Actions, the code quality report for GitLab."""

from __future__ import annotations

import json

import pytest
from remarkable_runs import MIXED
from remarkable_runs import SYNC
from remarkable_runs import SYNCS
from remarkable_runs import record
from remarkable_runs import regressed
from remarkable_runs import results

from pytest_gpuperf.model.results import Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.report.ci.code_quality import code_quality
from pytest_gpuperf.report.ci.github import commands
from pytest_gpuperf.report.ci.github import outputs
from pytest_gpuperf.report.ci.worst_findings import remarks


OURS = {"train.py"}


def marked(found: Results, folder: str = "") -> tuple[str, ...]:
    return commands(remarks(found), OURS.__contains__, folder)


def test_the_line_that_waits_is_marked_and_else_that_of_the_test() -> None:
    assert marked(MIXED) == (
        (
            "::error file=train.py,line=3,title=gpuperf%3A MORE WAITS::MORE WAITS: "
            "2 per step, was 1 (+1)%0Athe CPU waits here for the GPU, 500 us; fix: keep "
            "the value on the GPU, and read it every N steps%0At.py::waits"
        ),
        (
            "::error file=test_it.py,line=3,title=gpuperf%3A SLOWER::SLOWER: "
            "12.00 ms per step, was 10.00 ms (+20.0 %25)%0At.py::slow"
        ),
        (
            "::error file=test_it.py,line=3,title=gpuperf%3A OVER LIMIT ms::OVER "
            "LIMIT ms: 12.00 ms per step, limit 5.000 ms%0At.py::over"
        ),
        "::error file=t.py,line=9,title=gpuperf%3A FAILED::ValueError: 3%0At.py::raises",
        (
            "::warning file=test_it.py,line=3,title=gpuperf%3A undecided::"
            "UNDECIDED step time: 11.00 ms per step, was 10.00 ms (+10.0 %25)"
            "%0At.py::unclear"
        ),
    )


def test_a_line_outside_of_the_project_is_not_marked() -> None:
    waits = record("t", SYNCS, ending=Ending.FAILED, findings=(SYNC,))

    (command,) = commands(remarks(results(t=waits)), lambda _: False)

    assert command.startswith("::error file=test_it.py,line=3,")


def test_files_are_named_from_the_repository_on() -> None:
    (command,) = marked(results(a=regressed("a", where="test_a.py:7")), "packages/one/")

    assert command.startswith("::error file=packages/one/test_a.py,line=7,")


def test_the_ten_worst_are_marked() -> None:
    tests = {f"test_{n}": regressed(f"test_{n}", 11.0 + n) for n in range(12)}

    found = marked(results(**tests))

    assert [line.rpartition("%0A")[2] for line in found] == [
        f"test_{n}" for n in range(11, 1, -1)
    ]


def test_a_name_cannot_end_a_command_or_begin_another() -> None:
    name = "a,b:c%\r\n::error::x\n" + "y" * 5_000

    (command,) = marked(results(**{name: regressed(name, where="a,b:c.py:7")}))

    assert command.startswith("::error file=a%2Cb%3Ac.py,line=7,title=")
    assert r"%0Aa,b:c%25\r\n::error::x\nyyy" in command
    assert not {"\r", "\n"} & set(command)
    assert len(command) < 1_200


def test_a_step_that_follows_knows_every_outcome() -> None:
    assert outputs(MIXED, ".gpuperf/pending-cuda-nvidia-h200.json") == (
        """\
regressed=2
over_budget=1
inconclusive=1
no_baseline=1
improved=0
pass=1
not_judged=0
failed=4
measured=8
pending=.gpuperf/pending-cuda-nvidia-h200.json
"""
    )


def quality(found: Results) -> list[dict[str, object]]:
    issues: list[dict[str, object]] = json.loads(
        code_quality(remarks(found), OURS.__contains__, "sub/")
    )
    return issues


def test_gitlab_gets_an_issue_for_each_metric_that_is_worse() -> None:
    issues = quality(MIXED)

    assert [(i["check_name"], i["severity"]) for i in issues] == [
        ("gpuperf/regressed", "major"),
        ("gpuperf/regressed", "major"),
        ("gpuperf/over-budget", "major"),
        ("gpuperf/inconclusive", "info"),
    ]
    assert issues[0] == {
        "description": "MORE WAITS: 2 per step, was 1 (+1) in t.py::waits",
        "check_name": "gpuperf/regressed",
        "fingerprint": "PRINT",
        "severity": "major",
        "location": {"path": "sub/train.py", "lines": {"begin": 3}},
    } | {"fingerprint": issues[0]["fingerprint"]}
    assert len({issue["fingerprint"] for issue in issues}) == 4


@pytest.mark.parametrize(("now", "alike"), [(12.0, True), (15.0, True)])
def test_an_issue_stays_the_same_while_its_number_moves(
    now: float, *, alike: bool
) -> None:
    (then,) = quality(results(a=regressed("a", 12.0)))
    (issue,) = quality(results(a=regressed("a", now)))
    (other,) = quality(results(b=regressed("b", now)))

    assert (issue["fingerprint"] == then["fingerprint"]) is alike
    assert other["fingerprint"] != then["fingerprint"]


def test_a_run_without_issues_is_an_empty_list() -> None:
    assert quality(results()) == []
