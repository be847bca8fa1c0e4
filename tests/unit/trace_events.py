"""Trace events by hand, in microseconds on one main thread."""

from __future__ import annotations

from typing import Any


def event(
    category: str,
    name: str,
    start_us: float,
    duration_us: float | None = 1.0,
    *,
    thread: int = 7,
    correlation: int | None = None,
    size_bytes: int | None = None,
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
    }
    if duration_us is not None:
        fields["dur"] = duration_us
    arguments = {"correlation": correlation, "bytes": size_bytes}
    if correlation is not None or size_bytes is not None:
        fields["args"] = {k: v for k, v in arguments.items() if v is not None}
    return fields


def step(start_us: float = 0.0, duration_us: float | None = 1000.0) -> dict[str, Any]:
    return event("user_annotation", "gpuperf.step", start_us, duration_us)


def marker(
    text: str, start_us: float, duration_us: float = 10.0, **where: int
) -> dict[str, Any]:
    name = f"gpuperf.sync|{text}"
    return event("user_annotation", name, start_us, duration_us, **where)


def op(name: str, start_us: float, duration_us: float, **where: int) -> dict[str, Any]:
    return event("cpu_op", name, start_us, duration_us, **where)


def call(
    name: str, start_us: float, duration_us: float | None = 1.0, **where: int
) -> dict[str, Any]:
    return event("cuda_runtime", name, start_us, duration_us, **where)


def copied(
    name: str,
    correlation: int | None,
    size_bytes: int | None = None,
    start_us: float = 5.0,
) -> dict[str, Any]:
    """The copy on the GPU that a call of this correlation started."""
    return event(
        "gpu_memcpy",
        name,
        start_us,
        2.0,
        thread=99,
        correlation=correlation,
        size_bytes=size_bytes,
    )


def function(name: str, start_us: float, duration_us: float) -> dict[str, Any]:
    return event("python_function", name, start_us, duration_us)
