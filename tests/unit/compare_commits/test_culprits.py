"""Which of the packages that changed made a test worse, by comparisons that are played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytest_gpuperf.compare_commits.culprits import Culprits
from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.ab import (
    AbRun,
    Comparison,
    ExactChange,
    Training,
    TrainingAnswer,
    Turn,
)


OLD = dict.fromkeys("abcdefgh", "1")
NEW = dict.fromkeys("abcdefgh", "2")


class Played:
    """Compares packages: of each rule, all of whose packages are new, the syncs come."""

    def __init__(self, rules: Mapping[str, int], apart: str = "") -> None:
        self.rules, self.apart = rules, apart
        self.asked: list[set[str]] = []
        self.most = 99

    def __call__(self, requirements: tuple[str, ...]) -> AbRun:
        new = {name for name, _, version in map(split, requirements) if version == "2"}
        self.asked.append(new)
        if len(self.asked) > self.most:
            raise KeyboardInterrupt
        if 0 < len(new.intersection(self.apart)) < len(self.apart):
            msg = "uv cannot install that: they do not fit"
            raise UsageError(msg, ErrorId.GP718)
        return self.of(new)

    def of(self, new: set[str]) -> AbRun:
        calls = []
        for test in ("t.py::a", "t.py::b"):
            waits = sum(
                count
                for rule, count in self.rules.items()
                if rule.endswith(test[-1]) and new.issuperset(rule.partition(":")[0])
            )
            change = ExactChange(
                metric="syncs", before=0, after=waits, turn=Turn.WORSE, gated=True
            )
            calls.append(Comparison(test=test, exact=(change,) if waits else ()))
        return AbRun(before="o", after="n", device="d", engine="e", calls=tuple(calls))


def lines(played: Played) -> list[str]:
    culprits = Culprits(played.of(set(NEW)), (OLD, NEW), played, lambda _: None)
    culprits.search()
    return list(culprits.lines())


def test_the_one_package_is_named_with_its_numbers() -> None:
    played = Played({"c:a": 2})

    assert lines(played) == [
        "c 1 -> 2: t.py::a: syncs 0 -> 2",
    ]
    assert len(played.asked) <= 7


def test_a_pair_that_does_it_only_together_is_named_so() -> None:
    first, *_ = lines(Played({"bg:a": 1}))

    assert first == "b 1 -> 2, g 1 -> 2, only together: t.py::a: syncs 0 -> 1"


def test_packages_that_do_not_install_apart_cannot_be_separated() -> None:
    first, *_ = lines(Played({"c:a": 1}, apart="cd"))

    assert first == (
        "c 1 -> 2, d 1 -> 2, which cannot be judged apart: t.py::a: syncs 0 -> 1"
    )


def test_two_packages_that_each_add_waits_are_both_named() -> None:
    said = lines(Played({"c:a": 2, "f:a": 1, "h:b": 4}))

    assert sorted(said) == [
        "c 1 -> 2: t.py::a: syncs 0 -> 2",
        "f 1 -> 2: t.py::a: syncs 0 -> 1",
        "h 1 -> 2: t.py::b: syncs 0 -> 4",
    ]


def test_what_takes_another_package_next_to_a_culprit_is_said() -> None:
    said = lines(Played({"c:a": 2, "ch:b": 1}))

    assert "t.py::b: syncs is worse only with more of the changes" in said


def test_a_rest_that_does_not_install_alone_is_no_proof_that_it_adds_nothing() -> None:
    class NoRest(Played):
        def __call__(self, requirements: tuple[str, ...]) -> AbRun:
            if sum(each.endswith("==2") for each in requirements) == len(NEW) - 1:
                msg = "uv cannot install that: they do not fit"
                raise UsageError(msg, ErrorId.GP718)
            return super().__call__(requirements)

    assert "the other changes cannot be judged without these" in lines(
        NoRest({"c:a": 1})
    )


def test_ctrl_c_leaves_what_is_known() -> None:
    played = Played({"c:a": 2})
    played.most = 1
    culprits = Culprits(played.of(set(NEW)), (OLD, NEW), played, lambda _: None)

    with pytest.raises(KeyboardInterrupt):
        culprits.search()

    assert culprits.left() == (
        "interrupted: what did it is among a 1 -> 2, b 1 -> 2, c 1 -> 2, d 1 -> 2"
    )
    assert not list(culprits.lines())


class Trained(Played):
    """Trains otherwise where the rules say so, and *untold* keeps that from being known."""

    def __init__(self, rules: Mapping[str, int], untold: str = "") -> None:
        super().__init__(rules)
        self.untold = untold

    def of(self, new: set[str]) -> AbRun:
        found = super().of(new)
        untold = new != set(NEW) and not new.isdisjoint(self.untold)
        other = TrainingAnswer.NOT_COMPARED if untold else TrainingAnswer.DIFFERS
        return replace(found, calls=tuple(self.told(c, other) for c in found.calls))

    def told(self, call: Comparison, other: TrainingAnswer) -> Comparison:
        is_told = other is TrainingAnswer.DIFFERS
        answer = TrainingAnswer.SAME if is_told and not call.exact else other
        text = f"{call.exact[0].after if call.exact else 0} apart"
        exact = call.exact if call.test.endswith("a") else ()
        return replace(call, exact=exact, training=Training(answer=answer, text=text))


def test_two_packages_of_which_one_waits_and_one_trains_otherwise_are_both_named() -> (
    None
):
    said = lines(Trained({"c:b": 2, "f:a": 1}))

    assert sorted(said) == [
        "c 1 -> 2: t.py::b: training differs: 2 apart",
        "f 1 -> 2: t.py::a: training differs: 1 apart; t.py::a: syncs 0 -> 1",
    ]


def test_a_pair_that_trains_otherwise_only_together_is_named_so() -> None:
    first, *_ = lines(Trained({"bg:b": 1}))

    assert (
        first == "b 1 -> 2, g 1 -> 2, only together: t.py::b: training differs: 1 apart"
    )


def test_a_training_that_cannot_be_compared_is_no_proof_that_it_is_the_same() -> None:
    first, *rest = lines(Trained({"c:b": 1}, untold="d"))

    assert first == "c 1 -> 2: t.py::b: training differs: 1 apart"
    assert "the other changes cannot be judged without these" in rest


def test_a_package_that_is_gone_is_not_installed_with_its_change() -> None:
    played = Played({"c:a": 1})
    culprits = Culprits(
        played.of({"c"}), ({"c": "1", "gone": "1"}, {"c": "2"}), played, lambda _: None
    )

    culprits.search()

    assert next(culprits.lines()).startswith("c 1 -> 2: ")


def split(requirement: str) -> tuple[str, str, str]:
    return requirement.partition("==")


def test_one_package_that_differs_needs_no_comparison() -> None:
    played = Played({"a:a": 2})
    pins = ({"a": OLD["a"]}, {"a": NEW["a"]})
    culprits = Culprits(played.of({"a"}), pins, played, lambda _: None)

    culprits.search()

    assert [*culprits.lines()] == ["a 1 -> 2: t.py::a: syncs 0 -> 2"]
