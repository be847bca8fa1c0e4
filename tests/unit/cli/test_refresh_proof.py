"""Which tests a comparison proves to be equal or better."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.cli.refresh_since import Proof
from pytest_gpuperf.cli.refresh_since import argument_of
from pytest_gpuperf.model.ab import AbResult
from pytest_gpuperf.model.ab import AbRun
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.ab import ExactChange
from pytest_gpuperf.model.ab import Turn
from pytest_gpuperf.report.command import Invocation


def change(turn: Turn, before: int, after: int) -> ExactChange:
    return ExactChange(
        metric="syncs", before=before, after=after, turn=turn, gated=True
    )


FOUND = AbRun(
    before="old",
    after="new",
    device="d",
    engine="e",
    calls=(
        Comparison(test="t.py::same"),
        Comparison(test="t.py::better[a#b]", exact=(change(Turn.BETTER, 2, 0),)),
        Comparison(test="t.py::two#1"),
        Comparison(test="t.py::two#2", exact=(change(Turn.WORSE, 0, 1),)),
        Comparison(
            test="t.py::unclear",
            time=AbResult(answer=Answer.INCONCLUSIVE, why="too few pairs"),
        ),
    ),
    uncompared=(
        Comparison(test="t.py::new", uncompared="after only"),
        Comparison(test="t.py::bad", uncompared="failed after: no\nE", broken=True),
    ),
)


def test_what_is_the_same_or_better_in_all_its_calls_is_proven() -> None:
    proof = Proof.of(FOUND)

    assert proof.proven == ("t.py::same", "t.py::better[a#b]")
    assert proof.others == {
        "t.py::two": "worse: syncs 0 -> 1",
        "t.py::unclear": "undecided: too few pairs",
        "t.py::new": "not compared: after only",
        "t.py::bad": "broken: failed after: no",
    }
    said = " ".join(" ".join(proof.lines(Invocation(options=("-x",)))).split())
    assert said.startswith(
        "gpuperf: of 6 tests 2 the same or better in training, counts and bytes; time was "
        "not judged; 4 for a person to decide"
    )
    assert said.endswith(
        "accept gpuperf refresh --accept-drift -x t.py::two t.py::unclear t.py::new t.py::bad"
    )


def test_a_test_is_named_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "t.py").touch()
    monkeypatch.chdir(tmp_path / "inner")

    assert argument_of("inner/t.py::same[a::b]") == "t.py::same[a::b]"
