"""``allow_sync``: where an author lets the host wait, and who hears of it.

A training script imports this module outside of any measurement: it imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ..errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Waits that do not count, at most ``most`` where it is a number, and why."""

    reason: str
    most: int | None = None

    def covers(self, waits: int) -> int:
        """How many of *waits* are allowed."""
        return waits if self.most is None else min(waits, self.most)


Listener = Callable[[Allowance], AbstractContextManager[object]]
"""Opens what lasts as long as the block does."""

_listeners: Final[list[Listener]] = []
"""Of a process: a block allows the waits of every thread while it is open."""


def allow_sync(n: int | None = None, reason: str = "") -> AbstractContextManager[None]:
    """Let the host wait inside the block: ``with allow_sync(1, reason="logging"):``.

    At most *n* waits each time the block is entered, any number where it is ``None``,
    are listed with the *reason* and counted in no ``syncs``. Outside of a measurement
    it does nothing. Raises ``UsageError`` without a reason and for an *n* below 1.
    """
    _check(n, reason)
    return _allowed(Allowance(reason=reason.strip(), most=n))


def _check(n: object, reason: object) -> None:
    if not isinstance(reason, str) or not reason.strip():
        msg = (
            f"gpuperf.allow_sync(reason={reason!r}): expected a reason, such as "
            'reason="the loss is logged"'
        )
        raise UsageError(msg)
    if n is not None and (type(n) is not int or n < 1):
        msg = (
            f"gpuperf.allow_sync({n!r}): expected a whole number of at least 1, or "
            "None for any number of waits"
        )
        raise UsageError(msg)


@contextmanager
def _allowed(allowance: Allowance) -> Iterator[None]:
    with ExitStack() as heard:
        for listener in _listeners:
            heard.enter_context(listener(allowance))
        yield


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell *listener* of each block that is entered inside the context."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
