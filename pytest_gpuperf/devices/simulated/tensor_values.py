"""The contents of a GPU tensor: values on the host, or sizes alone if values do not fit.

Without values an operation runs on torch's meta device: sizes, dtypes and lifetimes are
those of the real one, and what is read is a guess. A model of any size is measured so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch

from ..audit_record import CopyDirection
from .device_names import CUDA, is_cuda
from .memory import SIMULATED_MEMORY
from .recorder import WATCH
from .transfers import record_copy


# Memory that this machine can still give to this process.

MEMORY_FILE: Final = Path("/proc/meminfo")

CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
"""Folder with a container's limit, under control groups of version 2."""


def available_bytes(
    meminfo: Path = MEMORY_FILE, group: Path = CONTROL_GROUPS
) -> int | None:
    """Bytes available without swapping; ``None`` if the system does not say.

    The smaller one of the kernel's estimate (``MemAvailable``) and what the container's
    limit leaves.
    """
    found = [left for left in (_of_machine(meminfo), _of_group(group)) if left]
    return min(found) if found else None


def _of_machine(meminfo: Path) -> int | None:
    with suppress(OSError):
        for line in meminfo.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    return None


def _of_group(group: Path) -> int | None:
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        # The group's usage counts its page cache, which the kernel drops before it
        # kills anybody.
        return limit - used + _reclaimable(group)
    return None


def _reclaimable(group: Path) -> int:
    """Bytes of the group's page cache, which the kernel drops before it swaps."""
    with suppress(OSError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "inactive_file":
                return int(value)
    return 0


# The memory of a GPU tensor: real bytes on the host that say they are on the device.


class GpuStorage:
    """Replaces an ``UntypedStorage`` on the device; ``real`` is on the host."""

    def __init__(self, real: Any, device: Any) -> None:
        self.real = real
        self.device = device
        if SIMULATED_MEMORY.live is not None:
            SIMULATED_MEMORY.live.see_storage(real)

    @property  # type: ignore[misc]  # isinstance() reads it
    def __class__(self) -> Any:
        """Pass for the class that it replaces: typed storages check it."""
        return torch.UntypedStorage

    is_cuda, is_cpu, get_device = True, False, staticmethod(lambda: 0)
    to, tolist = torch.UntypedStorage.to, torch.UntypedStorage.tolist

    def cpu(self) -> Any:
        """Copy to the host, which waits."""
        self.move("UntypedStorage.cpu", CopyDirection.D2H)
        return self.real.clone()

    def _write_file(self, *place: Any) -> None:
        """Write to a file, as pickling does, by way of the host."""
        self.move("UntypedStorage._write_file", CopyDirection.D2H)
        self.real._write_file(*place)  # noqa: SLF001, its only name

    def _set_from_file(self, *place: Any) -> Any:
        """Read a file, as unpickling does, by way of the host."""
        self.move("UntypedStorage._set_from_file", CopyDirection.H2D)
        return self.real._set_from_file(*place)  # noqa: SLF001, its only name

    def move(self, op: str, direction: CopyDirection, **options: Any) -> None:
        """Record that *op* copies it to the other side, in pageable memory."""
        record_copy(op, direction, nbytes=self.real.nbytes(), **options)

    def resize_(self, nbytes: int) -> GpuStorage:
        """Take another block, or give back the one there is."""
        self.real.resize_(nbytes)
        return GpuStorage(self.real, self.device)

    def cuda(self, *_: object, **__: object) -> GpuStorage:
        """Is there already."""
        return self

    def clone(self) -> GpuStorage:
        """Copy within the device."""
        return GpuStorage(self.real.clone(), self.device)

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002, torch's
        """Copy from a storage on either side."""
        return copy_storage(self, source, non_blocking)

    def __getitem__(self, place: int) -> int:
        """Read one byte, which waits."""
        value: int = self.real[place]
        WATCH.sync("UntypedStorage.__getitem__", "the CPU reads one element")
        return value

    def __setitem__(self, place: int, value: int) -> None:
        """Fill one byte."""
        self.real[place] = value

    def __len__(self) -> int:
        """Bytes."""
        return len(self.real)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the real storage's."""
        return getattr(self.real, name)


_copy = torch.UntypedStorage.copy_


def copy_storage(target: Any, source: Any, non_blocking: bool = False) -> Any:  # noqa: FBT001, FBT002, torch's
    """``UntypedStorage.copy_``, whose C code must not get one of ours."""
    ours = [s for s in (target, source) if type(s) is GpuStorage]
    if len(ours) == 1:
        direction = CopyDirection.H2D if ours[0] is target else CopyDirection.D2H
        ours[0].move("UntypedStorage.copy_", direction, non_blocking=bool(non_blocking))
    _copy(
        getattr(target, "real", target), getattr(source, "real", source), non_blocking
    )
    return target


_new = torch.UntypedStorage.__new__


def new_storage(cls: Any, *args: Any, device: Any = None, **options: Any) -> Any:
    """``UntypedStorage()``, also on the device."""
    if not is_cuda(device):
        return _new(cls, *args, device=device, **options)
    return GpuStorage(_new(cls, *args, device=BACKING.device, **options), CUDA)


MIB: Final = 2**20

CPU: Final = torch.device("cpu")
META: Final = torch.device("meta")

RESERVED_SHARE: Final = 0.15
"""Share of the memory found free at the start that values must leave free."""

MOST_UNCHECKED_BYTES: Final = 256 * MIB
"""Bytes after which the host is asked again how much is left."""


CPU_ALLOCATOR_FAILED: Final = "DefaultCPUAllocator: "
"""Start of torch's message if the host refused memory; there is no class for it."""


class Backing:
    """Whether new GPU tensors have values, and whether the host has memory for them.

    ``switched`` says, once, why values were given up.
    """

    def __init__(self) -> None:
        self.has_values = True
        self.switched: str | None = None
        self._available: Callable[[], int | None] = available_bytes
        self._reserve = 0
        self._unchecked = MOST_UNCHECKED_BYTES

    @property
    def device(self) -> Any:
        """Where the inside of a new GPU tensor is made."""
        return CPU if self.has_values else META

    def begin(
        self,
        *,
        values: bool,
        available: Callable[[], int | None] = available_bytes,
    ) -> None:
        """Begin with *values*, which are kept while they fit, or without."""
        self.has_values = values
        self.switched = None
        self._available = available
        self._reserve = int(RESERVED_SHARE * (available() or 0))
        self._unchecked = MOST_UNCHECKED_BYTES

    def made(self, nbytes: int) -> None:
        """Count *nbytes* that an operation has made; now and then ask the host."""
        # Asking reads files, so it is done once per 256 MiB and not for every tensor.
        self._unchecked -= nbytes
        if self._unchecked < 0 and self.has_values:
            self.expect(0)

    def expect(self, nbytes: int) -> None:
        """Give values up if *nbytes* more of them would not fit."""
        if not self.has_values or 0 < nbytes < self._unchecked:
            return
        left = self._available()
        self._unchecked = MOST_UNCHECKED_BYTES
        if left is None or left - self._reserve > nbytes + MOST_UNCHECKED_BYTES:
            return
        self._give_up(left)

    def expect_product(self, args: Sequence[Any]) -> None:
        """Expect the product of the last two matrices among *args*.

        It may be far larger than both, unlike all else that a model makes of its
        tensors.
        """
        tensors = [t for t in args if isinstance(t, torch.Tensor) and not t.is_nested]
        matrices = [t for t in tensors if t.dim() > 1]
        if self.has_values and len(matrices) > 1:
            left, right = matrices[-2:]
            rows = left.numel() // max(1, left.shape[-1])
            self.expect(max(1, rows * right.shape[-1] * left.element_size()))

    def give_up_after(self, error: RuntimeError) -> bool:
        """Give values up if *error* says that the host had no memory for them."""
        if not self.has_values or CPU_ALLOCATOR_FAILED not in str(error):
            return False
        self._give_up(self._available() or 0)
        return True

    def _give_up(self, left: int) -> None:
        shortage = (
            f"values on the simulated GPU need more than the {left // MIB} MiB of memory "
            "that this machine has left"
        )
        self.has_values = False
        self.switched = f"{shortage}: from there on it runs without values"

    def expect_sizes(self, args: Sequence[Any], dtype: Any) -> None:
        """Expect what a function of sizes, or of one sequence of them, will make."""
        if self.has_values:
            sizes = args[0] if args and isinstance(args[0], (list, tuple)) else args
            numbers = [size for size in sizes if isinstance(size, int)]
            itemsize = (dtype or torch.get_default_dtype()).itemsize
            self.expect(math.prod(numbers) * itemsize)


BACKING: Final = Backing()
"""One per process, as there is one device."""


@contextmanager
def inside_values(*, values: bool) -> Iterator[None]:
    """Give GPU tensors values inside the context, or not; see ``Backing.begin``."""
    # All fields are saved and restored: an inner audit may have given values up.
    before = BACKING.__dict__.copy()
    BACKING.begin(values=values)
    try:
        yield
    finally:
        BACKING.__dict__.update(before)
