"""A GPU that is enqueued for: the host's clock, and when the GPU will have done its work."""

from __future__ import annotations

from collections.abc import Sequence

from scripted_device import ScriptedDevice, simulated

from pytest_gpuperf.devices.base import Step, TraceEvent
from pytest_gpuperf.measure.plan import Deadline
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.environment import DeviceKind


class QueueingGpu(ScriptedDevice):
    """Work takes its time on a stream; the host runs ahead until it waits.

    ``side`` is a stream next to the current one.
    """

    def __init__(self) -> None:
        super().__init__({}, run=0)
        self.steps = 0
        self.synchronized = 0
        self._done_ns = {"current": 0, "side": 0}

    @property
    def kind(self) -> DeviceKind:
        return DeviceKind.CUDA

    def prepare(self, step: Step, test: str) -> Step:
        return step

    def host(self, ms: float) -> None:
        """Let the host compute."""
        self._clock_ns += round(ms * 1e6)

    def enqueue(self, ms: float, stream: str = "current") -> None:
        """Give the GPU work."""
        start_ns = max(self._clock_ns, self._done_ns[stream])
        self._done_ns[stream] = start_ns + round(ms * 1e6)

    def item(self) -> None:
        """Wait for the current stream, as ``.item()`` does."""
        self._clock_ns = max(self._clock_ns, self._done_ns["current"])

    def synchronize(self) -> None:
        self.synchronized += 1
        self._clock_ns = max(self._clock_ns, *self._done_ns.values())

    def record_event(self) -> object:
        return max(self._clock_ns, self._done_ns["current"])

    def span_ms(self, start: object, end: object) -> float | None:
        assert isinstance(start, int)
        assert isinstance(end, int)
        return (end - start) / 1e6

    def step(
        self,
        host: float,
        gpu: float,
        *,
        side: float = 0.0,
        item: bool = False,
        after: float = 0.0,
    ) -> Subject:
        """Return a step: host work, kernels, perhaps a wait, and host work again."""

        def run() -> None:
            self.steps += 1
            self.host(host)
            self.enqueue(gpu)
            self.enqueue(side, "side")
            if item:
                self.item()
            self.host(after)

        return Subject(step=run)

    def profile(
        self, step: Step, batches: Sequence[Sequence[object]]
    ) -> Sequence[TraceEvent]:
        return simulated([["launch", 100.0]], step, batches)

    def deadline(self, seconds: float = 60.0) -> Deadline:
        return Deadline.after(seconds, self.now_ns)
