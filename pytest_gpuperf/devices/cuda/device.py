"""A CUDA device: torch's clock, events and allocator, NVML, and the lines of its syncs."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field
from functools import wraps
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ...errors import ErrorId, PreflightError, UsageError
from ...model.environment import DeviceKind, Environment, Hardware
from ...model.finding import Finding, Location
from ...model.metrics import FLOPS, OCCASIONAL
from ..allow_sync import marker_of
from ..base import (
    BACKWARD_MARKER,
    LATE_MARKER,
    SYNC_MARKER,
    Kernel,
    MemoryReading,
    Step,
    TraceEvent,
)
from ..compile import compile_counters
from ..cpu import HostDevice
from ..memory_picture import Garbage, Picture
from ..own_code import OWN
from ..preflight import check_process, software, wait_for_gpus
from ..profiler import refuse_blind_trace
from ..sentinels import ON_CUDA, relatives, torch_sentinels
from ..source_lines import (
    blamed,
    frames,
    is_backward,
    outwards,
    own_and_inner,
    torch_path,
)
from ..step_thread import STEPS
from .memory import (
    allocator_counters,
    blocks_in_use,
    read_memory,
    record_allocations,
    refuse_uncached_memory,
)
from .nvml import Nvml, Watch, open_nvml


# Versions and settings of torch that times and memory on CUDA depend on.


def cuda_settings(torch: Any) -> dict[str, str]:
    """Versions of CUDA and cuDNN and the switches of *torch*, by name."""
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    return {
        "cuda": str(torch.version.cuda),
        "cudnn": str(cudnn.version()),
        "allocator": _allocator(torch),
        "cudnn.benchmark": str(cudnn.benchmark),
        "cudnn.deterministic": str(cudnn.deterministic),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "float32 matmul": _float32(matmul, matmul),
        "float32 convolution": _float32(getattr(cudnn, "conv", None), cudnn),
    }


def _allocator(torch: Any) -> str:
    configured = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get(
        "PYTORCH_CUDA_ALLOC_CONF"
    )
    backend = str(torch.cuda.get_allocator_backend())
    return f"{backend} {configured}" if configured else backend


def _float32(backend: Any, legacy: Any) -> str:
    """Precision of float32 operations; since torch 2.9 the flags must not be mixed."""
    # The newer name is asked first: reading ``allow_tf32`` after somebody has set
    # ``fp32_precision`` raises.
    precision = getattr(backend, "fp32_precision", None)
    if precision is not None:
        return str(precision)
    return "tf32" if legacy.allow_tf32 else "ieee"


FINGERPRINT: Final = 12
"""Hexadecimal digits that tell GPUs apart."""


def fingerprint_of(uuid: str) -> str:
    """Hash a UUID: baselines are public, and need not name a machine's parts."""
    return sha256(uuid.encode()).hexdigest()[:FINGERPRINT]


OCCUPYING_CYCLES: Final = 2_000_000
"""Cycles of a GPU's clock, about a millisecond, that a reading under load takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice(HostDevice):
    """The current CUDA device of this process, which may change with ``set_device``.

    Work of a step on other GPUs is waited for; memory is read of the current one. Opening
    it creates no CUDA context; the first step does. Findings name lines of the project
    below *root*.
    """

    torch: Any
    nvml_of: Callable[[str], Nvml | None] = open_nvml
    root: str = ""
    _watches: dict[str, Watch] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, *, root: str = "") -> CudaDevice:
        """Import torch; raise ``UsageError`` if it sees no CUDA device."""
        import torch

        return cls.of(torch, root=root)

    @classmethod
    def of(cls, torch: Any, *, root: str = "") -> CudaDevice:
        """Take *torch*; raise ``UsageError`` if it sees no CUDA device."""
        # torch warns of a broken driver and returns False. The warning is the only
        # place that says why, so it is caught for the message.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            available = torch.cuda.is_available()
        if available:
            return cls(torch=torch, root=root)
        msg = (
            f"--gpuperf-device=cuda was asked for, but torch {torch.__version__} sees "
            f"no CUDA device: {_why_no_cuda(torch, [str(w.message) for w in caught])}"
        )
        raise UsageError(msg, ErrorId.GP401)

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CUDA

    @property
    def torch_device(self) -> str:
        return "cuda"

    @property
    def unmeasurable(self) -> Mapping[str, str]:
        return {
            **dict.fromkeys(
                (
                    FLOPS.name,
                    *(metric.name for metric in OCCASIONAL.values()),
                ),
                "counted on the simulated GPU only",
            ),
        }

    def environment(self) -> Environment:
        nvml = self._nvml()
        board = {} if nvml is None else nvml.settings()
        return Environment(
            hardware=Hardware(kind=DeviceKind.CUDA, name=self._name()),
            software=software() | cuda_settings(self.torch) | board,
        )

    def preflight(self) -> None:
        check_process()
        _refuse_sync_debug(self.torch)
        refuse_uncached_memory(self.torch.cuda)

    def synchronize(self) -> None:
        wait_for_gpus(self.torch)

    def record_event(self) -> object:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def span_ms(self, start: Any, end: Any) -> float | None:
        """``None`` for a negative time, which confidential computing can give."""
        # Both events have been recorded and waited for by the caller, or torch raises.
        span = float(start.elapsed_time(end))
        return None if span < 0 else span

    def settling(self) -> tuple[int, ...]:
        return compile_counters() + allocator_counters(self.torch.cuda)

    def disturbance(self) -> str | None:
        watch = self._watch()
        return None if watch is None else watch.look(self.now_ns())

    def remarks(self) -> Sequence[str]:
        watch = self._watch()
        return () if watch is None else watch.remarks()

    def clock_mhz(self) -> int | None:
        nvml = self._nvml()
        return None if nvml is None else nvml.sm_mhz()

    def fingerprint(self) -> str | None:
        return fingerprint_of(self._uuid())

    def sentinels(self) -> AbstractContextManager[Mapping[str, Kernel]]:
        return torch_sentinels(self.torch, self.torch_device, ON_CUDA)

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        """Run one step between two readings of the allocator."""
        return read_memory(self.torch, step, arguments)

    def leaked(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Sequence[Finding]:
        """Follow the storages on the GPU that the first of two steps makes."""
        # Imported late, as it imports torch at its top.
        from ..live_memory import Scope, left_by_step

        here = self.torch.device("cuda", self.torch.cuda.current_device())
        return left_by_step(step, batches, Scope(root=self.root, device=here))

    def garbage_of_step(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Garbage:
        """Follow the same."""
        from ..live_memory import Scope, garbage_of_step

        here = self.torch.device("cuda", self.torch.cuda.current_device())
        return garbage_of_step(step, batches, Scope(root=self.root, device=here))

    def picture_memory(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Picture | None:
        """Run two steps and look around at the peak of all tensors on the GPU."""
        from ..live_memory import Scope, picture_of_steps

        here = self.torch.device("cuda", self.torch.cuda.current_device())
        return picture_of_steps(step, batches, Scope(root=self.root, device=here))

    def blocks(self) -> Mapping[int, int]:
        """Return what torch's allocator has lent."""
        return blocks_in_use(self.torch.cuda)

    def record_allocations(
        self, step: Step, arguments: Sequence[object], path: Path
    ) -> bool:
        record_allocations(self.torch, step, arguments, path)
        return True

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Raise ``PreflightError`` if the profiler was blind to the GPU."""

        return _traced(step, batches, lines_marked(self.torch, root=self.root))

    @property
    def lines_take_time(self) -> bool:
        return True

    def plain_profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        """Raise ``PreflightError`` if the profiler was blind to the GPU."""
        return _traced(step, batches)

    def _nvml(self) -> Nvml | None:
        return self.nvml_of(self._uuid())

    def _watch(self) -> Watch | None:
        nvml, uuid = self._nvml(), self._uuid()
        if nvml is None:
            return None
        return self._watches.setdefault(uuid, Watch(nvml, relatives, self._occupy))

    def _occupy(self) -> None:
        """Give the GPU a millisecond of work that is not waited for."""
        self.torch.cuda._sleep(OCCUPYING_CYCLES)  # noqa: SLF001  no public name

    def _uuid(self) -> str:
        index = self.torch.cuda.current_device()
        return str(self.torch.cuda.get_device_properties(index).uuid)

    def _name(self) -> str:
        """Name of the GPU, with its MIG profile where only NVML says it."""
        # Baselines are kept by this name: an instance of a MIG board is another machine
        # than the whole board.
        name = str(self.torch.cuda.get_device_name())
        nvml = self._nvml()
        seen = None if nvml is None else nvml.name()
        return seen if seen is not None and seen.startswith(f"{name} MIG ") else name


def _traced(
    step: Step,
    batches: Sequence[Sequence[object]],
    marked: AbstractContextManager[object] | None = None,
) -> Sequence[TraceEvent]:
    """Record *step*; inside *marked*, if given, and with the functions of its lines."""
    from ..profiler import record_trace

    named = marked is not None
    trace = record_trace(step, batches, cuda=True, marked=marked, stacks=named)
    refuse_blind_trace(trace)
    return trace


def _why_no_cuda(torch: Any, warned: Sequence[str]) -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        return "install a build of torch with CUDA, or use --gpuperf-device=simulated"
    if visible is not None and visible.strip() in {"", "-1"}:
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides them all, unset it"
    if warned:
        return warned[0].split(" (Triggered", 1)[0]
    return "check the driver with nvidia-smi"


def _refuse_sync_debug(torch: Any) -> None:
    if torch.cuda.get_sync_debug_mode() == 0:
        return
    msg = (
        "torch.cuda's sync debug mode is on, which does extra work at every "
        "synchronisation: call torch.cuda.set_sync_debug_mode(0) to measure"
    )
    raise PreflightError(msg, ErrorId.GP408)


# Marks the line of each sync with the GPU in the trace, where `measure.trace` reads it.


# Syncs that Python code asks for and torch does not warn of, each inside a range.

ASKED_SYNCS: Final = (
    ("torch._C", "_cuda_synchronize"),
    ("torch._C", "_accelerator_synchronizeDevice"),
    ("torch.cuda.Event", "synchronize"),
)
"""Where each is found at the moment of the call; waits for a stream are warned of.

``torch.Event``, the event of no device in particular, is a type that cannot be changed.
"""


Around = Callable[[str], AbstractContextManager[object]]
"""Returns what a sync runs inside of, by the kind of its marker."""


@contextmanager
def asked_syncs_marked(torch: Any, around: Around) -> Iterator[None]:
    """Put each sync that Python code asks torch for inside a range with its line."""
    with ExitStack() as undo:
        for path, name in ASKED_SYNCS:
            owner = _found(torch, path)
            wait = getattr(owner, name, None)
            if wait is not None:
                undo.callback(setattr, owner, name, wait)
                setattr(owner, name, _inside_range(wait, around))
        yield


def _found(torch: Any, path: str) -> Any:
    """Return what *path* names in *torch*; ``None`` if this torch lacks it."""
    found = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _inside_range(wait: Callable[..., object], around: Around) -> Any:
    @wraps(wait)
    def marked(*arguments: object, **named: object) -> object:
        with around(SYNC_MARKER):
            return wait(*arguments, **named)

    return marked


# Torch's warnings at synchronisations, heard and not shown.
#
# They miss what waits outside of ``memcpy_and_sync`` and ``stream_synchronize``
# (c10/cuda/CUDAFunctions.h). They come after the sync: torch keeps them until the
# operation returns to Python (``PyWarningHandler``, torch/csrc/Exceptions.h), and those
# of autograd's own nodes until the whole backward pass does.

MESSAGE: Final = "called a synchronizing CUDA operation"
ABOUT_THE_MODE: Final = "Synchronization debug mode is a prototype"
"""What torch warns of once, when the mode is switched on."""


@contextmanager
def warned(torch: Any, notify: Callable[[str], None]) -> Iterator[None]:
    """Call *notify* after each operation, once for each sync that torch warns of.

    It is given the kind of marker that is due. Entered around the step and not before:
    pytest and others have contexts of their own for warnings. What else is warned of
    goes its usual way.
    """
    mode = torch.cuda.get_sync_debug_mode()
    with heard(notify):
        try:
            torch.cuda.set_sync_debug_mode("warn")
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def heard(notify: Callable[[str], None]) -> Iterator[None]:
    """Call *notify* for each warning of a sync, once torch's mode is switched on."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def hear(message: Warning | str, *where: Any, **more: Any) -> None:
            if str(message).startswith(MESSAGE):
                notify(BACKWARD_MARKER if _is_replayed() else LATE_MARKER)
            else:
                show(message, *where, **more)

        # By default Python shows a warning once per line, and each sync counts.
        warnings.filterwarnings("always", message=MESSAGE)
        warnings.filterwarnings("ignore", message=ABOUT_THE_MODE)
        warnings.showwarning = hear
        yield


def _is_replayed() -> bool:
    """Whether the syncs were those of autograd's nodes, on whatever thread."""
    inner = (f for f in frames() if not _only_warns(f.f_code.co_filename))
    return any(is_backward(frame) for frame in list(inner)[:1])


def _only_warns(file: str) -> bool:
    return file.startswith(OWN) or file.endswith("warnings.py")


@contextmanager
def lines_marked(torch: Any, root: str = "") -> Iterator[None]:
    """Mark each sync inside the context that torch reports, with the running line.

    The line is the innermost one of the project below *root*, and with it the
    innermost one outside of torch if that is another.

    Torch's callbacks at syncs (``torch.cuda._gpu_trace``) would report all of them. But
    with them torch enters Python at each free as well, also while an error is looking
    for its handler, which ends the process.
    """
    marker = LineMarker(root)
    with asked_syncs_marked(torch, marker.around), warned(torch, marker.mark):
        yield


class LineMarker:
    """Puts ranges with the line at work into the trace of the running thread.

    The step's lines are those of the thread that runs the steps.
    """

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._caller = STEPS.ident

    def mark(self, prefix: str) -> None:
        """Put an empty range into the trace whose name begins with *prefix*."""
        with self.around(prefix):
            pass

    def around(self, prefix: str) -> AbstractContextManager[object]:
        """Return such a range, to be entered. Never raise.

        ``record_function`` is an operation, so a dispatch mode inside the step would
        see it, such as the one of selective checkpointing. ``_RecordFunctionFast`` is
        none.
        """
        # Broad on purpose: this runs inside the user's step. A marker that is lost
        # costs a line number, an error would end the step.
        with suppress(Exception):
            from torch._C._profiler import _RecordFunctionFast

            marked: AbstractContextManager[object] = _RecordFunctionFast(
                self._name(prefix)
            )
            return marked
        return nullcontext()

    def _name(self, prefix: str) -> str:
        # The sync itself must be counted even if its line cannot be found.
        with suppress(Exception):
            return marker_of(*self._lines(), prefix=prefix)
        return marker_of(None, prefix=prefix)

    def _lines(self) -> tuple[Location | None, Location | None]:
        """Line of the project and, if that is another, the innermost one."""
        stack: Sequence[FrameType] = list(frames())
        if blamed(stack) is None:
            stack = self._asked_by(stack)
        return own_and_inner(self._root, stack)

    def _asked_by(self, stack: Sequence[FrameType]) -> Sequence[FrameType]:
        """Frames of the step where it waits for the thread of autograd that runs here.

        Such a thread has no frames but those that answer to the sync.
        """
        if not all(map(_answers, stack)):
            return ()
        asking = list(outwards(sys._current_frames().get(self._caller)))  # noqa: SLF001, no public question exists
        return asking if asking and is_backward(asking[0]) else ()


def _answers(frame: FrameType) -> bool:
    return torch_path(frame) is not None or frame.f_code.co_filename.startswith(OWN)
