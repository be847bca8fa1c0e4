"""The random numbers of a test: others in each run, the same in that run next time.

Runs are forked from one process. Without a seed of its own each would inherit the same
state, and draw what the others draw: that they agree would prove nothing.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final
from zlib import crc32

from ..devices.own_code import OWN, is_own
from ..files import read_regular


_unseeded: list[str] = []
_read: list[str] = []
"""Where the user's code has drawn from the operating system, and where read a clock."""


def seed_of(test: str, run: int, base: int) -> int:
    """Return where the draws of a *run*, counted from 0, of *test* begin, below 2**32.

    Another *base* gives others. Each rank draws its own, as it does without us.
    """
    rank = os.environ.get("RANK", "0")
    return crc32(f"{base} {run} {rank} {test}".encode())


def begin(seed: int) -> None:
    """Seed Python's ``random``, and of numpy and torch what has been imported."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # It imports its generator when that is asked for, and seeds it by the system.
        numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Not torch.manual_seed: its first call imports the compiler.
        torch.default_generator.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)


def watch() -> None:
    """Note from now on what is drawn from the operating system, which no seed repeats.

    A process of Python's own is all that is seen: not a generator without a seed that was
    made by C.
    """
    # SystemRandom, secrets and numpy's generators without a seed draw by the second one.
    for module, name in ((os, "urandom"), (random, "_urandom")):
        _replace(module, name, lambda *_: True)
    _replace(random, "seed", lambda *given: given in {(), (None,)})
    torch = sys.modules.get("torch")
    if torch is not None:
        _replace(torch, "seed", lambda *_: True)


def are_drawn() -> bool:
    """Whether this process drew what no seed repeats."""
    return bool(_unseeded)


def unseeded() -> str:
    """Say where the user's code drew what no seed repeats, or asked a clock for it.

    The time of day may be a seed, and what was faster this time may be chosen.
    """
    seeds = (_line_of(MODULE_CLOCK, file) for file in _own_files())
    return next(filter(None, (*_unseeded, *_read, *seeds)), "")


def watch_clocks() -> None:
    """Note who reads a clock in this thread from now on, if a module names one at all."""
    named = next(filter(None, (_line_of(CLOCK, file) for file in _own_files())), "")
    if named and sys.getprofile() is None:
        sys.setprofile(_note_clock)
    elif named and sys.getprofile() is not _note_clock:
        _read.append(named)  # a profiler of the user's is not to be disturbed


def watch_no_clocks() -> None:
    """Let clocks be read again without a note."""
    if sys.getprofile() is _note_clock:
        sys.setprofile(None)


WATCHED_STEPS: Final = 3


def watching_clocks(step: Callable[..., object]) -> Callable[..., object]:
    """Return *step*, whose first calls note who reads a clock, if a module names one."""
    if not any(_line_of(CLOCK, file) for file in _own_files()):
        return step
    left = iter(range(WATCHED_STEPS))

    @wraps(step)
    def watched(*arguments: object) -> object:
        if next(left, None) is None:
            return step(*arguments)
        watch_clocks()
        try:
            return step(*arguments)
        finally:
            watch_no_clocks()

    return watched


def _note_clock(frame: FrameType | None, event: str, called: Any) -> None:
    """Note a call of a clock by the user's code: clocks are not replaced.

    Others replace the functions of ``time`` too, and Dynamo asks what they are.
    """
    if event == "call" and frame:
        name, frame = frame.f_code.co_name, frame.f_back
    else:
        name = getattr(called, "__qualname__", "")
    if event not in {"call", "c_call"} or not CLOCKS.fullmatch(name):
        return
    while frame and str(frame.f_globals.get("__name__")).startswith(_TIMERS):
        frame = frame.f_back
    if frame and is_own(frame.f_code.co_filename, ""):
        _read.append(f"{_at(frame.f_code.co_filename, frame.f_lineno)} reads a clock")


def _own_files() -> Iterator[str]:
    files = map(_file_of, [*sys.modules.values()])
    return (file for file in files if is_own(file, ""))


def _file_of(module: object) -> str:
    """Return where *module* was imported from; a file that is no user's if it is unknown."""
    try:
        # Not the module's own way, which may import it only now, or run other code.
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return OWN
    return file if isinstance(file, str) else OWN


@cache
def _line_of(pattern: re.Pattern[bytes], file: str) -> str:
    """Say where *file* names a clock, if it does; it is read, not imported again."""
    try:
        text = read_regular(Path(file))
    except OSError:
        return ""
    found = pattern.search(text)
    return (
        f"{_at(file, text.count(LINE_END, 0, found.end()) + 1)} names a clock"
        if found
        else ""
    )


LINE_END: Final = b"\n"


def _at(file: str, line: int) -> str:
    return f"{os.path.relpath(file)}:{line}"


_READERS: Final = (
    rb"time_ns|perf_counter|monotonic|process_time|thread_time|timeit|default_timer|"
    rb"datetime\.now|utcnow|today\("
)

CLOCK: Final = re.compile(
    rb"^[^#\n]*\b(time\.time|from time import|elapsed_time|do_bench|benchmark\.Timer|%b)"
    % _READERS,
    re.MULTILINE,
)
"""A look at a clock in source code, outside of a comment."""

MODULE_CLOCK: Final = re.compile(
    rb"^(?!import |from |def |class |async |@)[^\s#][^#\n]*\b(time\(|%b)" % _READERS,
    re.MULTILINE,
)
"""One that is made while the module is imported, before anything can watch it."""

CLOCKS: Final = re.compile(
    r"((process_|thread_)?time|monotonic|perf_counter)(_ns)?|elapsed_time|"
    r"datetime\.(utc)?now|date(time)?\.today"
)
"""Functions that read one, by their qualified names."""

_TIMERS: Final = ("timeit", "torch.utils.benchmark", "triton.testing")
"""Modules that read clocks for whoever calls them."""


def _drawing() -> FrameType | None:
    """Return where the user's code draws; nothing where it only names or signs something.

    A library that draws while it is imported does so for itself, as plugins do.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001, as inspect is slow to import
    while frame:
        file = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _NAMING or file.startswith((OWN, "<frozen importlib")):
            return None
        if is_own(file, ""):
            break
        frame = frame.f_back
    return frame


_NAMING: Final = frozenset(
    {
        "clearml",
        "huggingface_hub",
        "mlflow",
        "multiprocessing",
        "opentelemetry",
        "torch",
        "urllib3",
        "wandb",
    }
)
"""Packages that name files, traces, runs and requests so, and sign what they exchange.

Seen to do it: wandb 0.31, mlflow 3.17, clearml 2.1, huggingface_hub 2.4, urllib3 2.8.
"""


def _replace(module: ModuleType, name: str, is_draw: Callable[..., bool]) -> None:
    original = getattr(module, name)

    @wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        if is_draw(*args, *kwargs.values()) and (frame := _drawing()):
            at = _at(frame.f_code.co_filename, frame.f_lineno)
            _unseeded.append(f"{at} uses {module.__name__}.{name}")
        return original(*args, **kwargs)

    setattr(module, name, noting)
