"""Ini keys, and a sentence that names one with a value that pytest cannot read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Final

import pytest

from ..errors import ErrorId
from ..errors import UsageError


if TYPE_CHECKING:
    from ..settings import Settings


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
    """An option and the ini key of the same name; ``--gpuperf-x`` is ``gpuperf_x``.

    One without ``metavar`` is a flag. A plain class: a dataclass or a named tuple would
    be half of what this module costs every pytest run.
    """

    __slots__ = ("help", "metavar", "name")

    def __init__(self, *, name: str, help: str, metavar: str | None = None) -> None:  # noqa: A002, argparse's word
        self.name = name
        self.help = help
        self.metavar = metavar

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


OPTIONS: Final = (
    Option(
        name="gpuperf",
        help="measure the tests that take the gpuperf fixture and judge them "
        "against their budgets and baselines",
    ),
    Option(
        name="gpuperf_device",
        help="device to measure on: cuda, pretend or cpu (default: cuda, or pretend where there is none)",
        metavar="KIND",
    ),
    Option(
        name="gpuperf_update",
        help="refresh baselines: missing, improved, drifted or all; or evidence, which "
        "adds the runs of another occasion to them",
        metavar="WHICH",
    ),
    Option(
        name="gpuperf_accept_drift",
        help="let a refresh store what drifted from its anchor beyond detect, and move "
        "the anchor there",
    ),
    Option(
        name="gpuperf_prune",
        help="remove the baselines of tests that are gone, where all tests are selected",
    ),
    Option(
        name="gpuperf_seconds",
        help="most seconds that measuring one test may cost (default: 60)",
        metavar="SECONDS",
    ),
    Option(
        name="gpuperf_lock",
        help="who holds a device's lock: timed tests alone, or all, so that ordinary "
        "tests of this run wait while another run times (default: timed)",
        metavar="WHO",
    ),
    Option(
        name="gpuperf_lock_seconds",
        help="most seconds to wait for a device that another run measures on "
        "(default: 3600)",
        metavar="SECONDS",
    ),
    Option(
        name="gpuperf_pretend_gb",
        help="memory of the pretend GPU in GiB (default: 80)",
        metavar="SIZE",
    ),
    Option(
        name="gpuperf_inline",
        help="measure in this process, for a debugger: exact metrics are judged, "
        "time is only screened",
    ),
    Option(name="gpuperf_strict", help="fail tests whose verdict is inconclusive"),
    Option(
        name="gpuperf_fail_on_improvement",
        help="fail tests that became better, so that their baselines are refreshed",
    ),
    Option(
        name="gpuperf_explain",
        help="say of each verdict which rule decided, with its numbers",
    ),
    Option(
        name="gpuperf_missing_baseline",
        help="what a missing baseline does: warn, fail or every-metric "
        "(default: warn, and fail where CI is set)",
        metavar="WHAT",
    ),
    Option(
        name="gpuperf_isolation",
        help="what shares a fresh process: test or module (default: test)",
        metavar="WHAT",
    ),
    Option(
        name="gpuperf_tolerance",
        help="changes against the baseline to ignore where no mark names one, by "
        "budget keyword: ms=5% and 0.1 ms, mem_mb=1%",
        metavar="CHANGES",
    ),
    Option(
        name="gpuperf_detect",
        help="slowdown that never passes in silence where no mark names one "
        "(default: the tolerance plus 2 %)",
        metavar="PERCENT",
    ),
    Option(
        name="gpuperf_precision",
        help="smallest slowdown that is to be seen: a refresh stores up to 20 runs for "
        "it, a gate makes up to 20 (default: what 8 and 5 show)",
        metavar="PERCENT",
    ),
    Option(
        name="gpuperf_baselines",
        help="folder of the baselines, from the rootdir (default: baselines)",
        metavar="FOLDER",
    ),
    Option(
        name="gpuperf_history",
        help="folder, from the rootdir, or URL of fsspec that each run leaves a file "
        "with its numbers in, for `gpuperf history`",
        metavar="FOLDER_OR_URL",
    ),
    Option(
        name="gpuperf_ref",
        help="commit that settles by A/B what the baseline does not pass, `baseline` "
        "for the one at which it was recorded, or `none` (default: auto, that one for "
        "times that stored numbers cannot decide)",
        metavar="REF",
    ),
    Option(
        name="gpuperf_benchmark",
        help="hand what was measured to pytest-benchmark, so that it shows, saves and "
        "compares it, and name the GPU in its machine info",
    ),
)


def register(parser: pytest.Parser) -> None:
    """Declare every option and its ini key."""
    group = parser.getgroup("gpuperf", "GPU performance")
    for option in OPTIONS:
        shown = option.help.replace("%", "%%")  # argparse formats it
        if option.metavar is None:
            group.addoption(
                option.flag,
                dest=option.name,
                action="store_true",
                default=None,
                help=shown,
            )
            parser.addini(option.name, option.help, type="bool", default=None)
        else:
            group.addoption(
                option.flag,
                dest=option.name,
                default=None,
                metavar=option.metavar,
                help=shown,
            )
            parser.addini(option.name, option.help, default=None)


SIDES_SHARE: Final = (
    "gpuperf_detect",
    "gpuperf_isolation",
    "gpuperf_seconds",
    "gpuperf_tolerance",
)
"""Options that a comparison of two versions must repeat, as it reads ini keys itself."""


def repeated_on_sides(config: pytest.Config) -> tuple[str, ...]:
    """Return what this command line says that both sides of a comparison must know."""
    given = {
        option.flag: getattr(config.option, option.name, None)
        for option in OPTIONS
        if option.name in SIDES_SHARE
    }
    return tuple(
        f"{flag}={value}" for flag, value in given.items() if value is not None
    )


COMMANDS_REPEAT: Final = (
    "gpuperf_pretend_gb",
    "gpuperf_isolation",
    "gpuperf_tolerance",
    "gpuperf_detect",
    "gpuperf_precision",
    "gpuperf_baselines",
)
"""Options without which a refresh would store something else, or elsewhere."""


def repeated_in_commands(config: pytest.Config) -> tuple[str, ...]:
    """Return what this command line says that the commands it prints must repeat."""
    given = {
        option.flag: getattr(config.option, option.name, None)
        for option in OPTIONS
        if option.name in COMMANDS_REPEAT
    }
    overridden = getattr(config.option, "override_ini", None) or ()
    return (
        *(f"--override-ini={o}" for o in overridden if o.startswith("gpuperf_")),
        *(f"{flag}={value}" for flag, value in given.items() if value is not None),
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


NEED_MEASURING: Final = ("gpuperf_update", "gpuperf_accept_drift", "gpuperf_prune")
"""What a command line asks of a run that measures; in a plain run it would do nothing."""


def idle_option(config: pytest.Config) -> str | None:
    """Return the flag that this command line gives in vain, without ``--gpuperf``."""
    if is_asked(config, "gpuperf"):
        return None
    given = [name for name in NEED_MEASURING if getattr(config.option, name, None)]
    return "--" + given[0].replace("_", "-") if given else None


def early_value(config: pytest.Config, name: str) -> object:
    """Value of an option or its ini key before conftest files are loaded."""
    # `config.option` is filled only after conftest files have added their options.
    given = getattr(config.known_args_namespace, name, None)
    return ini_value(config, name) if given is None else given


def will_measure_inline(config: pytest.Config) -> bool:
    """Whether this process measures, asked before conftest files are loaded."""
    asked = (early_value(config, name) for name in ("gpuperf", "gpuperf_inline"))
    return all(asked) and not getattr(config.known_args_namespace, "collectonly", False)


def will_follow(config: pytest.Config) -> bool:
    """Whether another rank of torchrun reports what this process measures."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or not early_value(config, "gpuperf"):
        return False
    collects = getattr(config.known_args_namespace, "collectonly", False)
    return os.environ.get("RANK", "0") != "0" and not collects


def settings_from(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """Resolve option, then ini key, then default.

    Raises ``UsageError`` for a value that cannot be parsed and for a refresh in CI.
    """
    from dataclasses import replace

    from .parse_settings import resolve

    return replace(resolve(config, environ), repeated=repeated_in_commands(config))


def environment() -> Mapping[str, str]:
    """Return this process's environment variables, for ``settings_from``."""
    return os.environ
