"""A program on the pretend GPU, whose failures are shown as its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .program import Loaded
from .program import run


def run_tidily(loaded: Loaded) -> None:
    """Run it to its end, and cut our frames out of every traceback that is shown."""
    threading.excepthook = _tidied(threading.excepthook)
    run(loaded, _tidy)


def _tidy(error: BaseException) -> None:
    from ..devices.pretend.tracebacks import without_own_frames

    without_own_frames(error)


def _tidied(
    hook: Callable[[threading.ExceptHookArgs], object],
) -> Callable[[threading.ExceptHookArgs], None]:
    """Make *hook* show what fails in a thread as what fails in the program is."""

    def tidied(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None:
            _tidy(error)
            shown = (args.exc_type, error, error.__traceback__, args.thread)
            args = threading.ExceptHookArgs(shown)
        hook(args)

    return tidied
