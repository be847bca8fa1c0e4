"""Annotations and step outputs for GitHub Actions."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import islice
from typing import Final
from urllib.parse import quote

from ...model.results import Results
from ...model.verdict import Outcome
from ...visible import visible_line
from ..command import DEFAULT_INVOCATION
from ..command import Invocation
from ..numbers import join_fitting
from .worst_findings import Remark
from .worst_findings import Sources
from .worst_findings import advice
from .worst_findings import has_cause
from .worst_findings import place
from .worst_findings import sentence
from .worst_findings import stored_by


MOST_ANNOTATIONS: Final = 10
"""Errors of a step that GitHub shows; it drops the others silently."""

MOST_EXAMINED: Final = 200
"""Remarks that are looked at: each is decoded."""

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
    for remark in islice(filter(_is_marked, found), MOST_EXAMINED):
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
    return remark.fails, remark.word, place(remark, sources.is_ours)


def _annotation(
    alike: Sequence[Remark], sources: Sources, invocation: Invocation
) -> str:
    worst = alike[0]
    file, line = place(worst, sources.is_ours)
    # The level says why the check is red, so a missing baseline that fails is an error.
    level = "error" if worst.fails else "warning"
    title = f"gpuperf: {worst.word}"
    tips = (advice(worst, sources.is_ours), stored_by(worst, invocation))
    tests = list(dict.fromkeys(remark.test for remark in alike))
    lines = (sentence(worst), *tips, join_fitting(tests, MOST_NAMED))
    message = "\n".join(map(visible_line, filter(None, lines)))[:LONGEST_ANNOTATION]
    # GitHub reads a path from the repository's root on, not from pytest's rootdir.
    where = f"file={_property(sources.path(file))},line={line}," if file else ""
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
    failed = sum(record.ending.fails for record in results.tests.values())
    values = {
        **{o.value.replace(" ", "_"): counts[o.value] for o in Outcome},
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
