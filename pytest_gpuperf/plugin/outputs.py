"""What an enabled run came to, for other programs: ``results.json``, pytest-benchmark.

It is begun and finished with the session, so that a run that died can be recognized.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

import pytest

from ..baselines.format import loads
from ..baselines.refresh import changes
from ..baselines.store import pending_path, write_ignored
from ..devices.preflight import own_version
from ..errors import ErrorId, GpuperfError, UsageError
from ..model.baseline import BaselineChange
from ..model.codec import encode_briefly
from ..model.measurement import Samples
from ..model.run import (
    RESULTS_NAME as RESULTS_FILE,
    Ending,
    Head,
    Record,
    Report,
    Results,
    Unseen,
)
from ..model.verdict import worst_of
from ..report.ci.github import Sources, commands, line_address, outputs
from ..report.ci.job_summary import run_markdown
from ..report.command import at_root
from ..report.json import dumps, from_json
from ..report.judged_calls import judged_calls
from ..report.measured_calls import MeasuredCall, measured_calls
from ..report.pytest_benchmark import described, options_of, seconds_of
from ..report.screen.counts import moved_line, named, skipped_line, suite_line
from ..report.secrets import secrets_of, shown_headline, shown_verdict
from ..runner.evaluation import RunResult
from ..runner.git import run_git
from ..settings import Settings
from .session import SELECTION, announce
from .terminal import unmeasured_lines


# The commit that a run measures, as far as anybody knows it.

COMMIT_VARIABLES: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")
"""Where GitHub and GitLab name the commit of a job."""


def commit_of(folder: Path, environ: Mapping[str, str]) -> str | None:
    """Return what git says is checked out in *folder*, else what the CI says."""
    try:
        found = run_git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
        commit = found.stdout.strip() if found.returncode == 0 else ""
    except UsageError:
        commit = ""
    named = (environ.get(name) for name in COMMIT_VARIABLES)
    return commit or next(filter(None, named), None)


def head_commit(environ: Mapping[str, str]) -> str:
    """Return the newest commit of a pull request's own branch; nothing if there is none."""
    named = environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or ""
    try:
        event = json.loads(Path(environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        named = event["pull_request"]["head"]["sha"]
    # Whatever GitHub writes there: it names what is linked, and nothing else.
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return named if re.fullmatch(r"[0-9a-f]{40,64}", str(named)) else ""


def changed_files(folder: Path, one: str, other: str) -> frozenset[str] | None:
    """Name the files that two commits differ in, or ``None`` if git does not have both."""
    if one == other:
        return frozenset()
    try:
        found = run_git(folder, "diff", "--name-only", "-z", one, other, "--")
    except UsageError:
        return None
    return None if found.returncode else frozenset(found.stdout.split("\0"))


class MeasuringPlugin(Protocol):
    """The plugin that measures."""

    @property
    def run_result(self) -> RunResult | None:
        """What came of it, once it has measured."""

    @property
    def unseen(self) -> Unseen:
        """What no verdict says."""

    @property
    def params(self) -> Mapping[str, Mapping[str, object]]:
        """Parameters of each test by their names."""


# Files for CI services: summary, comment, outputs, report.

COMMENT_FILE: Final = "comment.md"
"""Name of the file that a comment on a pull request can be made of."""

MOST_COMMENT_BYTES: Final = 64_000
"""Below the 65,536 characters of a comment on GitHub."""

MOST_SUMMARY_BYTES: Final = 1_000_000
"""Below the 1,024 KiB of a step's summary on GitHub, beyond which all of it is lost."""

LEAST_SUMMARY_BYTES: Final = 2_000
"""Room that is worth filling in a summary to which others have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
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
        """Whether GitHub reads annotations on standard output."""
        return self.environ.get("GITHUB_ACTIONS") == "true"

    def sources(self, measured: str | None) -> Sources:
        """Return how this place names files, and lines of the *measured* commit."""
        return Sources(
            is_ours=self.is_ours,
            folder=self.folder,
            address=partial(line_address, self.environ, self._linked(measured)),
        )

    def _linked(self, measured: str | None) -> Callable[[str], str]:
        """Return which commit has a line where the *measured* one has it, for each file.

        What a pull request is tested as is its merge, which disappears with the next
        push: that of the author is linked if the file is the same there. A clone that
        does not reach so far cannot tell.
        """
        own, merged = head_commit(self.environ), measured or ""
        changed = changed_files(self.root, own, merged) if own else None
        if changed is None:
            return lambda _file: merged
        return lambda file: merged if file in changed else own

    def is_ours(self, file: str) -> bool:
        """Whether *file*, a path that a finding names, lies in the project."""
        # No service knows a file outside of the repository.
        is_inside = not posixpath.normpath(f"{self.folder}{file}").startswith("..")
        is_here = not Path(file).is_absolute() and (self.root / file).is_file()
        return is_here and is_inside

    def merged_changes(self, file: str) -> tuple[BaselineChange, ...]:
        """Return what the merge that a pull request is tested as changes in a baseline *file*.

        Nothing where git does not have both parents of the merge, or one has no such file.
        """
        if self.environ.get("GITHUB_EVENT_NAME") != "pull_request":
            return ()
        names = ("HEAD^1", "HEAD^2", "HEAD")
        with suppress(GpuperfError):
            found = [run_git(self.root, "show", f"{name}:./{file}") for name in names]
            if not any(each.returncode for each in found):
                before, _, now = (loads(each.stdout, file) for each in found)
                return changes(before, now)
        return ()

    def pending(self, results: Results) -> str:
        """Name what can be accepted, from the rootdir on; nothing if there is none."""
        if results.head.hardware is None:
            return ""
        path = pending_path(self.artefacts, results.head.hardware)
        return path.relative_to(self.root).as_posix() if path.is_file() else ""


def forgiving(results: Results, tests: Collection[str]) -> Results:
    """Return *results* with failures of *tests* turned into expected ones."""
    return replace(
        results,
        tests={
            test: record._replace(ending=Ending.XFAILED)
            if test in tests and record.ending in {Ending.FAILED, Ending.WARNED}
            else record
            for test, record in results.tests.items()
        },
    )


def annotation_lines(results: Results, place: RunPlace) -> tuple[str, ...]:
    """Return what GitHub reads on standard output."""
    head, found = results.head, judged_calls(results, RESULTS_FILE)
    return commands(found, place.sources(head.commit), at_root(head.hardware))


def publish(results: Results, place: RunPlace, baseline_file: str) -> Iterator[str]:
    """Write all files that this place reads, and say which of them cannot be."""
    found, pending = judged_calls(results, RESULTS_FILE), place.pending(results)
    sources = place.sources(results.head.commit)
    markdown = partial(
        run_markdown,
        results,
        found,
        sources,
        baseline_file=baseline_file,
        pending=pending,
        changed=place.merged_changes(baseline_file),
    )
    environ = place.environ
    yield from _write(place.artefacts / COMMENT_FILE, markdown(room=MOST_COMMENT_BYTES))
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
        # Appended: other steps of the job write to the same file.
        with path.open("a", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        yield _unwritable(path, error)


def _unwritable(path: Path, error: OSError) -> str:
    cause = (error.strerror or str(error)).lower()
    return f"gpuperf: {path}: cannot be written, {cause}; the results are not affected"


class ResultsFile:
    """Writes the file of one run: unfinished at first, whole when it is over."""

    def __init__(
        self, config: pytest.Config, settings: Settings, run: MeasuringPlugin
    ) -> None:
        self._config = config
        self._settings = settings
        self._run = run
        self._begun = Head(
            version=own_version(),
            strict=settings.strict,
            missing_baseline=settings.missing_baseline.value,
            seed=settings.seed,
            commit=commit_of(config.rootpath, os.environ),
        )
        self._place = RunPlace(
            root=config.rootpath, artefacts=settings.artefacts, environ=os.environ
        )
        self._records: Mapping[str, Record] | None = None
        self._forgiven: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Remove an older comment, so that none is next to results of another run."""
        with suppress(OSError):
            (self._settings.artefacts / COMMENT_FILE).unlink(missing_ok=True)
        self._write(RESULTS_FILE, partial(dumps, Results(head=self._begun)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and hasattr(report, "wasxfail"):
            self._forgiven.add(report.nodeid)

    # The outermost wrapper, so that the code behind its yield runs last.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session
    ) -> Generator[None, None, None]:
        """Write after every plugin that may still change the exit status."""
        try:
            ended = yield
        except Exception:
            self._finish(int(pytest.ExitCode.TESTS_FAILED))  # as Python's own
            raise
        self._finish(int(session.exitstatus))
        return ended

    def _finish(self, exit_status: int) -> None:
        results, found = self._results(exit_status), self._run.run_result
        # First, and apart from the pages: other programs read this file to learn the
        # outcome.
        self._write(RESULTS_FILE, partial(dumps, results))
        file = found.baseline_file if found else ""
        try:
            for line in publish(forgiving(results, self._forgiven), self._place, file):
                announce(self._config, line)
        # A bug in a page must not turn a judged run into an internal error of pytest.
        except Exception as error:  # noqa: BLE001 - the verdicts do not need a page
            announce(
                self._config,
                f"gpuperf: no pages for CI are written, {_described(error)}",
            )

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        if not self._place.is_annotated:
            return
        results = forgiving(self._results(int(exitstatus)), self._forgiven)
        for line in annotation_lines(results, self._place):
            terminalreporter.write_line(line)

    def _results(self, exit_status: int) -> Results:
        selection, found = self._config.stash[SELECTION], self._run.run_result
        unseen = self._run.unseen
        head = replace(
            self._begun,
            exit_status=exit_status,
            collected=selection.collected,
            selected=selection.selected,
            unreported=(*unseen.lost, *unseen.silenced),
        )
        if found is None:
            return Results(head=head)
        return Results(
            head=replace(
                head,
                hardware=found.hardware,
                notes=tuple(self._notes(found)),
            ),
            tests=self._tests(found, selection.where),
        )

    def _tests(
        self, found: RunResult, where: Mapping[str, str]
    ) -> Mapping[str, Record]:
        """Return the records, made once: there may be many."""
        if self._records is None:
            root, secrets = self._config.rootpath, secrets_of(os.environ)
            self._records = {
                test: record_of(
                    report, root, secrets, where.get(test, ""), found.samples
                )
                for test, report in found.reports.items()
            }
        return self._records

    def _notes(self, found: RunResult) -> Iterator[str]:
        moved = found.moved_with_the_environment
        if moved:
            yield moved_line(moved, found.invocation, warns=found.warns).text
        if found.suite:
            yield suite_line(found.suite).text
        if found.skipped_files:
            yield skipped_line(found.skipped_files).text
        yield from named(found.unmeasured, found.stopped)
        lines = unmeasured_lines(self._run.unseen, found)
        if lines:
            yield " ".join(line.text.strip() for line in lines)

    def _write(self, name: str, text: Callable[[], str]) -> None:
        try:
            write_ignored(self._settings.artefacts / name, text())
        except GpuperfError as error:
            announce(self._config, f"gpuperf: {error}")
        except Exception as error:  # noqa: BLE001 - the verdicts do not need a file
            path = self._settings.artefacts / name
            announce(
                self._config, f"gpuperf: {path}: cannot be written, {_described(error)}"
            )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def record_of(
    report: Report,
    root: Path,
    secrets: Sequence[str],
    where: str,
    samples: Mapping[str, tuple[Samples, ...]],
) -> Record:
    """Return *report* for people elsewhere, without any path of this machine."""
    verdicts = [shown_verdict(from_json(text)) for text in report.verdicts]
    first, *_ = report.text.splitlines() or [""]
    return Record(
        ending=report.ending,
        outcome=worst_of(verdict.outcome for verdict in verdicts),
        headline=shown_headline(report.headline or first, root, Path.home(), secrets),
        verdicts=tuple(encode_briefly(verdict) for verdict in verdicts),
        where=where,
        samples={
            v.test: runs for v in verdicts if any(runs := samples.get(v.test, ()))
        },
    )


# ``gpuperf_benchmark``: our numbers in a running pytest-benchmark session.
#
# pytest-benchmark shows, saves, draws and compares them as its own. That works under
# pytest-xdist too, as the controlling process has all the numbers.

SWITCHED_OFF: Final = ("benchmark_disable", "benchmark_skip")
"""Options that switch pytest-benchmark off; ``benchmark_enable`` undoes them."""


def refuse_to_feed_nobody(config: pytest.Config) -> None:
    """Raise ``UsageError`` if pytest-benchmark is not active."""
    if not hasattr(config.option, "benchmark_storage"):
        msg = (
            "ini key gpuperf_benchmark: pytest-benchmark is not active; install it with "
            "`pip install pytest-gpuperf[benchmark]`, do not disable it with "
            "`-p no:benchmark`, or leave the key out"
        )
        raise UsageError(msg, ErrorId.GP108)


class BenchmarkFeed:
    """Hands over what was measured before pytest-benchmark saves and compares."""

    def __init__(self, config: pytest.Config, run: MeasuringPlugin) -> None:
        refuse_to_feed_nobody(config)
        self._config = config
        self._run = run

    # Before pytest-benchmark's own hook, which saves and compares.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        found = self._run.run_result
        if found is not None and not self._is_switched_off:
            self._feed(found)
        return (yield)

    @property
    def _is_switched_off(self) -> bool:
        option = self._config.option
        asked = any(getattr(option, name, False) for name in SWITCHED_OFF)
        return asked and not getattr(option, "benchmark_enable", False)

    def _feed(self, found: RunResult) -> None:
        try:
            fed = list(_benchmarks(found, self._run.params))
            self._session().benchmarks.extend(fed)
        # Its session is private and may change with any version, in any way.
        except Exception as error:  # noqa: BLE001 - nothing of it is a promise
            announce(
                self._config,
                f"gpuperf: this pytest-benchmark takes no numbers from others ({error}); "
                "write a file for it with `gpuperf export pytest-benchmark`",
            )

    def _session(self) -> Any:
        """Return its session, which has no public name."""
        return self._config._benchmarksession  # type: ignore[attr-defined] # noqa: SLF001


def _benchmarks(
    found: RunResult, params: Mapping[str, Mapping[str, object]]
) -> Iterator[object]:
    verdicts = {
        test: [json.loads(verdict) for verdict in report.verdicts]
        for test, report in found.reports.items()
    }
    for call in measured_calls(verdicts, found.samples):
        if call.step_ms:
            yield _benchmark(call, params.get(call.test) or None)


def _benchmark(call: MeasuredCall, params: Mapping[str, object] | None) -> object:
    """Return what the fixture of pytest-benchmark would leave of a call."""
    # An optional dependency, imported only if the option asks for it.
    from pytest_benchmark.stats import Metadata

    named = described(call) | {"params": params}
    fixture = SimpleNamespace(**named, cprofile_stats=None, has_error=False)
    benchmark = Metadata(fixture, iterations=1, options=options_of(call))
    for seconds in seconds_of(call):
        benchmark.update(seconds)
    return benchmark
