"""``gpuperf_benchmark``: our numbers in a running pytest-benchmark session.

pytest-benchmark shows, saves, draws and compares them as its own. That works under
pytest-xdist too, as the controlling process has all the numbers.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ..errors import ErrorId, UsageError
from ..report.measured_calls import MeasuredCall, measured_calls
from ..report.pytest_benchmark import described, options_of, seconds_of
from ..runner.evaluation import RunResult
from .outputs import MeasuringPlugin
from .session import announce


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
