"""Annotations and step outputs for GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import quote

from ...judge.readings import WOULD_HAVE_FAILED
from ...judge.watch import Objection
from ...model.finding import Finding
from ...model.run import Results
from ...model.verdict import Outcome
from ...visible import visible_line
from ..command import DEFAULT_INVOCATION, Invocation
from ..numbers import join_fitting
from ..remedies import remedy_of
from .worst_findings import (
    Remark,
    Sources,
    advice,
    has_cause,
    place,
    sentence,
    stored_by,
)


MOST_ANNOTATIONS: Final = 10
"""Errors of a step that GitHub shows; it drops the others silently."""

MOST_NAMED: Final = 300
"""Characters of the names of tests that fail by the same line."""

LONGEST_ANNOTATION: Final = 1000


def commands(
    found: Iterable[Remark],
    sources: Sources,
    invocation: Invocation = DEFAULT_INVOCATION,
) -> tuple[str, ...]:
    """Return the commands that mark the worst of what was *found*, worst first.

    *invocation* is how the tests are measured again.
    """
    marked: dict[Hashable, list[Remark]] = {}
    for remark in filter(_is_marked, found):
        marked.setdefault(_mark(remark, sources), []).append(remark)
    return tuple(
        _annotation(alike, sources, invocation)
        for alike in islice(marked.values(), MOST_ANNOTATIONS)
    )


def _is_marked(remark: Remark) -> bool:
    return remark.fails or remark.outcome in {Outcome.INCONCLUSIVE, Outcome.NO_BASELINE}


def _mark(remark: Remark, sources: Sources) -> Hashable:
    """Return what is the same for tests that one line of the project fails alike."""
    if not has_cause(remark, sources.is_ours):
        return remark.test, remark.metric
    return remark.fails, remark.is_warned, remark.word, place(remark, sources.is_ours)


def _annotation(
    alike: Sequence[Remark], sources: Sources, invocation: Invocation
) -> str:
    worst = alike[0]
    tips = (advice(worst, sources.is_ours), stored_by(worst, invocation))
    tests = list(dict.fromkeys(remark.test for remark in alike))
    return _command(
        *place(worst, sources.is_ours),
        sources,
        (sentence(worst), *tips, join_fitting(tests, MOST_NAMED)),
        # It says why the check is red, so a missing baseline that fails is an error.
        is_error=worst.fails and not worst.is_warned,
        title=(WOULD_HAVE_FAILED if worst.is_warned else "", worst.word),
    )


def watch_commands(
    objections: Iterable[Objection], sources: Sources, *, warns: bool = False
) -> tuple[str, ...]:
    """Return the commands that mark the lines that fail a watched suite.

    They are warnings where the run only *warns*.
    """
    marked = (
        (objection, finding)
        for objection in objections
        for finding in (*[ln.first for ln in objection.lines], *objection.left)
        or (None,)
    )
    return tuple(
        _watched(objection, finding, sources, warns=warns)
        for objection, finding in islice(marked, MOST_ANNOTATIONS)
    )


def _watched(
    objection: Objection, finding: Finding | None, sources: Sources, *, warns: bool
) -> str:
    at = finding.location if finding else None
    remedy = remedy_of(finding) if finding else None
    is_ours = at is not None and sources.is_ours(at.file)
    return _command(
        *((at.file, at.line) if at and is_ours else ("", 0)),
        sources,
        (
            f"{objection.test}: {objection.what}",
            "" if at is None or is_ours else f"at {at}",
            f"fix: {remedy.do}" if remedy else "",
        ),
        is_error=not warns,
        title=(WOULD_HAVE_FAILED if warns else "", "watch"),
    )


def _command(  # noqa: PLR0913  the parts of a command
    file: str,
    line: int,
    sources: Sources,
    lines: Sequence[str],
    *,
    is_error: bool,
    title: Sequence[str],
) -> str:
    name = ": ".join(filter(None, ("gpuperf", *title)))
    message = "\n".join(map(visible_line, filter(None, lines)))[:LONGEST_ANNOTATION]
    # GitHub reads a path from the repository's root on, not from pytest's rootdir.
    where = f"file={_property(sources.path(file))},line={line}," if file else ""
    level = "error" if is_error else "warning"
    return f"::{level} {where}title={_property(name)}::{_content(message)}"


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
    failed = sum(record.ending.fails for record in results.tests.values())
    values = {
        **{o.value.replace(" ", "_"): counts[o.value] for o in Outcome},
        "warned": counts["warned"],
        "failed": failed,
        "measured": len(results.tests),
        "pending": pending,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def line_address(
    environ: Mapping[str, str], commit_of: Callable[[str], str], file: str, line: int
) -> str:
    """Return the page of GitHub or GitLab that shows the line; nothing elsewhere.

    *file* is named from the repository on, and *commit_of* returns its commit.
    """
    server, name = environ.get("GITHUB_SERVER_URL"), environ.get("GITHUB_REPOSITORY")
    project, commit = environ.get("CI_PROJECT_URL"), commit_of(file)
    folder = f"{server}/{name}" if server and name else project and f"{project}/-"
    if not folder or not commit:
        return ""
    return f"{folder}/blob/{commit}/{quote(file, errors='replace')}#L{line}"
