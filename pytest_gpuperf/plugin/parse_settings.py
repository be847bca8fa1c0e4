"""From option, ini key and environment to the settings of an enabled run."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields, replace
from datetime import date, datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from ..baselines.format import loads
from ..distributed.torchrun import launch_of
from ..errors import BaselineError, ErrorId, GpuperfError, UsageError
from ..files import no_link, read_regular_text
from ..model.baseline import Baselines, Refresh
from ..model.budget import Tolerance, parse_project_tolerance
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..settings import (
    FOREVER,
    Isolation,
    MissingBaseline,
    Settings,
    UncheckedBudget,
    refuse_in_ci,
)
from .options import (
    OPTIONS,
    environment,
    ini_value,
    refuse_retired_settings,
    repeated_in_commands,
)


# Options by which a command line selects tests.

DESELECTING: Final = {
    "keyword": "-k",
    "markexpr": "-m",
    "lf": "--lf",
    "stepwise": "--stepwise",
    "deselect": "--deselect",
}
"""Names of pytest's options that take tests away once all are collected, by attribute."""

NARROWING: Final = {
    **DESELECTING,
    "ignore": "--ignore",
    "ignore_glob": "--ignore-glob",
}
"""Names of pytest's options with which it does not run every test, by attribute."""


def narrowed_by(config: pytest.Config) -> str:
    """Name the first option or argument that takes tests away; empty if none does."""
    for name, flag in NARROWING.items():
        if config.getoption(name, default=None):
            return flag
    named = [argument for argument in config.args if "::" in argument]
    return f"the argument {named[0]}" if named else ""


def deselects(config: pytest.Config) -> bool:
    """Whether a test that was collected may be taken away."""
    return any(config.getoption(name, default=None) for name in DESELECTING)


E = TypeVar("E", bound=Enum)


def _one_of(kinds: type[E], unnamed: tuple[E, ...] = ()) -> Callable[[str], E]:
    """Parse a member's value; *unnamed* ones are taken and not offered."""

    def parse(text: str) -> E:
        try:
            return kinds(text)
        except ValueError:
            known = ", ".join(str(k.value) for k in kinds if k not in unnamed)
            msg = f"expected one of {known}"
            raise ValueError(msg) from None

    return parse


DRIFT: Final = "drift"
"""A refresh of all that stores also what got worse."""


def _refresh(text: str) -> Refresh | str:
    try:
        return text if text == DRIFT else _one_of(Refresh)(text)
    except ValueError as error:
        msg = f"{error}, {DRIFT}"
        raise ValueError(msg) from None


def positive_seconds(text: str) -> float:
    """Read a number of seconds; raise ``ValueError`` that says what was expected."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        msg = "expected a positive number of seconds"
        raise ValueError(msg)
    return seconds


def positive_gib(text: str) -> float:
    """Read a size in GiB; raise ``ValueError`` that says what was expected."""
    try:
        return positive_seconds(text)
    except ValueError:
        msg = "expected a positive number of GiB, such as 141"
        raise ValueError(msg) from None


def _seed(text: str) -> int:
    """Read a seed; raise ``ValueError`` that says what was expected."""
    if not text.isdecimal():
        msg = "expected a whole number from 0 up, such as 7"
        raise ValueError(msg)
    return int(text)


def _warn(text: str) -> str:
    """Read until when; raise ``ValueError`` that says what was expected."""
    if text in {"true", "false"}:
        return FOREVER if text == "true" else ""
    day = text.removeprefix("until ")
    if day == text or not _is_day(day):
        msg = "expected true, or `until` and the last day in UTC, such as until 2027-01-15"
        raise ValueError(msg)
    return day


def _is_day(text: str) -> bool:
    try:
        # Python reads other forms of ISO 8601 as well, which do not sort as text.
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _tolerance(text: str) -> Tolerance:
    try:
        return parse_project_tolerance(text)
    except UsageError as error:
        msg = (
            "expected percentages by budget keyword, such as ms=5%, or ms=5% and "
            f"0.1 ms, mem_mb=1%: {error.text.partition('; it knows')[0]}"
        )
        raise ValueError(msg) from None


def _filled(kind: Callable[[str], object], wanted: str) -> Callable[[str], object]:
    """Parse a text that is not empty; *wanted* is one that could have been meant."""

    def parse(text: str) -> object:
        if not text.strip():
            msg = f"expected {wanted}"
            raise ValueError(msg)
        return kind(text)

    return parse


def _folder(text: str) -> Path:
    """Read a folder, which need not be there; raise ``ValueError`` if it cannot be."""
    try:
        os.lstat(Path.cwd() / text)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            msg = "expected a shorter name of a folder"
            raise ValueError(msg) from None
    return Path(text)


VALUE_KINDS: Final[Mapping[str, Callable[[str], object]]] = {
    "device": _one_of(DeviceKind, unnamed=(DeviceKind.SCRIPTED,)),
    "folder": _filled(_folder, "a folder, such as baselines"),
    "gib": positive_gib,
    "isolation": _one_of(Isolation),
    "missing baseline": _one_of(MissingBaseline),
    "refresh": _refresh,
    "seconds": positive_seconds,
    "seed": _seed,
    "tolerance": _tolerance,
    "warn": _warn,
}
"""How the text of an option or ini key is read, by the kind in its row of ``OPTIONS``."""

PARSERS: Final = {o.name: VALUE_KINDS[o.kind] for o in OPTIONS if o.kind}

FIELDS: Final = frozenset(field.name for field in fields(Settings))


def missing_baseline(
    value: Callable[..., Any], environ: Mapping[str, str]
) -> MissingBaseline:
    """Return what a baseline that is missing means: in CI it was not committed."""
    usual = MissingBaseline.FAIL if environ.get("CI") else MissingBaseline.WARN
    return MissingBaseline(value("gpuperf_missing_baseline", usual))


def settings_from(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """Resolve option, then ini key, then default.

    Raises ``UsageError`` for a value that cannot be parsed and for a refresh in CI.
    """
    refuse_retired_settings(config)
    value = resolver(config)
    ci = bool(environ.get("CI"))
    given = {o.field: value(o.name, None) for o in OPTIONS if o.field in FIELDS}
    if given["update"] == DRIFT:
        given |= {"update": Refresh.ALL, "accept_drift": True}
    settings = Settings(**{name: v for name, v in given.items() if v is not None})
    if settings.update:
        asked = f"--gpuperf-update={settings.update.value}"
        refuse_in_ci(asked, "refresh", environ)
    settings = replace(
        settings,
        missing_baseline=missing_baseline(value, environ),
        unchecked_budget=UncheckedBudget.FAIL if ci else UncheckedBudget.WARN,
        baselines=config.rootpath / settings.baselines,
        artefacts=no_link(config.rootpath / settings.artefacts),
        tolerance=project_tolerance(config),
        script=environ.get("GPUPERF_SCRIPT"),
        launch=launch_of(environ),
        repeated=repeated_in_commands(config),
        today=today(),
    )
    settings = with_stored_device(config, settings)
    if settings.launch is not None:
        _refuse_workers(config, settings.launch.count)
    return settings


def today() -> str:
    """Return the day in UTC, as 2027-01-15."""
    return datetime.now(timezone.utc).date().isoformat()


def project_tolerance(config: pytest.Config) -> Tolerance:
    """Return the tolerance for tests with no mark of their own; raise ``UsageError`` if none."""
    tolerance: Tolerance = resolver(config)("gpuperf_tolerance", Tolerance())
    return tolerance


def _refuse_workers(config: pytest.Config, count: int) -> None:
    """Refuse options with which each of *count* ranks would start processes of its own."""
    if config.getoption("dist", "no") != "no":
        msg = (
            f"torchrun started {count} ranks of pytest, and pytest-xdist would start "
            "workers in each: leave out -n and --dist"
        )
        raise UsageError(msg, ErrorId.GP611)


def resolver(config: pytest.Config) -> Callable[..., Any]:
    """Return what reads an option or its ini key, else a default."""

    def value(name: str, default: object) -> object:
        given = config.getoption(name, default=None)
        source = "--" + name.replace("_", "-")
        if given is None:
            given = ini_value(config, name)
            source = f"ini key {name}"
        if given is None:
            return default
        return _parsed(name, given, source) if name in PARSERS else given

    return value


def _parsed(name: str, text: str, source: str) -> object:
    try:
        return PARSERS[name](text)
    except ValueError as error:
        msg = f"{source}: found {text!r}, {error}"
        raise UsageError(msg, ErrorId.GP101) from None


# The device of a refresh that names tests and no device: that of their baselines.


def with_stored_device(config: pytest.Config, settings: Settings) -> Settings:
    """Choose the device that has baselines of the tests named, if one alone has.

    Nothing is chosen if a device is named, or if only missing baselines are wanted.
    """
    if settings.device or settings.update in {None, Refresh.MISSING}:
        return settings
    tests = [_node_id(config, argument) for argument in config.args]
    if not tests or not all(tests):
        return settings
    kinds = tuple(
        dict.fromkeys(
            stored.hardware.kind
            for stored in _all_in(settings.baselines)
            if any(_is_of(key, test) for key in stored.entries for test in tests)
        )
    )
    device = kinds[0] if len(kinds) == 1 else None
    return replace(settings, device=device, stored_on=kinds)


def _node_id(config: pytest.Config, argument: str) -> str:
    """Return the node id that *argument* names, from the rootdir on; else nothing."""
    file, of, name = argument.partition("::")
    path = (config.invocation_params.dir / file).resolve()
    root = config.rootpath.resolve()
    if not of or not path.is_relative_to(root):
        return ""
    return f"{path.relative_to(root).as_posix()}::{name}"


def _all_in(folder: Path) -> Iterator[Baselines]:
    """Yield the baselines that can be read; the run says what is wrong with its own."""
    return filter(None, map(_read, sorted(folder.glob("*.json"))))


def _read(path: Path) -> Baselines | None:
    try:
        return loads(read_regular_text(path), str(path))
    except (BaselineError, OSError, UnicodeDecodeError):
        return None


def _is_of(key: str, test: str) -> bool:
    return key == test or key.startswith((f"{test}[", f"{test}::", f"{test}#"))


# What other processes share of this pytest: its options, and the settings it reads.

_OF_RUNNERS: Final = """
assertmode basetemp boxed cacheclear cacheshow capture code_highlight
collect_in_virtualenv collectonly color confcutdir continue_on_collection_errors
debug deselect disable_plugin_autoload disable_warnings dist distload
doctest_continue_on_failure doctest_ignore_import_errors doctestglob doctestmodules
doctestreport durations durations_min fail_on_flaky failedfirst file_or_dir
fold_skipped force_reruns force_short_summary forked fulltrace help ignore
ignore_glob importmode inifilename junitprefix keepduplicates keyword
last_failed_no_failures lf loadscopereorder log_auto_indent log_cli_date_format
log_cli_format log_cli_level log_date_format log_file log_file_date_format
log_file_format log_file_level log_file_mode log_format log_level logger_disable
looponfail markers markexpr max_suite_reruns max_warnings maxfail maxprocesses
maxschedchunk maxworkerrestart newfirst no_header no_summary noconftest numprocesses
only_rerun override_ini pastebin plugins px pyargs pythonwarnings quiet reportchars
rerun_except rerun_exclude_path rerun_show_tracebacks reruns reruns_delay
reruns_delay_backoff_factor reruns_mode rootdir rsyncdir rsyncignore runxfail
setuponly setupplan setupshow show_fixtures_per_test showcapture showfixtures
showlocals stepwise stepwise_reset stepwise_skip strict strict_config strict_markers
tbstyle testrunuid trace traceconfig tx usepdb usepdb_cls verbose version xfail_tb
xmlpath
"""
CHILD_DECIDES: Final = frozenset(_OF_RUNNERS.split())
"""Options of pytest and its runners that say how to select, schedule and report."""

OWN_REPORTS: Final = ("benchmark_", "cov", "gpuperf", "htmlpath", "json_report")
"""Beginnings of options that name files which a child would overwrite."""


def arguments_for_child(config: pytest.Config) -> Iterator[str]:
    """Yield where the project is and how it is imported, as pytest arguments."""
    if config.inipath is not None:
        yield from ("-c", str(config.inipath))
    yield f"--rootdir={config.rootpath}"
    yield f"--import-mode={config.option.importmode}"
    if config.option.noconftest:
        yield "--noconftest"
    for plugin in config.option.plugins or ():
        yield from ("-p", plugin)
    for setting in config.option.override_ini or ():
        # It would overrule the empty `addopts` of a child, which gets its options by
        # value.
        if not setting.startswith("addopts"):
            yield from ("-o", setting)
    for filtered in config.option.pythonwarnings or ():
        yield from ("-W", filtered)


def options_for_child(config: pytest.Config) -> dict[str, object]:
    """Values of the options that conftest files and other plugins declare.

    They come from the command line and ``addopts``, which a child does not inherit.
    Only values that JSON can represent can be handed on.
    """
    return {
        name: value
        for name, value in vars(config.option).items()
        if name not in CHILD_DECIDES
        and not name.startswith(OWN_REPORTS)
        and _is_json(value)
    }


def _is_json(value: object) -> bool:
    try:
        # Compared after a round trip: JSON turns tuples into lists and keys into
        # strings.
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


# A process of its own that reads the settings of a project as pytest sees them.

ALLOWED: Final = {"GPUPERF_ALLOW_CI_UPDATE": "1"}
"""Reading the settings refreshes nothing, so CI may do it."""


def read_settings(_request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the project in the working directory, or the error."""
    reader = Reader()
    printed = _read_by(reader)
    if reader.settings is None:
        return {"error": reader.error or printed}
    return {"settings": encode(reader.settings)}


def _read_by(plugin: object) -> str:
    """Start pytest with *plugin* in this process; return what it prints, the last lines."""
    sys.path.insert(0, str(Path.cwd()))  # as `python -m pytest` does
    sys.argv = ["pytest"]
    # If pytest ends before the plugin knows what it wants, this is the error.
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        pytest.main([], plugins=[plugin])
    return "\n".join(output.getvalue().strip().splitlines()[-SHOWN_LINES:])


SHOWN_LINES: Final = 20


class Reader:
    """The plugin of a pytest that ends as soon as it knows its ini keys."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.error = ""

    # First, and with a result: pytest then neither collects nor runs anything.
    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> pytest.ExitCode:
        try:
            self.settings = settings_from(config, {**environment(), **ALLOWED})
        except GpuperfError as error:
            self.error = str(error)
            return pytest.ExitCode.USAGE_ERROR
        except ValueError:  # it knows no such ini key
            self.error = "it does not load the plugin pytest_gpuperf.plugin"
            return pytest.ExitCode.USAGE_ERROR
        return pytest.ExitCode.OK
