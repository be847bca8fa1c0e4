"""What is said of a suite that is watched, and of a machine before it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from builders import H200, MIB, SIMULATED, an_environment, text_of
from golden_suite import NOISY

from pytest_gpuperf.devices.audit_record import CopyDirection, copy_fields
from pytest_gpuperf.judge.watch import objections
from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.environment import Circumstance, Examination
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, WatchedTest
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.screen.checkup import checkup_blocks, stored_words
from pytest_gpuperf.report.screen.watch import watch_blocks


# A suite that is watched.


def a_use(line: int, source: str, file: str = "train.py", **counts: int) -> Finding:
    """What a line did: it waited, or it copied from ordinary memory."""
    known: dict[str, Any] = {
        "location": Location(file=file, line=line, function="step"),
        "source": source,
    }
    if "syncs" in counts:
        return Finding(
            kind=FindingKind.SYNC,
            op="aten::_local_scalar_dense",
            reason="the CPU reads one element",
            per_step=counts["syncs"],
            **known,
        )
    return Finding(
        op="aten::_to_copy",
        per_step=counts["pageable"],
        moved_bytes=counts["nbytes"],
        **copy_fields(CopyDirection.H2D, pinned=False),
        **known,
    )


KEPT: Final = replace(
    a_use(30, "history.append(loss)", syncs=3),
    kind=FindingKind.LEFT,
    held_bytes=24 * MIB,
    reason="train.history",
)
GARBAGE: Final = replace(
    KEPT, kind=FindingKind.GARBAGE, reason="in a cycle of function forward"
)
WATCHED: Final = (
    WatchedTest(
        test="tests/test_train.py::test_step",
        lines=(
            a_use(12, "total += loss.item()", syncs=20),
            a_use(8, "x = batch.to('cuda')", pageable=2, nbytes=6 * MIB),
            a_use(5, "assert loss.item() > 0", "tests/test_train.py", syncs=1),
        ),
        left=(KEPT,),
        peak_bytes=90 * MIB,
        workspace_bytes=64 * MIB,
        used=True,
    ),
    WatchedTest(
        test="tests/test_train.py::test_gained",
        lines=(a_use(12, "total += loss.item()", syncs=1),),
        garbage=(GARBAGE,),
        peak_bytes=10 * MIB,
        used=True,
        unchecked_ops=2,
        unchecked="failed: RuntimeError: no kernel",
    ),
    WatchedTest(
        test="tests/test_train.py::test_other", unchecked="skipped: no GPU", used=True
    ),
    WatchedTest(test="tests/test_cpu.py::test_cpu"),
)


def watched(**fields: Any) -> str:
    return text_of(terminal(watch_blocks(WATCHED, (), **fields)))


def watch_gates() -> str:
    found = tuple(objections({"max-syncs": 0, "leak": 0}, WATCHED))
    failed = terminal(watch_blocks(WATCHED, found, most=1))
    unused = terminal(watch_blocks(WATCHED[-1:], ()))
    return text_of((*failed, *unused))


# A machine.


def doctor() -> str:
    found = Examination(
        environment=an_environment(H200, {"max SM clock": "1980 MHz"}),
        unmeasured={"flops": "counted on the simulated GPU only"},
        disturbance="the GPU was throttled by power brake",
    )
    file = "baselines/cuda-nvidia-h200.json"
    stored = stored_words(file, 2, ("test_a", "test_b"), NOISY, ())
    return text_of(terminal(checkup_blocks(found, stored)))


def doctor_without_gpu() -> str:
    absent = Circumstance(
        subject="GPU",
        found="absent, torch was built without CUDA",
        means="no times of a GPU",
        advice="install another build of torch",
    )
    found = Examination(
        environment=an_environment(SIMULATED),
        unmeasured={"step_ms": "the simulated GPU has no clock"},
        circumstances=(absent, Circumstance(subject="load", found="0.1 on 2 cores")),
        refusal="CUDA_LAUNCH_BLOCKING=1 is set",
    )
    options = ("--gpuperf-device=simulated",)
    stored = stored_words("baselines/simulated-cuda.json", 0, (), None, options)
    return text_of(terminal(checkup_blocks(found, stored)))


WATCHES: Final[Mapping[str, Callable[[], str]]] = {
    "watch.txt": partial(watched, stored={"a": Entry(runs=())}),
    "watch-gates.txt": watch_gates,
    "doctor-gpu.txt": doctor,
    "doctor-without-gpu.txt": doctor_without_gpu,
}
