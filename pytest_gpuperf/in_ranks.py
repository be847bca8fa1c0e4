"""A run whose test several ranks execute: this process starts and watches them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from .child import enter
from .child import measuring_for
from .child import run_tests
from .devices import open_device
from .devices.pretend.device import PretendDevice
from .devices.protocol import Device
from .errors import RunError
from .model.codec import decode
from .model.codec import encode
from .model.environment import DeviceKind
from .model.measurement import Measurement
from .model.metric import METRICS
from .model.ranks import Ranks
from .model.run import Call
from .model.run import Ending
from .model.run import RunRequest
from .model.run import TestResult
from .ranked.agreed_device import AgreedDevice
from .ranked.group import Place
from .ranked.group import membership
from .ranked.group import serve_rendezvous
from .ranked.group import visible_gpus
from .ranked.peers import TorchPeers
from .ranked.processes import run_ranks
from .ranked.rank_process import Say
from .ranked.story import result_of


def measure(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Have the ranks of one request execute its test, and return the one result."""
    request = decode(RunRequest, raw)
    ranks = request.ranks
    if ranks is None or ranks.timeout_s is None or len(request.names) != 1:
        msg = "ranks execute one test, in a time that is told"
        raise RunError(msg)
    why = why_not(request.device, ranks)
    if why is not None:
        return [encode(_not_judged(request, why))]
    return [encode(_executed(request, ranks, ranks.timeout_s))]


def why_not(kind: DeviceKind, ranks: Ranks) -> str | None:
    """Say why *ranks* cannot be measured here; ``None`` where they can."""
    if kind is DeviceKind.PRETEND:
        return (
            f"gpuperf.ranks({ranks.count}) is measured on cuda and cpu: the pretend "
            "device has no peers, add --gpuperf-device=cpu"
        )
    if kind is DeviceKind.CUDA:
        seen = visible_gpus()
        if seen < ranks.count:
            return (
                f"gpuperf.ranks({ranks.count}) needs {ranks.count} GPUs, one a rank, "
                f"and {seen} can be seen here"
            )
    return None


def _not_judged(request: RunRequest, why: str) -> TestResult:
    device = open_device(request.device, request.script, request.number)
    measurement = Measurement(
        test=request.names[0],
        environment=device.environment(),
        unmeasured=dict.fromkeys(METRICS, why),
    )
    return TestResult(
        test=request.names[0],
        ending=Ending.PASSED,
        calls=(Call(measurement=measurement),),
    )


def _executed(request: RunRequest, ranks: Ranks, timeout_s: float) -> TestResult:
    stores: list[object] = []  # the ranks meet there as long as one is held

    def port() -> int:
        store, number = serve_rendezvous(ranks.count, timeout_s)
        stores.append(store)
        return number

    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        ends = run_ranks(
            partial(_be_rank, request, ranks.count, timeout_s),
            ranks.count,
            port=port,
            folder=Path(folder),
            timeout_s=timeout_s,
        )
    return result_of(request.names[0], ends, timeout_s)


def _be_rank(  # noqa: PLR0913, PLR0917  the request, and which of the ranks this is
    request: RunRequest, count: int, timeout_s: float, rank: int, port: int, say: Say
) -> None:
    place = Place(rank=rank, count=count, port=port)

    def failed(result: TestResult) -> None:
        say({"failed": True, "result": encode(result)})

    with membership(place, timeout_s, cuda=request.device is DeviceKind.CUDA):
        enter(request)
        keeper = measuring_for(request, watch=_agreed)
        for result in run_tests(request, keeper, failed=failed):
            say({"result": encode(result)})


def _agreed(device: Device | PretendDevice) -> AgreedDevice | PretendDevice:
    if isinstance(device, PretendDevice):
        return device
    return AgreedDevice(device, TorchPeers())
