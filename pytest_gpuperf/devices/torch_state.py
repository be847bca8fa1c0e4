"""GPUs that this process uses."""

from __future__ import annotations

from typing import Any


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
