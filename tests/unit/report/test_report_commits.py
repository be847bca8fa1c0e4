"""The table of two versions: what needs a person's eye stands first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_comparison
from golden_commands import COMPARED

from pytest_gpuperf.model.ab import AbRun, Answer, Comparison
from pytest_gpuperf.model.training import Training, TrainingAnswer
from pytest_gpuperf.report.screen.commits import comparison_lines, markdown_lines


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
        before="a", after="b", device="simulated-cuda", engine="pairs", calls=(call,)
    )

    assert markdown_lines(comparison) == (
        "**gpuperf: 1 same**",
        "",
        "before a, after b, on simulated-cuda",
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
            time=a_comparison(Answer.SLOWER if worse else Answer.SAME, 1.0),
            training=Training(answer=answer, text=f"because of {number}"),
        )
        for number, answer in enumerate(answers)
    ]
    return replace(COMPARED, calls=tuple(calls), uncompared=(), notes=())


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
