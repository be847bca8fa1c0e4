"""A device whose clock moves only when a step says so."""

from __future__ import annotations

from collections.abc import Callable

from scripted_device import ScriptedDevice

from pytest_gpuperf.devices.base import Device, Step
from pytest_gpuperf.measure.plan import Deadline
from pytest_gpuperf.measure.step import Subject


class Clockwork(ScriptedDevice):
    """Steps take what ``step_ms(n)`` says of the n-th one, from 1."""

    def __init__(self, step_ms: Callable[[int], float]) -> None:
        super().__init__({}, run=0)
        self.steps = 0
        self.synchronized = 0
        self.counters: Callable[[int], int] = lambda _: 0
        self.troubles: Callable[[int], str | None] = lambda _: None
        self.waits: Callable[[int], int] = lambda _: 0
        self._step_ms = step_ms

    def prepare(self, step: Step, test: str) -> Step:
        return step

    def step(self, *_: object) -> None:
        self.steps += 1
        self._clock_ns += round(self._step_ms(self.steps) * 1e6)

    def synchronize(self) -> None:
        self.synchronized += 1

    def all_waiting_ns(self) -> int:
        return self.waiting_ns()

    def waiting_ns(self) -> int:
        return self.waits(self.steps)

    def settling(self) -> tuple[int, ...]:
        return (self.counters(self.steps),)

    def disturbance(self) -> str | None:
        return self.troubles(self.steps)


def deadline(device: Device, seconds: float = 60.0) -> Deadline:
    return Deadline.after(seconds, device.now_ns)


def subject(device: Clockwork) -> Subject:
    return Subject(step=device.step)
