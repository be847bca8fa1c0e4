"""What a measuring process does for the doctor: it looks, and it tries a step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.model.checkup import CheckupRequest
from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.checkup import examine
from pytest_gpuperf.runner.checkup import try_step


def request(
    tmp_path: Path, script: object, number: int = 0, kind: str = "scripted"
) -> dict[str, Any]:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), "utf-8")
    asked = CheckupRequest(device=DeviceKind(kind), script=str(path), number=number)
    return dict(encode(asked))


def test_looking_runs_nothing(tmp_path: Path) -> None:
    script = {"hardware": "x", "*": {"disturbance": "hot"}}

    found = examine(request(tmp_path, script))["examination"]

    assert found["environment"]["hardware"] == {"kind": "scripted", "name": "x"}
    assert (found["refusal"], found["disturbance"]) == (None, None)
    assert found["unmeasured"]["h2d_bytes"] == "the scripted device copies nothing"


def test_a_trial_is_a_measurement_and_the_clock_behind_it(tmp_path: Path) -> None:
    script = {"*": {"step_ms": [2.0, 3.0], "clock_mhz": [1980, 1410]}}

    trial = try_step(request(tmp_path, script, number=1))["trial"]

    assert trial["test"] == "the fixed step"
    assert trial["times"]["step_ms"]["q25"] == 3.0
    assert trial["board"]["sm_mhz"] == 1410


@pytest.mark.parametrize("function", [examine, try_step])
def test_a_device_that_cannot_be_opened_is_an_answer(
    tmp_path: Path, function: Any
) -> None:
    raw = request(tmp_path, {}) | {"script": None}

    assert function(raw) == {
        "error": "--gpuperf-device=scripted: set GPUPERF_SCRIPT to the script's JSON file [GP403]"
    }


def test_a_refusal_of_the_preflight_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")

    found = examine(request(tmp_path, {}, kind="cpu"))["examination"]

    assert found["refusal"] == (
        "CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for every kernel, so its times "
        "are not those of training: unset it to measure [GP404]"
    )


def test_the_fixed_step_trains_and_keeps_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    measurement = try_step(request(tmp_path, {}, kind="cpu"))["trial"]

    assert measurement["exact"]["kept_graphs"] == 0
    assert measurement["times"]["step_ms"]["samples"] >= 5
    assert measurement["board"]["sm_mhz"] is None
