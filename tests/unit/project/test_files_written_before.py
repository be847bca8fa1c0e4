"""Files that an earlier version wrote are read, judged and written as they were."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_measurement

from pytest_gpuperf.baselines import format as baseline_format
from pytest_gpuperf.baselines.acceptance import stored_changes
from pytest_gpuperf.baselines.drift import anchors_of
from pytest_gpuperf.cli import main
from pytest_gpuperf.judge.budget import ResolvedBudget
from pytest_gpuperf.judge.verdict import judge
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.baseline import Baselines, Entry
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.finding import CALLED, ranked
from pytest_gpuperf.model.metrics import METRICS, MetricKind
from pytest_gpuperf.model.retired import with_names_of_today
from pytest_gpuperf.report import json as results_json


WRITTEN = Path(__file__).parents[2] / "data" / "written_before"

PROJECTS = sorted(path for path in WRITTEN.iterdir() if path.is_dir())

FAILED = {
    "cpu": "test_reads_its_loss",
    "pretend": "test_reads_its_loss",
    "scripted": "test_over_budget",
}

DISTURBED = "test_it.py::test_disturbed"
"""Its runs were disturbed, which a pending file does not say."""


@pytest.fixture(params=PROJECTS, ids=lambda path: path.name)
def written(request: pytest.FixtureRequest) -> Path:
    """A project with all that it was left by an earlier version."""
    path: Path = request.param
    return path


@pytest.fixture
def copied(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which commands may change: the working directory."""
    monkeypatch.delenv("CI", raising=False)
    project = tmp_path / "project"
    shutil.copytree(written, project)
    (project / "left").rename(project / ".gpuperf")
    monkeypatch.chdir(project)
    return project


def baseline_of(project: Path) -> Path:
    (found,) = (project / "baselines").iterdir()
    return found


def pending_of(project: Path) -> Path:
    (found,) = project.glob("*/pending-*.json")
    return found


def read(path: Path) -> Baselines:
    return baseline_format.loads(path.read_text(encoding="utf-8"), str(path))


def results_of(project: Path) -> dict[str, Any]:
    text = (project / "left" / "results.json").read_text(encoding="utf-8")
    results: dict[str, Any] = json.loads(in_words_of_today(text))
    return results


def in_words_of_today(text: str) -> str:
    """The simulated GPU was called otherwise, as were some values and metrics."""
    return with_names_of_today(text).replace('"pretend"', '"simulated"')


def test_a_name_of_before_is_read_wherever_it_is_a_key_or_a_value() -> None:
    text = '{"kind": "maybe", "why": "maybe so", "said": "\\"maybe\\""}'

    assert json.loads(with_names_of_today(text)) == {
        "kind": "inconclusive",
        "why": "maybe so",
        "said": '"maybe"',
    }


@pytest.mark.parametrize("file_of", [baseline_of, pending_of])
def test_baselines_and_what_is_pending_are_read_and_written_as_of_today(
    file_of: Callable[[Path], Path], written: Path
) -> None:
    old = read(file_of(written))

    text = baseline_format.dumps(old)

    new = baseline_format.loads(text, "it")
    assert old.is_old
    assert not new.is_old
    assert in_short(new) == in_short(old)
    assert len(text.splitlines()) < len(file_of(written).read_text().splitlines())


def in_short(found: Baselines) -> dict[str, Entry]:
    """How much a call does is not stored any more."""

    def short(entry: Entry) -> Entry:
        lines = entry.lines and ranked(
            replace(line, per_step=1) if line.op == CALLED else line
            for line in entry.lines
        )
        return replace(entry, lines=lines)

    return {call: short(entry) for call, entry in found.entries.items()}


def test_a_refresh_in_which_nothing_moved_writes_and_renames_them(copied: Path) -> None:
    path = baseline_of(copied)
    old = read(path)

    stored_changes(copied / "baselines", old, {}, lock_folder=copied / ".gpuperf")

    new = baseline_of(copied)
    assert new.stem == old.hardware.key
    assert new.read_text(encoding="utf-8") == baseline_format.dumps(old)


def test_results_are_read_and_written_with_the_same_values(written: Path) -> None:
    path = written / "left" / "results.json"
    text = path.read_text(encoding="utf-8")

    results = results_json.loads(text, str(path))

    stored = json.loads(in_words_of_today(text))
    del stored["fail_on_improvement"]
    assert json.loads(results_json.dumps(results)) == stored


def test_each_verdict_of_the_results_says_what_it_said(written: Path) -> None:
    calls = [
        call
        for test in results_of(written)["tests"].values()
        for call in test["verdicts"]
    ]
    assert calls
    for call in calls:
        verdict = results_json.verdict_of(call, "results.json")
        time = (call.get("sides") or {}).pop("time", None)  # written in another way
        call.pop("diagnosis", None)  # what a step waits for is said no more
        assert says(encode(verdict), call)
        assert time is None or says_the_same(verdict.sides, time)


def says_the_same(sides: Comparison | None, old: dict[str, Any]) -> bool:
    """Whether the comparison of *sides* is the one that *old* gives as a speedup."""
    assert sides is not None
    new = sides.time
    assert new is not None
    assert new.answer.value == old["verdict"]
    assert new.smallest == old["smallest_slowdown"]
    for name in ("why", "before_ms", "after_ms", "p_value", "quads", "steps"):
        assert getattr(new, name) == old[name]
    bounds = (new.least_speedup, new.speedup, new.most_speedup)
    return bounds == (old["low"], old["speedup"], old["high"])


def says(new: Any, old: Any) -> bool:
    """Whether *new* has all that *old* says; it may say more."""
    if isinstance(old, dict):
        return all(name in new and says(new[name], old[name]) for name in old)
    if isinstance(old, list):
        return len(new) == len(old) and all(map(says, new, old))
    return bool(new == old)


def test_the_same_runs_are_judged_to_the_same_outcome_with_the_same_numbers(
    written: Path,
) -> None:
    stored, pending = read(baseline_of(written)), read(pending_of(written))
    judged = judged_then(written)
    assert judged
    for call, verdicts in judged.items():
        now = judged_now(call, pending, stored.entries[call])
        assert set(map(numbers, verdicts)) <= set(now), call


def test_a_metric_that_is_no_more_is_kept_and_judges_nothing(written: Path) -> None:
    text = baseline_of(written).read_text(encoding="utf-8")
    raw = json.loads(text)
    for entry in raw["tests"].values():
        for run in entry["runs"]:
            run["times"]["compile_s"] = dict.fromkeys(("q10", "q25", "q50", "mean"), 1)
            run["times"]["compile_s"]["samples"] = 1
        entry["anchor"]["compile_s"] = 1.0

    stored = baseline_format.loads(json.dumps(raw), "")

    assert '"compile_s"' in baseline_format.dumps(stored)
    pending, plain = read(pending_of(written)), baseline_format.loads(text, "")
    for call in judged_then(written):
        now = judged_now(call, pending, stored.entries[call])
        assert now == judged_now(call, pending, plain.entries[call])


def judged_then(project: Path) -> dict[str, list[dict[str, Any]]]:
    """Verdicts by a baseline, of the metrics that a summary of runs can be judged by."""
    found: dict[str, list[dict[str, Any]]] = {}
    for test in results_of(project)["tests"].values():
        for call in test["verdicts"]:
            against = [v for v in call["verdicts"] if "baseline" in v]
            found[call["test"]] = [v for v in against if is_told(project, call, v)]
    return {call: verdicts for call, verdicts in found.items() if verdicts}


def is_told(project: Path, call: dict[str, Any], verdict: dict[str, Any]) -> bool:
    """Whether a pending file tells all that the verdict rested on, and it is judged."""
    if verdict["metric"] not in METRICS:
        return False
    if METRICS[verdict["metric"]].kind is MetricKind.EXACT:
        return True
    return project.name == "scripted" and call["test"] != DISTURBED


def judged_now(call: str, pending: Baselines, entry: Entry) -> list[tuple[object, ...]]:
    fresh = pending.entries[call]
    environment = Environment(hardware=pending.hardware, software=fresh.software)
    runs = [
        a_measurement(
            None,
            test=call,
            environment=environment,
            times=run.times,
            exact=run.exact,
            board=run.board,
        )
        for run in fresh.runs
    ]
    assert fresh.judged is not None
    verdict = judge(call, runs, ResolvedBudget(), fresh.judged.tolerance, entry)
    return [
        (one["metric"], one["outcome"], rounded(one["now"]), rounded(one["baseline"]))
        for one in map(encode, verdict.verdicts)
        if one.get("baseline") is not None
    ]


def numbers(verdict: dict[str, Any]) -> tuple[object, ...]:
    return (
        verdict["metric"],
        verdict["outcome"],
        rounded(verdict["now"]),
        rounded(verdict["baseline"]),
    )


def rounded(value: float) -> str:
    """Four digits: a pending file has no more."""
    return f"{value:.4g}"


COUNTED = {"test_it.py::test_needs_more_memory", "test_it.py::test_waits_and_grows"}
"""Measured twice: their counts and bytes are accepted now, and were not then."""


def test_accepting_what_was_pending_stores_what_it_stored(copied: Path) -> None:
    accept = ["accept", "--accept-drift", str(pending_of(copied))]

    assert main(accept) == 0

    expected = read(copied / "accepted.json").entries
    found = read(baseline_of(copied))
    assert baseline_of(copied).stem == found.hardware.key
    stored = found.entries
    assert stored.keys() == expected.keys()
    for call in expected.keys() - COUNTED:
        assert stored[call].runs == expected[call].runs
        # More metrics have an anchor since `ops` and `flops` are judged.
        kind = found.hardware.kind
        kept = {n: v for n, v in expected[call].anchor.items() if n in METRICS}
        assert kept.items() <= anchors_of(stored[call], kind).items()


@pytest.mark.parametrize(
    "command", ["accept --dry-run --accept-drift .gpuperf", "report"]
)
def test_commands_show_them(
    command: str, written: Path, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(command.split())

    assert status == 0
    page = copied / ".gpuperf" / "report.html"
    out = capsys.readouterr().out
    shown = page.read_text(encoding="utf-8") if "report" in command else out
    assert FAILED[written.name] in shown
