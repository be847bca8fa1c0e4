"""With ``gpuperf_benchmark`` pytest-benchmark shows, saves and compares our numbers."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_project import ON, ScriptedProject

from pytest_gpuperf import timers
from pytest_gpuperf.devices.cuda import nvml


pytest.importorskip("pytest_benchmark.stats")
cpuinfo = pytest.importorskip("cpuinfo")

ACTIVE = ("-p", "pytest_benchmark.plugin")
FEED = (*ACTIVE, "--override-ini=gpuperf_benchmark=true")
WORKERS = ("-p", "xdist.plugin", "-n2")

STEPS = """
@pytest.mark.parametrize("size", [8, 16])
def test_sized(gpuperf, size): gpuperf(int)
def test_two(gpuperf):
    gpuperf(int)
    gpuperf(int, name="second")
def test_plain(): pass
"""


@pytest.fixture(autouse=True)
def no_cuda_known_yet() -> None:
    timers._cuda.cache_clear()


@pytest.fixture
def steps(project: ScriptedProject, monkeypatch: pytest.MonkeyPatch) -> ScriptedProject:
    """A project with four measured calls; to ask what CPU it has takes a second."""
    monkeypatch.setattr(cpuinfo, "get_cpu_info", dict)
    project.file(STEPS)
    return project


@pytest.fixture(params=[(), WORKERS], ids=["alone", "-n2"])
def workers(request: pytest.FixtureRequest) -> tuple[str, ...]:
    if request.param:
        pytest.importorskip("xdist")
    chosen: tuple[str, ...] = request.param
    return chosen


def saved(project: ScriptedProject, name: str = "out.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / name).read_text("utf-8"))
    return found


def test_each_call_stands_in_its_table_and_in_its_json(
    steps: ScriptedProject, workers: tuple[str, ...]
) -> None:
    result = steps.run(*FEED, *workers, "--benchmark-json=out.json")

    result.assert_outcomes(passed=4)
    result.stdout.re_match_lines([r"-+ benchmark 'gpuperf': 4 tests -+"])
    benchmarks = {b["fullname"]: b for b in saved(steps)["benchmarks"]}
    assert {name: b["name"] for name, b in benchmarks.items()} == {
        "test_it.py::test_sized[8]": "test_sized[8]",
        "test_it.py::test_sized[16]": "test_sized[16]",
        "test_it.py::test_two": "test_two",
        "test_it.py::test_two#second": "test_two#second",
    }
    sized = benchmarks["test_it.py::test_sized[8]"]
    assert (sized["group"], sized["param"]) == ("gpuperf", "8")
    assert sized["params"] == {"size": 8}
    assert benchmarks["test_it.py::test_two"]["params"] is None
    assert sized["stats"]["data"] == [0.01] * 20
    assert sized["extra_info"] == {
        "outcome": "no baseline",
        "runs": 1,
        "step_ms": 10,
        "peak_allocated_bytes": 104857600,
        "syncs": 0,
    }


def test_a_saved_run_is_compared_with_the_next(
    steps: ScriptedProject, workers: tuple[str, ...]
) -> None:
    steps.run(*FEED, *workers, "--benchmark-save=first", "-k", "sized")
    steps.script({"*": {"step_ms": 12.0}})

    result = steps.run(*FEED, *workers, "-k", "sized", "--benchmark-compare")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines_random(
        [
            r"test_sized\[8\] \(0001_first\) +10\.0000 .*",
            r"test_sized\[8\] \(NOW\) +12\.0000 .*",
        ]
    )


def test_only_what_is_measured_runs_where_only_benchmarks_are_asked_for(
    steps: ScriptedProject,
) -> None:
    result = steps.run(*FEED, "--benchmark-only", "--benchmark-json=out.json")

    result.assert_outcomes(passed=3, skipped=1)
    assert len(saved(steps)["benchmarks"]) == 4


def test_it_draws_its_histogram(steps: ScriptedProject) -> None:
    if find_spec("pygal") is None:  # to import it here would change how all others are
        pytest.skip("pygal is not installed")

    steps.pytester.runpytest_subprocess(*ON, *FEED, "--benchmark-histogram=drawn")

    assert "test_sized" in (steps.path / "drawn-gpuperf.svg").read_text("utf-8")


@pytest.mark.filterwarnings("ignore:Not saving anything")
@pytest.mark.parametrize(
    "arguments",
    [
        ACTIVE,
        (*FEED, "--benchmark-disable"),
        (*FEED, "--benchmark-skip"),
        (*FEED, "-k", "plain"),
    ],
)
def test_nobody_s_stored_benchmarks_change_unasked(
    steps: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    result = steps.run(*arguments, "--benchmark-json=out.json")

    assert result.ret == pytest.ExitCode.OK
    assert not (steps.path / "out.json").exists()
    result.stdout.no_fnmatch_line("*benchmark 'gpuperf'*")


def test_without_pytest_benchmark_the_option_is_an_error(
    steps: ScriptedProject,
) -> None:
    result = steps.run("--override-ini=gpuperf_benchmark=true")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines == [
        (
            "ERROR: ini key gpuperf_benchmark: pytest-benchmark is not active; install it with "
            "`pip install pytest-gpuperf[benchmark]`, do not disable it with `-p "
            "no:benchmark`, or leave the key out [GP108]"
        ),
        "",
    ]


def test_a_pytest_benchmark_that_changed_inside_costs_no_verdict(
    steps: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_benchmark.stats.Metadata", SimpleNamespace)

    result = steps.run(*FEED, "-k", "sized")

    result.assert_outcomes(passed=2, deselected=2)
    result.stdout.fnmatch_lines(
        [
            (
                "gpuperf: this pytest-benchmark takes no numbers from others (*); write a "
                "file for it with `gpuperf export pytest-benchmark`"
            )
        ]
    )


@pytest.mark.parametrize("asked", [True, False])
def test_its_machine_info_names_the_gpu_where_that_is_asked(
    steps: ScriptedProject, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    gpu = {"name": "NVIDIA H200", "driver": "570.1"}
    monkeypatch.setattr(nvml, "machine_gpus", lambda: gpu)
    steps.file("def test_own(benchmark): benchmark.pedantic(int)\n")

    steps.pytester.runpytest_inprocess(
        *ACTIVE,
        *(["--override-ini=gpuperf_benchmark=true"] if asked else []),
        "--benchmark-json=out.json",
    )

    assert saved(steps)["machine_info"].get("gpu") == (gpu if asked else None)


class FakeEvent:
    """Each is recorded 3 ms behind the one before."""

    recorded = 0

    def __init__(self, *, enable_timing: bool) -> None:
        self.at_ms = 0.0

    def record(self) -> None:
        FakeEvent.recorded += 1
        self.at_ms = 3.0 * FakeEvent.recorded

    def synchronize(self) -> None:
        """It has happened."""

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at_ms - self.at_ms


@pytest.mark.parametrize("timer", ["cuda_sync", "cuda_event"])
def test_its_own_fixture_can_use_our_timers(
    steps: ScriptedProject, monkeypatch: pytest.MonkeyPatch, timer: str
) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: None, Event=FakeEvent
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    steps.file("def test_own(benchmark): benchmark.pedantic(int, rounds=2)\n")

    result = steps.pytester.runpytest_inprocess(
        *ACTIVE,
        f"--benchmark-timer=pytest_gpuperf.timers.{timer}",
        "--benchmark-json=out.json",
    )

    result.assert_outcomes(passed=1)
    (benchmark,) = saved(steps)["benchmarks"]
    assert benchmark["options"]["timer"] == timer
    if timer == "cuda_event":
        assert benchmark["stats"]["data"] == [0.003, 0.003]
