"""Whether torchrun started this process, by the variables that it sets.

PyTorch documents them in ``torch.distributed.run``, "Environment Variables".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import UsageError
from ..model.launch import Launch


READY_SECONDS: Final = 60.0
"""For a rank to collect and to start its process, beside the wait for a device."""


def launch_of(environ: Mapping[str, str], lock_seconds: float) -> Launch | None:
    """Return which of torchrun's ranks has *environ*; ``None`` where there is one rank.

    *lock_seconds* is what a rank may wait for its device. Raises ``UsageError`` where
    several ranks were started by something else, or share no store.
    """
    if "RANK" not in environ or environ.get("WORLD_SIZE", "1") == "1":
        return None
    _refuse_others(environ)
    run = environ["TORCHELASTIC_RUN_ID"]
    return Launch(
        rank=_number(environ, "RANK"),
        count=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        machines=_number(environ, "GROUP_WORLD_SIZE"),
        host=environ.get("MASTER_ADDR", ""),
        port=_number(environ, "MASTER_PORT"),
        attempt=f"{run}/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}",
        patience_s=lock_seconds + READY_SECONDS,
    )


def _refuse_others(environ: Mapping[str, str]) -> None:
    if "TORCHELASTIC_RUN_ID" not in environ:
        msg = (
            f"RANK={environ['RANK']} and WORLD_SIZE={environ['WORLD_SIZE']} are set, and "
            "torchrun did not set them: each rank would measure for itself; start them "
            "by torchrun -m pytest, or unset both"
        )
        raise UsageError(msg)
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        msg = (
            "torchrun does not share its store with the ranks, which agree by it: unset "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
        )
        raise UsageError(msg)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdecimal():
        msg = f"{name}={text!r} is set: expected a whole number, as torchrun sets it"
        raise UsageError(msg)
    return int(text)
