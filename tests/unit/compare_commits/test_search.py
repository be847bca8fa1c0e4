"""The smallest bad set of changes, by as few questions as can be."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_gpuperf.compare_commits.culprits import (
    Changes,
    Mark,
    marked,
    smallest_bad,
    worse_of,
)
from pytest_gpuperf.model.ab import (
    AbResult,
    AbRun,
    Comparison,
    ExactChange,
    Training,
    TrainingAnswer,
    Turn,
)


NAMES = [f"{number}" for number in range(40)]


def in_all(*culprits: str) -> Callable[[Changes], Mark]:
    return lambda part: Mark.BAD if part.issuperset(culprits) else Mark.GOOD


def test_the_one_package_of_forty_is_named_after_a_few_questions() -> None:
    asked: list[Changes] = []

    def judge(part: Changes) -> Mark:
        asked.append(part)
        return in_all("17")(part)

    assert smallest_bad(NAMES, judge) == ("17",)
    assert len(asked) == len(set(asked)) <= 11


def test_a_set_that_does_not_install_is_neither_good_nor_bad() -> None:
    """5 needs 6: apart they do not install, and the two are named."""

    def judge(part: Changes) -> Mark:
        if ("5" in part) != ("6" in part):
            return Mark.SKIP
        return in_all("5")(part)

    assert set(smallest_bad(NAMES[:8], judge)) == {"5", "6"}


def test_whatever_is_named_is_bad_and_none_of_it_can_be_left_out() -> None:
    draw = random.Random(1)  # noqa: S311 - a test
    for _ in range(100):
        names = NAMES[: draw.randint(1, 12)]
        culprits = draw.sample(names, draw.randint(1, min(3, len(names))))
        broken = {frozenset(draw.sample(names, draw.randint(1, len(names))))}

        def judge(
            part: Changes, broken: set[Changes] = broken, culprits: list[str] = culprits
        ) -> Mark:
            return Mark.SKIP if part in broken else in_all(*culprits)(part)

        found = frozenset(smallest_bad(names, judge))

        assert found.issuperset(culprits)
        assert all(
            judge(found - {name}) is not Mark.BAD for name in found if len(found) > 1
        )


# The answer of a comparison to the change that is sought.

WAITS = ExactChange(metric="syncs", before=0, after=1, turn=Turn.WORSE, gated=True)
SOUGHT = [("t.py::a", "syncs")]
OTHER = Training(answer=TrainingAnswer.DIFFERS, text="1 apart")


def run_of(*calls: Comparison, uncompared: tuple[Comparison, ...] = ()) -> AbRun:
    return AbRun(
        before="o",
        after="n",
        device="d",
        engine="e",
        calls=calls,
        uncompared=uncompared,
    )


@pytest.mark.parametrize(
    ("call", "mark", "why"),
    [
        (Comparison(test="t.py::a", exact=(WAITS,)), Mark.BAD, ""),
        (
            Comparison(test="t.py::a", exact=(replace(WAITS, metric="launches"),)),
            Mark.GOOD,
            "",
        ),
        (Comparison(test="t.py::a", training=OTHER), Mark.GOOD, ""),
        (Comparison(test="t.py::a", time=AbResult.unknown("noise")), Mark.GOOD, ""),
        (
            Comparison(test="t.py::a", exact=(replace(WAITS, turn=Turn.VARIES),)),
            Mark.SKIP,
            "inconclusive",
        ),
        (Comparison(test="t.py::b"), Mark.SKIP, "it was not compared"),
    ],
)
def test_a_version_is_judged_by_what_is_sought_alone(
    call: Comparison, mark: Mark, why: str
) -> None:
    assert marked(run_of(call), SOUGHT) == (mark, why)


def test_a_test_that_was_not_compared_says_why() -> None:
    gone = Comparison(test="t.py::a", uncompared="before only")

    assert marked(run_of(uncompared=(gone,)), [("t.py::a#x", "syncs")]) == (
        Mark.SKIP,
        "before only",
    )


def test_a_test_that_fails_no_more_is_judged_by_any_of_its_calls() -> None:
    broken = Comparison(test="t.py::a", uncompared="failed after", broken=True)

    sought = worse_of(run_of(uncompared=(broken,)))

    assert sought == {("t.py::a", "the test"): "fails"}
    assert marked(run_of(Comparison(test="t.py::a#x")), sought) == (Mark.GOOD, "")
