"""The step under measurement and where its arguments come from."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING
from typing import Final

from ..devices.protocol import Step
from ..errors import StepError


if TYPE_CHECKING:
    from ..devices.protocol import Device
    from .batches import Batches


Arguments = tuple[object, ...]
Setup = Callable[[], object]

MOST_PREPARED: Final = 32
"""Arguments made ahead of a round: they are alive together, and a batch is large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A step and its ``setup``, whose result becomes the step's positional arguments.

    ``batches`` are those that the step fetches, where it is a loop over a loader.
    """

    step: Step
    setup: Setup | None = None
    batches: Batches | None = None

    def prepared(self, device: Device, test: str) -> Subject:
        """Return what *device* runs for *test*, on whose clock batches are waited for."""
        if self.batches is not None:
            self.batches.time_with(device.timed_fetch)
        return replace(self, step=device.prepare(self.step, test))

    @property
    def together(self) -> int:
        """Steps of which single ones say little, as their batches arrive in one burst."""
        return 1 if self.batches is None else self.batches.together

    def close(self) -> None:
        """Let go of the loader, where there is one."""
        if self.batches is not None:
            self.batches.close()

    def arguments(self) -> Arguments:
        """Fresh arguments: a tuple is spread, ``None`` is none, all else is one."""
        if self.setup is None:
            return ()
        made = self.setup()
        if made is None:
            return ()
        return made if isinstance(made, tuple) else (made,)

    def batch(self, steps: int) -> Iterable[Arguments]:
        """Arguments for *steps* steps, made now and not inside the timed loop."""
        if self.setup is None:
            return repeat((), steps)
        return [self.arguments() for _ in range(steps)]

    def most_steps(self, steps: int) -> int:
        """How many of *steps* can be prepared at once."""
        return steps if self.setup is None else min(steps, MOST_PREPARED)

    def run_once(self) -> object:
        """Run one step and refuse one that has only been started.

        Raises ``StepError`` for an awaitable or a generator.
        """
        result = self.step(*self.arguments())
        if inspect.isawaitable(result) or isinstance(
            result, (Generator, AsyncGenerator)
        ):
            kind = type(result).__name__
            close = getattr(result, "close", None)
            if close is not None:
                close()
            msg = (
                f"gpuperf(step): the step returned a {kind}, so its work has not been "
                "done when it returns; pass a function that runs the step to its end"
            )
            raise StepError(msg)
        return result


def subject_of(step: object, setup: object = None) -> Subject:
    """Return the subject; raise ``StepError`` where one of the two cannot be called."""
    _refuse_uncallable("step", step)
    if setup is not None:
        _refuse_uncallable("setup", setup)
    return Subject(step=step, setup=setup)  # type: ignore[arg-type]  # checked above


def _refuse_uncallable(name: str, value: object) -> None:
    if not callable(value):
        msg = (
            f"gpuperf({name}): expected a function, found {value!r} of type "
            f"{type(value).__name__}; pass the function itself, without calling it"
        )
        raise StepError(msg)
