"""Latency: single steps, each between two synchronisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..devices.protocol import Device
from .deadline import Deadline
from .subject import Subject


STEPS: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds of each isolated step, and of the host alone to enqueue it."""

    latency_ms: tuple[float, ...]
    enqueue_ms: tuple[float, ...]


def time_isolated_steps(
    device: Device, subject: Subject, step_ms: float, deadline: Deadline
) -> Latency:
    """Time up to ``STEPS`` isolated steps, at least one."""
    times: list[tuple[float, float]] = []
    while len(times) < STEPS and (not times or deadline.leaves(step_ms)):
        times.append(_time_one(device, subject))
    return Latency(
        latency_ms=tuple(latency for latency, _ in times),
        enqueue_ms=tuple(enqueue for _, enqueue in times),
    )


def _time_one(device: Device, subject: Subject) -> tuple[float, float]:
    arguments = subject.arguments()
    device.synchronize()
    start_ns = device.now_ns()
    subject.step(*arguments)
    enqueued_ns = device.now_ns()
    device.synchronize()
    end_ns = device.now_ns()
    return (end_ns - start_ns) / 1e6, (enqueued_ns - start_ns) / 1e6
