"""What a run leaves for the pages of a CI service: summary, comment, outputs, report."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from .baselines.pending import pending_path
from .baselines.pending import write_ignored
from .errors import GpuperfError
from .model.results import Results
from .model.run import Ending
from .report import code_quality
from .report.code_quality import code_quality as quality_of
from .report.github import commands
from .report.github import outputs
from .report.run_markdown import run_markdown
from .report.worst import remarks


COMMENT: Final = "comment.md"
"""Name of the file that a comment on a pull request can be made of."""

QUALITY: Final = code_quality.FILE

MOST_COMMENT_BYTES: Final = 64_000
"""Below the 65,536 characters of a comment on GitHub."""

MOST_SUMMARY_BYTES: Final = 1_000_000
"""Below the 1,024 KiB of a step's summary on GitHub, beyond which all of it is lost."""

LEAST_SUMMARY_BYTES: Final = 2_000
"""Room that is worth filling in a summary to which others have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run was: its rootdir, its folder of artefacts, and its environment."""

    root: Path
    artefacts: Path
    environ: Mapping[str, str]

    @property
    def folder(self) -> str:
        """The rootdir as seen from the repository, with a slash behind it; or nothing."""
        for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
            repository, root = self.environ.get(name), self.root.resolve()
            if repository and root.is_relative_to(Path(repository).resolve()):
                inside = root.relative_to(Path(repository).resolve()).as_posix()
                return "" if inside == "." else f"{inside}/"
        return ""

    @property
    def is_annotated(self) -> bool:
        """Whether somebody reads annotations on standard output."""
        return self.environ.get("GITHUB_ACTIONS") == "true"

    def is_ours(self, file: str) -> bool:
        """Whether *file*, a path that a finding names, lies in the project."""
        return not Path(file).is_absolute() and (self.root / file).is_file()

    def pending(self, results: Results) -> str:
        """Name what can be accepted, from the rootdir on; nothing where there is none."""
        if results.head.hardware is None:
            return ""
        path = pending_path(self.artefacts, results.head.hardware)
        return path.relative_to(self.root).as_posix() if path.is_file() else ""


def forgiving(results: Results, tests: Collection[str]) -> Results:
    """Return *results* in which those of *tests* that failed were expected to."""
    return replace(
        results,
        tests={
            test: record._replace(ending=Ending.XFAILED)
            if test in tests and record.ending is Ending.FAILED
            else record
            for test, record in results.tests.items()
        },
    )


def annotation_lines(results: Results, place: Place) -> tuple[str, ...]:
    """Return what GitHub reads on standard output."""
    return commands(remarks(results), place.is_ours, place.folder)


def publish(results: Results, place: Place, baseline_file: str) -> Iterator[str]:
    """Write all files that this place reads, and say which of them cannot be."""
    found, pending = remarks(results), place.pending(results)
    markdown = partial(
        run_markdown, results, found, baseline_file=baseline_file, pending=pending
    )
    environ = place.environ
    yield from _write(place.artefacts / COMMENT, markdown(room=MOST_COMMENT_BYTES))
    if environ.get("GITLAB_CI"):
        text = quality_of(found, place.is_ours, place.folder)
        yield from _write(place.artefacts / QUALITY, text)
    if environ.get("GITHUB_STEP_SUMMARY"):
        yield from _summarise(Path(environ["GITHUB_STEP_SUMMARY"]), markdown)
    if environ.get("GITHUB_OUTPUT"):
        text = outputs(results, f"{place.folder}{pending}" if pending else "")
        yield from _append(Path(environ["GITHUB_OUTPUT"]), text)


def _write(path: Path, text: str) -> Iterator[str]:
    try:
        write_ignored(path, text)
    except GpuperfError as error:
        yield f"gpuperf: {error}"


def _summarise(path: Path, markdown: Callable[..., str]) -> Iterator[str]:
    try:
        room = MOST_SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
    except OSError as error:
        yield _unwritable(path, error)
        return
    if room < LEAST_SUMMARY_BYTES:
        yield f"gpuperf: {path}: the job's summary is full, nothing was added to it"
        return
    yield from _append(path, markdown(room=room))


def _append(path: Path, text: str) -> Iterator[str]:
    try:
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        yield _unwritable(path, error)


def _unwritable(path: Path, error: OSError) -> str:
    cause = (error.strerror or str(error)).lower()
    return f"gpuperf: {path}: cannot be written, {cause}; the verdicts stand without it"
