"""Steps of known work, and what is true of each: the plugin must measure the same.

``h`` is work of the host and ``g`` a kernel, in milliseconds. The GPU does what is
launched in order, next to the host, so each number here is found with paper and pencil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, Dataset
from virtual_gpu import LAUNCH_MS, gpu_works as g, host_works as h

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.measure.dataloader import loop_over
from pytest_gpuperf.measure.step import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A step and its true numbers; times in milliseconds.

    ``step_ms`` is what each further step adds to a long loop, ``latency_ms`` an
    isolated step.
    ``blocked_ms`` is how long the host waits for the GPU in each step, ``loader_ms`` how
    long for its loader.
    """

    name: str
    make: Callable[[], Subject]
    step_ms: float
    latency_ms: float
    busy_ms: float
    launches: int = 1
    blocked_ms: float | None = None
    loader_ms: float | None = None

    @property
    def truth(self) -> Mapping[str, float]:
        """Each number by the name of its metric; shares in percent of a step."""
        return {
            "step_ms": self.step_ms,
            "latency_ms": self.latency_ms,
            "busy_pct": 100 * self.busy_ms / self.step_ms,
            "launches": self.launches,
            **({} if self.blocked_ms is None else {"blocked_ms": self.blocked_ms}),
            **self._of_loader,
        }

    @property
    def _of_loader(self) -> Mapping[str, float]:
        if self.loader_ms is None:
            return {}
        return {"loader_wait_pct": 100 * self.loader_ms / self.step_ms}


LAWS: Final[list[Law]] = []


def law(
    **numbers: Any,
) -> Callable[[Callable[[], Step | Subject]], Callable[[], Step | Subject]]:
    """Register a function that makes a step, and what is true of the step."""

    def register(made: Callable[[], Step | Subject]) -> Callable[[], Step | Subject]:
        def make() -> Subject:
            step = made()
            return step if isinstance(step, Subject) else Subject(step=step)

        LAWS.append(Law(name=made.__name__.replace("_", " "), make=make, **numbers))
        return made

    return register


# The host and the GPU, and which of the two is in front.


@law(step_ms=20, latency_ms=28, busy_ms=20)
def gpu_bound() -> Step:
    def step() -> None:
        h(8)
        g(20)

    return step


@law(step_ms=300, latency_ms=400, busy_ms=300)
def gpu_bound_for_long() -> Step:
    """A round of one such step would read as long as the isolated one."""

    def step() -> None:
        h(100)
        g(300)

    return step


@law(step_ms=20, latency_ms=20, busy_ms=8)
def host_bound() -> Step:
    def step() -> None:
        g(8)
        h(20)

    return step


@law(step_ms=20, latency_ms=21, busy_ms=20, launches=10)
def overlapped() -> Step:
    def step() -> None:
        for _ in range(10):
            h(1)
            g(2)

    return step


@law(step_ms=20, latency_ms=28, busy_ms=20)
def slow_first_call() -> Step:
    calls = iter([500])

    def step() -> None:
        h(next(calls, 8))
        g(20)

    return step


@law(
    step_ms=200 * (0.046 + LAUNCH_MS),
    latency_ms=200 * (0.046 + LAUNCH_MS),
    busy_ms=200 * 0.010,
    launches=200,
)
def launch_bound() -> Step:
    def step() -> None:
        for _ in range(200):
            h(0.046)
            g(0.010)

    return step


@law(step_ms=2, latency_ms=2, busy_ms=2)
def launch_bound_as_a_graph() -> Step:
    return captured(launch_bound()).replay


@law(step_ms=28, latency_ms=28, busy_ms=20, blocked_ms=20)
def arguments_that_the_gpu_makes() -> Subject:
    """Its work for the arguments is done before the steps are timed or profiled."""
    return Subject(step=item_at_the_end(), setup=lambda: g(30))


# Waits for the GPU.


def scalar() -> torch.Tensor:
    return torch.zeros((), device="cuda")


@law(step_ms=28, latency_ms=28, busy_ms=20, blocked_ms=20)
def item_at_the_end() -> Step:
    loss = scalar()

    def step() -> None:
        h(8)
        g(20)
        loss.item()

    return step


@law(step_ms=28, latency_ms=28, busy_ms=20)
def item_at_the_start() -> Step:
    loss = scalar()

    def step() -> None:
        loss.item()
        h(8)
        g(20)

    return step


@law(step_ms=24, latency_ms=28, busy_ms=20, launches=2)
def item_in_the_middle() -> Step:
    """The second half of the host's work runs next to the GPU, the first does not."""
    loss = scalar()

    def step() -> None:
        h(4)
        g(10)
        loss.item()
        h(4)
        g(10)

    return step


@law(step_ms=20, latency_ms=24, busy_ms=20, launches=2)
def two_halves() -> Step:
    def step() -> None:
        h(4)
        g(10)
        h(4)
        g(10)

    return step


@law(step_ms=28, latency_ms=28, busy_ms=20, launches=2, blocked_ms=20)
def two_items() -> Step:
    loss = scalar()

    def step() -> None:
        h(4)
        g(10)
        loss.item()
        h(4)
        g(10)
        loss.item()

    return step


@law(step_ms=14, latency_ms=14, busy_ms=5, launches=2, blocked_ms=1)
def short_item_before_two_gaps() -> Step:
    """The sync of 1 ms is to blame for as much, once."""
    loss = scalar()

    def step() -> None:
        g(4)
        h(3)
        loss.item()
        h(2)
        g(1)
        h(8)

    return step


COPY_BYTES: Final = 2**26
COPY_MS: Final = COPY_BYTES / 8e6
"""Of pageable memory, at 8 bytes a nanosecond."""


@law(step_ms=12 + COPY_MS, latency_ms=12 + COPY_MS, busy_ms=10)
def pageable_copy() -> Step:
    """The copy waits for the GPU, and the GPU for the copy and for what follows it."""
    source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
    target = torch.zeros(COPY_BYTES, dtype=torch.uint8, device="cuda")

    def step() -> None:
        target.copy_(source)
        h(2)
        g(10)

    return step


@law(step_ms=10, latency_ms=12, busy_ms=10)
def copied_before() -> Step:
    def step() -> None:
        h(2)
        g(10)

    return step


# Several streams and devices, and other threads.


@law(step_ms=20, latency_ms=22, busy_ms=20, launches=2)
def side_stream_outlasts_the_main_one() -> Step:
    side = torch.cuda.Stream()

    def step() -> None:
        h(2)
        with torch.cuda.stream(side):
            g(20)
        g(10)

    return step


@law(step_ms=20, latency_ms=22, busy_ms=20, launches=2)
def two_devices() -> Step:
    def step() -> None:
        h(2)
        g(20)
        with torch.cuda.device(1):
            g(10)

    return step


@law(step_ms=20, latency_ms=22, busy_ms=20, launches=2)
def two_devices_of_which_the_other_lasts() -> Step:
    def step() -> None:
        h(2)
        g(10)
        with torch.cuda.device(1):
            g(20)

    return step


class Backward(torch.autograd.Function):
    """Work of 4 ms of the host and 10 ms of the GPU in each direction."""

    waits = False

    @staticmethod
    def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
        h(4)
        g(10)
        return x.view_as(x)

    @classmethod
    def backward(cls, _context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        h(4)
        g(10)
        if cls.waits:
            torch.cuda.current_stream().synchronize()
        return gradient


class WaitingBackward(Backward):
    waits = True


def trained(function: type[Backward]) -> Step:
    x = torch.zeros((), device="cuda", requires_grad=True)
    gradient = scalar()

    def step() -> None:
        x.grad = None
        function.apply(x).backward(gradient)

    return step


@law(step_ms=20, latency_ms=24, busy_ms=20, launches=2)
def backward_in_autograd_s_thread() -> Step:
    return trained(Backward)


@law(step_ms=24, latency_ms=24, busy_ms=20, launches=2, blocked_ms=16)
def wait_in_autograd_s_thread() -> Step:
    return trained(WaitingBackward)


# CUDA graphs.


def captured(step: Step) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def kernels(count: int, ms: float) -> Step:
    def step() -> None:
        for _ in range(count):
            g(ms)

    return step


@law(step_ms=20, latency_ms=22, busy_ms=20)
def replayed_graph() -> Step:
    graph = captured(kernels(20, 1))

    def step() -> None:
        h(2)
        graph.replay()

    return step


@law(step_ms=22, latency_ms=22, busy_ms=20, blocked_ms=20)
def replayed_graph_with_an_item() -> Step:
    graph, loss = captured(kernels(20, 1)), scalar()

    def step() -> None:
        h(2)
        graph.replay()
        loss.item()

    return step


# Loaders.


class Rows(Dataset[int]):
    """Rows that each take 12 ms to read."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, row: int) -> int:
        h(12)
        return row


def on_batch(_batch: object) -> None:
    h(1)
    g(4)


@law(step_ms=4, latency_ms=5, busy_ms=4)
def loaded_before() -> Step:
    return lambda: on_batch(None)


@law(step_ms=13, latency_ms=17, busy_ms=4, loader_ms=12)
def slow_data_loader() -> Subject:
    """Without the loader the other work of the host would run next to the GPU."""
    return loop_over(DataLoader(Rows(), batch_size=None), on_batch)


@law(step_ms=13, latency_ms=17, busy_ms=4, loader_ms=12)
def slow_iterable() -> Subject:
    def batches() -> Iterator[int]:
        rows = Rows()
        return (rows[row] for row in range(len(rows)))

    return loop_over(batches(), on_batch)


class ShortEpochs:
    """Epochs of 30 batches, each of which takes 12 ms, and 500 ms to begin."""

    def __iter__(self) -> Iterator[int]:
        h(500)
        rows = Rows()
        return (rows[row] for row in range(30))
