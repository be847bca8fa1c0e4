"""What torch and NVML warn of while they are used for us: no affair of the test's.

A test's filters for warnings hold for its steps. Where they turn warnings into errors, one
that our own use of the profiler causes would fail a test whose code is in order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar


T = TypeVar("T")


@contextmanager
def ignored() -> Iterator[None]:
    """Ignore what is warned of inside, whatever filters are set, and put those back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Unheard(AbstractContextManager[T]):
    """Enters and leaves the context that *make* returns; what is warned of there is ignored.

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
