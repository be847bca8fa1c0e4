"""``gpuperf doctor``: whole outputs, on a scripted device and on canned answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import H200
from builders import PRETEND
from builders import a_measurement
from builders import an_entry
from builders import save

from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.cli import doctor
from pytest_gpuperf.cli import main
from pytest_gpuperf.errors import ErrorId
from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.checkup import Examination
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import DeviceSlot
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Board
from pytest_gpuperf.model.results import ProjectSettings
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.sharing.device_lock import DeviceLock
from pytest_gpuperf.sharing.device_lock import lock_folder


pytestmark = pytest.mark.slow


GPU = Environment(
    hardware=H200,
    software={
        "torch": "2.11.0+cu130",
        "cuda": "13.0",
        "driver": "580.95.05",
        "max SM clock": "1980 MHz",
    },
)
QUIET = (1.0, 1.004, 0.998, 1.002, 0.996, 1.001, 0.999, 1.003)
LOUD = (1.0, 1.09, 1.02, 0.99, 1.1, 1.04, 1.01, 1.05)


PROJECT = ProjectSettings(device=None, baselines="baselines", lock_seconds=0.0)


class Server:
    """Stands for the fork server: does a job here, or gives a canned answer."""

    def __init__(self, answers: Mapping[str, list[Any]] | None = None) -> None:
        self.preloaded: tuple[str, ...] | None = None
        self.jobs: list[Job] = []
        self.project = PROJECT
        self.watch: Callable[[Job], None] = lambda job: None
        self._answers = answers

    def __call__(self, preload: tuple[str, ...]) -> Server:
        self.preloaded = tuple(preload)
        return self

    def wait_until_ready(self) -> None: ...

    def close(self) -> None: ...

    def run(self, job: Job, seconds: float) -> Any:
        if job.entry == "pytest_gpuperf.plugin.child_options:read_settings":
            return {"settings": encode(self.project)}
        self.jobs.append(job)
        self.watch(job)
        module, _, name = job.entry.partition(":")
        if self._answers is None:
            return getattr(import_module(module), name)(job.request)
        answer = self._answers[name].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return serve(monkeypatch, Server())


def serve(monkeypatch: pytest.MonkeyPatch, server: Server) -> Server:
    monkeypatch.setattr(doctor, "ForkServer", server)
    return server


def play(monkeypatch: pytest.MonkeyPatch, **steps: object) -> None:
    Path("script.json").write_text(json.dumps({"hardware": "A B", "*": steps}))
    monkeypatch.setenv("GPUPERF_SCRIPT", "script.json")


def took(ms: float) -> dict[str, float]:
    return {"step_ms": ms, "sentinel_copy_ms": 1.0}


def store(hardware: Hardware, **entries: tuple[float, ...]) -> None:
    stored = {test: an_entry(*map(took, times)) for test, times in entries.items()}
    save(path_of(Path("baselines"), hardware), hardware, **stored)


def examined(**found: Any) -> dict[str, Any]:
    return {"examination": encode(Examination(environment=GPU, **found))}


def tried(ms: float, mhz: int | None = None, *dirty: str) -> dict[str, Any]:
    measurement = a_measurement(
        took(ms),
        *dirty,
        test="the fixed step",
        environment=GPU,
        exact={"peak_allocated_bytes": 1, "syncs": 0},
        board=Board(sm_mhz=mhz),
    )
    return {"trial": encode(measurement)}


def test_a_machine_that_sees_well(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, step_ms=list(QUIET))

    code = main(["doctor", "--device=scripted", "-v"])

    assert code == 0
    assert server.preloaded == ()
    assert len(server.jobs) == 1 + 8
    assert capsys.readouterr().out == (
        """\
On A B: waits, memory and time - yes. Copies - no. (-v lists all metrics)
device     scripted A B (scripted-a-b)
software   torch 2.13.0
unmeasured peak_reserved_bytes: the scripted device reserves nothing
unmeasured pageable_copies, blocking_copies, h2d_bytes, d2h_bytes, ops, flops,
           occasional_copies, period_copies: the scripted device copies nothing
baselines  none in baselines/scripted-a-b.json, record with: pytest --gpuperf
           --gpuperf-device=scripted --gpuperf-update=missing
measured   step_ms, latency_ms, peak_allocated_bytes, syncs
noise      a fixed step of 1.0 ms in 8 fresh processes: runs vary by 0.3 %; this
           machine can detect slowdowns of 2.0 % or more
gpuperf: can measure on scripted A B
"""
    )


def test_a_machine_that_sees_badly_and_its_baselines(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, step_ms=list(LOUD), waiting=0.2)
    hardware = Hardware(kind=DeviceKind.SCRIPTED, name="A B")
    store(hardware, test_a=LOUD, test_b=(1.0, 1.1), test_c=(1.0,))

    code = main(["doctor", "--device=scripted"])

    assert code == 0
    assert capsys.readouterr().out.splitlines() == [
        "On A B: waits, memory and time - yes. Copies - no. (-v lists all metrics)",
        "baselines  baselines/scripted-a-b.json: 3 tests",
        "           2 have fewer than 5 runs, too few to fail a test:",
        "           test_b, test_c",
        "           runs vary by 4.0 % (median of 3 tests); this machine can detect",
        "           slowdowns of 20 % or more, but with a tolerance of 1 % only 1 of 3",
        "           tests would pass unchanged; 3 of 3 would with",
        "           --gpuperf-tolerance=ms=30%",
        "disturbed  8 of 8 runs: the process waited for a core over 5% of the time; ask",
        "           again when the machine is quiet, this is its noise under load",
        "noise      a fixed step of 1.1 ms in 8 fresh processes: runs vary by 4.0 %; this",
        "           machine can detect slowdowns of 16 % or more, but with a tolerance of",
        "           1 % unchanged code would rarely pass; it would with",
        "           --gpuperf-tolerance=ms=10%",
        "gpuperf: can measure on scripted A B",
    ]


def test_a_gpu_whose_clocks_are_held(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [tried(ms, 1410) for ms in QUIET]
    serve(monkeypatch, Server({"examine": [examined()], "try_step": runs}))

    main(["doctor"])

    assert "clocks     1410 MHz after each of 8 runs, of at most 1980 MHz" in (
        capsys.readouterr().out.splitlines()
    )


def test_where_no_honest_number_can_be_read_nothing_is_tried_and_the_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for every kernel: unset it"
    found = examined(refusal=why, disturbance="the GPU was throttled by power brake")
    serve(monkeypatch, Server({"examine": [found], "try_step": []}))

    code = main(["doctor"])

    assert code == 1
    assert capsys.readouterr().out.splitlines() == [
        "disturbed  the GPU was throttled by power brake",
        "baselines  none in baselines/cuda-nvidia-h200.json, record with: pytest",
        "           --gpuperf --gpuperf-update=missing",
        "gpuperf: cannot measure on NVIDIA H200: CUDA_LAUNCH_BLOCKING=1 makes the CPU",
        "    wait for every kernel: unset it",
    ]


@pytest.mark.parametrize("how", ["an answer", "a death"])
def test_a_step_that_cannot_be_measured_is_a_code_of_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    why = "the profiler saw no kernel [GP410]"
    broken = {"error": why} if how == "an answer" else RunError(why, ErrorId.GP605)
    answers = {"examine": [examined()], "try_step": [tried(1.0), broken]}
    serve(monkeypatch, Server(answers))

    code = main(["doctor"])

    assert code == 1
    assert capsys.readouterr().out.splitlines()[3:] == [
        "noise      unknown: it takes 2 runs with a time, found 1",
        "gpuperf: cannot measure on NVIDIA H200: the profiler saw no kernel [GP410]",
    ]


def test_a_server_that_cannot_start_is_a_code_of_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Dead(Server):
        def wait_until_ready(self) -> None:
            msg = "the measuring server could not start: it printed nothing"
            raise RunError(msg, ErrorId.GP604)

    serve(monkeypatch, Dead())

    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "gpuperf: the measuring server could not start: it printed nothing [GP604]\n"
    )


def test_where_only_a_pretend_device_is_left_there_is_no_noise_to_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend = Environment(hardware=PRETEND, software={"torch": "2.13.0+cpu"})
    found = Examination(
        environment=pretend, unmeasured={"step_ms": "the simulated GPU has no clock"}
    )
    server = Server({"examine": [{"examination": encode(found)}]})
    serve(monkeypatch, server)

    code = main(["doctor"])

    assert code == 0
    out = capsys.readouterr().out
    assert "noise      none: counts and predicted sizes are exact" in out
    assert out.endswith("gpuperf: can measure on simulated GPU\n")


def test_the_project_s_settings_hold(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, step_ms=list(LOUD))
    server.project = replace(
        PROJECT,
        device=DeviceKind.SCRIPTED,
        baselines=str(Path("perf").absolute()),
        tolerance=Tolerance(ratios={"ms": 0.2}),
    )

    code = main(["doctor"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[1:3] == [
        "baselines  none in perf/scripted-a-b.json, record with: pytest --gpuperf",
        "           --gpuperf-update=missing",
    ]
    assert lines[-3:-1] == [
        "noise      a fixed step of 1.1 ms in 8 fresh processes: runs vary by 4.0 %; this",
        "           machine can detect slowdowns of 38 % or more",
    ]


def test_settings_that_pytest_cannot_read_are_a_usage_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "ini key gpuperf_seconds: found '0', expected a positive number of seconds"
    monkeypatch.setattr(server, "run", lambda job, seconds: {"error": why})

    assert main(["doctor"]) == 4
    assert capsys.readouterr().err == (
        f"gpuperf: pytest cannot read the settings of this project: {why} [GP109]\n"
    )


def test_each_trial_has_the_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[tuple[str, bool]] = []

    def watch(job: Job) -> None:
        with closing(DeviceLock(lock_folder(), "doctored")) as lock:
            others.append((job.entry.partition(":")[2], lock.try_exclusive()))

    found = examined(slot=DeviceSlot(lock="doctored"))
    server = Server({"examine": [found], "try_step": [tried(1.0), tried(1.0)]})
    server.watch = watch
    serve(monkeypatch, server)

    assert main(["doctor", "--runs=2"]) == 0
    assert others == [("examine", True), ("try_step", False), ("try_step", False)]
    with closing(DeviceLock(lock_folder(), "doctored")) as lock:
        assert lock.try_exclusive()


def test_a_device_that_another_run_has_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examined(slot=DeviceSlot(lock="doctored"))
    serve(monkeypatch, Server({"examine": [found], "try_step": []}))

    with closing(DeviceLock(lock_folder(), "doctored")) as lock:
        assert lock.try_exclusive()
        code = main(["doctor"])

    assert code == 4
    assert "doctored is in use by another process, and did not come free in time" in (
        capsys.readouterr().err
    )


def test_the_name_of_the_plugin_s_option_is_understood_too(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch)

    assert main(["doctor", "--gpuperf-device=scripted", "--runs=2"]) == 0
    assert server.jobs[0].request["device"] == "scripted"
    assert [job.request["number"] for job in server.jobs] == [0, 0, 1]


@pytest.mark.parametrize(("pause_s", "enough"), [(15, 4), (100, 2)])
def test_runs_end_with_their_time_but_there_are_two(
    server: Server, monkeypatch: pytest.MonkeyPatch, pause_s: int, enough: int
) -> None:
    play(monkeypatch)
    clock = iter(range(0, 10_000, pause_s))
    monkeypatch.setattr(doctor, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    main(["doctor", "--device=scripted"])

    assert len(server.jobs) == 1 + enough


@pytest.mark.parametrize(
    ("option", "wrong", "expected"),
    [
        ("--device", "tpu", "one of cuda, pretend, cpu"),
        ("--runs", "1", "a number from 2 to 20"),
        ("--runs", "-3", "a number from 2 to 20"),
        ("--runs", "21", "a number from 2 to 20"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], option: str, wrong: str, expected: str
) -> None:
    name = "--device/--gpuperf-device" if option == "--device" else option

    assert main(["doctor", f"{option}={wrong}"]) == 4
    assert capsys.readouterr().err == (
        f"gpuperf: argument {name}: expected {expected}, found {wrong!r}; "
        "see `gpuperf doctor --help` [GP102]\n"
    )


def test_a_broken_baseline_file_is_a_usage_error(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch)
    hardware = Hardware(kind=DeviceKind.SCRIPTED, name="A B")
    store(hardware)
    path_of(Path("baselines"), hardware).write_text("")

    assert main(["doctor", "--device=scripted"]) == 4
    assert capsys.readouterr().err.startswith(
        "gpuperf: baselines/scripted-a-b.json: the file is empty;"
    )
