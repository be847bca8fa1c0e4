"""The releases of a package in a range, as an index has them."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pytest_gpuperf.environments import installers
from pytest_gpuperf.environments.installers import releases
from pytest_gpuperf.environments.releases import range_of
from pytest_gpuperf.environments.releases import within
from pytest_gpuperf.errors import UsageError


LISTED = ("2.10.1", "2.10", "2.9", "2.1.1", "2.0.post0", "1.9")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("fastops==2.0..2.10", ("2.0.post0", "2.1.1", "2.9", "2.10", "2.10.1")),
        ("fastops==2.0..2.10.0", ("2.0.post0", "2.1.1", "2.9", "2.10")),
        ("fastops==1.9..2.1", ("1.9", "2.0.post0", "2.1.1")),
        ("fastops==2.1..1.9", ("2.1.1", "2.0.post0", "1.9")),
    ],
)
def test_a_range_is_in_the_order_of_versions_with_all_that_begin_as_its_newest(
    typed: str, found: tuple[str, ...]
) -> None:
    assert within(typed, LISTED) == found


def test_a_range_of_fewer_than_two_releases_has_nothing_to_search() -> None:
    with pytest.raises(UsageError) as refused:
        within("fastops==2.2..2.9", LISTED)

    assert str(refused.value) == (
        "--package=fastops==2.2..2.9: of 6 releases of fastops for this Python only 2.9 is "
        "in this range; expected two or more [GP710]"
    )


@pytest.mark.parametrize("typed", ["fastops", "fastops==1", "fastops>=1..2", "a==x..y"])
def test_what_is_no_range_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match=r"expected PACKAGE==GOOD\.\.BAD"):
        range_of(typed)


def answering(
    monkeypatch: pytest.MonkeyPatch, done: CompletedProcess[str]
) -> list[tuple[str, ...]]:
    """Let pip answer so; return what is typed."""
    typed = []

    def answer(command: tuple[str, ...], **_: object) -> CompletedProcess[str]:
        typed.append(command)
        return done

    monkeypatch.setattr(installers.subprocess, "run", answer)
    return typed


def test_pip_lists_the_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = "fastops (2.0)\nAvailable versions: 2.0, 1.0\n  INSTALLED: 1.0\n"
    typed = answering(monkeypatch, CompletedProcess((), 0, printed, ""))
    monkeypatch.setattr(installers, "find_spec", lambda name: name)

    assert releases("fastops") == ("2.0", "1.0")

    (command,) = typed
    assert command[:3] == (sys.executable, "-m", "pip")
    assert command[-3:] == ("index", "versions", "fastops")


def test_without_pip_uv_runs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"
    uv.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(installers, "find_spec", lambda name: None)
    typed = answering(monkeypatch, CompletedProcess((), 0, "Available versions: 1", ""))

    assert releases("fastops") == ("1",)

    assert typed[0][:3] == (str(uv), "tool", "run")


def test_without_a_network_pip_s_last_line_is_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = "WARNING: Retrying\nERROR: No matching distribution found for fastops\n"
    answering(monkeypatch, CompletedProcess((), 1, "", printed))

    with pytest.raises(UsageError) as refused:
        releases("fastops")

    assert str(refused.value) == (
        "pip cannot list the releases of fastops: No matching distribution found for "
        "fastops [GP710]"
    )
