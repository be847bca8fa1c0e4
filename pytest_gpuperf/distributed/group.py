"""The process group of torch.distributed, entered before a test and left after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn

from ..devices.machine import entries_of, obeyed, seeing
from ..errors import ErrorId, RunError
from ..model.environment import Launch
from .torchrun import group_store


LOCAL_HOST: Final = "127.0.0.1"

TORCH_PATIENCE: Final = 20
"""Multiple of the ranks' own limit after which torch gives up on a collective.

The watcher of the ranks must come first, to ask them where they are. It counts the time
of the ranks, torch that of the wall clock: with a twentieth of a core both are equal.
"""

LOOPBACK: Final = "lo0" if sys.platform == "darwin" else "lo"


def serve_rendezvous(count: int, timeout_s: float) -> tuple[Any, int]:
    """Return the store where *count* ranks meet, and its port, which was free.

    It lives as long as there is a reference to it, outside of the ranks, as that of
    torchrun's agent does.
    """
    distributed = _distributed()
    store = distributed.TCPStore(
        LOCAL_HOST,
        0,
        count,
        is_master=True,
        timeout=timedelta(seconds=TORCH_PATIENCE * timeout_s),
        wait_for_workers=False,
    )
    return store, int(store.port)


def visible_gpus() -> int:
    """Count the GPUs that ranks may have: none if torch cannot say.

    A child of its own is asked. Without NVML, for an instance of a MIG board and on ROCm
    torch asks the driver, and no rank could be forked from a process that did.
    """
    import torch

    if torch.cuda.is_initialized():
        return int(torch.cuda.device_count())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _count_and_end(torch, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return int(answer or 0)


def _count_and_end(torch: Any, writing: int) -> NoReturn:
    """Write the number of GPUs, and end this process without its exit handlers."""
    try:
        os.write(writing, str(int(torch.cuda.device_count())).encode())
    finally:
        os._exit(0)


def gpus_of(count: int) -> tuple[str, ...]:
    """Name the GPUs of *count* ranks, by rank, as CUDA_VISIBLE_DEVICES names them.

    They are the first of those that this process may see. Locks on them are taken in
    sorted order, so that no two processes wait for each other.
    """
    import torch

    named = entries_of(obeyed(torch, os.environ))
    return tuple(named or map(str, range(count)))[:count]


def variables_of(rank: int, count: int, port: int, *, cuda: bool) -> Mapping[str, str]:
    """Environment variables of a rank of *count*: torchrun's, and on *cuda* its GPU.

    It sees that GPU alone, as its first: its local rank is 0 then, as with
    ``torchrun --virtual-local-rank``.
    """
    local = 0 if cuda else rank
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": LOCAL_HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **_interface(),
    }
    if cuda:
        own = gpus_of(count)[rank]
        variables.update(seeing(own, os.environ))
    return variables


def _interface() -> Mapping[str, str]:
    """Keep gloo from looking for a network, as all ranks are on one machine."""
    named = "GLOO_SOCKET_IFNAME"
    return {} if named in os.environ else {named: LOOPBACK}


@contextmanager
def membership(
    rank: int, count: int, port: int, timeout_s: float, *, cuda: bool
) -> Iterator[None]:
    """Be a rank of *count*, which meet at *port*: set the environment, join and leave."""
    os.environ.update(variables_of(rank, count, port, cuda=cuda))
    with _joined(timeout_s, cuda=cuda):
        yield


@contextmanager
def launched_membership(
    launch: Launch, run: int, timeout_s: float, *, cuda: bool
) -> Iterator[None]:
    """Be the rank that torchrun made this process, in a group of this *run*'s own."""
    os.environ.update(launched_variables(launch, cuda=cuda))
    place = {
        "store": group_store(launch, run),
        "rank": launch.rank,
        "world_size": launch.count,
    }
    with _joined(timeout_s, cuda=cuda, **place):
        yield


def launched_variables(launch: Launch, *, cuda: bool) -> Mapping[str, str]:
    """What a rank of torchrun's has besides torchrun's variables: its GPU alone.

    If all ranks are on one machine, gloo has no network to look for.
    """
    variables = dict(_interface()) if launch.machines == 1 else {}
    if cuda:
        variables["LOCAL_RANK"] = "0"
        own = gpus_of(launch.local_rank + 1)[launch.local_rank]
        variables.update(seeing(own, os.environ))
    return variables


@contextmanager
def _joined(timeout_s: float, *, cuda: bool, **place: Any) -> Iterator[None]:
    """Join the default process group, at *place* if the environment does not say it."""
    distributed = _distributed()
    timeout = timedelta(seconds=TORCH_PATIENCE * timeout_s)
    if cuda:
        import torch

        # Each rank sees its own GPU alone, as its first; see ``variables_of``. NCCL
        # binds to the current device.
        torch.cuda.set_device(0)
        gpu = torch.device("cuda", 0)
        distributed.init_process_group("nccl", timeout=timeout, device_id=gpu, **place)
    else:
        distributed.init_process_group("gloo", timeout=timeout, **place)
    try:
        yield
    finally:
        _leave(distributed)


@contextmanager
def alone() -> Iterator[None]:
    """Be the one rank of a process group, unless this process has joined one.

    A process that a launcher has started as a rank is left as it is.
    """
    distributed = _distributed()
    if distributed.is_initialized() or "RANK" in os.environ:
        yield
        return
    one = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    one.update(_interface())
    # The process goes on after this group: a later launcher or test must not find
    # these.
    before = {name: os.environ.get(name) for name in one}
    os.environ.update(one)
    try:
        store = distributed.HashStore()
        distributed.init_process_group(_backend(), store=store, rank=0, world_size=1)
        yield
    finally:
        _leave(distributed)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _backend() -> str:
    import torch

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _leave(distributed: Any) -> None:
    """Leave the group, unless the test has done so: many end with that."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _distributed() -> Any:
    from torch import distributed

    if not distributed.is_available():
        msg = (
            "gpuperf.ranks: this build of torch has no torch.distributed; install one "
            "that was built with USE_DISTRIBUTED=1"
        )
        raise RunError(msg, ErrorId.GP607)
    return distributed
