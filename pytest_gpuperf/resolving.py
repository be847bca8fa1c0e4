"""From option, ini key and environment to the settings of an enabled run."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any
from typing import Final
from typing import TypeVar

import pytest

from .errors import UsageError
from .limits import parse_project_tolerance
from .limits import parse_tolerance
from .model.budget import Tolerance
from .model.environment import PRETEND_GIB
from .model.environment import DeviceKind
from .model.refresh import Refresh
from .settings import ARTEFACTS
from .settings import Isolation
from .settings import MissingBaseline
from .settings import Settings
from .settings import SharedUse


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


def _tolerance(text: str) -> Tolerance:
    try:
        tolerance = parse_project_tolerance(text)
    except UsageError:
        tolerance = None
    if tolerance is None or tolerance.detect is not None:
        msg = (
            "expected percentages by budget keyword, such as ms=5%, or ms=5% and "
            "0.1 ms, mem_mb=1%"
        )
        raise ValueError(msg)
    return tolerance


def _detect(text: str) -> float | None:
    try:
        return parse_tolerance({"detect": text}).detect
    except UsageError:
        msg = "expected a percentage of at least 0, such as 8%"
        raise ValueError(msg) from None


def _precision(text: str) -> float:
    try:
        precision = parse_tolerance({"detect": text}).detect or 0.0
    except UsageError:
        precision = 0.0
    if not 0 < precision < 1:
        msg = "expected a percentage above 0 and below 100, such as 2%"
        raise ValueError(msg)
    return precision


def _commit(text: str) -> str:
    if not text.strip() or text.startswith("-"):
        msg = "expected a branch, a tag, a commit or `baseline`"
        raise ValueError(msg)
    return text


PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "gpuperf_device": _one_of(DeviceKind, unnamed=(DeviceKind.SCRIPTED,)),
    "gpuperf_update": _one_of(Refresh),
    "gpuperf_seconds": positive_seconds,
    "gpuperf_pretend_gb": positive_gib,
    "gpuperf_lock": _one_of(SharedUse),
    "gpuperf_lock_seconds": positive_seconds,
    "gpuperf_missing_baseline": _one_of(MissingBaseline),
    "gpuperf_isolation": _one_of(Isolation),
    "gpuperf_tolerance": _tolerance,
    "gpuperf_detect": _detect,
    "gpuperf_precision": _precision,
    "gpuperf_baselines": Path,
    "gpuperf_ref": _commit,
}


NO_GATE: Final = ("gpuperf_update", "gpuperf_inline")
"""Options with which nothing is left to settle by other code."""


def resolve(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
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
        fail_on_improvement=value("gpuperf_fail_on_improvement", default=False),
        explain=value("gpuperf_explain", default=False),
        accept_drift=value("gpuperf_accept_drift", default=False),
        missing_baseline=value("gpuperf_missing_baseline", missing),
        isolation=value("gpuperf_isolation", Isolation.TEST),
        baselines=config.rootpath / value("gpuperf_baselines", Path("baselines")),
        artefacts=config.rootpath / ARTEFACTS,
        tolerance=replace(
            value("gpuperf_tolerance", Tolerance()),
            detect=value("gpuperf_detect", None),
        ),
        precision=value("gpuperf_precision", None),
        reference=_reference(config, value),
        script=environ.get("GPUPERF_SCRIPT"),
        lock_seconds=value("gpuperf_lock_seconds", 3600.0),
        shared_use=value("gpuperf_lock", SharedUse.TIMED),
        pretend_gib=value("gpuperf_pretend_gb", PRETEND_GIB),
    )
    _refuse_inline_refresh(settings)
    _refuse_inline_workers(config, settings)
    return settings


def _reference(config: pytest.Config, value: Callable[..., Any]) -> str | None:
    """Name the reference of a gate; a refresh and a debugger have nothing to settle."""
    others = [name for name in NO_GATE if value(name, None)]
    if not others:
        reference: str | None = value("gpuperf_ref", None)
        return reference
    if config.getoption("gpuperf_ref", default=None) is not None:
        flag = "--" + others[0].replace("_", "-")
        msg = (
            "--gpuperf-ref settles what a gate does not pass: leave it out, or leave out "
            f"{flag}"
        )
        raise UsageError(msg)
    return None


def _refuse_inline_refresh(settings: Settings) -> None:
    if settings.inline and settings.update:
        msg = (
            "--gpuperf-inline cannot refresh: a baseline is made of runs in fresh "
            "processes; leave out --gpuperf-inline"
        )
        raise UsageError(msg)


def _refuse_inline_workers(config: pytest.Config, settings: Settings) -> None:
    if settings.inline and config.getoption("dist", "no") != "no":
        msg = (
            "--gpuperf-inline measures in this process, where pytest-xdist runs no test; "
            "leave out --gpuperf-inline, or add -n0"
        )
        raise UsageError(msg)


def _resolver(config: pytest.Config) -> Callable[..., Any]:
    def value(name: str, default: object) -> object:
        given = config.getoption(name, default=None)
        source = "--" + name.replace("_", "-")
        if given is None:
            given = config.getini(name)
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
        raise UsageError(msg) from None
