"""Process groups of CUDA code where there is no NCCL: gloo does what it would do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Final

import torch

from .insides import INSIDES
from .patches import Patch
from .refusal import NeedsGpuError


NCCL: Final = "nccl"
GLOO: Final = "gloo"

distributed: Final = torch.distributed


def process_group_patches() -> Iterator[Patch]:
    """Nothing where this build of torch has no process groups."""
    if not distributed.is_available():
        return
    for name in ("init_process_group", "new_group"):
        yield Patch(distributed, name, _by_gloo(getattr(distributed, name)))
    yield Patch(distributed, "is_nccl_available", lambda: True)
    yield Patch(distributed, "_verify_params_across_processes", _verify)
    replicas = torch.nn.parallel.DistributedDataParallel
    yield Patch(replicas, "__init__", _with_values(replicas.__init__))


def _by_gloo(make: Callable[..., Any]) -> Callable[..., Any]:
    """*make* with gloo where NCCL was asked for; it runs on the insides of ghosts."""

    def made(*args: Any, **options: Any) -> Any:
        args = tuple(map(_backend, args))
        if options.get("backend") is not None:
            options["backend"] = _backend(options["backend"])
        options.pop("device_id", None)  # it binds NCCL to a GPU, and gloo to none
        return make(*args, **options)

    return made


def _backend(value: Any) -> Any:
    return value.replace(NCCL, GLOO) if isinstance(value, str) else value


def _verify(*_: object) -> None:
    """Compare no shapes with other ranks: without values, or others, there are none."""


def _with_values(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(replica: Any, *args: Any, **options: Any) -> None:
        if not INSIDES.hold_values:
            msg = (
                "only a GPU can judge torch.nn.parallel.DistributedDataParallel where "
                "ghosts hold no values: what it reduces is made in C++"
            )
            raise NeedsGpuError(msg)
        init(replica, *args, **options)

    return made
