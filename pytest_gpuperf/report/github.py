"""What GitHub Actions reads: annotations on lines, and outputs for the next step."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ..model.results import Results
from ..model.verdict import Outcome
from .worst import FAILING
from .worst import Remark
from .worst import place
from .worst import sentence


MOST_ANNOTATIONS: Final = 10
"""GitHub shows so many errors of a step, and drops the others without a word."""

LONGEST: Final = 1000


def commands(
    found: Iterable[Remark], is_ours: Callable[[str], bool], folder: str = ""
) -> tuple[str, ...]:
    """Return the commands that mark the worst of what was *found*, worst first.

    *folder* is that of the tests in the repository.
    """
    return tuple(
        _annotation(remark, is_ours, folder)
        for remark in islice(filter(_is_marked, found), MOST_ANNOTATIONS)
    )


def _is_marked(remark: Remark) -> bool:
    return remark.fails or remark.outcome is Outcome.INCONCLUSIVE


def _annotation(remark: Remark, is_ours: Callable[[str], bool], folder: str) -> str:
    file, line = place(remark, is_ours)
    level = "error" if remark.fails else "warning"
    title = f"gpuperf: {remark.word} {remark.metric}".rstrip()
    message = f"{sentence(remark)}\n{remark.test}"[:LONGEST]
    where = f"file={_property(folder + file)},line={line}," if file else ""
    return f"::{level} {where}title={_property(title)}::{_content(message)}"


def _content(text: str) -> str:
    """Escape a message as GitHub's toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _content(text).replace(":", "%3A").replace(",", "%2C")


def outputs(results: Results, pending: str) -> str:
    """Return the lines by which the next step knows how the run ended.

    Outcomes have names with underscores; ``failed`` are tests, whatever the reason.
    """
    counts = results.counts
    failed = sum(record.ending in FAILING for record in results.tests.values())
    values = {
        **{o.value.replace(" ", "_"): counts[o.value] for o in Outcome},
        "failed": failed,
        "measured": len(results.tests),
        "pending": pending,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
