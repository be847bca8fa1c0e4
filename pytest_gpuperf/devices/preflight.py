"""States of a process that falsify every number, and those that a measurement sets itself."""

from __future__ import annotations

import gc
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, TypeVar

from ..errors import ErrorId, PreflightError, StepError
from .own_code import OWN, is_installed, is_own
from .step_thread import STEPS


# Garbage collection waits while steps are measured.


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect everything now, and nothing automatically until the end."""
    # A collection inside a step would take time from it, and free cyclic tensors at a
    # moment that differs from run to run.
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# Versions that every real device records with its numbers.


def software() -> dict[str, str]:
    """Versions of torch, Python and this plugin, by name."""
    import torch

    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "pytest-gpuperf": own_version(),
    }


def own_version() -> str:
    """Version of this package, if it is installed."""
    try:
        return version("pytest-gpuperf")
    except PackageNotFoundError:
        return "not installed"


LAUNCH_BLOCKING = "CUDA_LAUNCH_BLOCKING"


def check_process() -> None:
    """Raise ``PreflightError`` for the first state found that falsifies numbers."""
    _refuse_launch_blocking()
    STEPS.call(_refuse_profiler)
    STEPS.call(_refuse_dispatch_mode)
    _refuse_anomaly_mode()


def _refuse_launch_blocking() -> None:
    value = os.environ.get(LAUNCH_BLOCKING, "")
    if value in {"", "0"}:
        return
    msg = (
        f"{LAUNCH_BLOCKING}={value} makes the CPU wait for every kernel, so its times "
        "are not those of training: unset it to measure"
    )
    raise PreflightError(msg, ErrorId.GP404)


def _refuse_profiler() -> None:
    from torch.autograd import profiler

    if not profiler._is_profiler_enabled:  # noqa: SLF001, no public question exists
        return
    msg = (
        "a torch profiler is active, which slows every operation down and shuts out "
        "the one that looks for syncs: stop it before gpuperf(step)"
    )
    raise PreflightError(msg, ErrorId.GP405)


def _refuse_dispatch_mode() -> None:
    from torch.utils import _python_dispatch

    modes = _python_dispatch._get_current_dispatch_mode_stack()  # noqa: SLF001
    if not modes:
        return
    msg = (
        f"the dispatch mode {type(modes[-1]).__name__} is active, which runs Python for "
        "every operation and turns torch.compile off: leave it before gpuperf(step)"
    )
    raise PreflightError(msg, ErrorId.GP406)


def _refuse_anomaly_mode() -> None:
    import torch

    if not torch.is_anomaly_enabled():
        return
    msg = (
        "autograd's anomaly mode is on, which records a traceback for every operation: "
        "turn it off with torch.autograd.set_detect_anomaly(False) to measure"
    )
    raise PreflightError(msg, ErrorId.GP407)


# Which values that measure are no longer those of this package: a test has replaced
# them.
#
# A clock, a sync with the GPU or a count that a test replaces would say what the test
# wants. What a library replaces stays: it does so in every run, and not to pass a test.


MEASURING: Final = re.compile(
    r"pytest_gpuperf\.(compare_steps|devices|distributed|measure|timers|worker)\b"
)
"""Rooms of this package that run while a step is measured."""

TABLES: Final = (dict, list, set)

TORCH: Final = (
    *("Tensor.item", "profiler.profile", "cuda.synchronize", "cuda.Event.elapsed_time"),
    *("cuda.memory_stats", "cuda.memory_allocated", "cuda.reset_peak_memory_stats"),
)
"""Functions of torch that times and counts are read by."""


class Held:
    """What measures, as it was before any code of the project ran."""

    def __init__(self) -> None:
        self._before = {
            name: {member: _kept(member, value) for member, value in [*members.items()]}
            for name, members in _scopes()
        }

    def refuse_replaced(self) -> None:
        """Raise ``StepError`` if code of the project is in place of what measures."""
        replaced = [*self.replaced()]
        if replaced:
            names = ", ".join(replaced[:3])
            msg = f"the project's code replaces {names}, which measures: take that away"
            raise StepError(msg, ErrorId.GP312)

    def replaced(self) -> Iterator[str]:
        """Name each value that was replaced, and each foreign one in a later import."""
        for name, members in _scopes():
            before = self._before.get(name)
            for member, value in [*members.items()]:
                if before is None:
                    is_other = _is_foreign(value)
                else:
                    is_other = _is_other(member, value, before.get(member))
                if is_other and not member.startswith("__"):
                    yield f"{name}.{member}"


def _scopes() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the modules and classes that measure, and what each of them has."""
    torch = sys.modules.get("torch")
    # The simulated GPU's stream is torch.cuda.Stream: who replaces a method means torch.
    stand_ins = {id(thing) for thing in vars(torch.cuda).values()} if torch else set()
    for name, module in [*sys.modules.items()]:
        if MEASURING.match(name) and isinstance(module, ModuleType):
            yield name, vars(module)
            for member, value in [*vars(module).items()]:
                if (
                    isinstance(value, type)
                    and value.__module__ == name
                    and id(value) not in stand_ins
                ):
                    yield f"{name}.{member}", vars(value)
    if torch:
        yield "torch", {path: attrgetter(path)(torch) for path in TORCH}


def _kept(member: str, value: Any) -> Any:
    """Return a copy of a constant table, which a test can change in place."""
    return copy(value) if _is_table(member, value) else value


def _is_table(member: str, value: Any) -> bool:
    return member.isupper() and type(value) in TABLES


def _is_other(member: str, value: Any, before: Any) -> bool:
    if _is_table(member, value):
        return bool(value != before)
    # A package has each of its modules once that is imported.
    is_same = value is before or isinstance(value, ModuleType)
    return not is_same and not _is_of_library(value)


def _is_of_library(value: Any) -> bool:
    file = _file_of(value)
    return is_installed(file) and not file.startswith(OWN)


def _is_foreign(value: Any) -> bool:
    """Whether calling *value* runs code that the user works on, or a mock."""
    if type(value).__module__ == "unittest.mock":
        return True
    file = _file_of(value)
    # Python writes code of a dataclass into a file named <string>.
    return not file.startswith("<") and is_own(file, "")


def _file_of(value: Any) -> str:
    """Return the file with the code of a function, or of a static or class method."""
    value = getattr(value, "__func__", value)
    return str(getattr(getattr(value, "__code__", None), "co_filename", "<string>"))


# The GPUs are waited for, and warnings of torch and NVML about our own use are ignored.


def wait_for_gpus(torch: Any) -> None:
    """Wait for the current GPU and each other one that this process has used.

    No context is made on a GPU that has none: it would take memory of others.
    """
    cuda = torch.cuda
    # Asked before anything is waited for, while the GPUs work: it takes no time then.
    others = [index for index in range(cuda.device_count()) if _is_used(torch, index)]
    cuda.synchronize()
    for index in others:
        cuda.synchronize(index)


def _is_used(torch: Any, index: int) -> bool:
    return index != torch.cuda.current_device() and bool(
        torch._C._cuda_hasPrimaryContext(index)  # noqa: SLF001  there is no public name
    )


# What torch and NVML warn of while they are used for us: no affair of the test's.
#
# A test's filters for warnings hold for its steps. Where they turn warnings into
# errors, one that our own use of the profiler causes would fail a test whose code is in
# order.


T = TypeVar("T")


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore warnings of the block, whatever filters are set, and put those back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Unheard(AbstractContextManager[T]):
    """Enters and leaves the context that *make* returns, and ignores its warnings.

    What runs inside keeps the filters that are set.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        with ignored():
            self._context = make()

    def __enter__(self) -> T:
        with ignored():
            return self._context.__enter__()

    def __exit__(self, *error: object) -> bool | None:
        with ignored():
            return self._context.__exit__(*error)  # type: ignore[arg-type]
