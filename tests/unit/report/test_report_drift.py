"""What a refresh did not store, in words and in tables."""

from __future__ import annotations

from pytest_gpuperf.model.baseline import Drift
from pytest_gpuperf.model.baseline import Kept
from pytest_gpuperf.report.command import DEFAULT_INVOCATION
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.screen.drift import drift_lines
from pytest_gpuperf.report.screen.drift import drift_text
from pytest_gpuperf.report.screen.drift import drifted_line
from pytest_gpuperf.report.screen.drift import kept_lines
from pytest_gpuperf.report.screen.summary import Line
from pytest_gpuperf.report.screen.summary import LineRole


SLOWER = Drift(
    test="t.py::a",
    metric="step_ms",
    anchor=10.0,
    now=10.4,
    limit=10.3,
    bound="detect 3 %",
)
ONE_MORE = Drift(
    test="t.py::a#eval",
    metric="syncs",
    anchor=0,
    now=1,
    limit=0,
    bound="tolerance 0 %",
)


def test_a_refused_refresh_says_from_where_to_where_and_how_to_insist() -> None:
    text = drift_text(
        [SLOWER, ONE_MORE],
        nodeid="t.py::a",
        invocation=Invocation(options=("--gpuperf-device=cpu",)),
    )

    assert text == (
        """\
DRIFTED step time: 10.40 ms, was 10.00 ms (+4.0 %) when last accepted, allowed 10.30 ms
  why      more than a refresh stores unasked (detect 3 %): the baseline is left
           as it was
DRIFTED waits: 1 per step, was 0 (+1) when last accepted, allowed 0
  why      more than a refresh stores unasked (tolerance 0 %): the baseline is
           left as it was
  call     t.py::a#eval
  accept   gpuperf refresh --accept-drift --device=cpu t.py::a"""
    )


def test_the_command_of_a_run_names_every_refused_test_as_a_shell_reads_it() -> None:
    one = drifted_line(["t.py::a"], DEFAULT_INVOCATION)
    two = drifted_line(
        ["t.py::a", "t.py::b[x y]"], Invocation(options=("--gpuperf-device=cpu",))
    )

    assert one == Line(
        text="gpuperf: 1 test was not refreshed, too far from its last accepted value; look for the "
        "cause, or accept it with: gpuperf refresh --accept-drift t.py::a",
        role=LineRole.BAD,
    )
    assert two == Line(
        text="gpuperf: 2 tests were not refreshed, too far from the last accepted values; look for "
        "the cause, or accept it with: gpuperf refresh --accept-drift "
        "--device=cpu t.py::a 't.py::b[x y]'",
        role=LineRole.BAD,
    )


def test_each_refused_metric_has_a_row() -> None:
    lines = drift_lines([SLOWER, ONE_MORE])

    assert "\n".join(line.text for line in lines) == (
        """\
accepted       now   drift        allowed  metric   test
10.00 ms  10.40 ms  +4.0 %     detect 3 %  step_ms  t.py::a
       0         1      +1  tolerance 0 %  syncs    t.py::a#eval"""
    )
    assert [line.role for line in lines] == [
        LineRole.HEADER,
        LineRole.BAD,
        LineRole.BAD,
    ]


def test_each_test_that_was_left_alone_has_a_row() -> None:
    lines = kept_lines(
        [
            Kept(test="t.py::a", metric="step_ms", stored=10.0, now=10.01, noise=0.002),
            Kept(test="t.py::b", metric="syncs", stored=1, now=1, noise=None),
        ]
    )

    assert "\n".join(line.text for line in lines) == (
        """\
  stored       now  change  noise  metric   test
10.00 ms  10.01 ms  +0.1 %  0.2 %  step_ms  t.py::a
       1         1       0      -  syncs    t.py::b"""
    )
    assert [line.role for line in lines] == [
        LineRole.HEADER,
        LineRole.PLAIN,
        LineRole.PLAIN,
    ]


def test_nothing_left_out_makes_no_tables() -> None:
    assert (kept_lines([]), drift_lines([])) == ((), ())
