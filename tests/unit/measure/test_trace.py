from __future__ import annotations

from typing import Any

import pytest
from trace_events import call, copied, event, function, marker, op, step

from pytest_gpuperf.measure.trace import Copy, Span, Trace, blamed, enclosing, parse


MAIN = ("1", "7")


def span(name: str, start_us: float, end_us: float, tid: str = "7") -> Span:
    return Span(name, ("1", tid), start_us, end_us)


def names(spans: tuple[Span, ...]) -> list[str]:
    return [s.name for s in spans]


def test_every_kind_of_host_event_finds_its_place() -> None:
    trace = parse(
        [
            step(10.0, 50.0),
            marker("train.py|3|step", 11.0),
            op("aten::item", 12.0, 5.0),
            call("cudaStreamSynchronize", 13.0, 2.0, correlation=4),
            function("train.py(1): step", 10.0, 9.0),
            copied("Memcpy DtoH (Device -> Pinned)", 4, size_bytes=8),
        ]
    )

    assert trace == Trace(
        steps=(Span("gpuperf.step", MAIN, 10.0, 60.0),),
        markers=(Span("gpuperf.sync|train.py|3|step", MAIN, 11.0, 21.0),),
        ops=(Span("aten::item", MAIN, 12.0, 17.0),),
        calls=(Span("cudaStreamSynchronize", MAIN, 13.0, 15.0, 4),),
        functions=(Span("train.py(1): step", MAIN, 10.0, 19.0),),
        copies=(Copy("Memcpy DtoH (Device -> Pinned)", 5.0, 4, 8),),
    )


@pytest.mark.parametrize(
    ("category", "field"),
    [
        ("Operator", "ops"),
        ("cpu_op", "ops"),
        ("Runtime", "calls"),
        ("cuda_runtime", "calls"),
        ("cuda_driver", "calls"),
        ("hip_runtime", "calls"),
        ("Python_Function", "functions"),
    ],
)
def test_names_of_categories_are_read_from_2021_to_today(
    category: str, field: str
) -> None:
    trace = parse([event(category, "it", 1.0)])

    assert names(getattr(trace, field)) == ["it"]


def test_a_copy_of_2021_is_known_by_its_correlation() -> None:
    trace = parse([event("Memcpy", "Memcpy HtoD", 1.0, correlation=3)])

    assert trace.copies == (Copy("Memcpy HtoD", 1.0, correlation=3),)


def test_the_gpu_side_copy_of_an_annotation_is_no_step() -> None:
    trace = parse([event("gpu_user_annotation", "gpuperf.step", 1.0)])

    assert trace == Trace()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "ts": 1.0},
        {"ph": "X"},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaFree", "ts": "soon"},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaFree", "ts": float("nan")},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaFree"},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "args": None},
        {
            "ph": "X",
            "cat": "gpu_memcpy",
            "name": "Memcpy",
            "args": {"correlation": "4"},
        },
    ],
)
def test_broken_and_foreign_events_are_left_out(broken: dict[str, Any]) -> None:
    assert parse([broken]) == Trace()


@pytest.mark.parametrize("duration_us", [None, -5.0, float("nan")])
def test_a_call_without_a_sane_duration_took_no_time(duration_us: float | None) -> None:
    trace = parse([call("cudaStreamSynchronize", 10.0, duration_us)])

    assert trace.calls[0].end_us == 10.0


def test_a_step_without_an_end_holds_all_that_follows() -> None:
    trace = parse([step(10.0, None)])

    assert trace.steps[0].end_us == float("inf")


def test_steps_stand_in_order_of_time() -> None:
    trace = parse([step(2000.0), step(0.0)])

    assert [s.start_us for s in trace.steps] == [0.0, 2000.0]


def test_enclosing_spans_stand_innermost_first() -> None:
    spans = [span("outer", 0, 100), span("early", 5, 15), span("inner", 20, 40)]

    (around,) = enclosing([span("call", 25, 30)], spans)

    assert names(around) == ["inner", "outer"]


def test_of_two_equal_starts_the_shorter_span_is_the_inner_one() -> None:
    spans = [span("inner", 10, 20), span("outer", 10, 30)]

    (around,) = enclosing([span("call", 12, 13)], spans)

    assert names(around) == ["inner", "outer"]


def test_other_threads_enclose_nothing() -> None:
    assert enclosing([span("call", 1, 2)], [span("op", 0, 9, tid="8")]) == ((),)


def test_ends_rounded_to_microseconds_do_not_hide_a_span() -> None:
    """In traces of whole microseconds a call may end one after its operation."""
    (around,) = enclosing([span("call", 10, 21)], [span("op", 10, 20)])

    assert names(around) == ["op"]


def test_points_may_come_in_any_order() -> None:
    spans = [span("first", 0, 10), span("second", 20, 30)]
    points = [span("late", 25, 26), span("between", 15, 16), span("soon", 5, 6)]

    assert [names(a) for a in enclosing(points, spans)] == [["second"], [], ["first"]]


def test_spans_that_overlap_in_part_are_known_by_their_ends() -> None:
    spans = [span("ends early", 0, 10), span("ends late", 5, 30)]

    (around,) = enclosing([span("call", 19, 21)], spans)

    assert names(around) == ["ends late"]


FOREIGN = [
    "<built-in method item of Tensor object at 0x7f00>",
    "nn.Module: Linear_0",
    "torch/nn/modules/module.py(1532): _call_impl",
    "/venv/lib/python3.12/site-packages/torch/optim/adam.py(3): step",
    "/usr/lib/python3.12/contextlib.py(78): inner",
    "contextlib.py(78): inner",
    "logging/__init__.py(341): getMessage",
    "<frozen importlib._bootstrap>(241): _call_with_frames_removed",
    "pytest_gpuperf/devices/profiler.py(90): _run",
]


def test_the_innermost_function_of_the_user_is_blamed() -> None:
    location = blamed([*FOREIGN, "src/train.py(12): step", "src/main.py(3): main"])

    assert str(location) == "src/train.py:12 in step (line unknown, this is the def)"


@pytest.mark.parametrize(
    "name",
    [
        "/venv/lib/python3.12/site-packages/transformers/model.py(9): forward",
        "transformers/model.py(9): forward",
        "mytorch/model.py(9): forward",
        "C:\\work\\train (2).py(9): forward",
    ],
)
def test_code_from_elsewhere_is_blamed_as_well(name: str) -> None:
    location = blamed([name])

    assert location is not None
    assert f"{location.file}({location.line}): {location.function}" == name


def test_nobody_is_blamed_where_only_foreign_code_runs() -> None:
    assert blamed(FOREIGN) is None


class Counted(list[Any]):
    """Events that count how often they are read."""

    read = 0

    def __iter__(self) -> Any:
        self.read += 1
        return super().__iter__()


def test_the_same_events_are_read_once_and_equal_ones_for_themselves() -> None:
    events, others = Counted([step(0.0, 10.0)]), Counted([step(0.0, 10.0)])

    first, again, other = parse(events), parse(events), parse(others)

    assert (events.read, others.read) == (1, 1)
    assert first is again
    assert first == other
