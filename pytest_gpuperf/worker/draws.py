"""The random numbers of a test: others in each run, the same in that run next time.

Runs are forked from one process. Without a seed of its own each would inherit the same
state, and draw what the others draw: that they agree would prove nothing.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from functools import cache
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any
from typing import Final
from zlib import crc32

from ..devices.own_code import OWN
from ..devices.own_code import is_own
from ..files import read_regular


_unseeded: set[str] = set()
"""What has been drawn from the operating system in this process, by the source's name."""


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


def is_unseeded() -> bool:
    """Whether this process drew what no seed repeats, or could have asked a clock for it.

    The time of day may be a seed, and what was faster this time may be chosen.
    """
    return bool(_unseeded) or any(
        _names_a_clock(file)
        for module in [*sys.modules.values()]
        if is_own(file := _file_of(module), "")
    )


def _file_of(module: object) -> str:
    """Return where *module* was imported from; a file that is no user's if it is unknown."""
    try:
        # Not the module's own way, which may import it only now, or run other code.
        file = object.__getattribute__(module, "__dict__").get("__file__")
    except AttributeError:
        return OWN
    return file if isinstance(file, str) else OWN


@cache
def _names_a_clock(file: str) -> bool:
    """Whether the code of *file* names a clock.

    It is read, not watched: others replace the functions of ``time`` too, and Dynamo asks
    what they are.
    """
    try:
        return CLOCK.search(read_regular(Path(file))) is not None
    except OSError:
        return False


CLOCK: Final = re.compile(
    rb"^[^#\n]*\b("
    rb"time\.time|from time import|perf_counter|monotonic|process_time|thread_time|"
    rb"timeit|default_timer|datetime\.now|utcnow|today\(|elapsed_time|do_bench|"
    rb"benchmark\.Timer)",
    re.MULTILINE,
)
"""A look at a clock in source code, outside of a comment."""


def _names_something() -> bool:
    """Whether it is drawn to name or sign something: no size comes of that."""
    frame = sys._getframe(2)  # noqa: SLF001, as inspect is slow to import
    while frame.f_back and frame.f_globals.get("__name__") in _GENERATORS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _NAMING


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

_GENERATORS: Final = frozenset({"random", "secrets", "uuid"})


def _replace(module: ModuleType, name: str, is_draw: Callable[..., bool]) -> None:
    original = getattr(module, name)

    @wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        if is_draw(*args, *kwargs.values()) and not _names_something():
            _unseeded.add(f"{module.__name__}.{name}")
        return original(*args, **kwargs)

    setattr(module, name, noting)
