"""Lines of syncs at the boundary of torch: what a GPU would tell is shown here by hand."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode

from pytest_gpuperf.devices.allow_sync import location_in
from pytest_gpuperf.devices.base import TraceEvent
from pytest_gpuperf.devices.cuda import device as sync_markers, device as sync_warnings
from pytest_gpuperf.devices.cuda.device import lines_marked
from pytest_gpuperf.devices.profiler import record_trace
from pytest_gpuperf.measure.syncs import find_syncs
from pytest_gpuperf.model.finding import Location


WARNING = "called a synchronizing CUDA operation (Triggered internally at x.h:87.)"


def of_torch(source: str, **names: object) -> Any:
    """The function of *source*, as if it stood in torch's own files."""
    exec(compile(source, torch.autograd.graph.__file__, "exec"), names)  # noqa: S102
    return next(v for v in names.values() if isinstance(v, FunctionType))


class FakeEvent:
    """An event of CUDA, which torch waits for without a warning."""

    def __init__(self, waits: list[str]) -> None:
        self.waits = waits

    def synchronize(self) -> None:
        self.waits.append("event")


class FakeTorch:
    """What of torch decides where lines come from, with a GPU that waits on demand."""

    def __init__(self) -> None:
        self.mode = 0
        self.modes: list[int | str] = []
        self.warning = ""
        """What it warns of when the mode is switched on."""

        self.waits: list[str] = []
        """What Python code has asked to wait for."""

        self._C = SimpleNamespace(_cuda_synchronize=lambda: self.waits.append("device"))
        self.cuda = SimpleNamespace(
            get_sync_debug_mode=lambda: self.mode,
            set_sync_debug_mode=self._set,
            Event=type("Event", (FakeEvent,), {}),
            synchronize=of_torch(
                "def synchronize(): return core._cuda_synchronize()", core=self._C
            ),
        )

    def _set(self, mode: int | str) -> None:
        self.mode = {"warn": 1}.get(str(mode), mode)  # type: ignore[assignment]
        self.modes.append(mode)
        if self.mode and self.warning:
            warnings.warn(self.warning, stacklevel=1)

    @property
    def wait(self) -> Callable[[], object]:
        """What ``memcpy_and_sync`` does before it waits: a call without a frame."""
        return partial(warnings.warn, WARNING) if self.mode else int


def waits(fake: FakeTorch) -> Callable[[], None]:
    def step() -> None:
        fake.wait()

    return step


def marked(step: Callable[[], object], torch_like: object) -> list[Any]:
    """The lines that a trace of *step* holds, in the order of time."""
    context = lines_marked(torch_like)
    trace = record_trace(step, [()], cuda=False, marked=context)
    names = [event["name"] for event in trace if is_marker(event)]
    return [location_in(name) for name in names]


def here(back: int = 0) -> Location:
    """The line that called, or one *back* lines above it."""
    frame = sys._getframe(1)
    code = frame.f_code
    return Location(
        file=code.co_filename, line=frame.f_lineno - back, function=code.co_name
    )


# Syncs that Python code asks for


def test_a_wait_that_code_asks_for_is_inside_a_range_with_its_line() -> None:
    fake = FakeTorch()
    event = fake.cuda.Event(fake.waits)
    seen: list[Location] = []

    def step() -> None:
        fake.cuda.synchronize()
        seen.append(here(back=1))
        event.synchronize()
        seen.append(here(back=1))

    assert marked(step, fake) == seen
    assert fake.waits == ["device", "event"]


def test_the_range_is_around_the_wait_and_not_before_it() -> None:
    """An event that was never recorded is waited for by no call, which no other may be."""
    fake = FakeTorch()
    event = fake.cuda.Event(fake.waits)

    def step() -> None:
        event.synchronize()
        torch.ones(1)

    trace = record_trace(step, [()], cuda=False, marked=lines_marked(fake))
    (op,) = (e for e in trace if e.get("name") == "aten::ones")
    found = find_syncs([*trace, called_in(op)])

    assert [finding.location for finding in found.findings] == [None]


def test_what_code_asks_for_is_torch_s_own_again_behind_the_context() -> None:
    fake = FakeTorch()
    own = fake._C._cuda_synchronize, fake.cuda.Event.synchronize

    with lines_marked(fake):
        during = fake._C._cuda_synchronize, fake.cuda.Event.synchronize

    assert not set(own) & set(during)
    assert (fake._C._cuda_synchronize, fake.cuda.Event.synchronize) == own


FAKE = FakeTorch()


@pytest.fixture(scope="module")
def wait() -> Callable[[Any], Any]:
    """An operation in which code asks for a sync."""
    source = "def wait(x):\n    ask()\n    return x.clone()"
    return torch.library.custom_op(  # type: ignore[no-any-return]
        "gpuperf_test::wait",
        of_torch(source, ask=partial(FAKE.cuda.synchronize)),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )


def test_waits_are_joined_with_their_lines_in_a_trace_of_torch_s(
    wait: Callable[[Any], Any],
) -> None:
    """Only the calls into CUDA are made up: one in each marker."""
    x = torch.ones(3)

    def step() -> None:
        wait(x)
        FAKE.cuda.synchronize()
        wait(wait(x))

    step()
    trace = record_trace(step, [(), ()], cuda=False, marked=lines_marked(FAKE))
    found = find_syncs([*trace, *map(called, filter(is_marker, trace))])

    top = step.__code__.co_firstlineno
    assert found.per_step == 4
    assert sorted(
        (f.op or "", f.location.line - top, f.location.exact, f.per_step)
        for f in found.findings
        if f.location
    ) == [
        ("", 2, True, 1),
        ("gpuperf_test::wait", 1, True, 1),
        ("gpuperf_test::wait", 3, True, 2),
    ]


def is_marker(event: TraceEvent) -> bool:
    name = str(event.get("name"))
    return name.startswith(("gpuperf.sync|", "gpuperf.synced|", "gpuperf.backward|"))


def called(marker: TraceEvent) -> TraceEvent:
    """A call into CUDA in the middle of a marker."""
    return {
        **marker,
        "cat": "cuda_runtime",
        "name": "cudaStreamSynchronize",
        "ts": marker["ts"] + marker["dur"] / 2,
        "dur": 0.0,
    }


def test_a_marker_is_shown_to_no_dispatch_mode_of_the_step() -> None:
    shown: list[str] = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            shown.append(func.name())
            return func(*args, **(kwargs or {}))

    def step() -> None:
        with Mode():
            FAKE.cuda.synchronize()

    assert len(marked(step, FAKE)) == 1
    assert shown == []


def test_a_line_that_cannot_be_known_is_a_marker_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sync_markers, "blamed", fail)

    assert marked(FAKE.cuda.synchronize, FAKE) == [None]


def test_a_marker_that_fails_ends_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sync_markers, "marker_of", fail)
    ended: list[bool] = []

    def step() -> None:
        FAKE.cuda.synchronize()
        ended.append(True)

    assert marked(step, FAKE) == []
    assert ended == [True]


def test_a_wait_on_a_thread_of_autograd_is_that_of_the_backward_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a thread has no frames of its own; here one of the step stands for it."""
    marker = sync_markers.LineMarker()
    asked: list[Location] = []
    found: list[Location | None] = []
    monkeypatch.setattr(sync_markers, "frames", lambda: iter(()))

    def wait(gradient: object) -> None:
        stacks = {marker._caller: backward_frame()}
        monkeypatch.setattr(sync_markers.sys, "_current_frames", lambda: stacks)
        found.append(marker._lines()[0])

    x = torch.ones(2, requires_grad=True)
    x.register_hook(wait)
    x.sum().backward()
    asked.append(here(back=1))

    assert found == asked


def backward_frame() -> Any:
    """The frame that asked for the backward pass that runs now."""
    frame = sys._getframe(1)
    while frame.f_code.co_name != "_engine_run_backward":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


def test_a_wait_on_a_thread_of_python_is_not_blamed_on_a_backward_call() -> None:
    marker = sync_markers.LineMarker()
    found: list[Location | None] = []

    def ask_elsewhere(gradient: object) -> None:
        with ThreadPoolExecutor() as library:
            found.append(library.submit(marker._lines).result()[0])

    x = torch.ones(2, requires_grad=True)
    x.register_hook(ask_elsewhere)
    x.sum().backward()

    assert found == [None]


def test_the_project_s_line_is_named_and_inside_it_the_library_s(
    tmp_path: Path,
) -> None:
    library = tmp_path / "library.py"
    names: dict[str, Any] = {"tell": FAKE.cuda.synchronize}
    exec(compile("def read(): tell()", str(library), "exec"), names)  # noqa: S102
    root = str(Path(__file__).parent)

    def step() -> None:
        names["read"]()

    context = lines_marked(FAKE, root=root)
    trace = record_trace(step, [()], cuda=False, marked=context)
    (finding,) = find_syncs([*trace, *map(called, filter(is_marker, trace))]).findings

    top = step.__code__.co_firstlineno
    assert finding.location == Location(file=__file__, line=top + 1, function="step")
    assert finding.innermost == Location(file=str(library), line=1, function="read")


# Warnings


def test_a_warning_marks_the_line_at_work() -> None:
    fake = FakeTorch()
    seen: list[Location] = []

    def step() -> None:
        for _ in range(2):
            fake.wait()
            seen.append(here(back=1))

    assert marked(step, fake) == seen
    assert fake.modes == ["warn", 0]


def test_torch_warns_behind_the_operation_and_the_line_finds_its_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A resized output stands for a sync; only the calls into CUDA are made up."""
    resized = "An output with one or more elements was resized"
    monkeypatch.setattr(sync_warnings, "MESSAGE", resized)
    x = torch.ones(3)
    context = lines_marked(FakeTorch())

    def step() -> None:
        torch.add(x, x, out=torch.ones(3))
        torch.add(x, x, out=torch.ones(5))
        torch.add(x, x, out=torch.ones(4))

    trace = record_trace(step, [()], cuda=False, marked=context)
    adds = [event for event in trace if event.get("name") == "aten::add"]
    found = find_syncs([*trace, *map(called_in, adds)])

    top = step.__code__.co_firstlineno
    places = [(f.location and f.location.line - top) for f in found.findings]
    assert sorted(places, key=str) == [2, 3, None]


def called_in(operation: TraceEvent) -> TraceEvent:
    """A call into CUDA in the middle of an operation."""
    return {**called(operation), "tid": operation["tid"]}


def test_a_warning_is_heard_inside_a_context_that_records_warnings() -> None:
    """As pytest's around each test."""
    fake = FakeTorch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = marked(waits(fake), fake)

    assert len(lines) == 1
    assert caught == []


def test_other_warnings_go_their_usual_way() -> None:
    fake = FakeTorch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = marked(lambda: warnings.warn("the data is old", stacklevel=1), fake)

    assert lines == []
    assert [str(w.message) for w in caught] == ["the data is old"]


def test_what_torch_warns_of_its_own_mode_is_no_error() -> None:
    """It warns of it once in a process, after the mode has changed."""
    fake = FakeTorch()
    fake.warning = "Synchronization debug mode is a prototype feature and does not yet"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        lines = marked(waits(fake), fake)

    assert len(lines) == 1
    assert caught == []
    assert fake.mode == 0


def test_a_mode_that_fails_to_be_switched_on_is_off_afterwards() -> None:
    fake = FakeTorch()
    fake.warning = "another prototype"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="another prototype"):
            marked(waits(fake), fake)

    assert fake.mode == 0


def test_a_step_that_raises_leaves_warnings_and_torch_as_they_were() -> None:
    fake = FakeTorch()
    own = fake._C._cuda_synchronize
    before = warnings.showwarning, list(warnings.filters)

    def step() -> None:
        msg = "the data ran out"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="the data ran out"):
        marked(step, fake)

    assert (warnings.showwarning, list(warnings.filters)) == before
    assert (fake.mode, fake._C._cuda_synchronize) == (0, own)


def test_warnings_that_autograd_kept_until_its_end_name_the_backward_pass() -> None:
    """Their waits are over, and lie in nodes of autograd, on whatever thread."""
    fake = FakeTorch()
    replay = of_torch("def _engine_run_backward(fake): fake.wait()")
    x = torch.ones(3, requires_grad=True)

    def step() -> None:
        x.exp().sum().backward()
        replay(fake)

    trace = record_trace(step, [()], cuda=False, marked=lines_marked(fake))
    nodes = [e for e in trace if "evaluate_function: Exp" in str(e.get("name"))]
    ahead = [e for e in trace if e.get("name") == "aten::exp"]
    found = find_syncs([*trace, *map(called_in, [*nodes, *ahead])])

    line = Location(
        file=__file__, line=step.__code__.co_firstlineno + 2, function="step"
    )
    lines = {finding.op: finding.location for finding in found.findings}
    assert [event["name"].split("|")[0] for event in trace if is_marker(event)] == [
        "gpuperf.backward"
    ]
    assert lines.pop("aten::exp") is None
    assert list(lines.values()) == [line]
