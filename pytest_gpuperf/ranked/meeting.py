"""The store of torchrun, by which its ranks agree outside of a measurement."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any
from typing import Final

from ..errors import RunError
from ..model.launch import Launch


PAUSE_SECONDS: Final = 0.05
"""Between two looks of a process that can be interrupted."""

CONNECT_SECONDS: Final = 60.0

MEASURED: Final = "measured"
"""Rank 0 will give no more orders."""

OVER: Final = "over"
"""Rank 0 has ended, with this exit status."""


class Meeting:
    """Texts by name that all ranks of a launch see. A process that forks has its own.

    Its methods raise ``RunError`` where the store is gone, as it is when the machine of
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
        """Return a text as soon as it is posted; ``None`` where none is in *seconds*."""
        from torch.distributed import DistStoreError

        try:
            self._store.wait([name], timedelta(seconds=max(seconds, PAUSE_SECONDS)))
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
            time.sleep(PAUSE_SECONDS)


def group_store(launch: Launch, run: int) -> Any:
    """Return the store where the ranks of this *run* form their process group."""
    from torch.distributed import PrefixStore

    return PrefixStore(f"group/{run}", _guarded(launch, _connected, launch))


def _connected(launch: Launch) -> Any:
    from torch.distributed import PrefixStore
    from torch.distributed import TCPStore

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
    first, *_ = str(error).splitlines() or [""]
    msg = (
        f"the store of torchrun at {launch.host}:{launch.port} cannot be reached, so the "
        f"machine of rank 0 has ended or is cut off: {first}"
    )
    return RunError(msg)
