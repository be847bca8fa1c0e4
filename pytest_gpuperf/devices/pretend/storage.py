"""The memory of a ghost: real bytes on the host that say they are on the device."""

from __future__ import annotations

from typing import Any

import torch

from .live_memory import MEMORY
from .record import Direction
from .transfers import record_copy


class GhostStorage:
    """Stands in for an ``UntypedStorage`` on the device; ``real`` is on the host."""

    def __init__(self, real: Any, device: Any) -> None:
        self.real = real
        self.device = device
        if MEMORY.live is not None:
            MEMORY.live.see_storage(real)

    @property  # type: ignore[misc]  # isinstance() reads it
    def __class__(self) -> Any:
        """Pass for what it stands in for: typed storages ask."""
        return torch.UntypedStorage

    @property
    def is_cuda(self) -> bool:
        """It says so."""
        return True

    @property
    def is_cpu(self) -> bool:
        """It says not."""
        return False

    def get_device(self) -> int:
        """Return the one device there is."""
        return 0

    def cpu(self) -> Any:
        """Copy to the host, which waits."""
        self._read("UntypedStorage.cpu")
        return self.real.clone()

    def _write_file(self, *place: Any) -> None:
        """Write to a file, as pickling does, by way of the host."""
        self._read("UntypedStorage._write_file")
        self.real._write_file(*place)  # noqa: SLF001, its only name

    def _read(self, op: str) -> None:
        record_copy(
            op,
            Direction.D2H,
            pinned=False,
            non_blocking=False,
            nbytes=self.real.nbytes(),
        )

    def resize_(self, nbytes: int) -> GhostStorage:
        """Take another block, or give back the one there is."""
        self.real.resize_(nbytes)
        if MEMORY.live is not None:
            MEMORY.live.see_storage(self.real)
        return self

    def cuda(self, *_: object, **__: object) -> GhostStorage:
        """Is there already."""
        return self

    def __len__(self) -> int:
        """Bytes."""
        return len(self.real)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real storage's."""
        return getattr(self.real, name)
