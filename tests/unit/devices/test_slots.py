"""Which devices a process was given to measure on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpuperf.devices.cuda.device import fingerprint_of
from pytest_gpuperf.devices.machine import (
    cuda_slots,
    obeyed,
    seeing,
    slots_of,
    visible_gpu_count,
)
from pytest_gpuperf.model.environment import DeviceKind, DeviceSlot


class Cuda:
    """torch.cuda with GPUs of these models."""

    def __init__(self, *models: str) -> None:
        self._models = models

    def device_count(self) -> int:
        return len(self._models)

    def get_device_name(self, index: int) -> str:
        return self._models[index]

    def get_device_properties(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(uuid=f"uuid-{index}")


def gpu(index: int, visible: str | None) -> DeviceSlot:
    return DeviceSlot(
        visible=visible, lock=f"GPU-uuid-{index}", board=fingerprint_of(f"uuid-{index}")
    )


@pytest.mark.parametrize(
    ("visible", "entries"),
    [
        (None, ("0", "1")),
        ("", ("0", "1")),
        ("3,1", ("3", "1")),
        (" GPU-aaaa, GPU-bbbb ", ("GPU-aaaa", "GPU-bbbb")),
    ],
)
def test_each_gpu_is_a_slot_by_its_place_in_the_callers_own_list(
    visible: str | None, entries: tuple[str, str]
) -> None:
    found = cuda_slots(Cuda("H200", "H200"), visible)

    assert found == (gpu(0, entries[0]), gpu(1, entries[1]))


def test_nothing_is_hidden_where_there_is_one_gpu() -> None:
    assert cuda_slots(Cuda("H200"), "5") == (gpu(0, None),)


def test_a_gpu_of_another_model_is_left_alone() -> None:
    found = cuda_slots(Cuda("H200", "T4", "H200"), None)

    assert found == (gpu(0, "0"), gpu(2, "2"))


def test_each_mig_instance_of_the_list_is_a_slot_though_one_is_seen() -> None:
    found = cuda_slots(Cuda("H200 MIG 1g"), "MIG-a,MIG-b")

    assert found == (
        DeviceSlot(visible="MIG-a", lock="MIG-a"),
        DeviceSlot(visible="MIG-b", lock="MIG-b"),
    )


@pytest.mark.parametrize(
    ("visible", "count"),
    [
        (None, 4),
        ("", 0),
        ("2", 1),
        ("GPU-a, GPU-b", 2),
        ("-1", 0),
        ("0,2,-1,3", 2),
        ("0,,3", 1),
    ],
)
def test_the_visible_gpus_are_counted_without_touching_cuda(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int
) -> None:
    monkeypatch.setattr("pytest_gpuperf.devices.machine.gpu_count", lambda: 4)

    assert visible_gpu_count(visible) == count


@pytest.mark.parametrize(
    ("hip", "environ", "obeyed_list"),
    [
        (None, {}, None),
        (None, {"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        (None, {"CUDA_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "5"}, "3"),
        (None, {"HIP_VISIBLE_DEVICES": "5"}, None),
        ("7.0", {"CUDA_VISIBLE_DEVICES": "3"}, "3"),
        ("7.0", {"CUDA_VISIBLE_DEVICES": "3", "HIP_VISIBLE_DEVICES": "5"}, "5"),
        ("7.0", {"HIP_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_on_rocm_its_own_list_of_gpus_is_obeyed_first(
    hip: str | None, environ: dict[str, str], obeyed_list: str | None
) -> None:
    torch_like = SimpleNamespace(version=SimpleNamespace(hip=hip))

    assert obeyed(torch_like, environ) == obeyed_list


def test_a_process_that_sees_one_gpu_sees_it_by_every_variable_that_is_set() -> None:
    assert seeing("2", {"CUDA_VISIBLE_DEVICES": "0,2"}) == {"CUDA_VISIBLE_DEVICES": "2"}
    assert seeing("2", {"HIP_VISIBLE_DEVICES": "0,2"}) == {
        "CUDA_VISIBLE_DEVICES": "2",
        "HIP_VISIBLE_DEVICES": "2",
    }


def test_the_cores_are_one_slot_a_machine() -> None:
    assert slots_of(DeviceKind.CPU, None) == (DeviceSlot(lock="cpu"),)


def test_what_has_no_clock_is_in_nobodys_way() -> None:
    assert slots_of(DeviceKind.SIMULATED, None) == (DeviceSlot(),)


@pytest.mark.parametrize(
    ("script", "slots"),
    [
        ({}, (DeviceSlot(),)),
        ({"slots": ["a"]}, (DeviceSlot(visible="a", lock="a", board="a"),)),
    ],
)
def test_a_script_names_its_slots(
    tmp_path: Path, script: dict[str, object], slots: tuple[DeviceSlot, ...]
) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")

    assert slots_of(DeviceKind.SCRIPTED, str(path)) == slots
