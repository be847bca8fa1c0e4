"""The command line and the ini keys: declared once, resolved once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any
from typing import Final
from typing import TypeVar

import pytest

from .errors import UsageError
from .model.environment import DeviceKind
from .model.refresh import Refresh
from .settings import Isolation
from .settings import MissingBaseline
from .settings import Settings


E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option and the ini key of the same name; ``--gpuperf-x`` is ``gpuperf_x``."""

    name: str
    help: str
    parse: Callable[[str], Any] | None = None
    metavar: str = "VALUE"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


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


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        msg = "expected a positive number of seconds"
        raise ValueError(msg)
    return seconds


OPTIONS: Final = (
    Option(
        name="gpuperf",
        help="measure the tests that take the gpuperf fixture and judge them "
        "against their budgets and baselines",
    ),
    Option(
        name="gpuperf_device",
        help="device to measure on: cuda or cpu (default: cuda)",
        parse=_one_of(DeviceKind, unnamed=(DeviceKind.SCRIPTED,)),
        metavar="KIND",
    ),
    Option(
        name="gpuperf_update",
        help="refresh baselines: missing, improved, drifted or all",
        parse=_one_of(Refresh),
        metavar="WHICH",
    ),
    Option(
        name="gpuperf_seconds",
        help="most seconds that measuring one test may cost (default: 60)",
        parse=_seconds,
        metavar="SECONDS",
    ),
    Option(
        name="gpuperf_inline",
        help="measure in this process, for a debugger: exact metrics are judged, "
        "time is only screened",
    ),
    Option(name="gpuperf_strict", help="fail tests whose verdict is inconclusive"),
    Option(
        name="gpuperf_missing_baseline",
        help="what a missing baseline does: warn, fail or every-metric "
        "(default: warn, and fail where CI is set)",
        parse=_one_of(MissingBaseline),
        metavar="WHAT",
    ),
    Option(
        name="gpuperf_isolation",
        help="what shares a fresh process: test or module (default: test)",
        parse=_one_of(Isolation),
        metavar="WHAT",
    ),
    Option(
        name="gpuperf_baselines",
        help="folder of the baselines, from the rootdir (default: baselines)",
        parse=Path,
        metavar="FOLDER",
    ),
)


def register(parser: pytest.Parser) -> None:
    """Declare every option and its ini key."""
    group = parser.getgroup("gpuperf", "GPU performance")
    for option in OPTIONS:
        if option.parse is None:
            group.addoption(
                option.flag,
                dest=option.name,
                action="store_true",
                default=None,
                help=option.help,
            )
            parser.addini(option.name, option.help, type="bool", default=None)
        else:
            group.addoption(
                option.flag,
                dest=option.name,
                default=None,
                metavar=option.metavar,
                help=option.help,
            )
            parser.addini(option.name, option.help, default=None)


def is_enabled(config: pytest.Config) -> bool:
    """Whether this run measures: ``--gpuperf`` or its ini key, and not ``--co``."""
    asked = config.getoption("gpuperf", default=None)
    enabled = config.getini("gpuperf") if asked is None else asked
    return bool(enabled) and not config.getoption("collectonly", default=False)


def settings_from(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """Resolve option, then ini key, then default.

    Raises ``UsageError`` for a value that cannot be parsed and for a refresh in CI.
    """
    value = _resolver(config)
    ci = bool(environ.get("CI"))
    missing = MissingBaseline.FAIL if ci else MissingBaseline.WARN
    update = value("gpuperf_update", None)
    if update and ci and not environ.get("GPUPERF_ALLOW_CI_UPDATE"):
        msg = (
            f"--gpuperf-update={update.value} was asked for, but CI is set and a gate "
            "must not move its own baseline: refresh on a developer's machine, or set "
            "GPUPERF_ALLOW_CI_UPDATE=1 in the job that is meant to refresh"
        )
        raise UsageError(msg)
    settings = Settings(
        device=value("gpuperf_device", None),
        update=update,
        seconds=value("gpuperf_seconds", 60.0),
        inline=value("gpuperf_inline", default=False),
        strict=value("gpuperf_strict", default=False),
        missing_baseline=value("gpuperf_missing_baseline", missing),
        isolation=value("gpuperf_isolation", Isolation.TEST),
        baselines=config.rootpath / value("gpuperf_baselines", Path("baselines")),
        artefacts=config.rootpath / ".gpuperf",
        script=environ.get("GPUPERF_SCRIPT"),
    )
    _refuse_inline_refresh(settings)
    return settings


def _refuse_inline_refresh(settings: Settings) -> None:
    if settings.inline and settings.update:
        msg = (
            "--gpuperf-inline cannot refresh: a baseline is made of runs in fresh "
            "processes; leave out --gpuperf-inline"
        )
        raise UsageError(msg)


def _resolver(config: pytest.Config) -> Callable[..., Any]:
    by_name = {option.name: option for option in OPTIONS}

    def value(name: str, default: object) -> object:
        option = by_name[name]
        given = config.getoption(name, default=None)
        source = option.flag
        if given is None:
            given = config.getini(name)
            source = f"ini key {name}"
        if given is None:
            return default
        return given if option.parse is None else _parsed(option, given, source)

    return value


def _parsed(option: Option, text: str, source: str) -> object:
    assert option.parse is not None  # noqa: S101 - flags never come here
    try:
        return option.parse(text)
    except ValueError as error:
        msg = f"{source}: found {text!r}, {error}"
        raise UsageError(msg) from None


def environment() -> Mapping[str, str]:
    """Return this process's environment variables, for ``settings_from``."""
    return os.environ
