"""Ask the simulated GPU and CUDA about every operation of torch's own database.

    python benchmarks/agreement_operations.py [--out FILE] [--only REGEX] [--part N/M]

The samples of each operation run forward and backward, on each side in a process of its
own. Syncs in each direction, pageable copies and bytes are compared. FILE is the table,
as Markdown. Exit status: 1 where an operation differs that ``known_differences.toml``
does not have, or has one that does not differ, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch
from agreement_table import KNOWN
from forks import Task, each_in_a_fork
from torch.utils import _pytree

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.measure.syncs import device_syncs, transfers_of
from pytest_gpuperf.measure.trace import parse
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import D2H_BYTES, H2D_BYTES, PAGEABLE_COPIES


# Both devices' answers about each operation.


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one sample: how often what happened, or why that is not known.

    ``counts`` has syncs by the function of the step whose line waits, and copies.
    ``inconclusive`` counts, by the same names, what only a real GPU can decide. ``causes`` are
    for who reads: the calls, or the rules.
    """

    counts: Mapping[str, int]
    inconclusive: Mapping[str, int]
    silent: str = ""
    causes: Sequence[str] = ()


class Standing(Enum):
    """How two devices' answers to one operation stand to each other."""

    AGREE = "agree"
    DIFFER = "differ"
    UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An operation, and the answers about its samples; ``silent`` if there are none."""

    name: str
    simulated: Sequence[Answer] = ()
    cuda: Sequence[Answer] = ()
    silent: str = ""

    @property
    def pairs(self) -> list[tuple[Answer, Answer]]:
        """The samples that both sides judged."""
        both = zip(self.simulated, self.cuda, strict=False)
        return [(p, c) for p, c in both if not p.silent and not c.silent]

    @property
    def standing(self) -> Standing:
        if not self.pairs:
            return Standing.UNCHECKED
        differ = any(map(_differ, self.pairs))
        return Standing.DIFFER if differ else Standing.AGREE

    @property
    def why_unchecked(self) -> str:
        reasons = Counter(
            f"{side}: {answer.silent}"
            for side, answers in (("simulated", self.simulated), ("cuda", self.cuda))
            for answer in answers
            if answer.silent
        )
        most = [reason for reason, _ in reasons.most_common(1)]
        return self.silent or "".join(most) or "it has no samples"

    def differences(self) -> Iterator[str]:
        """Each kind of difference, and how many samples show it."""
        found: Counter[str] = Counter()
        for pair in self.pairs:
            found.update(_named(pair))
        for text, samples in found.items():
            yield f"{text} ({samples} of {len(self.pairs)})"

    @property
    def shown(self) -> str:
        """What differs, or why nothing is known, in a line."""
        return "; ".join(self.differences()) if self.pairs else self.why_unchecked


Pair = tuple[Answer, Answer]


def _differ(pair: Pair) -> bool:
    return next(_named(pair), None) is not None


def _named(pair: Pair) -> Iterator[str]:
    simulated, cuda = pair
    for name in {**simulated.counts, **cuda.counts, **simulated.inconclusive}:
        ours, real = simulated.counts.get(name, 0), cuda.counts.get(name, 0)
        more = simulated.inconclusive.get(name, 0)
        if more:
            yield f"{name}: {ours} to {ours + more}, in fact {real}"
        elif ours != real:
            yield f"{name}: {ours}, in fact {real}"


# What the table has, and what it should have.


def changes(
    rows: Sequence[Row], differences: Mapping[str, str], unchecked: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each operation that differs from what is known."""
    for row in rows:
        known = Standing.AGREE
        if row.name in differences:
            known = Standing.DIFFER
        elif row.name in unchecked:
            known = Standing.UNCHECKED
        if row.standing is not known:
            yield f"{row.name}: {row.standing.value}, known as {known.value}: {row.shown}"


def as_markdown(
    rows: Sequence[Row],
    title: str,
    differences: Mapping[str, str],
    unchecked: Mapping[str, str],
) -> str:
    """A page: how many operations stand how, and each that does not agree."""
    counts = Counter(row.standing for row in rows)
    sections = (
        (Standing.DIFFER, "Differing", differences),
        (Standing.UNCHECKED, "Not checked", unchecked),
    )
    numbers = (
        len(rows),
        *(counts[standing] for standing in Standing),
        sum(len(row.pairs) for row in rows),
    )
    lines = [
        f"# Operations: the simulated GPU and {title}",
        "",
        HEAD,
        "",
        "| operations | of them agree | differ | not checked | samples judged |",
        "|---|---|---|---|---|",
        f"| {' | '.join(map(str, numbers))} |",
    ]
    for standing, heading, causes in sections:
        found = [row for row in rows if row.standing is standing]
        found.sort(key=lambda row: row.name)
        if found:
            lines += ["", f"## {heading}", "", "| operation | what | cause |"]
            lines += ["|---|---|---|"]
        lines += [_line(row, causes.get(row.name, "not known")) for row in found]
    return "\n".join(lines) + "\n"


HEAD: Final = """\
Run on real torch over stub CUDA, by `benchmarks/agreement_operations.py`, which
`make agreement` runs: no GPU. Each operation of torch's OpInfo database ran on up to twelve of its samples, spread evenly, forward and backward.
An operation agrees where in each sample that both sides ran the syncs of the line that runs
it, those of the line that differentiates it, its pageable copies and the bytes that tensors
are copied in each direction are the same."""


def _line(row: Row, cause: str) -> str:
    cells = (f"`{row.name}`", row.shown, cause)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


# The step that calls one operation: a line that runs it, a line that differentiates it.


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """An operation with its arguments on the device.

    ``differentiable`` makes of the result what its backward pass begins with, as
    OpInfo's samples say; ``leaves`` are what it is differentiated by.
    """

    operation: Callable[..., Any]
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    differentiable: Callable[[Any], Any]
    leaves: Sequence[Any]


def forward(call: OperationCall) -> Any:
    return call.operation(*call.arguments, **call.named)


def backward(outputs: Sequence[Any], ones: Sequence[Any], leaves: Sequence[Any]) -> Any:
    return torch.autograd.grad(outputs, leaves, ones, allow_unused=True)


def run_call(call: OperationCall) -> None:
    """Run the operation, and its backward pass where it has one."""
    out = forward(call)
    if not call.leaves:
        return
    outputs = [t for t in tensors_of(call.differentiable(out)) if t.requires_grad]
    if outputs:
        backward(outputs, [torch.ones_like(out) for out in outputs], call.leaves)


def tensors_of(tree: Any) -> list[Any]:
    leaves = _pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


# The operations, and their samples on either device.

MOST_SAMPLES: Final = 12
"""Of an operation's, spread evenly: there may be hundreds."""

DTYPES: Final = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float16,
)

ON_HOST: Final = frozenset({"tensor_split"})
"""Operations that want their tensors on the host, but for the first."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of the database, in the first dtype that both devices have."""

    info: Any
    dtype: torch.dtype | None

    @property
    def name(self) -> str:
        variant = self.info.variant_test_name
        return f"{self.info.name}.{variant}" if variant else str(self.info.name)

    @property
    def is_differentiated(self) -> bool:
        types = self.info.supported_backward_dtypes("cpu")
        return bool(self.info.supports_autograd and self.dtype in types)


@cache
def operations() -> Mapping[str, Operation]:
    """Load the database; CUDA is left as it is, so that a fork may begin to use it."""
    with patch("torch.cuda.is_available", return_value=False):
        from torch.testing._internal.common_methods_invocations import op_db
    found = [Operation(info, _dtype_of(info)) for info in op_db]
    return {operation.name: operation for operation in found}


def _dtype_of(info: Any) -> torch.dtype | None:
    on_cuda = {*(info.dtypesIfCUDA or info.dtypes)}
    both = on_cuda & {*info.dtypes}
    return next((dtype for dtype in DTYPES if dtype in (both or on_cuda)), None)


def samples_of(operation: Operation) -> Sequence[Any]:
    """Make samples on the host, where they are the same for each kind of device."""
    torch.manual_seed(0)
    random.seed(0)
    made = operation.info.sample_inputs(
        "cpu", operation.dtype, requires_grad=operation.is_differentiated
    )
    samples = list(made)
    return samples[:: -(-len(samples) // MOST_SAMPLES) or 1]


def on_device(operation: Operation, sample: Any) -> OperationCall:
    """Return the call that *sample* means, with its tensors on the device."""
    more = (tuple(sample.args), dict(sample.kwargs))
    first = _moved(sample.input)
    arguments, named = more if operation.info.name in ON_HOST else _moved(more)
    function = operation.info.op
    if "device" in named:
        # Looked up now: the simulated GPU replaces the functions that make tensors.
        function = getattr(torch, operation.info.name, function)
        named["device"] = "cuda"
    given = tensors_of((first, arguments, named))
    return OperationCall(
        operation=function,
        arguments=(first, *arguments),
        named=named,
        differentiable=sample.output_process_fn_grad or (lambda out: out),
        leaves=[tensor for tensor in given if tensor.requires_grad],
    )


def _moved(tree: Any) -> Any:
    def move(tensor: Any) -> Any:
        return tensor.detach().to("cuda").requires_grad_(tensor.requires_grad)

    return _pytree.tree_map_only(torch.Tensor, move, tree)


# What a device does in the samples of one: syncs by place, copies, bytes.

TO_DEVICE: Final = "bytes to the device"
TO_HOST: Final = "bytes to the CPU"
PAGEABLE: Final = "pageable copies"
BYTES: Final = {H2D_BYTES.name: TO_DEVICE, D2H_BYTES.name: TO_HOST}


def _where(location: Location | None) -> str:
    return f"syncs in {location.function if location else 'an unknown place'}"


class Failure:
    """Runs calls, and keeps what the last of them raised."""

    def __init__(self) -> None:
        self.last = ""

    def run(self, call: OperationCall) -> None:
        try:
            run_call(call)
        except Exception as error:  # noqa: BLE001, of whatever kind
            first, *_ = str(error).strip().splitlines() or [""]
            self.last = f"{type(error).__name__}: {first[:110]}"
        else:
            self.last = ""


def on_simulated(operation: Operation) -> Iterator[Answer]:
    """Ask the simulated GPU."""
    failure = Failure()
    samples = samples_of(operation)
    with simulated_gpu() as gpu:
        for sample in samples:
            call = on_device(operation, sample)
            gpu.begin_step()
            failure.run(call)
            yield _audited(gpu.end_step(), failure.last)


def _audited(audit: StepAudit, silent: str) -> Answer:
    unchecked = [f"{missing.op}: {missing.reason}" for missing in audit.not_checked]
    counts: Counter[str] = Counter()
    inconclusive: Counter[str] = Counter()
    for finding in audit.findings:
        counter = counts if finding.is_certain else inconclusive
        counter[_where(finding.location)] += finding.per_step
    for copy in audit.copies:
        counts[BYTES[copy.metrics[0]]] += copy.moved_bytes
        if PAGEABLE_COPIES.name in copy.metrics:
            counts[PAGEABLE] += copy.per_step
    causes = [f"{f.per_step} x {f.op}: {f.reason}" for f in audit.findings]
    return Answer(
        counts=dict(+counts),
        inconclusive=dict(+inconclusive),
        silent=silent or (unchecked[0] if unchecked else ""),
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
    for sync in device_syncs(trace):
        counts[sync.step][_where(sync.cause.location)] += 1
        causes[sync.step][f"{sync.cause.op}: {sync.cause.api}"] += 1
    for copy in transfers_of(trace):
        counts[copy.step][BYTES[copy.cause.metrics[0]]] += copy.size_bytes or 0
        counts[copy.step][PAGEABLE] += copy.pinned is False
    for count, cause, why in zip(counts, causes, silent, strict=True):
        named = [f"{times} x {name}" for name, times in cause.items()]
        yield Answer(counts=dict(+count), inconclusive={}, silent=why, causes=named)


SIDES: Final[Mapping[str, Callable[[Operation], Iterator[Answer]]]] = {
    "simulated": on_simulated,
    "cuda": on_cuda,
}


# Both, side by side.

MOST_SECONDS: Final = 300
"""Of one operation on one side, which takes less than one on a machine that is idle."""


PRELOADED: Final = (
    "torch._dynamo",
    "torch.profiler",
    "pytest_gpuperf.devices.simulated.gpu",
    "pytest_gpuperf.devices.cuda.device",
)
"""Modules that each side imports, and that do not begin to use CUDA."""


def answers_by_name(name: str, side: str) -> list[dict[str, Any]]:
    """Ask one side about all samples, in this process, which does nothing else."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return [asdict(answer) for answer in SIDES[side](operations()[name])]


def tasks(names: Iterable[str]) -> Iterator[Task]:
    for name in names:
        for side in SIDES:
            yield Task(
                name=f"{name} {side}", function=answers_by_name, arguments=(name, side)
            )


def rows_of(names: Iterable[str], jobs: int) -> Iterator[Row]:
    """Ask both sides about each operation; a row is yielded when both have answered."""
    answered: dict[str, dict[str, Any]] = {}
    for ended in each_in_a_fork(tasks(names), jobs=jobs, most_seconds=MOST_SECONDS):
        name, _, side = ended.name.rpartition(" ")
        both = answered.setdefault(name, {})
        both[side] = ended
        if len(both) == len(SIDES):
            yield _row(name, answered.pop(name))


def _row(name: str, both: dict[str, Any]) -> Row:
    failed = [f"{side}: {e.failure}" for side, e in both.items() if e.failure]
    sides = {
        side: [Answer(**answer) for answer in ended.result or ()]
        for side, ended in both.items()
    }
    return Row(name=name, silent="; ".join(failed), **sides)


def has_gpu() -> bool:
    """Ask in a fork: who has asked cannot fork any more."""
    asked = Task(name="is there a GPU", function=torch.cuda.is_available, arguments=())
    (ended,) = each_in_a_fork([asked], jobs=1, most_seconds=MOST_SECONDS)
    return bool(ended.result)


def compared(only: str = "", part: str = "1/1", jobs: int = 0) -> list[Row]:
    """Ask both sides about the operations with a name that matches *only*, in their order."""
    first, every = map(int, part.split("/"))
    names = [name for name in operations() if re.search(only, name)][first - 1 :: every]
    for module in PRELOADED:
        importlib.import_module(module)
    jobs = jobs or os.cpu_count() or 1
    rows = {row.name: row for row in rows_of(names, jobs)}
    # A trace has the times of two clocks, which drift apart on a busy machine: a sync may
    # seem to lie behind the operation that it is in. That does not happen twice.
    again = [name for name in names if rows[name].standing is Standing.DIFFER]
    rows |= {row.name: row for row in rows_of(again, jobs)}
    return [rows[name] for name in names]


def write(rows: Sequence[Row], out: Path) -> None:
    """Write the table."""
    title = f"torch {torch.__version__}"
    page = as_markdown(rows, title, KNOWN["operations"], KNOWN["unchecked_operations"])
    out.write_text(page, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="operations with a name that matches it"
    )
    parser.add_argument("--part", default="1/1", help="each M-th, from the N-th on")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time")
    parser.add_argument("--out", type=Path, help="file of the table")
    options = parser.parse_args()
    if not has_gpu():
        print("there is no GPU to compare with", file=sys.stderr)
        return 4
    rows = compared(options.only, options.part, options.jobs)
    if options.out:
        write(rows, options.out)
    found = [*changes(rows, KNOWN["operations"], KNOWN["unchecked_operations"])]
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
