from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices.cuda.nvml import Nvml, Utilisation, machine_gpus, open_nvml


GPU = "GPU-11111111-2222-3333-4444-555555555555"
MIG = "MIG-99999999-2222-3333-4444-555555555555"


class NVMLError(Exception):
    """Stands for every refusal of the driver: no permission, not supported, ..."""


class LibraryMismatchError(Exception):
    """Raised by nvidia-ml-py, outside its own tree, for a driver that is too old."""


class FakePynvml(SimpleNamespace):
    """A library that knows *functions*; handles are UUIDs as bytes."""

    def __init__(self, **functions: object) -> None:
        super().__init__(
            NVMLError=NVMLError,
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByUUID=self._handle,
            **functions,
        )

    def _handle(self, uuid: bytes) -> bytes:
        if uuid.decode() in {GPU, MIG}:
            return uuid
        raise NVMLError


def refuse(*_: object) -> object:
    raise NVMLError


def answers(by_handle: Mapping[str, object]) -> Callable[..., object]:
    """Make a function of a handle; a handle not named is refused."""

    def function(handle: bytes, *_: object) -> object:
        if handle.decode() not in by_handle:
            raise NVMLError
        return by_handle[handle.decode()]

    return function


def nvml(**functions: object) -> Nvml:
    return Nvml(
        pynvml=FakePynvml(**functions), instance=GPU.encode(), board=GPU.encode()
    )


def process(pid: int, used: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda library: monkeypatch.setitem(sys.modules, "pynvml", library)


def test_without_nvidia_ml_py_there_is_no_nvml(install: Callable[[Any], None]) -> None:
    install(None)

    assert Nvml.open(GPU) is None


def test_without_a_driver_there_is_no_nvml(install: Callable[[Any], None]) -> None:
    library = FakePynvml()
    library.nvmlInit = refuse
    install(library)

    assert Nvml.open(GPU) is None


def test_an_unknown_uuid_is_not_mistaken_for_another_gpu(
    install: Callable[[Any], None],
) -> None:
    install(FakePynvml())

    assert Nvml.open("00000000-2222-3333-4444-555555555555") is None


@pytest.mark.parametrize("uuid", [GPU, GPU.removeprefix("GPU-")])
def test_a_gpu_is_found_with_and_without_prefix(
    install: Callable[[Any], None], uuid: str
) -> None:
    library = FakePynvml()
    install(library)

    found = Nvml.open(uuid)

    assert found == Nvml(pynvml=library, instance=GPU.encode(), board=GPU.encode())


@pytest.mark.parametrize("uuid", [MIG, MIG.removeprefix("MIG-")])
def test_a_mig_instance_is_found_and_its_board_next_to_it(
    install: Callable[[Any], None], uuid: str
) -> None:
    parent = answers({MIG: GPU.encode()})
    library = FakePynvml(nvmlDeviceGetDeviceHandleFromMigDeviceHandle=parent)
    install(library)

    found = Nvml.open(uuid)

    assert found == Nvml(pynvml=library, instance=MIG.encode(), board=GPU.encode())


def test_a_gpu_is_opened_once_a_process(install: Callable[[Any], None]) -> None:
    install(FakePynvml())
    open_nvml.cache_clear()

    first = open_nvml(GPU)
    install(None)

    assert first is not None
    assert open_nvml(GPU) is first
    open_nvml.cache_clear()


@pytest.mark.parametrize("answer", ["NVIDIA H200", b"NVIDIA H200"])
def test_texts_are_read_from_new_and_old_libraries(answer: str | bytes) -> None:
    gpu = nvml(nvmlDeviceGetName=answers({GPU: answer}))

    assert gpu.name() == "NVIDIA H200"


def test_a_name_garbled_by_the_driver_is_no_name() -> None:
    gpu = nvml(nvmlDeviceGetName=lambda _: b"\xf8".decode())

    assert gpu.name() is None


def test_a_clean_gpu_shows_no_fault_while_the_power_cap_holds_it() -> None:
    power_cap, clocks_set, idle = 0x4, 0x2, 0x1
    reasons = answers({GPU: power_cap | clocks_set | idle})

    assert nvml(nvmlDeviceGetCurrentClocksEventReasons=reasons).throttling() == ()


@pytest.mark.parametrize(
    ("bits", "faults"),
    [
        (0x08, ("hardware slowdown",)),
        (0x20, ("software thermal slowdown",)),
        (0x40, ("hardware thermal slowdown",)),
        (0x80, ("power brake",)),
        (0x4C, ("hardware slowdown", "hardware thermal slowdown")),
    ],
)
def test_each_fault_that_slows_the_clocks_is_named(
    bits: int, faults: tuple[str, ...]
) -> None:
    gpu = nvml(nvmlDeviceGetCurrentClocksEventReasons=answers({GPU: bits}))

    assert gpu.throttling() == faults


@pytest.mark.parametrize("newer", [{}, {"nvmlDeviceGetCurrentClocksEventReasons": 0}])
def test_an_old_library_or_driver_is_asked_by_the_old_name(
    newer: dict[str, object],
) -> None:
    gpu = nvml(
        **dict.fromkeys(newer, refuse),
        nvmlDeviceGetCurrentClocksThrottleReasons=answers({GPU: 0x40}),
    )

    assert gpu.throttling() == ("hardware thermal slowdown",)


def test_clocks_that_may_not_be_read_count_as_clean() -> None:
    assert nvml(nvmlDeviceGetCurrentClocksEventReasons=refuse).throttling() == ()


def test_processes_are_listed_with_their_bytes() -> None:
    running = answers({GPU: [process(7, 2**30), process(8, None)]})
    gpu = nvml(nvmlDeviceGetComputeRunningProcesses=running)

    assert gpu.processes() == {7: 2**30, 8: None}


def test_a_driver_too_old_for_the_list_is_asked_by_the_versioned_name() -> None:
    def too_old(_: object) -> object:
        raise LibraryMismatchError

    gpu = nvml(
        NVMLLibraryMismatchError=LibraryMismatchError,
        nvmlDeviceGetComputeRunningProcesses=too_old,
        nvmlDeviceGetComputeRunningProcesses_v2=answers({GPU: [process(7, 5)]}),
    )

    assert gpu.processes() == {7: 5}


def test_processes_that_may_not_be_listed_are_none() -> None:
    assert nvml(nvmlDeviceGetComputeRunningProcesses=refuse).processes() == {}


FIELDS = {
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": 269,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": 270,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": 271,
}


def counting(ns: Mapping[int, int]) -> Callable[..., object]:
    """Make the function that answers those fields that *ns* has."""
    refused = 3

    def function(_: bytes, identifiers: list[int]) -> list[object]:
        return [
            SimpleNamespace(
                fieldId=one,
                nvmlReturn=0 if one in ns else refused,
                value=SimpleNamespace(ullVal=ns.get(one, 77)),
            )
            for one in identifiers
        ]

    return function


def test_the_time_under_each_fault_is_counted_where_the_driver_counts_it() -> None:
    gpu = nvml(**FIELDS, nvmlDeviceGetFieldValues=counting({269: 5, 271: 7}))

    assert gpu.throttled_ns() == {"software thermal slowdown": 5, "power brake": 7}


@pytest.mark.parametrize(
    "functions",
    [
        {},
        {**FIELDS, "nvmlDeviceGetFieldValues": refuse},
        {"nvmlDeviceGetFieldValues": counting({})},
    ],
    ids=["no such function", "refused", "fields without a name"],
)
def test_a_driver_that_counts_no_fault_has_no_counters(
    functions: dict[str, object],
) -> None:
    assert nvml(**functions).throttled_ns() == {}


def sample(pid: int, at_us: int, percent: int) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, timeStamp=at_us, smUtil=percent)


def test_utilisation_is_that_of_each_process_in_the_newest_samples() -> None:
    second = 1_000_000
    samples = [
        sample(7, 9 * second, 40),
        sample(8, 9 * second - 1, 0),
        sample(9, 7 * second, 90),
        sample(6, 5 * second, 50),
        sample(0, 9 * second, 30),
    ]
    gpu = nvml(nvmlDeviceGetProcessUtilization=lambda *_: samples)

    assert gpu.utilisation(6 * second) == Utilisation(
        newest_us=9 * second, percent={7: 40, 8: 0}
    )


@pytest.mark.parametrize(("value", "is_known"), [(0, True), (6, True), (3, False)])
def test_no_newer_sample_is_an_answer_and_a_refusal_is_none(
    value: int, *, is_known: bool
) -> None:
    def fail(*_: object) -> object:
        error = NVMLError()
        error.value = value  # type: ignore[attr-defined]
        raise error

    gpu = nvml(nvmlDeviceGetProcessUtilization=fail)

    assert gpu.utilisation(5) == (Utilisation() if is_known else None)
    assert nvml().utilisation(5) is None


def test_the_clock_is_that_of_the_board_now() -> None:
    assert nvml(nvmlDeviceGetClockInfo=answers({GPU: 1410})).sm_mhz() == 1410
    assert nvml(nvmlDeviceGetClockInfo=refuse).sm_mhz() is None


def test_the_settings_of_the_board_are_text_with_units() -> None:
    gpu = nvml(
        nvmlSystemGetDriverVersion=lambda: b"580.95.05",
        nvmlDeviceGetPowerManagementLimit=answers({GPU: 700_000}),
        nvmlDeviceGetMaxClockInfo=answers({GPU: 1980}),
        nvmlDeviceGetEccMode=answers({GPU: [1, 1]}),
    )

    assert gpu.settings() == {
        "driver": "580.95.05",
        "power limit": "700 W",
        "max SM clock": "1980 MHz",
        "ECC": "on",
    }


def test_settings_that_cannot_be_read_are_left_out() -> None:
    gpu = nvml(nvmlDeviceGetEccMode=answers({GPU: [0, 1]}))

    assert gpu.settings() == {"ECC": "off"}


def test_a_mig_instance_asks_its_board_for_clocks_and_itself_for_processes() -> None:
    instance = Nvml(
        pynvml=FakePynvml(
            nvmlDeviceGetCurrentClocksEventReasons=answers({GPU: 0x80}),
            nvmlDeviceGetComputeRunningProcesses=answers({MIG: [process(7, 5)]}),
        ),
        instance=MIG.encode(),
        board=GPU.encode(),
    )

    assert instance.throttling() == ("power brake",)
    assert instance.processes() == {7: 5}


def test_the_gpus_of_a_machine_are_named_once_a_model_with_their_driver(
    install: Callable[[Any], None],
) -> None:
    models = {0: "NVIDIA H200", 1: "NVIDIA A100", 2: "NVIDIA H200"}
    install(
        FakePynvml(
            nvmlDeviceGetCount=lambda: 3,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetName=models.__getitem__,
            nvmlSystemGetDriverVersion=lambda: "570.1",
        )
    )

    assert machine_gpus() == {"name": "NVIDIA A100, NVIDIA H200", "driver": "570.1"}


def test_a_machine_whose_driver_says_nothing_has_no_gpus_to_name(
    install: Callable[[Any], None],
) -> None:
    install(None)
    without_library = machine_gpus()
    install(FakePynvml(nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=refuse))

    assert (without_library, machine_gpus()) == ({}, {})
