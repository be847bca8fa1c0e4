"""Steps recorded by torch.profiler, as the events of its Chrome trace."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..errors import ErrorId, PreflightError, StepError
from ..files import scratch_folder
from .allow_sync import heard_by, marker_allowing
from .base import STEP_RANGE, Step, TraceEvent
from .preflight import Unheard, ignored, wait_for_gpus
from .step_thread import STEPS


# Checks that a profiler's trace recorded the GPU's work.

DEVICE_WORK: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Trace categories of what the GPU did."""

HOST_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver"})
"""Trace categories of calls into CUDA."""

ENQUEUE: Final = re.compile("Launch|Memcpy|Memset")
"""Parts of the names of calls that give the GPU work."""

KERNEL_LAUNCH: Final = re.compile(r"Launch\w*Kernel")
"""Names of calls that certainly launch a kernel; a graph may contain only copies."""


def saw_device_work(trace: Sequence[TraceEvent]) -> bool:
    """Whether the GPU did anything in *trace*: a kernel, a copy, a fill."""
    return any(event.get("cat") in DEVICE_WORK for event in trace)


def refuse_blind_trace(trace: Sequence[TraceEvent]) -> None:
    """Raise ``PreflightError`` for a trace with work enqueued and none done.

    A trace with neither is accepted: its step launched nothing. A trace with copies
    that lacks the launched kernels is refused.
    """
    if any(event.get("cat") == "kernel" for event in trace):
        return
    leaves_work = KERNEL_LAUNCH if saw_device_work(trace) else ENQUEUE
    calls = [str(e.get("name")) for e in trace if e.get("cat") in HOST_CALLS]
    lost = [call for call in calls if leaves_work.search(call)]
    if not lost:
        return
    msg = (
        f"profiling unavailable: the trace has {lost[0]} but no kernel, because "
        "another client of CUPTI (nsys, ncu, DCGM) uses the GPU's profiler or a "
        "driver bug lost its records; run without the other client"
    )
    raise PreflightError(msg, ErrorId.GP410)


LOG_LEVEL: Final = "KINETO_LOG_LEVEL"
"""Environment variable: Kineto writes messages of at least this level to stderr."""

QUIET_LEVEL: Final = "6"
"""The first level that hides the start and stop lines of each session."""

DEVICE_CALLS: Final = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver"})
"""Categories (lower case) of host calls that only CUPTI or roctracer can record."""


def record_trace(
    step: Step,
    batches: Sequence[Sequence[object]],
    *,
    cuda: bool,
    marked: AbstractContextManager[object] | None = None,
    stacks: bool = False,
) -> list[TraceEvent]:
    """Run *step* once per batch, back to back, each inside a ``STEP_RANGE``.

    The steps run inside *marked*, which puts markers of syncs into their trace.

    The profiler starts in a warm-up phase that runs one small operation of our own,
    so that the set-up of CUPTI falls outside every step and no session is empty.
    Nothing waits for the device between the steps. With *stacks* the trace names the
    functions on the Python stack, for syncs that nothing marks; ``with_stack`` knows the
    line of their ``def`` only, and makes each call of a function slower.

    Raises ``PreflightError`` if CUDA was to be recorded and was not, ``StepError``
    if a name in the step breaks the trace.
    """
    STEPS.leave_ranges()
    # The order matters: the level must be set before the session starts, and the hook
    # is put back after the session has ended, as ``with_stack`` clears it.
    with (
        _quiet_kineto(),
        STEPS.inside(_kept_profile_hook()),
        STEPS.inside(Unheard(partial(_session, cuda=cuda, stacks=stacks))) as profiler,
    ):
        # A profiler records the thread that it was started on.
        STEPS.call(partial(_begin, profiler, cuda=cuda))
        # No step is to wait for earlier work.
        _wait(cuda=cuda)
        with marked or nullcontext():
            _run(step, batches)
        # torch itself waits for the current GPU alone, and CUPTI reports what is done.
        _wait(cuda=cuda)
    events = _exported(profiler)
    if cuda:
        _check_recorded(events)
    return events


def _session(*, cuda: bool, stacks: bool) -> Any:
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if cuda:
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
        with_stack=stacks and _stacks_are_safe(),
    )


def _stacks_are_safe() -> bool:
    """Whether ``with_stack`` may be used: torch before 2.8 crashes on Python 3.13."""
    import torch

    return sys.version_info < (3, 13) or bool(torch.__version__ >= (2, 8))


def _begin(profiler: Any, *, cuda: bool) -> None:
    """Go on from the phase that sets CUPTI up to the one that records."""
    with ignored():
        _warm_up(cuda=cuda)
        profiler.step()


def _warm_up(*, cuda: bool) -> None:
    import torch

    torch.ones(1, device="cuda" if cuda else "cpu").add_(1)


def _wait(*, cuda: bool) -> None:
    """Wait for all work; the call in the trace also proves that CUPTI works."""
    import torch

    if cuda:
        wait_for_gpus(torch)


def _run(step: Step, batches: Sequence[Sequence[object]]) -> None:
    from torch.profiler import record_function

    with heard_by(lambda allowance: record_function(marker_allowing(allowance))):
        for arguments in batches:
            with STEPS.inside(record_function(STEP_RANGE)):
                step(*arguments)


def _exported(profiler: Any) -> list[TraceEvent]:
    with scratch_folder() as folder:
        path = Path(folder) / "trace.json"
        with ignored():
            profiler.export_chrome_trace(str(path))
        # A name in the trace need not be valid UTF-8.
        text = path.read_text(encoding="utf-8", errors="replace")
    return _read(text)


def _read(text: str) -> list[TraceEvent]:
    try:
        # Not strict: Kineto writes control characters of names into strings unescaped.
        events: list[TraceEvent] = json.loads(text, strict=False)["traceEvents"]
    except json.JSONDecodeError as error:
        msg = (
            f"torch.profiler wrote a trace that is not JSON ({error}): it does not escape "
            "names, so take quotation marks out of the step's record_function names"
        )
        raise StepError(msg, ErrorId.GP304) from None
    return events


def _check_recorded(events: Sequence[TraceEvent]) -> None:
    if any(str(event.get("cat", "")).lower() in DEVICE_CALLS for event in events):
        return
    msg = (
        "profiling unavailable: torch.profiler recorded no CUDA call, not even the "
        "plugin's own, so syncs would go unseen; stop other users of CUPTI (nsys, ncu, DCGM) and run again"
    )
    raise PreflightError(msg, ErrorId.GP410)


@contextmanager
def _quiet_kineto() -> Iterator[None]:
    """Hide Kineto's own lines on stderr unless the user asked for a level."""
    if LOG_LEVEL in os.environ:
        yield
        return
    os.environ[LOG_LEVEL] = QUIET_LEVEL
    try:
        yield
    finally:
        os.environ.pop(LOG_LEVEL, None)


@contextmanager
def _kept_profile_hook() -> Iterator[None]:
    """Put back ``sys.setprofile``'s hook, which ``with_stack`` clears."""
    hook = sys.getprofile()
    try:
        yield
    finally:
        sys.setprofile(hook)
