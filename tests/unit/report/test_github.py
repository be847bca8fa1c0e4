"""Annotations and outputs for GitHub Actions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_verdict
from remarkable_runs import SOURCES, SYNC, SYNCS, record, regressed, results

from pytest_gpuperf.model.finding import FindingKind, Location
from pytest_gpuperf.model.run import Ending, Results
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.ci.github import commands, line_address
from pytest_gpuperf.report.ci.worst_findings import remarks
from pytest_gpuperf.report.command import Invocation


def marked(found: Results, folder: str = "") -> tuple[str, ...]:
    return commands(remarks(found), replace(SOURCES, folder=folder))


SYNCS_OF_NEW, PEAK_OF_NEW = (
    a_verdict(name, Outcome.NO_BASELINE, now, None)
    for name, now in (("syncs", 2), ("peak_allocated_bytes", 2.0**20))
)


@pytest.mark.parametrize(
    ("ending", "level", "why"),
    [
        (Ending.PASSED, "warning", "nothing was checked"),
        (Ending.FAILED, "error", "a missing baseline fails if CI is set"),
    ],
)
def test_a_missing_baseline_is_an_error_only_where_it_fails_its_test(
    ending: Ending, level: str, why: str
) -> None:
    new = record("t.py::new", SYNCS_OF_NEW, PEAK_OF_NEW, ending=ending)
    device = Invocation(options=("--gpuperf-device=simulated",))

    (command,) = commands(remarks(results(**{"t.py::new": new})), SOURCES, device)

    said = command.rpartition("::NO BASELINE: ")[2].split("%0A")
    assert command.startswith(f"::{level} file=test_it.py,line=3,")
    assert said[0] == "syncs 2, peak memory 1.000 MiB"
    assert said[1] == (
        f"{why}; store one outside of CI and commit it: gpuperf refresh --kind=missing "
        "--device=simulated t.py::new"
    )


def test_the_reason_names_the_line_that_is_not_marked_because_it_is_a_librarys() -> (
    None
):
    at = Location(file="/x/site-packages/lib/it.py", line=7, function="f")
    waits = record(
        "t", SYNCS, ending=Ending.FAILED, findings=(replace(SYNC, location=at),)
    )

    (command,) = marked(results(t=waits))

    assert "file=test_it.py,line=3," in command
    assert "%0Alib/it.py:7: the CPU waits here for the GPU" in command


def test_the_worst_of_several_lines_is_marked_and_explained() -> None:
    later = replace(
        SYNC, stored=0, location=replace(SYNC.location, line=9), source="loss.item()"
    )
    waits = record("t", SYNCS, ending=Ending.FAILED, findings=(SYNC, later))

    (command,) = marked(results(t=waits))

    assert "file=train.py,line=9," in command
    assert "%0Anew: the CPU waits here for the GPU" in command


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        (
            {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r"},
            "https://github.com/o/r/blob/4f2a/a/b%28%20%5D.py#L7",
        ),
        (
            {"CI_PROJECT_URL": "https://gitlab.com/g/p"},
            "https://gitlab.com/g/p/-/blob/4f2a/a/b%28%20%5D.py#L7",
        ),
        ({"GITHUB_SERVER_URL": "https://github.com"}, ""),
        ({}, ""),
    ],
    ids=["github", "gitlab", "half", "elsewhere"],
)
def test_a_line_has_a_page_where_its_service_is_known(
    environ: dict[str, str], address: str
) -> None:
    assert line_address(environ, lambda _: "4f2a", "a/b( ].py", 7) == address
    assert line_address(environ, lambda _: "", "a.py", 7) == ""


def test_a_line_outside_of_the_project_is_not_marked() -> None:
    waits = record("t", SYNCS, ending=Ending.FAILED, findings=(SYNC,))

    (command,) = commands(
        remarks(results(t=waits)), replace(SOURCES, is_ours=lambda _: False)
    )

    assert command.startswith("::error file=test_it.py,line=3,")


def test_tests_that_fail_by_the_same_line_share_an_annotation() -> None:
    over = replace(SYNCS, outcome=Outcome.OVER_BUDGET, baseline=None, limit=0)
    tests = {
        name: record(name, SYNCS, ending=Ending.FAILED, findings=(SYNC,))
        for name in ("b", "c")
    }
    tests["a"] = record("a", over, SYNCS, ending=Ending.FAILED, findings=(SYNC,))

    (command,) = marked(results(**tests))

    assert "::MORE SYNCS: 2 per step, was 1 (+1), limit 0%0A" in command
    assert command.endswith("every N steps%0Aa, b, c")


def test_a_test_without_a_baseline_is_marked_at_its_own_line() -> None:
    peak = replace(SYNC, kind=FindingKind.PEAK, metrics=("peak_allocated_bytes",))
    flops = replace(SYNCS_OF_NEW, metric="flops", now=13_090_816)
    new = record("new", flops, PEAK_OF_NEW, SYNCS_OF_NEW, findings=(peak,))

    (command,) = marked(results(new=new))

    assert "file=test_it.py,line=3," in command
    assert "::NO BASELINE: peak memory 1.000 MiB, syncs 2%0Anothing was" in command


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
