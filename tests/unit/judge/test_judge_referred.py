"""What an A/B makes of a verdict that the baseline did not pass."""

from __future__ import annotations

import json

import pytest
from builders import TEST
from builders import a_comparison
from builders import a_missed_budget
from builders import a_regression
from builders import a_test
from builders import a_verdict

from pytest_gpuperf.judge.ab import is_in_doubt
from pytest_gpuperf.judge.ab import referred
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.ab import ReferenceResult
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.json.results import from_json
from pytest_gpuperf.report.json.results import to_json
from pytest_gpuperf.report.screen.failure import failure_text


SAID = "A/B against main (abc1234), pairs: the numbers"


def time(outcome: Outcome = Outcome.REGRESSED, *, stored: bool = True) -> Verdict:
    return a_verdict(
        "step_ms",
        outcome,
        12.0,
        10.0 if stored else None,
        because="stored",
        limit=10.5 if stored else None,
        settled=outcome is not Outcome.REGRESSED,
    )


BUDGET = a_missed_budget("step_ms", 12.0, 5.0)
SYNCS = a_regression("syncs", 1, 0, because="more")
TORCH = {"torch": ("2.12", "2.13")}


def settlement(answer: Answer | None, *, recorded: bool = False) -> ReferenceResult:
    change = answer and a_comparison(
        answer,
        1.1,
        why="the numbers",
        low=1.09,
        high=1.11,
        smallest=0.02,
        before_ms=11.0,
        after_ms=12.1,
    )
    return ReferenceResult(
        reference="main (abc1234)",
        commit="main",
        recorded=recorded,
        engine="pairs; and more",
        time=change,
        why="" if answer else "it is new since then",
    )


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer.SLOWER, Outcome.REGRESSED),
        (Answer.FASTER, Outcome.IMPROVED),
        (Answer.INCONCLUSIVE, Outcome.INCONCLUSIVE),
    ],
)
def test_a_difference_is_shown_with_the_numbers_of_both_sides(
    answer: Answer, outcome: Outcome
) -> None:
    settled = settlement(answer)

    (verdict,) = referred(a_test(time()), settled).verdicts

    assert verdict == Verdict(
        metric="step_ms",
        outcome=outcome,
        because=SAID,
        now=12.1,
        baseline=11.0,
        settlement=settled,
    )


@pytest.mark.parametrize(
    ("recorded", "moral"),
    [
        (
            True,
            (
                "the machine changed since the baseline was recorded, not the code: refresh "
                "it here"
            ),
        ),
        (
            False,
            (
                "the baseline is out of date, and not by this change: the machine changed, or "
                "the code had before it; refresh it here"
            ),
        ),
    ],
)
def test_code_that_is_the_same_passes_beside_what_is_stored(
    *, recorded: bool, moral: str
) -> None:
    settled = settlement(Answer.SAME, recorded=recorded)

    judged = referred(a_test(time()), settled)

    assert judged.verdicts == (
        Verdict(
            metric="step_ms",
            outcome=Outcome.PASS,
            because=f"{SAID}; {moral}",
            now=12.0,
            baseline=10.0,
            limit=10.5,
            settlement=settled,
        ),
    )
    assert judged.remarks == (f"step_ms: {SAID}; {moral}",)


def test_software_that_changed_acquits_nobody() -> None:
    judged = referred(a_test(time(), changed=TORCH), settlement(Answer.SAME))

    assert judged.outcome is Outcome.INCONCLUSIVE
    assert judged.verdicts[0].because == (
        f"{SAID}; not the code, but the machine or its software changed since the "
        "baseline was recorded: refresh it if the change is intended"
    )


@pytest.mark.parametrize("answer", [Answer.SLOWER, Answer.SAME, Answer.FASTER])
def test_budgets_and_exact_metrics_stay(answer: Answer) -> None:
    before = a_test(BUDGET, time(), SYNCS)

    judged = referred(before, settlement(answer))

    assert (judged.verdicts[0], judged.verdicts[2]) == (BUDGET, SYNCS)


def test_a_test_without_a_baseline_is_told_to_record_one() -> None:
    none = time(Outcome.NO_BASELINE, stored=False)

    judged = referred(a_test(none, changed=TORCH), settlement(Answer.SAME))

    assert judged.outcome is Outcome.PASS
    assert judged.remarks == (f"step_ms: {SAID}; it has no baseline: record one",)


def test_an_answer_holds_where_a_later_run_passes_the_baseline() -> None:
    judged = referred(a_test(time(Outcome.PASS)), settlement(Answer.SLOWER))

    assert judged.outcome is Outcome.REGRESSED


def test_without_an_answer_the_baseline_decides_and_the_reason_is_said() -> None:
    passed, doubtful = time(Outcome.PASS), time()
    unsettled = settlement(None)

    judged = referred(a_test(passed, doubtful, SYNCS), unsettled)

    assert [v.because for v in judged.verdicts] == [
        "stored",
        "stored; not decided by A/B against main (abc1234): it is new since then",
        "more",
    ]
    assert [v.outcome for v in judged.verdicts] == [
        Outcome.PASS,
        Outcome.REGRESSED,
        Outcome.REGRESSED,
    ]
    assert [v.settled for v in judged.verdicts] == [True, False, True]


def test_without_a_reference_nothing_is_said() -> None:
    before = a_test(time())

    assert referred(before, None) is before


@pytest.mark.parametrize(
    ("verdict", "doubtful"),
    [
        (time(Outcome.REGRESSED), True),
        (time(Outcome.INCONCLUSIVE), True),
        (time(Outcome.NO_BASELINE, stored=False), True),
        (time(Outcome.PASS), False),
        (time(Outcome.IMPROVED), False),
        (BUDGET, False),
        (time(Outcome.INCONCLUSIVE, stored=False), False),
        (SYNCS, False),
    ],
)
def test_a_time_is_in_doubt_that_its_baseline_does_not_pass(
    *, verdict: Verdict, doubtful: bool
) -> None:
    assert is_in_doubt(a_test(verdict)) is doubtful


def test_it_crosses_processes() -> None:
    judged = referred(a_test(time()), settlement(Answer.SLOWER))

    text = to_json(judged)

    assert from_json(text) == judged
    (raw,) = json.loads(text)["verdicts"]
    assert raw["settlement"]["time"]["ratio"] == 1.1
    assert raw["settlement"]["reference"] == "main (abc1234)"


def test_a_failure_names_the_command_that_compares_again() -> None:
    judged = referred(a_test(time()), settlement(Answer.SLOWER))

    text = failure_text(
        judged,
        nodeid=TEST,
        invocation=Invocation(options=("--gpuperf-device=cpu",)),
    )

    assert text.splitlines() == [
        "SLOWER: 12.10 ms per step, was 11.00 ms (+10.0 %)",
        f"  sure?    {SAID}",
        "  again    gpuperf ab main -- --gpuperf-device=cpu tests/test_train.py::test_step",
        "  accept   gpuperf refresh --accept-drift --device=cpu tests/test_train.py::test_step",
    ]
