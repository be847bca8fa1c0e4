"""All options and ini keys: declared, and asked before a run has its settings."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import Final, Literal

import pytest

from ..errors import ErrorId, UsageError
from ..model.retired import RETIRED, refuse_retired


def ini_value(config: pytest.Config, name: str) -> object:
    """Return the value of an ini key; raise ``pytest.UsageError`` for a flag of none."""
    try:
        return config.getini(name)
    except (ValueError, pytest.UsageError) as error:
        if "truth value" not in str(error):  # it is no key of ours at all
            raise
        file = f" in {config.inipath}" if config.inipath else ""
        msg = f"ini key {name}{file}: {error}, expected true or false"
        raise pytest.UsageError(str(UsageError(msg, ErrorId.GP101))) from None


# The command line and the ini keys: declared here, resolved in ``parse_settings``.
#
# Every pytest run imports this module, so what only an enabled run needs is imported in
# functions.


class Option:
    """An ini key, and where ``on_command_line`` the option of the same name.

    ``--gpuperf-x`` is ``gpuperf_x``; one without ``metavar`` is a flag, and one may be
    typed ``without_value``, which then is its value. What a project sets
    once is an ini key only, so that `pytest --help` lists what a person types; a command
    line sets it with pytest's ``-o``. Its text is of a ``kind``, which ``parse_settings``
    reads, and fills the ``field`` of the settings, if they have it. A plain class: a
    dataclass or a named tuple would be half of what this module costs every pytest run.
    """

    __slots__ = (
        *("field", "help", "kind", "metavar", "name"),
        *("on_command_line", "without_value"),
    )

    def __init__(  # noqa: PLR0913  the columns of the table below
        self,
        *,
        name: str,
        help: str,  # noqa: A002, argparse's word
        metavar: str | None = None,
        kind: str = "",
        field: str | None = None,
        on_command_line: bool = True,
        without_value: str | None = None,
    ) -> None:
        self.name = name
        self.help = help
        self.metavar = metavar
        self.kind = kind
        self.field = name.removeprefix("gpuperf_") if field is None else field
        self.on_command_line = on_command_line
        self.without_value = without_value

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def key_help(self) -> str:
        """What `pytest --help` says of the ini key: a line, as it lists the keys of all."""
        if self.on_command_line:
            return f"as {self.flag}, in each run"
        return re.split("[,;(]", self.help)[0].rstrip()


OPTIONS: Final = (
    Option(
        name="gpuperf",
        help="measure the tests that take the gpuperf fixture, and fail those that got "
        "worse or exceed a budget",
    ),
    Option(
        name="gpuperf_watch",
        help="watch a suite on the simulated GPU: syncs, leaks and peaks; "
        "limits per test: max-syncs:N,leak:N",
        metavar="LIMITS",
        without_value="",
    ),
    Option(
        name="gpuperf_device",
        help="cuda, simulated (simulated GPU) or cpu (default: cuda, or simulated without a "
        "GPU)",
        metavar="KIND",
        kind="device",
    ),
    Option(
        name="gpuperf_update",
        help="store baselines: missing; improved; all, which also removes those of deleted "
        "tests; drift, which is all and also numbers that got worse; evidence, which adds "
        "runs of another day",
        metavar="WHICH",
        kind="refresh",
    ),
    Option(
        name="gpuperf_explain",
        help="print the rule behind each result, with its numbers",
    ),
    Option(name="gpuperf_strict", help="fail tests with an inconclusive result"),
    Option(
        name="gpuperf_seconds",
        help="time limit of one test in seconds (default: 60)",
        metavar="SECONDS",
        kind="seconds",
    ),
    Option(
        name="gpuperf_seed",
        help="seed of the random numbers of all runs (default: 0)",
        metavar="N",
        kind="seed",
    ),
    Option(
        name="gpuperf_tolerance",
        help="changes to ignore, by budget keyword: ms=5% and 0.1 ms, mem_mb=1%",
        metavar="CHANGES",
        kind="tolerance",
    ),
    Option(
        name="gpuperf_baselines",
        help="folder of the baselines, from the rootdir (default: baselines)",
        metavar="FOLDER",
        kind="folder",
        on_command_line=False,
    ),
    Option(
        name="gpuperf_missing_baseline",
        help="a test with neither baseline nor budget: warn or fail; "
        "every-metric also fails metrics that have neither (default: warn, and fail if "
        "CI is set)",
        metavar="WHAT",
        kind="missing baseline",
        on_command_line=False,
    ),
    Option(
        name="gpuperf_warn",
        help="failures are warnings: true, or until 2027-01-15 (UTC, included)",
        metavar="UNTIL_DAY",
        kind="warn",
        on_command_line=False,
    ),
    Option(
        name="gpuperf_isolation",
        help="what shares a fresh process: test or module (default: test)",
        metavar="WHAT",
        kind="isolation",
        on_command_line=False,
    ),
    Option(
        name="gpuperf_simulated_gb",
        help="memory of the simulated GPU in GiB (default: 80)",
        metavar="SIZE",
        kind="gib",
        field="simulated_gib",
        on_command_line=False,
    ),
    Option(
        name="gpuperf_benchmark",
        help="pass what was measured to pytest-benchmark, which shows, saves and "
        "compares it, and name the GPU in its machine info",
        on_command_line=False,
    ),
)


RETIRED_OPTIONS: Final = tuple(name for name in RETIRED if name.startswith("--"))
RETIRED_KEYS: Final = tuple(name for name in RETIRED if name.startswith("gpuperf_"))


def refuse_retired_settings(config: pytest.Config) -> None:
    """Raise ``UsageError`` for an option or an ini key that is no more."""
    for flag in RETIRED_OPTIONS:
        if config.getoption(flag) is not None:
            refuse_retired(flag)
    for key in RETIRED_KEYS:
        if ini_value(config, key) is not None:
            refuse_retired(key)


def register(parser: pytest.Parser) -> None:
    """Declare every option and every ini key."""
    group = parser.getgroup("gpuperf", "GPU performance")
    for option in OPTIONS:
        kind: Literal["bool"] | None = "bool" if option.metavar is None else None
        parser.addini(option.name, option.key_help, type=kind, default=None)
        if option.on_command_line:
            _add_option(group, option)
    for flag in RETIRED_OPTIONS:
        group.addoption(flag, nargs="?", const="", default=None, help=argparse.SUPPRESS)


def register_retired_keys(parser: pytest.Parser) -> None:
    """Declare the ini keys that are no more, so that they can be answered."""
    for key in RETIRED_KEYS:
        parser.addini(key, "was removed", default=None)


def _add_option(group: pytest.OptionGroup, option: Option) -> None:
    how: dict[str, str | None] = {"metavar": option.metavar}
    if option.metavar is None:
        how = {"action": "store_true"}
    elif option.without_value is not None:
        how |= {"nargs": "?", "const": option.without_value}
    shown = option.help.replace("%", "%%")  # argparse formats it
    group.addoption(option.flag, dest=option.name, default=None, help=shown, **how)


COMMANDS_REPEAT: Final = (
    "gpuperf_simulated_gb",
    "gpuperf_seed",
    "gpuperf_isolation",
    "gpuperf_tolerance",
    "gpuperf_baselines",
)
"""Settings without which a refresh would store something else, or elsewhere."""


def repeated_in_commands(config: pytest.Config) -> tuple[str, ...]:
    """Return what this command line sets, by ``-o`` too, that commands must repeat."""
    overridden = getattr(config.option, "override_ini", None) or ()
    values = {
        option.flag: getattr(config.option, option.name, None)
        for option in OPTIONS
        if option.name in COMMANDS_REPEAT
    }
    return (
        *(
            f"--override-ini={o}"
            for o in overridden
            if o.partition("=")[0] in COMMANDS_REPEAT
        ),
        *(f"{flag}={value}" for flag, value in values.items() if value is not None),
    )


def is_asked(config: pytest.Config, name: str) -> bool:
    """Whether the flag *name* or its ini key is set."""
    asked = config.getoption(name, default=None)
    return bool(ini_value(config, name) if asked is None else asked)


def is_enabled(config: pytest.Config) -> bool:
    """Whether this run measures: ``--gpuperf`` or its ini key, and not ``--co``."""
    return is_asked(config, "gpuperf") and not config.getoption(
        "collectonly", default=False
    )


def updates_nothing(config: pytest.Config) -> bool:
    """Whether this command line gives ``--gpuperf-update`` in vain."""
    watches = early_value(config, "gpuperf_watch") is not None
    idle = not watches and not is_asked(config, "gpuperf")
    return idle and bool(getattr(config.option, "gpuperf_update", None))


def is_idle_device(config: pytest.Config) -> bool:
    """Whether a device was typed, and not in ``addopts``, for a run that measures nothing."""
    if is_asked(config, "gpuperf") or is_watched(config):
        return False
    return is_device_typed(config)


def is_device_typed(config: pytest.Config) -> bool:
    """Whether a device is asked for by who runs pytest, and not by the project alone."""
    typed = map(str, config.invocation_params.args)
    return any(text.partition("=")[0] == "--gpuperf-device" for text in typed)


def early_value(config: pytest.Config, name: str) -> object:
    """Value of an option or its ini key before conftest files are loaded."""
    # `config.option` is filled only after conftest files have added their options.
    given = getattr(config.known_args_namespace, name, None)
    return ini_value(config, name) if given is None else given


def is_watched(config: pytest.Config) -> bool:
    """Whether ordinary tests are watched, asked before conftest files are loaded."""
    asked = early_value(config, "gpuperf_watch")
    collects = getattr(config.known_args_namespace, "collectonly", False)
    return asked not in {None, "false"} and not collects


def runs_tests_here(config: pytest.Config) -> bool:
    """Whether this process runs the tests, and does not only control those that do."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return True
    given = config.known_args_namespace
    return not getattr(given, "numprocesses", None) and not getattr(given, "tx", None)


def will_follow(config: pytest.Config) -> bool:
    """Whether another rank of torchrun reports what this process measures."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or not early_value(config, "gpuperf"):
        return False
    collects = getattr(config.known_args_namespace, "collectonly", False)
    return os.environ.get("RANK", "0") != "0" and not collects


def environment() -> Mapping[str, str]:
    """Return this process's environment variables, for ``settings_from``."""
    return os.environ
