"""``gpuperf bisect --package``: the release that made a test worse; nothing is run here."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from test_ab_packages import Shelf
from test_ab_packages import here

from pytest_gpuperf.cli import bisect
from pytest_gpuperf.cli import main
from pytest_gpuperf.compare_commits.sides import Side
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.ab import AbRun
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.ab import ExactChange
from pytest_gpuperf.model.ab import Turn
from pytest_gpuperf.report.json import bisect as document


__all__ = ["here"]  # a fixture

LISTED = ("3.0", "2.0", "1.5", "1.4", "1.3", "1.2", "1.1", "1.0")

WORSE = ExactChange(metric="syncs", before=1, after=3, turn=Turn.WORSE, gated=True)


class Runs:
    """Compares releases of which those from *slow_from* on wait, and *broken* fail."""

    def __init__(self, slow_from: str = "1.5", broken: str = "1.2") -> None:
        self.slow_from, self.broken = slow_from, broken

    def __call__(self, sides: tuple[Side, Side], **_: object) -> AbRun:
        before, after = sides
        version = "".join(after.packages.changes).rpartition(" ")[2]
        if version == self.broken:
            msg = f"{after.label}: train.py ended with exit status 1: no"
            raise UsageError(msg, ErrorId.GP709)
        exact = (WORSE,) if version >= self.slow_from else ()
        call = Comparison(test="train.py", exact=exact, pairs=2)
        return AbRun(
            before=before.label,
            after=after.label,
            device="pretend-cuda",
            engine="the program",
            calls=(call,),
        )


@pytest.fixture(autouse=True)
def _index(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = {f"fastops=={v}": "" for v in LISTED if v != "1.3"}
    monkeypatch.setattr(Shelf, "CODE", {"fastops==1.0": "", **code})
    monkeypatch.setattr(bisect, "releases", lambda _: LISTED)
    monkeypatch.setattr(bisect, "compare_program", Runs())
    Path("train.py").write_text("")


def searched(span: str, *arguments: str) -> int:
    return main(["bisect", f"--package=fastops=={span}", *arguments])


def test_the_first_release_that_waits_is_named_and_those_that_were_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert searched("1.0..2.0", "--", "train.py", "2") == 0

    shown = capsys.readouterr()
    assert shown.err.startswith("gpuperf: 7 releases, 1.0 to 2.0\n")
    assert "after this folder with fastops 1.0 -> 1.5" in shown.out
    assert "worse    syncs        1      3      +2  train.py" in shown.out
    said = " ".join(shown.out.split())
    assert said.endswith(
        "note: skipped fastops==1.3: uv cannot install that: there is no such version "
        "gpuperf: the first bad release is fastops==1.5"
    )


def test_releases_that_cannot_be_judged_are_listed_with_the_first_bad_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bisect, "compare_program", Runs("1.4", broken="1.2"))

    assert searched("1.0..2.0", "--", "train.py") == 1

    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "fastops==1.2: this folder with fastops 1.0 -> 1.2: train.py ended with exit "
        "status 1: no "
        "fastops==1.3: uv cannot install that: there is no such version fastops==1.4 "
        "gpuperf: the first bad release is one of these 3; those between could not be "
        "judged"
    )


@pytest.mark.parametrize(
    ("broken", "status", "first_bad"),
    [("1.2", 0, ["1.5"]), ("1.4", 1, ["1.3", "1.4", "1.5"])],
)
def test_programs_read_json(
    broken: str,
    status: int,
    first_bad: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bisect, "compare_program", Runs(broken=broken))
    schema = Path(document.__file__).with_name("bisect_schema.json").read_text("utf-8")

    assert searched("1.0..2.0", "--json", "--", "train.py") == status

    said = json.loads(capsys.readouterr().out)
    jsonschema.validate(said, json.loads(schema))
    assert said["first_bad"] == first_bad
    assert (said["what"], said["good"]) == ("release", "fastops==1.0")
    assert {each["version"] for each in said["skipped"]} >= {"1.3"}
    assert (said["comparison"] is None) == (status == 1)


def test_a_range_that_is_not_worse_says_so_by_its_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert searched("1.0..1.4", "--", "train.py") == 4

    last = capsys.readouterr().err.splitlines()[-1]
    assert last == (
        "gpuperf: fastops==1.4 is not worse than fastops==1.0: there is nothing to find "
        "[GP712]"
    )


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["1.0..2.0"], "found no name: expected GOOD BAD unless there is a --package"),
        (["1.0..2.0", "A", "B", "test_it.py"], "found A B test_it.py: expected"),
        (["2.0", "test_it.py"], "--package=fastops==2.0: expected PACKAGE==GOOD..BAD"),
        (["2.0..2.9", "test_it.py"], "only 2.0 is in this range"),
        (
            ["1.3..1.4", "test_it.py"],
            "uv cannot install that: there is no such version",
        ),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert searched(*typed) == 4

    assert said in " ".join(capsys.readouterr().err.split())
