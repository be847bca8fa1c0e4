from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

from pytest_gpuperf.errors import ErrorId, PreflightError, StepError


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices import profiler
from pytest_gpuperf.devices.profiler import record_trace


def names(trace: list[profiler.TraceEvent], category: str) -> list[str]:
    return [event["name"] for event in trace if event.get("cat") == category]


def test_each_batch_is_a_step_in_a_range_of_its_own() -> None:
    seen: list[object] = []

    trace = record_trace(seen.append, [(1,), (2,), (3,)], cuda=False)

    assert seen == [1, 2, 3]
    assert names(trace, "user_annotation").count("gpuperf.step") == 3


def test_the_operation_of_the_warm_up_is_not_in_the_trace() -> None:
    x = torch.ones(3)

    trace = record_trace(x.neg, [()], cuda=False)

    assert names(trace, "cpu_op") == ["aten::neg"]


def test_a_name_that_breaks_the_trace_is_an_error_of_the_step() -> None:
    def step() -> None:
        with torch.profiler.record_function('the "hot" part'):
            pass

    with pytest.raises(StepError) as refused:
        record_trace(step, [()], cuda=False)

    before, _, after = refused.value.text.partition(" (Expecting ',' delimiter: line ")
    assert before == "torch.profiler wrote a trace that is not JSON"
    assert after.partition("): ")[2] == (
        "it does not escape names, so take quotation marks out of the step's "
        "record_function names"
    )


def test_an_error_of_the_step_ends_the_profiler_and_passes() -> None:
    def step() -> None:
        msg = "the data ran out"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="the data ran out"):
        record_trace(step, [()], cuda=False)

    assert not torch.autograd.profiler._is_profiler_enabled


def test_the_profile_hook_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(*_: object) -> None:
        pass

    before = sys.getprofile()
    monkeypatch.setattr(profiler, "_warm_up", lambda **_: sys.setprofile(None))
    sys.setprofile(hook)
    try:
        record_trace(lambda: None, [()], cuda=False)
        after = sys.getprofile()
    finally:
        sys.setprofile(before)

    assert after is hook


PRINTS_NOTHING = """
import torch
from pytest_gpuperf.devices.profiler import record_trace
record_trace(lambda: torch.ones(1), [()], cuda=False)
"""


def test_kineto_writes_nothing_to_stderr_and_its_variable_is_gone() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "KINETO_LOG_LEVEL"}
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{PRINTS_NOTHING}\nimport os\nprint(os.environ.get('KINETO_LOG_LEVEL'))",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ended.stdout, ended.stderr) == ("None\n", "")


def test_a_level_that_the_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "7")
    seen: list[str] = []

    record_trace(lambda: seen.append(os.environ["KINETO_LOG_LEVEL"]), [()], cuda=False)

    assert [*seen, os.environ["KINETO_LOG_LEVEL"]] == ["7", "7"]


class FakeSession:
    """The part of ``torch.profiler.profile`` that is used, with a trace of its own."""

    def __init__(self, events: list[dict[str, str]]) -> None:
        self.events = events
        self.log: list[str] = []

    def __enter__(self) -> FakeSession:  # noqa: PYI034, Self is not in Python 3.10
        self.log.append("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("exit")

    def step(self) -> None:
        self.log.append("active")

    def export_chrome_trace(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump({"traceEvents": self.events}, file)


@pytest.fixture
def fake_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[list[dict[str, str]]], FakeSession]:
    def install(events: list[dict[str, str]]) -> FakeSession:
        session = FakeSession(events)
        log = session.log
        monkeypatch.setattr(profiler, "_session", lambda **_: session)
        monkeypatch.setattr(profiler, "_warm_up", lambda **_: log.append("warm up"))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("wait"))
        return session

    return install


def test_on_cuda_the_device_is_waited_for_before_the_steps_and_after_them_and_not_between(
    fake_cuda: Callable[[list[dict[str, str]]], FakeSession],
) -> None:
    session = fake_cuda([{"cat": "cuda_runtime", "name": "cudaDeviceSynchronize"}])

    record_trace(lambda: session.log.append("step"), [(), ()], cuda=True)

    steps = ["wait", "step", "step", "wait"]
    assert session.log == ["enter", "warm up", "active", *steps, "exit"]


def test_a_trace_without_any_cuda_call_is_refused(
    fake_cuda: Callable[[list[dict[str, str]]], FakeSession],
) -> None:
    fake_cuda([{"cat": "cpu_op", "name": "aten::mm"}])

    with pytest.raises(PreflightError) as refused:
        record_trace(lambda: None, [()], cuda=True)

    assert refused.value.error_id is ErrorId.GP410


@pytest.mark.parametrize(
    ("python", "torch_version", "safe"),
    [
        ((3, 12), "2.6.0", True),
        ((3, 13), "2.7.1+cu126", False),
        ((3, 13), "2.8.0", True),
        ((3, 14), "2.13.0+cpu", True),
    ],
)
def test_stacks_are_recorded_where_that_does_not_crash(
    monkeypatch: pytest.MonkeyPatch,
    python: tuple[int, int],
    torch_version: str,
    *,
    safe: bool,
) -> None:
    version = torch.torch_version.TorchVersion(torch_version)
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(profiler.sys, "version_info", python)

    assert profiler._stacks_are_safe() is safe


def test_stacks_are_recorded_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[set[str], bool]] = []

    def profile(*, activities: list[object], with_stack: bool, **_: object) -> None:
        asked.append(({str(a).rpartition(".")[2] for a in activities}, with_stack))

    monkeypatch.setattr(torch.profiler, "profile", profile)
    profiler._session(cuda=False, stacks=False)
    profiler._session(cuda=True, stacks=False)
    profiler._session(cuda=True, stacks=True)

    assert asked == [
        ({"CPU"}, False),
        ({"CPU", "CUDA"}, False),
        ({"CPU", "CUDA"}, True),
    ]


class Warns(torch.profiler.profile):
    """A profiler that warns whenever it is used, as that of torch 2.10 to 2.12 does once."""

    def __init__(self, **settings: object) -> None:
        self.warn()
        super().__init__(**settings)

    def warn(self) -> None:
        warnings.warn("Profiler clears events at the end", stacklevel=2)

    def start(self) -> None:
        self.warn()
        super().start()

    def stop(self) -> None:
        self.warn()
        super().stop()

    def step(self) -> None:
        self.warn()
        super().step()

    def export_chrome_trace(self, path: str) -> None:
        self.warn()
        super().export_chrome_trace(path)


def test_what_the_profiler_warns_of_is_no_error_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.profiler.profile", Warns)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        trace = record_trace(torch.ones(3).neg, [()], cuda=False)
        assert warnings.filters == filters

    assert names(trace, "cpu_op") == ["aten::neg"]


def test_what_the_step_warns_of_meets_the_filters_of_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.profiler.profile", Warns)

    with pytest.warns(DeprecationWarning, match="theirs") as seen:
        record_trace(
            lambda: warnings.warn("theirs", DeprecationWarning, stacklevel=1),
            [()],
            cuda=False,
        )

    assert len(seen) == 1
