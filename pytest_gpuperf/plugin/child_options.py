"""What other processes share of this pytest: its options, and the settings it reads."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest

from ..errors import GpuperfError
from ..model.codec import encode
from ..settings import Settings
from .options import environment
from .parse_settings import settings_from


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


def arguments_for_child(config: pytest.Config) -> tuple[str, ...]:
    """Return where the project is and how it is imported, as pytest arguments."""
    return tuple(_arguments(config))


def _arguments(config: pytest.Config) -> Iterator[str]:
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
    """Return the settings of the project in the working directory, or what is wrong."""
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
