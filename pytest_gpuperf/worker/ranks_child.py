"""Starts and watches the ranks that execute one test together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..devices import open_device
from ..devices.base import Device
from ..devices.process_time import usable_cores
from ..distributed.device import AgreedDevice, TorchPeers
from ..distributed.group import (
    launched_membership,
    membership,
    serve_rendezvous,
    visible_gpus,
)
from ..distributed.processes import Say, result_of, result_of_launched, run_ranks
from ..distributed.torchrun import RankWatchers
from ..errors import ErrorId, RunError
from ..files import scratch_folder
from ..model.budget import Ranks
from ..model.codec import decode, encode
from ..model.environment import Capability, DeviceKind, Launch
from ..model.measurement import Measurement
from ..model.metrics import METRICS
from ..model.run import Ending, StepCall, TestResult
from ..runner.request import RunRequest
from .child import enter, measuring_for, run_tests


RANKS_A_CORE: Final = 16
"""Each rank imports torch's state and has threads of its own, a few hundred MB and a
second of a core to begin with. Eight a core are common in tests of sharding on a laptop;
far beyond that a typing error takes the machine down before any timeout is heard."""


def measure(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Execute the test of one request in ranks, and return its result.

    A test that cannot be measured in ranks is returned as not checked.
    """
    request = decode(RunRequest, raw)
    why = why_not(request.device, request.ranks, request.settings.launch)
    if why is not None:
        return [encode(_not_checked(request, name, why)) for name in request.names]
    ranks = request.ranks
    if ranks is None or ranks.timeout_s is None or len(request.names) != 1:
        msg = "ranks execute one test, in a time that is known"
        raise RunError(msg, ErrorId.GP613)
    if request.settings.launch is None:
        refusal = _too_many(ranks.count)
        if refusal:
            (test,) = request.names
            failed = TestResult(test=test, ending=Ending.FAILED, text=refusal)
            return [encode(failed)]
        return [encode(_executed(request, ranks, ranks.timeout_s))]
    return [encode(_led(request, request.settings.launch, ranks.timeout_s))]


def follow(raw: Mapping[str, Any]) -> None:
    """Have one of torchrun's ranks, not the first, execute the test of one request."""
    request, run = decode(RunRequest, raw["request"]), int(raw["run"])
    launch, ranks = request.settings.launch, request.ranks
    if launch is None or ranks is None or ranks.timeout_s is None:
        msg = "torchrun's ranks execute one test, in a time that is known"
        raise RunError(msg, ErrorId.GP613)
    watchers = RankWatchers(launch)
    why = why_no_gpu(request.device, launch)
    with scratch_folder() as folder:
        (end,) = run_ranks(
            partial(_be_launched_rank, request, launch, ranks.timeout_s),
            (launch.rank,),
            meet=partial(watchers.come, run, why),
            folder=Path(folder),
            timeout_s=ranks.timeout_s,
            elsewhere=watchers,
        )
    watchers.hand_in(end)


def why_not(
    kind: DeviceKind, ranks: Ranks | None, launch: Launch | None = None
) -> str | None:
    """Say why *ranks* cannot be measured here; ``None`` if they can."""
    if launch is not None and (ranks is None or ranks.count != launch.count):
        return _not_launched(ranks, launch)
    if ranks is None:
        return None
    if not kind.has(Capability.RANKS):
        return (
            f"gpuperf.ranks({ranks.count}) is measured on cuda and cpu: the "
            "simulated GPU has no peers, add --gpuperf-device=cpu"
        )
    if kind is DeviceKind.CUDA and launch is None:
        seen = visible_gpus()
        if seen < ranks.count:
            return (
                f"gpuperf.ranks({ranks.count}) needs {ranks.count} GPUs, one per rank, "
                f"and {seen} can be seen here"
            )
    return None


def _too_many(count: int) -> str:
    """Say that this machine cannot run so many ranks; nothing if it can."""
    cores = usable_cores()
    most = RANKS_A_CORE * cores
    if count <= most:
        return ""
    return (
        f"gpuperf.ranks({count}): each rank is a process, and this machine runs at most "
        f"{most}, {RANKS_A_CORE} for each of its {cores} cores; ask for fewer"
    )


def _not_launched(ranks: Ranks | None, launch: Launch) -> str:
    """Refuse a number of ranks other than torchrun's: code reads its variables."""
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
    """Say why a rank of torchrun's has no GPU of its own; nothing if it needs none."""
    if kind is not DeviceKind.CUDA or visible_gpus() > launch.local_rank:
        return ""
    return (
        f"LOCAL_RANK={launch.local_rank} needs its own GPU, and {visible_gpus()} "
        "can be seen there"
    )


def _not_checked(request: RunRequest, name: str, why: str) -> TestResult:
    device = open_device(request.device, request.settings.script, request.number)
    measurement = Measurement(
        test=name,
        environment=device.environment(),
        unmeasured=dict.fromkeys(METRICS, why),
    )
    return TestResult(
        test=name, ending=Ending.PASSED, calls=(StepCall(measurement=measurement),)
    )


def _executed(request: RunRequest, ranks: Ranks, timeout_s: float) -> TestResult:
    stores: list[object] = []  # a store serves as long as it is referenced

    def port() -> int:
        store, number = serve_rendezvous(ranks.count, timeout_s)
        stores.append(store)
        return number

    with scratch_folder() as folder:
        ends = run_ranks(
            partial(_be_rank, request, ranks.count, timeout_s),
            range(ranks.count),
            meet=port,
            folder=Path(folder),
            timeout_s=timeout_s,
        )
    return result_of(request.names[0], ends, timeout_s)


def _led(request: RunRequest, launch: Launch, timeout_s: float) -> TestResult:
    """Act as rank 0 of torchrun, and return how the test ended for all ranks."""
    test, watchers = request.names[0], RankWatchers(launch)
    order = json.dumps(encode(request))
    try:
        with scratch_folder() as folder:
            (own,) = run_ranks(
                partial(_be_launched_rank, request, launch, timeout_s),
                (launch.rank,),
                meet=partial(watchers.invite, order),
                folder=Path(folder),
                timeout_s=timeout_s,
                elsewhere=watchers,
            )
        ends = [watchers.since_begin(own), *watchers.ends_of_others(own, timeout_s)]
    except RunError as error:
        return TestResult(test=test, ending=Ending.DIED, text=str(error))
    return result_of_launched(test, ends, timeout_s)


def _be_rank(  # noqa: PLR0913, PLR0917  the request, and which of the ranks this is
    request: RunRequest, count: int, timeout_s: float, rank: int, port: int, say: Say
) -> None:
    on_cuda = request.device is DeviceKind.CUDA
    with membership(rank, count, port, timeout_s, cuda=on_cuda):
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

    def agreed(device: Device) -> Device:
        if device.measuring is None:
            return device
        machines = request.settings.launch.machines if request.settings.launch else 1
        return AgreedDevice(device.measuring, TorchPeers(), machines)

    enter(request)
    keeper = measuring_for(request, watch=agreed)
    for result in run_tests(request, keeper, failed=failed):
        say({"result": encode(result)})
