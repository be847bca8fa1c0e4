"""The table of two versions: what needs a person's eye stands first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_comparison

from pytest_gpuperf.model.ab import AbResult
from pytest_gpuperf.model.ab import AbRun
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.ab import ExactChange
from pytest_gpuperf.model.ab import Turn
from pytest_gpuperf.model.training import Training
from pytest_gpuperf.model.training import TrainingAnswer
from pytest_gpuperf.report.screen.commits import comparison_lines
from pytest_gpuperf.report.screen.commits import markdown_lines


def timed(answer: Answer, ratio: float, *, whole: bool = True) -> AbResult:
    return a_comparison(
        answer,
        ratio,
        why=f"because it is {answer.value}",
        low=ratio - 0.01 if whole else None,
        high=ratio + 0.01 if whole else None,
        smallest=0.024 if whole else None,
        after_ms=10.0 * ratio,
    )


def exact(metric: str, before: float, after: float, turn: Turn) -> ExactChange:
    return ExactChange(
        metric=metric, before=before, after=after, turn=turn, gated=metric != "ops"
    )


EVERYTHING = AbRun(
    before="main (1234567)",
    after="working tree (89abcde)",
    device="cuda-nvidia-h200",
    engine="pairs",
    calls=(
        Comparison(test="t.py::same", pairs=3, time=timed(Answer.SAME, 0.9996)),
        Comparison(test="t.py::fast", pairs=3, time=timed(Answer.FASTER, 0.8)),
        Comparison(
            test="t.py::unclear",
            pairs=1,
            time=timed(Answer.INCONCLUSIVE, 1.02, whole=False),
        ),
        Comparison(
            test="t.py::lost", pairs=3, unmeasured={"speedup": "it had none"}, lost=True
        ),
        Comparison(
            test="t.py::more",
            pairs=8,
            time=timed(Answer.SAME, 1.0),
            exact=(
                exact("peak_allocated_bytes", 100 * 2**20, 110 * 2**20, Turn.WORSE),
                exact("ops", 10, 9, Turn.BETTER),
                exact("syncs", 0, 1, Turn.VARIES),
            ),
        ),
    ),
    uncompared=(
        Comparison(
            test="t.py::broken", uncompared="failed after: no\nmore of it", broken=True
        ),
        Comparison(test="t.py::old", uncompared="before only"),
    ),
    notes=("something to know",),
)


def test_everything_that_can_be_said_for_a_terminal() -> None:
    assert comparison_lines(EVERYTHING) == tuple(
        """\
before main (1234567), after working tree (89abcde), on cuda-nvidia-h200
engine: pairs; 1 to 8 pairs a test
verdict       metric                   before      after   change            95 %   sees  test
same          step_ms                10.00 ms   10.00 ms   +0.0 %    -1.0 to +1.0  2.4 %  t.py::more
worse         peak_allocated_bytes  100.0 MiB  110.0 MiB  +10.0 %               -      -  t.py::more
changed       ops                          10          9       -1               -      -  t.py::more
varies        syncs                         0          1       +1               -      -  t.py::more
broken        -                             -          -        -               -      -  t.py::broken
undecided     step_ms                10.00 ms   10.20 ms   +2.0 %               -      -  t.py::unclear
undecided     step_ms                       -          -        -               -      -  t.py::lost
faster        step_ms                10.00 ms   8.000 ms  -20.0 %  -21.0 to -19.0  2.4 %  t.py::fast
same          step_ms                10.00 ms   9.996 ms   +0.0 %    -1.0 to +1.0  2.4 %  t.py::same
not compared  -                             -          -        -               -      -  t.py::old
t.py::more: syncs differs from run to run
t.py::broken: failed after: no
    more of it
t.py::unclear: because it is inconclusive
t.py::lost: no time to compare: it had none
t.py::fast: because it is faster
t.py::old: before only
note: something to know
gpuperf: 1 worse, 1 broken after, 1 better, 1 same, 2 undecided, 1 not compared""".splitlines()
    )


def test_what_agreed_is_said_once_if_it_is_the_same_of_all() -> None:
    alike = trained(TrainingAnswer.SAME, TrainingAnswer.SAME)
    text = "losses agree in every digit"
    calls = [
        replace(call, training=Training(answer=TrainingAnswer.SAME, text=text))
        for call in alike.calls
    ]

    assert comparison_lines(alike)[1] == "same training: 2 of 2"
    agreed = comparison_lines(replace(alike, calls=tuple(calls)))
    assert agreed[1] == f"same training: 2 of 2; {text}"


def test_a_name_with_a_bar_stays_in_its_cell() -> None:
    call = Comparison(
        test="t.py::t[a|b]", pairs=1, unmeasured={"speedup": "it has no clock"}
    )
    comparison = AbRun(
        before="a", after="b", device="pretend-cuda", engine="pairs", calls=(call,)
    )

    assert markdown_lines(comparison) == (
        "**gpuperf: 1 same**",
        "",
        "before a, after b, on pretend-cuda",
        "",
        "engine: pairs; 1 pair a test",
        "",
        "| verdict | metric | test |",
        "| :--- | :--- | :--- |",
        r"| same | exact | `t.py::t[a\|b]` |",
    )


def trained(*answers: TrainingAnswer, worse: bool = False) -> AbRun:
    calls = [
        Comparison(
            test=f"t.py::{number}",
            time=timed(Answer.SLOWER if worse else Answer.SAME, 1.0),
            training=Training(answer=answer, text=f"because of {number}"),
        )
        for number, answer in enumerate(answers)
    ]
    return replace(EVERYTHING, calls=tuple(calls), uncompared=(), notes=())


def test_the_training_is_said_before_anything_else_and_counted_last() -> None:
    lines = comparison_lines(trained(*TrainingAnswer))

    assert lines[1:5] == (
        "same training: 1 of 4; because of 0",
        "t.py::1: training differs: because of 1",
        "t.py::2: training not compared: because of 2",
        "t.py::3: training not compared: because of 3",
    )
    assert lines[-1] == "gpuperf: 1 training differs, 3 same"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (trained(TrainingAnswer.SAME), 0),
        (trained(TrainingAnswer.NOTHING), 0),
        (trained(TrainingAnswer.SAME, TrainingAnswer.NOT_COMPARED), 0),
        (trained(TrainingAnswer.SAME, worse=True), 1),
        (trained(TrainingAnswer.DIFFERS, worse=True), 2),
        (trained(TrainingAnswer.NOTHING, TrainingAnswer.NOT_COMPARED), 125),
        (trained(), 125),
    ],
)
def test_the_exit_status_says_what_matters_most(found: AbRun, status: int) -> None:
    assert found.status == status
