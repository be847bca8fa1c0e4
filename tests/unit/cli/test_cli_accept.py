"""``gpuperf accept``: what it takes over, what it leaves alone, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from builders import (
    H200,
    SIMULATED,
    a_finding,
    a_regression,
    a_run,
    a_test,
    an_entry,
    baselines,
    save,
    some_results,
)

from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.baselines.store import path_of, pending_path
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.baseline import Entry, Judged
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.report import json as results_json


BASELINES = path_of(Path("baselines"), H200)
PENDING = pending_path(Path(".gpuperf"), H200)
WAY_OUT = "measure again with `pytest --gpuperf`, or download the file again [GP502]"


def entry(
    ms: float,
    runs: int = 8,
    *,
    outcome: Outcome | None = None,
    tolerance: Tolerance | None = None,
    anchor: Mapping[str, float] | None = None,
) -> Entry:
    judged = outcome and Judged(
        outcomes={"step_ms": (outcome,)}, tolerance=tolerance or Tolerance()
    )
    return an_entry(*[ms] * runs, software={}, anchor=anchor or {}, judged=judged)


def stored() -> Mapping[str, Entry]:
    return loads(BASELINES.read_text("utf-8"), "stored").entries


def times() -> dict[str, tuple[float, int]]:
    """Milliseconds and number of runs of each stored test."""
    return {
        test: (entry.runs[0].times["step_ms"].q50, len(entry.runs))
        for test, entry in stored().items()
    }


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)


def accept(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What the command prints, with the exit code that is expected."""
    assert main(["accept", str(PENDING), *arguments]) == status
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["accept", *(arguments or (str(PENDING),))]) == 4
    output, error = capsys.readouterr()
    assert output == ""
    return error


def test_what_moved_is_stored_with_its_anchor_and_the_rest_is_left_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(BASELINES, H200, slower=entry(10.0), same=entry(5.0), absent=entry(1.0))
    regressed = entry(10.2, 5, outcome=Outcome.REGRESSED, anchor={"step_ms": 99.0})
    save(PENDING, H200, slower=regressed, same=entry(5.0, 1), new=entry(2.0))

    assert accept(capsys).splitlines()[-1] == (
        "gpuperf: 2 accepted; 1 kept, moved less than the noise"
    )
    assert times() == {
        "absent": (1.0, 8),
        "new": (2.0, 8),
        "same": (5.0, 8),
        "slower": (10.2, 5),
    }
    assert stored()["slower"].anchor == {"step_ms": 10.0}
    assert stored()["slower"].judged is None


def test_what_drifted_beyond_detect_needs_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(BASELINES, H200, **{"t.py::test[a b]": entry(10.0)})
    save(PENDING, H200, **{"t.py::test[a b]": entry(12.0, outcome=Outcome.REGRESSED)})

    assert accept(capsys, status=1) == (
        """\
not accepted, too far from the last accepted value:
accepted       now    drift     allowed  metric   test
10.00 ms  12.00 ms  +20.0 %  detect 3 %  step_ms  t.py::test[a b]
look for the cause, or accept it with:
    gpuperf accept --accept-drift --only 't.py::test[a b]' .gpuperf/pending-cuda-nvidia-h200.json
gpuperf: 0 accepted; 1 NOT ACCEPTED, too far from the last accepted value:
    t.py::test[a b]
"""
    )
    assert times() == {"t.py::test[a b]": (10.0, 8)}

    accept(capsys, "--accept-drift", "--only", "t.py::test[a b]")

    assert stored()["t.py::test[a b]"].anchor == {}


def test_the_drift_is_counted_from_the_anchor_and_by_the_authors_tolerance(
    capsys: pytest.CaptureFixture[str],
) -> None:
    anchored = entry(10.0, anchor={"step_ms": 9.0})
    save(BASELINES, H200, strict=anchored, lax=anchored)
    lax = Tolerance(detect=0.5)
    save(
        PENDING,
        strict=entry(10.1, outcome=Outcome.PASS),
        lax=entry(10.1, outcome=Outcome.PASS, tolerance=lax),
    )

    accept(capsys, status=1)

    assert times() == {"strict": (10.0, 8), "lax": (10.1, 8)}


@pytest.mark.parametrize(
    ("kinds", "taken"),
    [
        ("missing", ["new"]),
        ("improved", ["faster"]),
        ("missing,improved", ["faster", "new"]),
        ("improved, missing", ["faster", "new"]),
        ("all", ["faster", "new", "slower", "within"]),
    ],
)
def test_the_kinds_are_those_of_a_refresh(
    kinds: str, taken: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    save(BASELINES, H200, slower=entry(10.0), faster=entry(10.0), within=entry(10.0))
    save(
        PENDING,
        slower=entry(10.2, outcome=Outcome.REGRESSED),
        faster=entry(9.0, outcome=Outcome.IMPROVED),
        within=entry(10.05, outcome=Outcome.PASS),
        new=entry(7.0, outcome=Outcome.NO_BASELINE),
    )

    accept(capsys, "--kind", kinds)

    assert sorted(t for t, (ms, _) in times().items() if ms != 10.0) == taken


TESTS = (
    "a/test_x.py::test_step[fp16]",
    "a/test_x.py::test_step[fp32]",
    "a/test_x.py::test_step_two",
    "b/test_y.py::TestIt::test_z#eval",
)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("a/test_x.py::test_step[fp16]", [0]),
        ("a/test_x.py::test_step", [0, 1]),
        ("a/test_x.py", [0, 1, 2]),
        ("b", [3]),
        ("b/test_y.py::TestIt", [3]),
        ("b/test_y.py::TestIt::test_z", [3]),
        ("*::test_step[fp*]", [0, 1]),
        ("*step*", [0, 1, 2]),
        ("*test_?.py*", [0, 1, 2, 3]),
    ],
)
def test_a_name_means_a_test_or_what_it_stands_in(
    name: str, places: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    save(PENDING, H200, **{test: entry(1.0) for test in TESTS})

    accept(capsys, "--only", name)

    assert sorted(times()) == [TESTS[place] for place in places]


def test_a_name_of_no_test_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save(PENDING, H200, test_a=entry(1.0), test_b=entry(1.0))

    assert refusal(capsys, str(PENDING), "--only", "test_c") == (
        "gpuperf: --only 'test_c' names no test in "
        ".gpuperf/pending-cuda-nvidia-h200.json, which has test_a, test_b [GP511]\n"
    )
    assert not BASELINES.exists()


def test_one_run_does_not_replace_eight(capsys: pytest.CaptureFixture[str]) -> None:
    save(BASELINES, H200, old=entry(10.0))
    save(PENDING, H200, old=entry(10.05, 1, outcome=Outcome.PASS), new=entry(2.0, 1))

    assert accept(capsys).splitlines()[-3:] == [
        "  -  2.000 ms     new  step_ms  new",
        "gpuperf: 1 accepted; 1 of them from fewer than 5 runs, too few to know how it",
        "    varies: new; 1 kept, measured in fewer than 5 runs: old",
    ]
    assert times() == {"old": (10.0, 8), "new": (2.0, 1)}


def counted(
    ms: float, syncs: int, runs: int, outcome: str = "", torch: str = "2.13"
) -> Entry:
    """An entry of a time and a count; *outcome* is what was said of one of them."""
    metric, _, said = outcome.partition(" ")
    judged = Judged(outcomes={metric: (Outcome(said),)}) if outcome else None
    summary = a_run(ms, exact={"syncs": syncs})
    return an_entry(*[summary] * runs, software={"torch": torch}, judged=judged)


def counts(test: str) -> list[tuple[float, int]]:
    """Time and syncs of each stored run."""
    return [
        (run.times["step_ms"].q50, run.exact["syncs"]) for run in stored()[test].runs
    ]


def test_two_runs_that_prove_a_count_give_it_to_the_stored_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(BASELINES, H200, waits=counted(10.0, 0, 8))
    save(PENDING, H200, waits=counted(10.1, 1, 2, "syncs regressed"))

    assert accept(capsys, "--accept-drift", "--only", "waits").splitlines()[1:] == [
        "old  new  change  metric  test",
        "  0    1      +1  syncs   waits",
        "gpuperf: 1 accepted; 1 of them with its counts and bytes alone, as fewer than 5",
        "    runs say no time: waits",
    ]
    assert counts("waits") == [(10.0, 1)] * 8
    assert stored()["waits"].anchor == {}


@pytest.mark.parametrize(
    ("pending", "why"),
    [
        (counted(20.0, 1, 2, "step_ms regressed"), "its time has changed"),
        (counted(10.0, 1, 1, "syncs regressed"), "one run proves nothing"),
        (counted(10.0, 1, 2, "syncs regressed", torch="2.14"), "of another torch"),
    ],
)
def test_what_few_runs_cannot_prove_is_not_accepted_and_said(
    pending: Entry, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(BASELINES, H200, waits=counted(10.0, 0, 8))
    save(PENDING, H200, waits=pending)

    assert accept(capsys, "--accept-drift", status=1) == (
        """\
not accepted, measured in fewer than 5 runs, which a baseline of times needs:
    waits; measure it with:
    gpuperf refresh --accept-drift --device=cuda waits
gpuperf: 0 accepted; 1 NOT ACCEPTED, measured in fewer than 5 runs: waits
"""
    )
    assert counts("waits") == [(10.0, 0)] * 8


def test_a_regression_smaller_than_the_noise_is_accepted_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    noisy = [9.6, 9.8, 9.9, 10.0, 10.0, 10.1, 10.2, 10.4]
    runs = tuple(entry(ms, 1).runs[0] for ms in noisy)
    save(BASELINES, H200, slower=an_entry(*runs))
    slower = tuple(entry(ms + 0.15, 1).runs[0] for ms in noisy)
    judged = Judged(outcomes={"step_ms": (Outcome.REGRESSED,)})
    save(PENDING, H200, slower=an_entry(*slower, judged=judged))

    assert accept(capsys).endswith("gpuperf: 1 accepted\n")


def test_two_runs_are_enough_where_there_are_no_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def leave(path: Path, syncs: int, **runs: int) -> None:
        run = a_run(None, exact={"syncs": syncs})
        save(
            path, SIMULATED, **{test: an_entry(*[run] * n) for test, n in runs.items()}
        )

    leave(path_of(Path("baselines"), SIMULATED), 3, once=2, twice=2)
    leave(pending_path(PENDING.parent, SIMULATED), 2, once=1, twice=2, new=1)

    assert main(["accept", ".gpuperf"]) == 0
    assert capsys.readouterr().out == (
        """\
accepted into baselines/simulated-cuda.json:
old  new  change  metric  test
  -    2     new  syncs   new
  3    2      -1  syncs   twice
gpuperf: 2 accepted; 1 of them from fewer than 2 runs, too few to know how it
    varies: new; 1 kept, measured in fewer than 2 runs: once
"""
    )


def test_nothing_that_is_chosen_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    save(PENDING, H200, test_a=entry(1.0), test_b=entry(1.0))
    none = "gpuperf: nothing to accept for cuda-nvidia-h200"

    assert accept(capsys, "--kind=improved") == (
        f"{none}: none of its 2 tests is improved\n"
    )
    assert accept(capsys, "--kind=improved", "--only=test_b", status=1) == (
        f"{none}: its test is not improved\n"
    )
    assert look(capsys, "--kind=improved", "--only=test_b") == [
        f"{none}: its test is not improved"
    ]
    assert not BASELINES.exists()


@pytest.mark.parametrize("allowed", ["", "1"])
def test_ci_accepts_nothing_unless_it_is_meant_to(
    allowed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(PENDING, H200, test_a=entry(1.0))
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("GPUPERF_ALLOW_CI_UPDATE", allowed)

    if allowed:
        accept(capsys)
        assert list(times()) == ["test_a"]
        return
    assert refusal(capsys) == (
        "gpuperf: gpuperf accept was asked for, but CI is set and a gate must not move "
        "its own baseline: accept on a developer's machine, or set "
        "GPUPERF_ALLOW_CI_UPDATE=1 in a job for refreshing [GP104]\n"
    )
    assert not BASELINES.exists()


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["accept", "look"])
def test_a_file_that_is_none_is_refused(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    PENDING.parent.mkdir()
    PENDING.write_text("{}", "utf-8")

    assert refusal(capsys, str(PENDING), *options) == (
        f'gpuperf: {PENDING}: the file has no field "hardware"; {WAY_OUT}\n'
    )


def test_a_file_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert refusal(capsys) == (
        f"gpuperf: {PENDING}: cannot be read ([Errno 2] No such file or directory: "
        f"'{PENDING}'); expected a baseline file [GP501]\n"
    )


def test_a_file_that_is_named_for_other_hardware_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = PENDING.with_name("pending-cuda-nvidia-h100.json")
    save(other, H200, test_a=entry(1.0))

    assert refusal(capsys, str(other)) == (
        "gpuperf: .gpuperf/pending-cuda-nvidia-h100.json: measured on cuda NVIDIA H200, "
        "but the name says cuda-nvidia-h100; rename it to "
        "pending-cuda-nvidia-h200.json [GP504]\n"
    )


@pytest.mark.parametrize(
    ("judged", "complaint"),
    [
        ('{"outcomes": {"step_ms": ["slow"]}}', "expected outcomes and a tolerance"),
        ('{"tolerance": {"detect": NaN}}', "expected a number from 0 up, found nan"),
        ('{"tolerance": {"ratios": {"ms": -1}}}', "expected a number from 0 up"),
        ("[]", "expected outcomes and a tolerance, found []"),
    ],
)
def test_a_word_of_a_run_that_none_said_is_refused(
    judged: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save(PENDING, H200, test_a=entry(1.0))
    text = PENDING.read_text("utf-8").replace(
        '"test_a": {', f'"test_a": {{"judged": {judged},'
    )
    PENDING.write_text(text, "utf-8")

    error = refusal(capsys)

    assert error.startswith(f"gpuperf: {PENDING}: tests.test_a.judged")
    assert complaint in error
    assert error.endswith(f"; {WAY_OUT}\n")


def test_a_folder_stands_for_what_is_pending_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(PENDING, H200, test_a=entry(1.0))
    save(PENDING.with_name("unrelated.json"))

    assert main(["accept", ".gpuperf"]) == 0
    assert list(times()) == ["test_a"]


def test_a_name_may_be_of_one_hardware_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    h100 = Hardware(kind=DeviceKind.CUDA, name="NVIDIA H100")
    other = pending_path(PENDING.parent, h100)
    save(PENDING, H200, test_a=entry(1.0))
    other.write_text(dumps(baselines(h100)), "utf-8")

    assert main(["accept", ".gpuperf", "--only=test_a"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "gpuperf: nothing to accept for cuda-nvidia-h100",
        "accepted into baselines/cuda-nvidia-h200.json:",
    ]


def test_a_folder_without_any_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".gpuperf").mkdir()

    assert refusal(capsys, ".gpuperf") == (
        "gpuperf: .gpuperf: has no pending-<hardware>.json; name the folder that a run "
        "left [GP510]\n"
    )


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, str(PENDING), "--kind=missing,some") == (
        "gpuperf: argument --kind: expected some of missing, improved, all, evidence, "
        "found 'missing,some'; see `gpuperf accept --help` [GP102]\n"
    )


def look(capsys: pytest.CaptureFixture[str], *arguments: str) -> Sequence[str]:
    assert main(["accept", "--dry-run", str(PENDING), *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_dry_run_says_what_would_be_accepted_and_writes_nothing(
    ci: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", ci)
    save(BASELINES, H200, drifted=entry(10.0), moved=entry(10.0))
    save(PENDING, H200, drifted=entry(12.0), moved=entry(10.1), new=entry(1.0))
    before = BASELINES.read_bytes()

    assert look(capsys)[:4] == [
        "would be accepted into baselines/cuda-nvidia-h200.json:",
        "     old       new  change  metric   test",
        "10.00 ms  10.10 ms  +1.0 %  step_ms  moved",
        "       -  1.000 ms     new  step_ms  new",
    ]
    assert look(capsys, "--only", "m*", "--accept-drift")[2:] == [
        "10.00 ms  10.10 ms  +1.0 %  step_ms  moved",
        "gpuperf: nothing was written; `gpuperf accept` would accept 1",
    ]
    assert BASELINES.read_bytes() == before
    assert [*Path(".gpuperf").iterdir()] == [PENDING]


def of_session(found: Entry, day: int) -> Entry:
    named = f"2026-01-{day:02}T09:00Z-0000"
    runs = tuple(replace(run, session=named) for run in found.runs)
    return replace(found, runs=runs)


def test_evidence_is_added_and_nothing_is_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = entry(10.0, anchor={"step_ms": 9.9})
    save(BASELINES, H200, passed=before, slower=before, stored=of_session(before, 2))
    passed, slower = (
        entry(10.1, 1, outcome=o) for o in (Outcome.PASS, Outcome.REGRESSED)
    )
    save(
        PENDING,
        passed=of_session(passed, 2),
        slower=of_session(slower, 2),
        stored=of_session(passed, 2),
        new=of_session(passed, 2),
    )

    assert look(capsys, "--evidence") == [
        "gpuperf: nothing was written; `gpuperf accept` would accept 1; 1 not added to:",
        "    changed, disturbed, of another torch, or stored already: stored",
    ]
    assert accept(capsys, "--evidence") == (
        """\
gpuperf: 1 added to, as another session; 1 not added to: changed, disturbed, of
    another torch, or stored already: stored
"""
    )
    assert times() == {"passed": (10.0, 9), "slower": (10.0, 8), "stored": (10.0, 8)}
    assert stored()["passed"].runs[-1].session == "2026-01-02T09:00Z-0000"
    assert stored()["passed"].anchor == {"step_ms": 9.9}


# Tests by the line that made them worse.

SYNC = a_regression("syncs", 1, 0)
SLOWER = a_regression("step_ms", 12.0, 10.0)
THE_LINE = a_finding(line=17, stored=0, source="self.last = loss.item()")
BY_THE_LINE = a_test(SYNC, test="t.py::test_step", findings=(THE_LINE,))
A_CALL = a_test(SYNC, test="t.py::test_step#eval", findings=())
BY_TWO_LINES = a_test(
    SYNC,
    test="t.py::test_more",
    findings=(THE_LINE, a_finding(line=30, stored=0, source="print(loss)")),
)
SLOWER_TOO = a_test(SYNC, SLOWER, test="t.py::test_slow", findings=(THE_LINE,))


def a_run_left(*verdicts: TestVerdict, hardware: Hardware = H200) -> None:
    """Write what a run measured of these calls, and what became of them."""
    left = some_results(verdicts, hardware=hardware)
    (PENDING.parent / "results.json").write_text(results_json.dumps(left), "utf-8")
    measured = {v.test: entry(10.0, outcome=Outcome.REGRESSED) for v in verdicts}
    save(pending_path(PENDING.parent, hardware), hardware, **measured)


def test_a_line_accepts_the_tests_that_it_alone_made_worse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    PENDING.parent.mkdir()
    a_run_left(BY_THE_LINE, A_CALL, BY_TWO_LINES, SLOWER_TOO)
    save(pending_path(PENDING.parent, SIMULATED), SIMULATED, other=entry(1.0))

    assert main(["accept", "--only", "train.py:17"]) == 0

    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "left as it was, as it became worse for more reasons: t.py::test_more",
        "left as it was, as it became worse for more reasons: t.py::test_slow",
        "gpuperf: 1 accepted",
    ]
    assert [*stored()] == ["t.py::test_step"]
    assert not path_of(Path("baselines"), SIMULATED).exists()


def test_a_line_accepts_no_drift_that_it_does_not_explain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    PENDING.parent.mkdir()
    a_run_left(BY_THE_LINE, replace(BY_THE_LINE, test="t.py::test_other"))
    # The time of one has drifted since it was accepted, and no verdict blames it.
    before = {"t.py::test_step": entry(10.0), "t.py::test_other": entry(8.0)}
    save(BASELINES, H200, **before)

    assert main(["accept", "--only", "train.py:17"]) == 0

    said = capsys.readouterr().out
    assert "became worse for more reasons: t.py::test_other" in said
    assert times()["t.py::test_other"] == (8.0, 8)


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (["train.py:99"], "no test became worse there"),
        (["train.py:30"], "t.py::test_more became worse for more reasons"),
        (["train.py:17", "t.py::test_step"], "expected FILE:LINE only"),
    ],
)
def test_a_line_that_made_no_test_worse_alone_accepts_nothing(
    capsys: pytest.CaptureFixture[str], only: Sequence[str], found: str
) -> None:
    PENDING.parent.mkdir()
    a_run_left(BY_THE_LINE, BY_TWO_LINES)

    error = refusal(capsys, *(f"--only={name}" for name in only))

    assert found in error
    assert "[GP511]" in error
    assert not BASELINES.exists()


def test_a_line_needs_the_results_of_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save(PENDING, H200, **{"t.py::test_step": entry(1.0)})

    error = refusal(capsys, "--only=train.py:17")

    assert "results.json: there is no such file; --only FILE:LINE needs" in error
