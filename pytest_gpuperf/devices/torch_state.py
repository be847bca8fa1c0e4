"""Changes of torch for us: GPUs are waited for, our own warnings are ignored."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar


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
