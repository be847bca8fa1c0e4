"""Annotations and step outputs for GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from itertools import islice
from typing import Final

from ...model.results import Results
from ...model.verdict import Outcome
from ...visible import visible_line
from .worst_findings import FAILING
from .worst_findings import Remark
from .worst_findings import advice
from .worst_findings import place
from .worst_findings import sentence


MOST_ANNOTATIONS: Final = 10
"""Errors of a step that GitHub shows; it drops the others silently."""

LONGEST_ANNOTATION: Final = 1000


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
    title = f"gpuperf: {remark.word}"
    lines = (sentence(remark), advice(remark), remark.test)
    message = "\n".join(map(visible_line, filter(None, lines)))[:LONGEST_ANNOTATION]
    # GitHub reads a path from the repository's root on, not from pytest's rootdir.
    where = f"file={_property(folder + file)},line={line}," if file else ""
    return f"::{level} {where}title={_property(title)}::{_content(message)}"


def _content(text: str) -> str:
    """Escape a message as GitHub's toolkit does."""
    # The percent sign first, or it would escape the escapes of the others.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    # Colon and comma end a property.
    return _content(visible_line(text)).replace(":", "%3A").replace(",", "%2C")


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
