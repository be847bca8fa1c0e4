"""The caches of torch.compile, and how long it has compiled for."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import ExitStack
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from typing import Final

from .compile import DYNAMO
from .compile import remember_compilations


INDUCTOR: Final = "TORCHINDUCTOR_CACHE_DIR"
TRITON: Final = "TRITON_CACHE_DIR"
"""Variables that name the folders of what is compiled; torch reads them at each use."""

REMOTE: Final = {
    "torch._inductor.config": (
        "fx_graph_remote_cache",
        "autotune_remote_cache",
        "bundled_autotune_remote_cache",
    ),
    "torch._functorch.config": ("enable_remote_autograd_cache",),
}
"""Settings of caches that other machines fill, by the module that has them."""


@contextmanager
def compiling_in(caches: Path) -> Iterator[Callable[[], float]]:
    """Let torch keep what it compiles in the folder *caches*, and look nowhere else.

    Lends the seconds that this process has compiled for so far. What compiling imports
    is imported before, in any process alike: which test comes first must not count.
    """
    importlib.import_module("torch._inductor.compile_fx")
    remember_compilations()
    with ExitStack() as private:
        private.enter_context(
            _variables({INDUCTOR: str(caches), TRITON: str(caches / "triton")})
        )
        for module, names in REMOTE.items():
            private.enter_context(_switched_off(importlib.import_module(module), names))
        _forget_what_is_loaded()
        yield compiled_s


def compiled_s() -> float:
    """Return the seconds that this process has compiled for, as torch takes them.

    They are the wall time of each entry into the compiler, of forward, backward and of
    what is tuned as it first runs. Of a small model on a CPU this was the first step's
    time less the next one's to 1 %, with empty caches and with filled ones.
    """
    dynamo: Any = sys.modules.get(DYNAMO)
    return (
        0.0 if dynamo is None else sum(map(_seconds, dynamo.get_compilation_metrics()))
    )


def _seconds(compilation: Any) -> float:
    # Early releases have no duration of their own.
    duration_us = getattr(compilation, "duration_us", None)
    if duration_us is not None:
        return float(duration_us) / 1e6
    return float(getattr(compilation, "entire_frame_compile_time_s", None) or 0.0)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _switched_off(config: Any, names: tuple[str, ...]) -> Any:
    # A release may lack one, and so cannot use such a cache.
    return config.patch({name: False for name in names if hasattr(config, name)})


def _forget_what_is_loaded() -> None:
    """Drop what an earlier test of this process has compiled and loaded."""
    inductor: Any = importlib.import_module("torch._inductor.utils")
    # The name that torch 2.6 knows first, and newer releases have for its sake.
    forget = getattr(inductor, "clear_caches", None) or inductor.clear_inductor_caches
    forget()


def release_unused_memory() -> None:
    """Give memory that no tensor uses back to the GPU: another process needs it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
