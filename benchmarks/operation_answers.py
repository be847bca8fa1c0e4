"""What a device does in an operation's samples: waits by place, copies, bytes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from typing import Final

import torch
from operation_cases import Operation
from operation_cases import on_device
from operation_cases import samples_of
from operation_step import OperationCall
from operation_step import run
from operation_table import Answer

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.measure.copies import transfers_of
from pytest_gpuperf.measure.syncs import device_waits
from pytest_gpuperf.measure.trace import parse
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import D2H_BYTES
from pytest_gpuperf.model.metrics import H2D_BYTES
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES


TO_DEVICE: Final = "bytes to the device"
TO_HOST: Final = "bytes to the CPU"
PAGEABLE: Final = "pageable copies"
BYTES: Final = {H2D_BYTES.name: TO_DEVICE, D2H_BYTES.name: TO_HOST}


def _where(location: Location | None) -> str:
    return f"waits in {location.function if location else 'an unknown place'}"


class Failure:
    """Runs calls, and keeps what the last of them raised."""

    def __init__(self) -> None:
        self.last = ""

    def run(self, call: OperationCall) -> None:
        try:
            run(call)
        except Exception as error:  # noqa: BLE001, of whatever kind
            first, *_ = str(error).strip().splitlines() or [""]
            self.last = f"{type(error).__name__}: {first[:110]}"
        else:
            self.last = ""


def on_pretend(operation: Operation) -> Iterator[Answer]:
    """Ask the simulated GPU."""
    failure = Failure()
    samples = samples_of(operation)
    with pretend_gpu() as gpu:
        for sample in samples:
            call = on_device(operation, sample)
            gpu.begin_step()
            failure.run(call)
            yield _audited(gpu.end_step(), failure.last)


def _audited(audit: StepAudit, silent: str) -> Answer:
    unjudged = [f"{missing.op}: {missing.reason}" for missing in audit.not_judged]
    counts: Counter[str] = Counter()
    maybe: Counter[str] = Counter()
    for finding in audit.findings:
        counter = counts if finding.is_certain else maybe
        counter[_where(finding.location)] += finding.per_step
    for copy in audit.copies:
        counts[BYTES[copy.metrics[0]]] += copy.moved_bytes
        if PAGEABLE_COPIES.name in copy.metrics:
            counts[PAGEABLE] += copy.per_step
    causes = [f"{f.per_step} x {f.op}: {f.reason}" for f in audit.findings]
    return Answer(
        counts=dict(+counts),
        maybe=dict(+maybe),
        silent=silent or (unjudged[0] if unjudged else ""),
        causes=causes,
    )


def on_cuda(operation: Operation) -> Iterator[Answer]:
    """Ask CUDA; what is loaded or allocated once is so before."""
    failure = Failure()
    samples = samples_of(operation)
    for sample in samples:
        failure.run(on_device(operation, sample))
    silent: list[str] = []

    def step(call: OperationCall) -> None:
        failure.run(call)
        silent.append(failure.last)

    # The samples are moved one by one, between the steps, as values of others are
    # forgotten where kernels compute nothing.
    batches: Any = ((on_device(operation, sample),) for sample in samples)
    trace = parse(CudaDevice.open().profile(step, batches))
    counts = [Counter[str]() for _ in silent]
    causes = [Counter[str]() for _ in silent]
    for wait in device_waits(trace):
        counts[wait.step][_where(wait.cause.location)] += 1
        causes[wait.step][f"{wait.cause.op}: {wait.cause.api}"] += 1
    for copy in transfers_of(trace):
        counts[copy.step][BYTES[copy.cause.metrics[0]]] += copy.size_bytes or 0
        counts[copy.step][PAGEABLE] += copy.pinned is False
    for count, cause, why in zip(counts, causes, silent, strict=True):
        told = [f"{times} x {name}" for name, times in cause.items()]
        yield Answer(counts=dict(+count), maybe={}, silent=why, causes=told)


SIDES: Final[Mapping[str, Callable[[Operation], Iterator[Answer]]]] = {
    "pretend": on_pretend,
    "cuda": on_cuda,
}


def answers_of(side: str, operation: Operation) -> list[dict[str, Any]]:
    """Ask one side about all samples, in this process, which does nothing else."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return [asdict(answer) for answer in SIDES[side](operation)]
