"""Where ranks can be measured, and what each of them sees of the machine."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pytest_gpuperf.distributed.group import (
    LOOPBACK,
    launched_variables,
    serve_rendezvous,
    variables_of,
    visible_gpus,
)
from pytest_gpuperf.errors import ErrorId, RunError
from pytest_gpuperf.judge.calls import judge_calls
from pytest_gpuperf.model.budget import Ranks
from pytest_gpuperf.model.codec import decode, encode
from pytest_gpuperf.model.environment import DeviceKind, Launch
from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.model.run import Ending, TestResult
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.runner.pool import with_timeout
from pytest_gpuperf.runner.request import Planned, RunRequest, groups_of
from pytest_gpuperf.settings import Isolation, Settings
from pytest_gpuperf.worker.ranks_child import measure, why_no_gpu, why_not


torch = pytest.importorskip("torch")


def test_a_rank_on_the_cpu_has_torchruns_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)

    variables = variables_of(1, 4, 29, cuda=False)

    assert variables == {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": LOOPBACK,
    }


@pytest.mark.parametrize(
    ("visible", "gpu"),
    [(None, "1"), ("", "1"), ("3,5,7", "5"), ("GPU-a, GPU-b", "GPU-b")],
)
def test_a_rank_on_cuda_sees_its_own_of_the_visible_gpus_as_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, gpu: str
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    variables = variables_of(1, 2, 29, cuda=True)

    assert variables["CUDA_VISIBLE_DEVICES"] == gpu
    assert variables["LOCAL_RANK"] == "0"
    assert "GLOO_SOCKET_IFNAME" not in variables


def test_ranks_meet_at_a_port_that_nobody_else_has() -> None:
    first, port = serve_rendezvous(2, 60)
    second, other = serve_rendezvous(2, 60)

    assert port != other
    assert (first.port, second.port) == (port, other)


@pytest.mark.parametrize(
    ("kind", "gpus", "why"),
    [
        (DeviceKind.CPU, 0, None),
        (DeviceKind.CUDA, 4, None),
        (
            DeviceKind.CUDA,
            3,
            "gpuperf.ranks(4) needs 4 GPUs, one per rank, and 3 can be seen here",
        ),
        (
            DeviceKind.SIMULATED,
            0,
            (
                "gpuperf.ranks(4) is measured on cuda and cpu: the simulated GPU has no "
                "peers, add --gpuperf-device=cpu"
            ),
        ),
    ],
)
def test_what_cannot_have_so_many_ranks_says_so(
    monkeypatch: pytest.MonkeyPatch, kind: DeviceKind, gpus: int, why: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    assert why_not(kind, Ranks(count=4)) == why


def test_gpus_are_counted_in_a_child_since_the_question_may_start_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No rank could be forked from a process that has asked the driver."""
    asked_in: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: asked_in.append(1) or 3)

    assert visible_gpus() == 3
    assert asked_in == []


def test_gpus_are_counted_here_where_cuda_has_been_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.delattr(os, "fork")

    assert visible_gpus() == 3


def test_gpus_that_torch_cannot_count_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1 / 0)

    assert visible_gpus() == 0


LAUNCH = Launch(
    rank=0,
    count=2,
    local_rank=0,
    machines=1,
    host="127.0.0.1",
    port=29500,
    attempt="none/0",
    patience_s=60.0,
)


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (Ranks(count=2), None),
        (
            Ranks(count=3),
            (
                "gpuperf.ranks(3) and 2 ranks that torchrun started: start as many, or "
                "run pytest --gpuperf, which starts 3 itself"
            ),
        ),
        (
            None,
            (
                "torchrun started 2 ranks, and this test asks for none: code that reads "
                "WORLD_SIZE would wait for them; measure it with pytest --gpuperf"
            ),
        ),
    ],
)
def test_torchruns_ranks_execute_what_asks_for_as_many(
    ranks: Ranks | None, why: str | None
) -> None:
    assert why_not(DeviceKind.CPU, ranks, LAUNCH) == why


def test_tests_that_ask_for_no_ranks_are_not_checked_where_torchrun_started_some() -> (
    None
):
    request = RunRequest(
        tests=("/a.py::one", "/a.py::two"),
        device=DeviceKind.CPU,
        settings=Settings(launch=LAUNCH),
        names=("a.py::one", "a.py::two"),
    )

    results = [decode(TestResult, raw) for raw in measure(encode(request))]

    assert [result.test for result in results] == ["a.py::one", "a.py::two"]
    for result in results:
        assert judge_calls(result.calls, None).outcome is Outcome.NOT_CHECKED


@pytest.mark.parametrize(
    ("kind", "local_rank", "why"),
    [
        (DeviceKind.CPU, 5, ""),
        (DeviceKind.CUDA, 1, ""),
        (DeviceKind.CUDA, 2, "LOCAL_RANK=2 needs its own GPU, and 2 can be seen there"),
    ],
)
def test_a_rank_of_torchruns_needs_a_gpu_of_its_own(
    monkeypatch: pytest.MonkeyPatch, kind: DeviceKind, local_rank: int, why: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)

    assert why_no_gpu(kind, replace(LAUNCH, local_rank=local_rank)) == why


def test_a_rank_on_rocm_has_its_gpu_by_the_variable_that_is_obeyed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "4,6")

    variables = variables_of(1, 2, 29, cuda=True)

    assert variables["HIP_VISIBLE_DEVICES"] == "6"
    assert variables["CUDA_VISIBLE_DEVICES"] == "6"


def test_a_rank_of_torchruns_keeps_its_variables_and_has_one_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    third = replace(LAUNCH, rank=6, local_rank=2, machines=2)

    assert launched_variables(third, cuda=True) == {
        "LOCAL_RANK": "0",
        "CUDA_VISIBLE_DEVICES": "7",
    }
    assert launched_variables(third, cuda=False) == {}
    assert launched_variables(LAUNCH, cuda=False) == {"GLOO_SOCKET_IFNAME": LOOPBACK}


def test_ranks_that_cannot_be_had_are_not_checked_and_no_process_starts() -> None:
    request = RunRequest(
        tests=("/a.py::step",),
        device=DeviceKind.SIMULATED,
        ranks=Ranks(count=2, timeout_s=1.0),
        names=("a.py::step",),
    )

    (raw,) = measure(encode(request))

    result = decode(TestResult, raw)
    measurement = result.calls[0].measurement
    assert (result.test, result.ending) == ("a.py::step", Ending.PASSED)
    assert measurement.unmeasured == dict.fromkeys(
        METRICS, why_not(DeviceKind.SIMULATED, Ranks(count=2))
    )
    assert judge_calls(result.calls, None).outcome is Outcome.NOT_CHECKED


def test_ranks_execute_one_test_at_a_time() -> None:
    request = RunRequest(tests=("a", "b"), device=DeviceKind.CPU, names=("a", "b"))

    with pytest.raises(RunError) as refused:
        measure(encode(request))

    assert refused.value.error_id is ErrorId.GP613


def test_a_test_on_several_ranks_shares_its_processes_with_none() -> None:
    plan = [
        Planned(test=name, argument="", module="m", ranks=ranks)
        for name, ranks in [
            ("a", None),
            ("b", Ranks(count=2)),
            ("c", Ranks(count=2)),
            ("d", None),
            ("e", None),
        ]
    ]

    assert groups_of(plan, Isolation.MODULE) == [("a",), ("b",), ("c",), ("d", "e")]


def test_without_a_timeout_the_time_cap_decides() -> None:
    assert with_timeout(Ranks(count=2), 20.0) == Ranks(count=2, timeout_s=90.0)
    assert with_timeout(Ranks(count=2, timeout_s=5.0), 20.0).timeout_s == 5.0
