"""``gpuperf bisect`` finds the first that trains otherwise, beside the first that is worse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from test_ab_packages import here
from test_bisect_packages import LISTED
from test_bisect_packages import Runs
from test_bisect_packages import _index
from test_bisect_packages import searched

from pytest_gpuperf.cli import bisect
from pytest_gpuperf.compare_commits.sides import Side
from pytest_gpuperf.model.ab import AbRun
from pytest_gpuperf.model.training import Training
from pytest_gpuperf.model.training import TrainingAnswer
from pytest_gpuperf.report.json import bisect as document


__all__ = ["_index", "here"]  # fixtures

NEVER = "9.0"

SAME = Training(answer=TrainingAnswer.SAME, text="all agree")
DIFFERS = Training(answer=TrainingAnswer.DIFFERS, text="loss of step 1: 4 % apart")
UNTOLD = Training(answer=TrainingAnswer.NOT_COMPARED, text="it draws without a seed")


class Trained(Runs):
    """Releases that train otherwise from *other_from* on; of those *untold* nobody knows."""

    def __init__(
        self, slow_from: str = NEVER, other_from: str = NEVER, untold: str = ""
    ) -> None:
        super().__init__(slow_from, broken="")
        self.other_from, self.untold = other_from, untold

    def __call__(self, sides: tuple[Side, Side], **_: object) -> AbRun:
        found = super().__call__(sides)
        version = found.after.rpartition(" ")[2]
        training = DIFFERS if version >= self.other_from else SAME
        if version in self.untold.split():
            training = UNTOLD
        return replace(found, calls=(replace(found.calls[0], training=training),))


def search(played: Trained, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(bisect, "compare_program", played)
    return searched("1.0..2.0", *options, "--", "train.py")


def test_a_release_that_trains_otherwise_is_found_where_nothing_is_worse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(Trained(other_from="1.5"), monkeypatch) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "train.py: training differs: loss of step 1: 4 % apart" in said
    assert "bad release" not in said
    assert said.endswith(
        "gpuperf: the first release that trains otherwise is fastops==1.5"
    )


def test_one_release_that_is_worse_and_another_that_trains_otherwise_are_both_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(Trained("1.5", other_from="1.2"), monkeypatch) == 0

    shown = capsys.readouterr()
    said = " ".join(shown.out.split())
    assert "after this folder with fastops 1.0 -> 1.5" in said
    assert "after this folder with fastops 1.0 -> 1.2" in said
    assert said.endswith(
        "gpuperf: the first bad release is fastops==1.5 gpuperf: the first release that "
        "trains otherwise is fastops==1.2"
    )
    compared = [line for line in shown.err.splitlines() if "comparing" in line]
    assert len(compared) == len(set(compared))


def test_one_release_that_does_both_is_shown_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(Trained("1.5", other_from="1.5"), monkeypatch) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert said.count("worse syncs 1 3 +2 train.py") == 1
    assert said.endswith(
        "gpuperf: the first bad release is fastops==1.5 gpuperf: the first release that "
        "trains otherwise is fastops==1.5"
    )


def test_a_release_whose_training_is_not_compared_is_skipped_and_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = Trained(other_from="1.4", untold="1.2")

    assert search(played, monkeypatch) == 1

    said = " ".join(capsys.readouterr().out.split())
    assert "fastops==1.2: training not compared: it draws without a seed" in said
    assert said.endswith(
        "the first release that trains otherwise is one of these 3; those between could "
        "not be judged"
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_end_whose_training_is_not_compared_is_never_passed_as_the_same(
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert search(Trained(untold=" ".join(LISTED)), monkeypatch, *options) == 4

    assert capsys.readouterr().err.splitlines()[-1] == (
        "gpuperf: fastops==2.0 is not known to be worse than fastops==1.0: training not compared: it "
        "draws without a seed [GP712]"
    )


@pytest.mark.parametrize(("slow_from", "worse"), [(NEVER, []), ("1.5", ["1.5"])])
def test_programs_read_both(
    slow_from: str,
    worse: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = Path(document.__file__).with_name("bisect_schema.json").read_text("utf-8")

    assert search(Trained(slow_from, other_from="1.5"), monkeypatch, "--json") == 0

    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads(schema))
    assert said["first_bad"] == worse
    assert said["training"]["first_bad"] == ["1.5"]
    assert said["training"]["comparison"]["status"] == 2
