"""The training of both sides is asked once, and again where it seems to differ."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpuperf.compare_commits.pairs import Train, Trainings
from pytest_gpuperf.model.ab import (
    Comparison,
    Recorded,
    Sketch,
    TrainedStep,
    TrainingAnswer,
    TrainingRecord,
)
from pytest_gpuperf.runner.screening import Group


def record(loss: float) -> TrainingRecord:
    number = Sketch(shape=(), norm=loss, sums=(loss,))
    return TrainingRecord(steps=(TrainedStep(returned=number),))


def side(**losses: Iterator[float]) -> Train:
    """Give each test the next of its losses, and a failure where there is none."""

    def train(group: Group) -> Recorded:
        found = {test: next(losses[test], None) for test in group}
        return Recorded(
            records={t: record(loss) for t, loss in found.items() if loss is not None},
            failed={test: "it broke" for test in found if found[test] is None},
        )

    return train


def asked(
    before: Train, after: Train, *groups: Group
) -> tuple[Trainings, list[object]]:
    trainings, seen = Trainings(before, after), list[object]()
    trainings.ask(groups, seen.append, seen.append)
    return trainings, seen


def answer(trainings: Trainings, test: str) -> tuple[TrainingAnswer, str]:
    found = trainings.added_to(Comparison(test=test)).training
    assert found is not None
    return found.answer, found.text


def test_what_is_equal_is_asked_once() -> None:
    trainings, seen = asked(side(a=iter([1.0])), side(a=iter([1.0])), ("a",))

    assert answer(trainings, "a")[0] is TrainingAnswer.SAME
    assert seen == ["training 1 of at most 2: 1 test", 0]


def test_what_differs_is_asked_again_in_processes_of_another_server() -> None:
    before = side(a=iter([1.0]), b=iter([1.0, 1.0]))
    after = side(a=iter([1.0]), b=iter([2.0, 2.0]))

    trainings, seen = asked(before, after, ("a",), ("b",))

    assert answer(trainings, "a")[0] is TrainingAnswer.SAME
    assert answer(trainings, "b")[0] is TrainingAnswer.DIFFERS
    assert seen == [
        "training 1 of at most 2: 2 tests",
        0,
        "training 2 of at most 2: 1 test",
        1,
        0,
    ]


def test_a_test_that_fails_is_not_compared() -> None:
    trainings, _ = asked(side(a=iter([])), side(a=iter([1.0])), ("a",))

    assert answer(trainings, "a") == (TrainingAnswer.NOT_COMPARED, "it broke")


def test_what_was_not_asked_has_no_answer() -> None:
    trainings = Trainings(side(), side())

    assert trainings.added_to(Comparison(test="a")).training is None
