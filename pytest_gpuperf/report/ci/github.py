"""Annotations and step outputs for GitHub Actions."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final
from urllib.parse import quote

from ...judge.readings import WOULD_HAVE_FAILED
from ...judge.watch import Objection
from ...model.baseline import Refresh
from ...model.finding import Finding, Location
from ...model.run import Results
from ...model.verdict import Outcome
from ...visible import visible_line
from ..command import DEFAULT_INVOCATION, Invocation, refresh_command
from ..judged_calls import JudgedCall
from ..numbers import join_fitting
from ..remedies import remedy_of
from ..screen.findings import explained, short


MOST_ANNOTATIONS: Final = 10
"""Errors of a step that GitHub shows; it drops the others silently."""

MOST_NAMED: Final = 300
"""Characters of the names of tests that fail by the same line."""

LONGEST_ANNOTATION: Final = 1000

MARKED: Final = frozenset({Outcome.INCONCLUSIVE, Outcome.NO_BASELINE})
"""Outcomes that are marked although they fail no test."""


def no_address(_file: str, _line: int) -> str:
    """Return that no page shows the line."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The files of a project as a CI service names them.

    ``is_ours`` returns whether a file, named from the rootdir on, belongs to the project.
    ``folder`` is the rootdir as seen from the repository, with a slash behind it, or
    nothing. ``address`` returns the page of a line, of a file named from the repository on,
    or nothing.
    """

    is_ours: Callable[[str], bool]
    folder: str = ""
    address: Callable[[str, int], str] = no_address

    def path(self, file: str) -> str:
        """Return *file*, or nothing of none, as it is named from the repository on."""
        return posixpath.normpath(f"{self.folder}{file}") if file else self.folder

    def cause(self, call: JudgedCall) -> Finding | None:
        """Return the worst cause of what failed *call*, of the project if there is one."""
        if call.outcome is Outcome.NO_BASELINE:
            return None
        own = filter(self._shows, call.causes)
        return next(chain(own, call.causes), None)

    def _shows(self, finding: Finding) -> bool:
        at = finding.location
        return at is not None and at.exact and self.is_ours(at.file)

    def line_of(self, call: JudgedCall) -> Location | None:
        """Return the line of the project that is to blame for *call*."""
        cause = self.cause(call)
        return cause.location if cause and self._shows(cause) else None

    def place(self, call: JudgedCall) -> tuple[str, int]:
        """Return the file and line to look at: what waits or copies, else the test."""
        at = self.line_of(call)
        if at:
            return at.file, at.line
        file, _, line = call.record.where.rpartition(":")
        return (file, int(line)) if line.isdecimal() else (call.record.where, 1)

    def advice(self, call: JudgedCall) -> str:
        """Say what happens on the line that is to blame, and what to do about it."""
        worst = self.cause(call)
        if worst is None:
            return ""
        remedy = remedy_of(worst)
        fix = f"; fix: {remedy.do}" if remedy else ""
        # The reader is at the line, unless it is in a library.
        at = None if self._shows(worst) else short(worst.location)
        return f"{f'{at.file}:{at.line}: ' if at else ''}{explained(worst)}{fix}"


def commands(
    found: Iterable[JudgedCall],
    sources: Sources,
    invocation: Invocation = DEFAULT_INVOCATION,
) -> tuple[str, ...]:
    """Return the commands that mark the worst of what was *found*, worst first.

    Tests that one line of the project fails alike share one. *invocation* is how the
    tests are measured again.
    """
    marked: dict[Hashable, list[JudgedCall]] = {}
    for call in found:
        if call.is_accused or call.outcome in MARKED:
            line = sources.line_of(call)
            alike = call.is_accused, call.is_warned, call.happened, line
            marked.setdefault(alike if line else call.key, []).append(call)
    return tuple(
        _annotation(alike, sources, invocation)
        for alike in islice(marked.values(), MOST_ANNOTATIONS)
    )


def _annotation(
    alike: Sequence[JudgedCall], sources: Sources, invocation: Invocation
) -> str:
    worst = alike[0]
    return _command(
        *sources.place(worst),
        sources,
        (
            *worst.sentences,
            sources.advice(worst),
            stored_by(worst, invocation),
            join_fitting([call.key for call in alike], MOST_NAMED),
        ),
        # It says why the check is red, so a missing baseline that fails is an error.
        is_error=worst.failed,
        title=(WOULD_HAVE_FAILED if worst.is_warned else "", worst.happened),
    )


def stored_by(call: JudgedCall, invocation: Invocation) -> str:
    """Name the command that stores a missing baseline, as it is typed outside of CI."""
    if call.outcome is not Outcome.NO_BASELINE:
        return ""
    why = "a missing baseline fails if CI is set"
    why = why if call.is_accused else "nothing was checked"
    command = refresh_command(Refresh.MISSING, invocation, [call.test])
    return f"{why}; store one outside of CI and commit it: {command}"


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
