"""``--json``: what a command says is one object of its schema, its exit status stays."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from builders import CPU
from builders import H200
from builders import a_measurement
from builders import an_entry
from builders import save

from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.baselines.store import pending_path
from pytest_gpuperf.cli import doctor
from pytest_gpuperf.cli import main
from pytest_gpuperf.cli import refresh
from pytest_gpuperf.model.checkup import Circumstance
from pytest_gpuperf.model.checkup import Examination
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.results import ProjectSettings
from pytest_gpuperf.report.json import results


SCHEMAS = Path(results.__file__).parent
OF_DIFF = {"diff": "accept"}
STORED, PENDING = Path("baselines"), Path(".gpuperf")

Read = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture
def read(capsys: pytest.CaptureFixture[str]) -> Read:
    """Type a command, and read all that it prints, which is what its schema says."""

    def typed(*arguments: str, status: int = 0) -> Any:
        assert main([*arguments, "--json"]) == status
        found = json.loads(capsys.readouterr().out)
        name = OF_DIFF.get(arguments[0], arguments[0])
        schema = json.loads((SCHEMAS / f"{name}_schema.json").read_text("utf-8"))
        kind = jsonschema.validators.validator_for(schema)
        kind.check_schema(schema)
        kind(schema).validate(found)
        for change in ({"more": 1}, {"schema": 2}, {"status": None}):
            assert not kind(schema).is_valid({**found, **change})
        assert found["status"] == status
        return found

    return typed


def leave(folder: Path, hardware: Hardware = H200, **entries: Any) -> None:
    path = path_of if folder == STORED else pending_path
    save(path(folder, hardware), hardware, **entries)


# Baselines.


def test_what_is_stored_is_shown_file_by_file(read: Read) -> None:
    anchor = {"step_ms": 9.0}
    leave(STORED, a=an_entry(10.0, 12.0, exact={"syncs": 1}, anchor=anchor))
    leave(STORED, CPU, b=an_entry(None, exact={"syncs": 0}))

    cpu, gpu = read("show")["files"]

    assert (gpu["file"], gpu["hardware"]) == (
        "baselines/cuda-nvidia-h200.json",
        "cuda-nvidia-h200",
    )
    test = gpu["tests"]["a"]
    assert test["values"]["syncs"] == 1
    assert (test["step_ms"], test["runs"]) == ([10.0, 12.0], 2)
    assert (test["anchor"], test["software"]["torch"]) == (anchor, "2.13.0")
    assert cpu["tests"]["b"]["values"] == {"syncs": 0}
    assert read("show", "cuda-nvidia-h200")["files"] == [gpu]


def test_a_difference_says_what_would_be_accepted_and_how_the_rest_is(
    read: Read,
) -> None:
    leave(STORED, slower=an_entry(*[10.0] * 8), same=an_entry(*[1.0] * 8))
    leave(
        PENDING,
        slower=an_entry(*[12.0] * 8),
        same=an_entry(*[1.0] * 8),
        new=an_entry(*[2.0] * 8),
    )

    (file,) = read("diff")["files"]

    moved = {row["test"]: (row["old"], row["new"]) for row in file["changes"]}
    assert moved == {"slower": (10.0, 12.0), "new": (None, 2.0)}
    assert (file["accepted"], file["kept"]) == (["new"], ["same"])
    assert file["drifted"] == ["slower"]
    assert file["drifts"][0]["limit"] == pytest.approx(10.3)
    assert file["commands"] == [
        f"gpuperf accept --accept-drift --only slower {file['pending']}"
    ]


def test_nothing_pending_is_no_file(read: Read) -> None:
    assert read("diff")["files"] == []


def test_an_acceptance_says_what_it_stored_and_what_it_refused(read: Read) -> None:
    leave(STORED, slower=an_entry(*[10.0] * 8))
    leave(PENDING, slower=an_entry(*[12.0] * 8), new=an_entry(*[2.0] * 8))

    (file,) = read("accept", str(PENDING), status=1)["files"]

    assert (file["accepted"], file["drifted"]) == (["new"], ["slower"])
    assert [row["test"] for row in file["changes"]] == ["new"]
    stored = read("show")["files"][0]["tests"]
    assert {test: found["values"]["step_ms"] for test, found in stored.items()} == {
        "new": 2.0,
        "slower": 10.0,
    }


def test_an_acceptance_of_nothing_is_empty(read: Read) -> None:
    leave(STORED, a=an_entry(*[1.0] * 8))
    leave(PENDING, a=an_entry(*[1.0] * 8))

    (file,) = read("accept", str(PENDING), "--kind=missing")["files"]

    assert (file["changes"], file["accepted"]) == ([], [])


SETTINGS = ProjectSettings(
    device=None,
    baselines="baselines",
    lock_seconds=0.0,
)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Where the output of each pytest went that a refresh started; it stores a test."""
    seen: list[int | None] = []

    def run(
        command: Sequence[str], *, check: bool, stdout: int | None
    ) -> subprocess.CompletedProcess[bytes]:
        seen.append(stdout)
        leave(STORED, a=an_entry(12.0), b=an_entry(1.0))
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(refresh, "ask_project", lambda _: SETTINGS)
    return seen


def test_a_refresh_says_what_moved_and_pytest_makes_way(
    read: Read, streams: list[int | None]
) -> None:
    leave(STORED, a=an_entry(10.0))

    found = read("refresh", "t.py::a", status=1)

    assert streams == [2]
    (file,) = found["files"]
    moved = {row["test"]: (row["old"], row["new"]) for row in file["changes"]}
    assert moved == {"a": (10.0, 12.0), "b": (None, 1.0)}
    assert main(["refresh", "t.py::a"]) == 1
    assert streams == [2, None]


# The machine.


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a canned machine says of itself."""
    found: dict[str, Any] = {
        "examined": Examination(environment=Environment(hardware=H200))
    }

    class Server:
        def __init__(self, *_: object) -> None: ...
        def wait_until_ready(self) -> None: ...
        def close(self) -> None: ...
        def run(self, job: Any, seconds: float) -> Any:
            if job.entry.endswith("read_settings"):
                return {"settings": encode(SETTINGS)}
            if job.entry.endswith("examine"):
                return {"examination": encode(found["examined"])}
            environment = Environment(hardware=H200)
            trial = a_measurement(
                {"step_ms": 1.0}, "a load of 9", environment=environment
            )
            return {"trial": encode(trial)}

    monkeypatch.setattr(doctor, "ForkServer", Server)
    return found


def test_a_checkup_says_what_is_measured_and_how_well(
    read: Read, machine: dict[str, Any]
) -> None:
    leave(STORED, a=an_entry(10.0, 10.1))
    advice = Circumstance(subject="clock", found="moves", means="m", advice="lock it")
    machine["examined"] = Examination(
        environment=Environment(hardware=H200, software={"torch": "2.13.0"}),
        unmeasured={"live_peak_bytes": "no"},
        circumstances=(advice,),
        disturbance="pid 7",
    )

    found = read("doctor", "--runs=2")

    assert found["device"] == {
        "kind": "cuda",
        "name": "NVIDIA H200",
        "key": "cuda-nvidia-h200",
    }
    assert found["circumstances"] == [encode(advice)]
    assert found["disturbed"] == ["pid 7", "a load of 9"]
    assert (found["baselines"]["tests"], found["baselines"]["thin"]) == (1, ["a"])
    assert (found["step_ms"], found["wrong"]) == ([1.0, 1.0], [])
    assert found["noise"]["smallest"] > 0
    assert found["unmeasured"] == {"live_peak_bytes": "no"}


def test_a_machine_that_is_wrong_says_why(read: Read, machine: dict[str, Any]) -> None:
    machine["examined"] = Examination(
        environment=Environment(hardware=H200), refusal="CUDA_LAUNCH_BLOCKING is set"
    )

    found = read("doctor", status=1)

    assert found["wrong"] == ["CUDA_LAUNCH_BLOCKING is set"]
    assert (found["step_ms"], found["noise"]) == ([], None)


@pytest.mark.parametrize(
    "typed",
    [
        ("show",),
        ("show", "--json=1"),
        ("diff", "no.json"),
        ("diff", "--only=x"),
        ("accept",),
        ("accept", "no.json"),
        ("refresh", "--kind=no"),
        ("doctor", "--runs=1"),
    ],
    ids=" ".join,
)
def test_what_is_refused_is_a_line_with_an_id_and_no_object(
    typed: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*typed, "--json"]) == 4

    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("gpuperf: ")
    assert error.rstrip().endswith("]")


def test_a_broken_file_is_refused_before_anything_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(STORED, a=an_entry(1.0))
    (STORED / "cpu-x.json").write_text("{", "utf-8")

    assert main(["show", "--json"]) == 4
    assert capsys.readouterr().out == ""
