"""One run of a test by torchrun's ranks, each watched by a pytest of its own.

Rank 0's watcher gives the order, waits for the others and lets all begin at once. A
watcher that sees its rank fail notifies the others, and each reports how its rank
ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from ..errors import ErrorId, RunError, UsageError
from ..model.codec import decode, encode
from ..model.environment import Launch
from ..sharing.device_lock import TURN_SECONDS
from .processes import Elsewhere, RankEnd


# The store of torchrun, by which its ranks agree outside of a measurement.

STORE_PAUSE_SECONDS: Final = 0.05
"""Pause between two looks, so that the process can be interrupted."""

CONNECT_SECONDS: Final = 300.0

MEASURED: Final = "measured"
"""Rank 0 will give no more orders."""

OVER: Final = "over"
"""Rank 0 has ended, with this exit status."""


class LaunchStore:
    """Texts by name that all ranks of a launch see. A process that forks has its own.

    Its methods raise ``RunError`` if the store is gone, as it is when the machine of
    rank 0 has ended.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._store: Any = _guarded(launch, _connected, launch)

    def post(self, name: str, text: str = "") -> None:
        """Let all ranks see *text*."""
        _guarded(self.launch, self._store.set, name, text)

    def has(self, name: str) -> bool:
        """Whether a text of this *name* was posted."""
        return bool(_guarded(self.launch, self._store.check, [name]))

    def read(self, name: str) -> str:
        """Return a text that was posted."""
        text: bytes = _guarded(self.launch, self._store.get, name)
        return text.decode()

    def count_up(self, name: str) -> int:
        """Return how often this was asked of *name*."""
        return int(_guarded(self.launch, self._store.add, name, 1))

    def awaited(self, name: str, seconds: float) -> str | None:
        """Return a text as soon as it is posted; ``None`` if none is in *seconds*."""
        from torch.distributed import DistStoreError

        try:
            self._store.wait(
                [name], timedelta(seconds=max(seconds, STORE_PAUSE_SECONDS))
            )
        except DistStoreError:
            return None
        except RuntimeError as error:
            raise _gone(self.launch, error) from None
        return self.read(name)

    def first_of(self, *names: str) -> str:
        """Return the first of *names* that is posted, whenever that is."""
        while True:
            for name in names:
                if self.has(name):
                    return name
            # Not by the store's own wait, which blocks in C++ and cannot be
            # interrupted.
            time.sleep(STORE_PAUSE_SECONDS)


def group_store(launch: Launch, run: int) -> Any:
    """Return the store where the ranks of this *run* form their process group."""
    from torch.distributed import PrefixStore

    return PrefixStore(f"group/{run}", _guarded(launch, _connected, launch))


def _connected(launch: Launch) -> Any:
    from torch.distributed import PrefixStore, TCPStore

    store = TCPStore(
        launch.host,
        launch.port,
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=CONNECT_SECONDS),
    )
    return PrefixStore(f"gpuperf/{launch.attempt}", store)


def _guarded(launch: Launch, ask: Any, *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except RuntimeError as error:
        raise _gone(launch, error) from None


def _gone(launch: Launch, error: RuntimeError) -> RunError:
    # torch appends a C++ backtrace to the first line.
    first, *_ = str(error).splitlines() or [""]
    msg = (
        f"the store of torchrun at {launch.host}:{launch.port} cannot be reached, so the "
        f"machine of rank 0 has ended or is cut off: {first}"
    )
    return RunError(msg, ErrorId.GP608)


# Detects torchrun by the environment variables that it sets.
#
# PyTorch documents them in ``torch.distributed.run``, "Environment Variables".

READY_SECONDS: Final = 300.0
"""Time for a rank to collect and start its process, besides the wait for a device.

By the wall clock, here as in the next ones: a rank may be on another machine, where
nobody here sees what it uses. So there is much of it. torchrun itself ends all ranks when
one dies.
"""


def launch_of(environ: Mapping[str, str]) -> Launch | None:
    """Return which of torchrun's ranks has *environ*; ``None`` if there is one rank.

    Raises ``UsageError`` where several ranks were started by something else, or share no
    store.
    """
    if "RANK" not in environ or environ.get("WORLD_SIZE", "1") == "1":
        return None
    _refuse_others(environ)
    run = environ["TORCHELASTIC_RUN_ID"]
    return Launch(
        rank=_number(environ, "RANK"),
        count=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        machines=_number(environ, "GROUP_WORLD_SIZE"),
        host=environ.get("MASTER_ADDR", ""),
        port=_number(environ, "MASTER_PORT"),
        attempt=f"{run}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
        patience_s=TURN_SECONDS + READY_SECONDS,
    )


def _refuse_others(environ: Mapping[str, str]) -> None:
    if "TORCHELASTIC_RUN_ID" not in environ:
        msg = (
            f"RANK={environ['RANK']} and WORLD_SIZE={environ['WORLD_SIZE']} are set, and "
            "torchrun did not set them: each rank would measure for itself; start them "
            "by torchrun -m pytest, or unset both"
        )
        raise UsageError(msg, ErrorId.GP609)
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        msg = (
            "torchrun does not share its store with the ranks, which agree by it: unset "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
        )
        raise UsageError(msg, ErrorId.GP610)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdecimal():
        msg = f"{name}={text!r} is set: expected a whole number, as torchrun sets it"
        raise UsageError(msg, ErrorId.GP609)
    return int(text)


GO: Final = "go"

NO: Final = "no"

LATE_SECONDS: Final = 300.0
"""Time for a watcher to report the end of its rank, besides what the rank may take."""


def order_name(run: int) -> str:
    """Name the text that says what the ranks do in this *run*, counted from 1."""
    return f"order/{run}"


def ready_name(run: int, rank: int) -> str:
    """Name the text by which a *rank* is ready, or says why it never will be."""
    return f"{run}/ready/{rank}"


def locks_name(rank: int) -> str:
    """Name the text that says which locks a *rank* takes."""
    return f"locks/{rank}"


class RankWatchers(Elsewhere):
    """What the watcher of one rank knows of the others in a run."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._run = 0
        self._connected_store: LaunchStore | None = None
        self._began = 0.0

    def invite(self, order: str) -> int:
        """Give the *order*, let all begin who are ready; return the number of the run.

        Raises ``RunError`` that names the rank for which it cannot begin.
        """
        self._run = self._shared_store.count_up("runs")
        self._shared_store.post(order_name(self._run), order)
        until = time.monotonic() + self._launch.patience_s
        why = next(filter(None, map(self._why_not, self._others, _left(until))), "")
        self._shared_store.post(f"{self._run}/begin", NO if why else GO)
        if why:
            raise RunError(why, ErrorId.GP612)
        self._began = time.monotonic()
        return self._run

    def come(self, run: int, why_not: str) -> int:
        """Be ready for this *run*, or say *why_not*; return its number when it begins.

        Raises ``RunError`` if it does not begin.
        """
        self._run = run
        self._shared_store.post(ready_name(run, self._launch.rank), why_not)
        begin = self._shared_store.awaited(f"{run}/begin", self._launch.patience_s)
        if begin != GO:
            msg = f"rank {self._launch.rank}: run {run} was called off"
            raise RunError(msg, ErrorId.GP612)
        self._began = time.monotonic()
        return run

    def have_failed(self) -> bool:
        """Whether a rank failed that another process watches."""
        return self._shared_store.has(f"{self._run}/failed")

    def hear_of_failure(self) -> None:
        """Tell the other watchers that a rank has failed."""
        self._shared_store.post(f"{self._run}/failed")

    def hear_of(self, pids: Sequence[int]) -> None:
        """Tell the other watchers which processes are watched here."""
        name = f"{self._run}/pids/{self._launch.rank}"
        self._shared_store.post(name, json.dumps(list(pids)))

    def pids(self) -> list[int]:
        """Return the processes that others watch, if all are on this machine."""
        ranks = range(self._launch.count if self._launch.machines == 1 else 0)
        names = [
            f"{self._run}/pids/{rank}" for rank in ranks if rank != self._launch.rank
        ]
        known = [name for name in names if self._shared_store.has(name)]
        return [
            pid for name in known for pid in json.loads(self._shared_store.read(name))
        ]

    def hand_in(self, end: RankEnd) -> None:
        """Give rank 0's watcher the *end* of the rank that is watched here."""
        text = json.dumps(encode(self.since_begin(end)))
        self._shared_store.post(f"{self._run}/end/{self._launch.rank}", text)

    def ends_of_others(self, own: RankEnd, timeout_s: float) -> list[RankEnd | None]:
        """Return how the other ranks ended, ``None`` for one that reports nothing.

        They have *timeout_s* from when all began, but no more time once a rank has
        failed, rank 0 by its *own* end among them: the others are then notified and
        killed.
        """
        # A failed rank has had its grace already, and the other watchers end theirs as
        # well: only their reports are waited for.
        hurried = own.code != 0 or self.have_failed()
        until = time.monotonic() if hurried else self._began + timeout_s
        left = _left(until + LATE_SECONDS)
        return list(map(self._end_of, self._others, left))

    def since_begin(self, end: RankEnd) -> RankEnd:
        """Count the times of *end* from when all began: machines have other clocks."""
        said = tuple({**said, "at": said["at"] - self._began} for said in end.said)
        return replace(end, said=said, ended_at=end.ended_at - self._began)

    @property
    def _shared_store(self) -> LaunchStore:
        """The store of all ranks; connected late, as it does not survive a fork."""
        if self._connected_store is None:
            self._connected_store = LaunchStore(self._launch)
        return self._connected_store

    @property
    def _others(self) -> range:
        return range(1, self._launch.count)

    def _why_not(self, rank: int, seconds: float) -> str:
        """Wait for *rank* and return why it does not take part; nothing if it does."""
        ready = self._shared_store.awaited(ready_name(self._run, rank), seconds)
        if ready is not None:
            return f"rank {rank} takes no part: {ready}" if ready else ""
        return f"rank {rank} was not ready in {self._launch.patience_s:g} s"

    def _end_of(self, rank: int, seconds: float) -> RankEnd | None:
        text = self._shared_store.awaited(f"{self._run}/end/{rank}", seconds)
        return None if text is None else decode(RankEnd, json.loads(text))


def _left(until: float) -> Iterator[float]:
    while True:
        yield until - time.monotonic()
