"""What a refresh did not store, in words and in tables."""

from __future__ import annotations

from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.screen.drift import drift_lines, drifted_line, kept_lines
from pytest_gpuperf.report.screen.summary import Line, LineRole


def test_the_command_of_a_run_names_every_refused_test_as_a_shell_reads_it() -> None:
    two = drifted_line(
        ["t.py::a", "t.py::b[x y]"], Invocation(options=("--gpuperf-device=cpu",))
    )

    assert two == Line(
        text="gpuperf: 2 tests were not refreshed, too far from the last accepted values; look for "
        "the cause, or accept it with: gpuperf refresh --accept-drift "
        "--device=cpu t.py::a 't.py::b[x y]'",
        role=LineRole.BAD,
    )


def test_nothing_left_out_makes_no_tables() -> None:
    assert (kept_lines([]), drift_lines([])) == ((), ())
