"""``gpuperf doctor``: whole outputs, on a scripted device and on canned answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import H200, an_entry, save

from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.cli import doctor, main
from pytest_gpuperf.devices.machine import examine
from pytest_gpuperf.errors import ErrorId, RunError
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import (
    DeviceKind,
    Environment,
    Examination,
    Hardware,
)
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.settings import Settings


SCRIPTED = Hardware(kind=DeviceKind.SCRIPTED, name="A B")
LOUD = (1.0, 1.09, 1.02, 0.99, 1.1, 1.04, 1.01, 1.05)


class Server:
    """Stands for the fork server: looks at the device here, or gives a canned answer."""

    def __init__(self) -> None:
        self.project = Settings()
        self.settings: dict[str, Any] = {}
        self.found: Examination | None = None
        self.dies = False

    def __call__(self, _preload: tuple[str, ...]) -> Server:
        return self

    def wait_until_ready(self) -> None:
        if self.dies:
            msg = "the measuring server could not start: it printed nothing"
            raise RunError(msg, ErrorId.GP604)

    def close(self) -> None: ...

    def run(self, job: Job, _seconds: float) -> Any:
        if job.entry == "pytest_gpuperf.plugin.parse_settings:read_settings":
            return self.settings or {"settings": encode(self.project)}
        assert job.entry == "pytest_gpuperf.devices.machine:examine"
        return (
            {"examination": encode(self.found)} if self.found else examine(job.request)
        )


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.chdir(tmp_path)
    Path("script.json").write_text(json.dumps({"hardware": "A B", "*": {}}))
    monkeypatch.setenv("GPUPERF_SCRIPT", "script.json")
    made = Server()
    monkeypatch.setattr(doctor, "ForkServer", made)
    return made


def on(hardware: Hardware, **found: Any) -> Examination:
    return Examination(environment=Environment(hardware=hardware), **found)


def store(**entries: tuple[float, ...]) -> Path:
    file = path_of(Path("baselines"), SCRIPTED)
    runs = {
        test: [{"step_ms": ms, "sentinel_copy_ms": 1.0} for ms in times]
        for test, times in entries.items()
    }
    save(file, SCRIPTED, **{test: an_entry(*each) for test, each in runs.items()})
    return file


@pytest.mark.parametrize("option", ["--device", "--gpuperf-device"])
def test_a_machine_and_what_cannot_be_judged_on_it(
    capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["doctor", f"{option}=scripted"]) == 0
    assert capsys.readouterr().out == (
        """\
On A B: syncs, memory and time - yes. Copies - no.
device     scripted A B (scripted-a-b)
software   torch 2.13.0
unmeasured peak_reserved_bytes: the scripted device reserves nothing
unmeasured pageable_copies, h2d_bytes, d2h_bytes, launches, flops,
           occasional_copies: the scripted device copies nothing
baselines  none in baselines/scripted-a-b.json, record with: pytest --gpuperf
           --gpuperf-device=scripted --gpuperf-update=missing
gpuperf: can measure on scripted A B
"""
    )


def test_baselines_of_few_runs_and_of_loud_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store(test_a=LOUD, test_b=(1.0, 1.1), test_c=(1.0,))

    assert main(["doctor", "--device=scripted"]) == 0
    assert capsys.readouterr().out.splitlines()[-8:] == [
        "baselines  baselines/scripted-a-b.json: 3 tests",
        "           2 have fewer than 5 runs, too few to fail a test:",
        "           test_b, test_c",
        "           runs vary by 4.0 % (median of 3 tests); this machine can detect",
        "           slowdowns of 20 % or more, but with a tolerance of 1 % only 1 of 3",
        "           tests would pass unchanged; 3 of 3 would with",
        "           --gpuperf-tolerance=ms=30%",
        "gpuperf: can measure on scripted A B",
    ]


def test_where_no_honest_number_can_be_read_the_code_is_1(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for every kernel: unset it"
    server.found = on(H200, refusal=why, disturbance="the GPU was throttled by heat")

    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "device     cuda NVIDIA H200 (cuda-nvidia-h200)",
        "disturbed  the GPU was throttled by heat",
        "baselines  none in baselines/cuda-nvidia-h200.json, record with: pytest",
        "           --gpuperf --gpuperf-update=missing",
        "gpuperf: cannot measure on NVIDIA H200: CUDA_LAUNCH_BLOCKING=1 makes the CPU",
        "    wait for every kernel: unset it",
    ]


def test_the_project_s_settings_hold(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(Path("perf").absolute())
    server.project = replace(
        server.project, device=DeviceKind.SCRIPTED, baselines=folder
    )

    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:-1] == [
        "baselines  none in perf/scripted-a-b.json, record with: pytest --gpuperf",
        "           --gpuperf-update=missing",
    ]


def test_a_server_that_cannot_start_is_a_code_of_1(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.dies = True

    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "gpuperf: the measuring server could not start: it printed nothing [GP604]\n"
    )


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--device=tpu", "expected one of cuda, simulated, cpu, found 'tpu'"),
        ("--device=scripted", "baselines/scripted-a-b.json: the file is empty;"),
        ("--runs=2", "gpuperf doctor --runs was removed: the command runs nothing"),
        ("-v", "gpuperf doctor -v was removed: `gpuperf doctor` prints everything"),
    ],
)
def test_what_is_refused_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], argument: str, said: str
) -> None:
    store().write_text("")

    assert main(["doctor", argument]) == 4
    assert said in capsys.readouterr().err


def test_settings_that_pytest_cannot_read_are_a_usage_error(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.settings = {"error": "ini key gpuperf_seconds: found '0'"}

    assert main(["doctor"]) == 4
    assert capsys.readouterr().err == (
        "gpuperf: pytest cannot read the settings of this project: ini key "
        "gpuperf_seconds: found '0' [GP109]\n"
    )


def test_a_look_runs_nothing_and_what_it_refuses_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("script.json").write_text(json.dumps({"*": {"disturbance": "hot"}}))
    looked = examine({"device": "scripted", "script": "script.json"})["examination"]
    assert (looked["refusal"], looked["disturbance"]) == (None, None)
    assert examine({"device": "scripted", "script": None}) == {
        "error": "--gpuperf-device=scripted: set GPUPERF_SCRIPT to the script's JSON file [GP403]"
    }
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    refused = examine({"device": "cpu", "script": None})["examination"]["refusal"]
    assert refused.startswith("CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for every")
