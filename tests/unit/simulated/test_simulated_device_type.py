"""``torch.device`` on the simulated GPU: an index alone, and everything that names the class."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import simulated_gpu


OWN = torch.device


@pytest.fixture(autouse=True)
def _gpu() -> Iterator[None]:
    with simulated_gpu():
        yield


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.device(0),
        lambda: torch.device(device=0),
        lambda: torch.device("cuda:0"),
        lambda: torch.device("cuda", 0),
        lambda: torch.device(type="cuda", index=0),
        lambda: torch.device(torch.device(0)),
        lambda: torch.ones(1, device=0).device,
    ],
)
def test_an_index_alone_is_a_cuda_device(make: Callable[[], Any]) -> None:
    assert make() == OWN("cuda", 0)


def test_a_model_is_put_on_a_device_by_its_index() -> None:
    assert torch.nn.Linear(2, 2).to(torch.device(0)).weight.is_cuda


def test_what_is_no_device_is_refused_as_ever() -> None:
    with pytest.raises(TypeError):
        torch.device(1.5)
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        torch.device("tpus")


def test_devices_are_instances_of_the_class_and_others_are_not() -> None:
    assert isinstance(torch.device("cpu"), torch.device)
    assert isinstance(torch.ones(1, device="cuda").device, (str, torch.device))
    assert not isinstance("cuda", torch.device)
    assert issubclass(type(OWN("cpu")), torch.device)
    assert not issubclass(str, torch.device)


def test_tables_of_types_find_the_class_under_either_name() -> None:
    found = {OWN: "device"}

    assert found[torch.device] == "device"
    assert type(OWN("cpu")) == torch.device  # noqa: E721, as programs write it
    assert torch.device in {OWN, int}
    assert torch.device.index is OWN.index


def test_a_function_dispatches_on_the_class() -> None:
    @singledispatch
    def name(_: object) -> str:
        return "no device"

    name.register(torch.device, lambda _: "device")

    assert [name(OWN("cpu")), name("cpu")] == ["device", "no device"]


def test_devices_are_copied_pickled_and_saved() -> None:
    device = torch.device("cuda", 0)
    saved = io.BytesIO()
    torch.save({"device": device}, saved)
    saved.seek(0)

    assert copy.deepcopy(device) == device
    assert pickle.loads(pickle.dumps(device)) == device  # noqa: S301, our own bytes
    assert torch.load(saved) == {"device": device}


def test_an_operator_of_the_program_may_take_a_device() -> None:
    def zeros(size: int, device: torch.device) -> torch.Tensor:
        return torch.zeros(size, device=device)

    zeros.__annotations__.update(
        {"size": int, "device": torch.device, "return": torch.Tensor}
    )

    assert "Device device" in torch.library.infer_schema(zeros, mutates_args=())
