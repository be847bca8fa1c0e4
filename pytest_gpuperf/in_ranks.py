"""A run whose test several ranks execute: this process starts and watches them."""

from __future__ import annotations

import json
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
from .model.launch import Launch
from .model.measurement import Measurement
from .model.metric import METRICS
from .model.ranks import Ranks
from .model.run import Call
from .model.run import Ending
from .model.run import RunRequest
from .model.run import TestResult
from .ranked.agreed_device import AgreedDevice
from .ranked.group import Place
from .ranked.group import launched_membership
from .ranked.group import membership
from .ranked.group import serve_rendezvous
from .ranked.group import visible_gpus
from .ranked.party import Party
from .ranked.peers import TorchPeers
from .ranked.processes import run_ranks
from .ranked.rank_process import Say
from .ranked.story import result_of
from .ranked.story import result_of_launched


def measure(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Have the ranks of one request execute its test, and return the one result.

    What cannot be measured in ranks is returned as not judged.
    """
    request = decode(RunRequest, raw)
    why = why_not(request.device, request.ranks, request.launch)
    if why is not None:
        return [encode(_not_judged(request, name, why)) for name in request.names]
    ranks = request.ranks
    if ranks is None or ranks.timeout_s is None or len(request.names) != 1:
        msg = "ranks execute one test, in a time that is told"
        raise RunError(msg)
    if request.launch is None:
        return [encode(_executed(request, ranks, ranks.timeout_s))]
    return [encode(_led(request, request.launch, ranks.timeout_s))]


def follow(raw: Mapping[str, Any]) -> None:
    """Have one of torchrun's ranks, not the first, execute the test of one request."""
    request, run = decode(RunRequest, raw["request"]), int(raw["run"])
    launch, ranks = request.launch, request.ranks
    if launch is None or ranks is None or ranks.timeout_s is None:
        msg = "torchrun's ranks execute one test, in a time that is told"
        raise RunError(msg)
    party = Party(launch)
    why = why_no_gpu(request.device, launch)
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
        (end,) = run_ranks(
            partial(_be_launched_rank, request, launch, ranks.timeout_s),
            (launch.rank,),
            meet=partial(party.come, run, why),
            folder=Path(folder),
            timeout_s=ranks.timeout_s,
            elsewhere=party,
        )
    party.hand_in(end)


def why_not(
    kind: DeviceKind, ranks: Ranks | None, launch: Launch | None = None
) -> str | None:
    """Say why *ranks* cannot be measured here; ``None`` where they can."""
    if launch is not None and (ranks is None or ranks.count != launch.count):
        return _not_launched(ranks, launch)
    if ranks is None:
        return None
    if kind is DeviceKind.PRETEND:
        return (
            f"gpuperf.ranks({ranks.count}) is measured on cuda and cpu: the pretend "
            "device has no peers, add --gpuperf-device=cpu"
        )
    if kind is DeviceKind.CUDA and launch is None:
        seen = visible_gpus()
        if seen < ranks.count:
            return (
                f"gpuperf.ranks({ranks.count}) needs {ranks.count} GPUs, one a rank, "
                f"and {seen} can be seen here"
            )
    return None


def _not_launched(ranks: Ranks | None, launch: Launch) -> str:
    """Refuse what torchrun's ranks are not: its variables stay, and many heed them."""
    if ranks is None:
        return (
            f"torchrun started {launch.count} ranks, and this test asks for none: code "
            "that reads WORLD_SIZE would wait for them; measure it with pytest --gpuperf"
        )
    return (
        f"gpuperf.ranks({ranks.count}) and {launch.count} ranks that torchrun started: "
        f"start as many, or run pytest --gpuperf, which starts {ranks.count} itself"
    )


def why_no_gpu(kind: DeviceKind, launch: Launch) -> str:
    """Say why a rank of torchrun's has no GPU of its own; nothing where it needs none."""
    if kind is not DeviceKind.CUDA or visible_gpus() > launch.local_rank:
        return ""
    return (
        f"LOCAL_RANK={launch.local_rank} needs a GPU of its own, and {visible_gpus()} "
        "can be seen there"
    )


def _not_judged(request: RunRequest, name: str, why: str) -> TestResult:
    device = open_device(request.device, request.script, request.number)
    measurement = Measurement(
        test=name,
        environment=device.environment(),
        unmeasured=dict.fromkeys(METRICS, why),
    )
    return TestResult(
        test=name, ending=Ending.PASSED, calls=(Call(measurement=measurement),)
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
            range(ranks.count),
            meet=port,
            folder=Path(folder),
            timeout_s=timeout_s,
        )
    return result_of(request.names[0], ends, timeout_s)


def _led(request: RunRequest, launch: Launch, timeout_s: float) -> TestResult:
    """Be rank 0 of torchrun's, and say how the test ended for all of them."""
    test, party = request.names[0], Party(launch)
    order = json.dumps(encode(request))
    try:
        with tempfile.TemporaryDirectory(prefix="gpuperf-") as folder:
            (own,) = run_ranks(
                partial(_be_launched_rank, request, launch, timeout_s),
                (launch.rank,),
                meet=partial(party.invite, order),
                folder=Path(folder),
                timeout_s=timeout_s,
                elsewhere=party,
            )
        ends = [party.since_begin(own), *party.ends_of_others(own, timeout_s)]
    except RunError as error:
        return TestResult(test=test, ending=Ending.DIED, text=str(error))
    return result_of_launched(test, ends, timeout_s)


def _be_rank(  # noqa: PLR0913, PLR0917  the request, and which of the ranks this is
    request: RunRequest, count: int, timeout_s: float, rank: int, port: int, say: Say
) -> None:
    place = Place(rank=rank, count=count, port=port)
    with membership(place, timeout_s, cuda=request.device is DeviceKind.CUDA):
        _execute(request, say)


def _be_launched_rank(
    request: RunRequest, launch: Launch, timeout_s: float, _: int, run: int, say: Say
) -> None:
    on_cuda = request.device is DeviceKind.CUDA
    with launched_membership(launch, run, timeout_s, cuda=on_cuda):
        _execute(request, say)


def _execute(request: RunRequest, say: Say) -> None:
    def failed(result: TestResult) -> None:
        say({"failed": True, "result": encode(result)})

    def agreed(device: Device | PretendDevice) -> AgreedDevice | PretendDevice:
        if isinstance(device, PretendDevice):
            return device
        machines = request.launch.machines if request.launch else 1
        return AgreedDevice(device, TorchPeers(), machines)

    enter(request)
    keeper = measuring_for(request, watch=agreed)
    for result in run_tests(request, keeper, failed=failed):
        say({"result": encode(result)})
