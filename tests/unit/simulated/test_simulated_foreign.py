"""Programs that others wrote run on the simulated GPU as on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

import numpy as np
from torch import nn
from torch.autograd.profiler import emit_nvtx
from torch.profiler import ProfilerActivity, profile

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu() as entered:
        yield entered


# Tensors from outside of ``torch.inference_mode()``.

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(16),
    "index": lambda x: x[0],
    "transpose": lambda x: x.transpose(0, 1),
    "split": lambda x: x.split(2)[1],
    "expand": lambda x: x[None].expand(3, 4, 4),
    "as another dtype": lambda x: x.view(torch.int32),
    "transposed in place": lambda x: x.t_(),
    "lengthened in place": lambda x: x.unsqueeze_(0),
    "written by its view": lambda x: x[0].add_(1),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "new": lambda x: x + 1,
}


def in_inference_mode(device: str, change: Callable[[Any], Any]) -> tuple[Any, ...]:
    outside = torch.arange(16.0).view(4, 4).clone().to(device)
    with torch.inference_mode():
        inside = change(outside)
        return inside.is_inference(), inside.tolist()


@pytest.mark.parametrize("change", VIEWS.values(), ids=VIEWS)
def test_outside_tensors_are_viewed_in_inference_mode(
    change: Callable[[Any], Any],
) -> None:
    assert in_inference_mode("cuda", change) == in_inference_mode("cpu", change)


def test_outside_parameters_are_used_in_inference_mode() -> None:
    layer = nn.Linear(4, 2).cuda()

    with torch.inference_mode():
        layer.weight.data = layer.weight.data * 0
        result = layer(torch.ones(3, 4, device="cuda").view(3, 4)) - layer.bias

    assert result.tolist() == [[0.0, 0.0]] * 3


def test_views_of_inference_tensors_stay_such_outside_of_the_mode() -> None:
    with torch.inference_mode():
        made = torch.ones(4, 4, device="cuda")

    assert made.view(16).is_inference()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        made.view(16).add_(1)


# Indices that are no tensors.

INDICES: dict[str, Any] = {
    "empty list": [],
    "number and empty list": (0, []),
    "slice and empty list": (slice(None), []),
    "two empty lists": ([], []),
    "empty list in a list": ([[]],),
    "empty array": np.array([]),
    "list": [2, 0],
    "list of masks": [True, False, True],
    "list of lists": [[0, 1], [1, 2]],
    "list with a slice": [slice(0, 1), 2],
    "list of tensors": [torch.tensor([0, 1]), torch.tensor([1, 2])],
    "array of int32": np.array([0, 1], dtype=np.int32),
    "range": range(2),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_indices_that_are_no_tensors_select_as_on_the_host(index: Any) -> None:
    host = torch.arange(12.0).view(3, 4)
    device = host.cuda()

    selected = device[index]
    device[index] = 7.0
    expected = host[index]
    host[index] = 7.0

    assert selected.is_cuda
    assert selected.tolist() == expected.tolist()
    assert device.tolist() == host.tolist()


def test_an_empty_list_copies_nothing(gpu: SimulatedGpu) -> None:
    grid = torch.ones(3, 4, device="cuda")
    gpu.begin_step()
    grid[0, []]
    empty = gpu.end_step()
    grid[[0, 1]]
    full = gpu.end_step()

    assert (empty.findings, empty.copies) == ((), ())
    assert [(f.op, f.per_step) for f in full.findings] == [("aten::_to_copy", 1)]
    assert full.totals.counts["h2d_bytes"] == 16


# Profilers of a GPU that is not there.

ACTIVITIES: dict[str, Any] = {
    "both": [ProfilerActivity.CPU, ProfilerActivity.CUDA],
    "the GPU alone": [ProfilerActivity.CUDA],
    "all there are": None,
}


@pytest.mark.parametrize("activities", ACTIVITIES.values(), ids=ACTIVITIES)
def test_torchs_profiler_records_the_host_without_a_warning(
    activities: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    weight = torch.ones(4, 4, device="cuda", requires_grad=True)

    with profile(activities=activities) as profiler:
        (weight @ weight).sum().backward()

    names = {event.name for event in profiler.events()}
    assert ("aten::mm" in names) is (activities != [ProfilerActivity.CUDA])
    assert "not enabled" not in capfd.readouterr().err


def test_the_older_profiler_of_torch_records_the_host_as_well(
    capfd: pytest.CaptureFixture[str],
) -> None:
    weight = torch.ones(4, 4, device="cuda")

    with torch.autograd.profiler.profile(use_device="cuda") as profiler:
        weight.sum()

    assert any(event.name == "aten::sum" for event in profiler.function_events)
    assert "not enabled" not in capfd.readouterr().err


def test_marks_and_calls_for_other_profilers_do_nothing_but_wait(
    gpu: SimulatedGpu, tmp_path: Path
) -> None:
    snapshot = tmp_path / "memory.pickle"
    gpu.begin_step()

    with emit_nvtx(), torch.cuda.profiler.profile():
        torch.cuda.cudart().cudaProfilerStart()
        torch.cuda.memory._record_memory_history()
        torch.cuda.memory._dump_snapshot(str(snapshot))

    assert gpu.end_step().totals.syncs == 2
    assert snapshot.exists()
