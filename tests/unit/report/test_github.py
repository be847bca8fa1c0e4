"""Annotations and outputs for GitHub Actions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from remarkable_runs import SOURCES, regressed, results

from pytest_gpuperf.model.run import Results
from pytest_gpuperf.report.ci.github import commands, line_address
from pytest_gpuperf.report.judged_calls import judged_calls


def marked(found: Results, folder: str = "") -> tuple[str, ...]:
    return commands(
        judged_calls(found, "results.json"), replace(SOURCES, folder=folder)
    )


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
