"""A failure for memory, explained by a recorded step and one that is looked around in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import MIB, a_finding, a_measurement
from scripted_device import ScriptedDevice

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.devices.memory_picture import Picture, StorageRole, held_by_place
from pytest_gpuperf.devices.source_lines import Site
from pytest_gpuperf.measure import memory as recorded
from pytest_gpuperf.measure.memory import EXPLAINED_PEAKS, explained, read_snapshot
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase


LINE = Location(file="/p/train.py", line=7, function="step")
SITE = Site(location=LINE, innermost=LINE, phase=Phase.BACKWARD)
PICTURE = Picture(
    op="aten::mm",
    site=SITE,
    by_role={StorageRole.PARAMETERS: MIB, StorageRole.ACTIVATIONS: 3 * MIB},
    held=held_by_place(
        [(MIB, "aten::tanh", SITE), (2 * MIB, "aten::tanh", SITE)], FindingKind.MEMORY
    ),
)
SNAPSHOT = {
    "segments": [],
    "device_traces": [
        [
            {
                "action": "alloc",
                "addr": 0,
                "size": 3 * MIB,
                "frames": [{"filename": "/p/train.py", "line": 7, "name": "step"}],
            }
        ]
    ],
}


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests before did in this process."""
    monkeypatch.setattr(recorded, "compile_counters", lambda: (0, 0, 0))


class Recording(ScriptedDevice):
    """Its allocator did what ``SNAPSHOT`` says; at the peak *look* is what is seen."""

    def __init__(self, look: Callable[[], Picture | None]) -> None:
        super().__init__({"*": {"snapshot": SNAPSHOT}}, run=0)
        self.prepare(int, "t.py::t")
        self._look = look
        self.batches: list[Sequence[object]] = []

    def picture_memory(
        self, step: Step, batches: Iterator[Sequence[object]]
    ) -> Picture | None:
        self.batches += [next(batches), next(batches)]
        return self._look()


def findings(
    folder: Path,
    look: Callable[[], Picture | None],
    exact: Mapping[str, int] | None = None,
) -> tuple[Finding, ...]:
    device = Recording(look)
    measured = a_measurement(
        None, on=DeviceKind.SCRIPTED, test="t.py::t", exact=exact or {}
    )
    subject = Subject(step=lambda _: None, setup=lambda: (3,))

    found = explained(device, subject, measured, folder, root=Path("/p"))

    assert found.snapshot == str(folder / "memory-t.py-t-d25b3888.pickle")
    assert device.batches == [(3,), (3,)]
    return found.findings


def peak(reason: str, *mib: int) -> Finding:
    """Peak that is held for what *reason* names, in MiB of its own each."""
    purposes = re.findall(r"([a-z ]+) \d\.\d MiB", reason)
    return a_finding(
        FindingKind.PEAK,
        op="aten::mm",
        location=LINE,
        metrics=EXPLAINED_PEAKS,
        reason=reason,
        phase=Phase.BACKWARD,
        held_bytes=sum(mib) * MIB,
        held_for=tuple(
            (name.strip(), size * MIB) for name, size in zip(purposes, mib, strict=True)
        ),
    )


LINES = a_finding(
    FindingKind.MEMORY,
    op=None,
    location=LINE,
    metrics=EXPLAINED_PEAKS,
    held_bytes=3 * MIB,
)


def test_the_peak_is_sorted_by_tensors_and_its_lines_are_the_allocator_s(
    tmp_path: Path,
) -> None:
    found = findings(tmp_path, lambda: PICTURE)

    assert found == (peak("activations 3.0 MiB, parameters 1.0 MiB", 3, 1), LINES)


def test_what_was_measured_beyond_tensors_is_a_category_of_its_own(
    tmp_path: Path,
) -> None:
    found = findings(tmp_path, lambda: PICTURE, {"peak_allocated_bytes": 6 * MIB})

    reason = "activations 3.0 MiB, beyond tensors 2.0 MiB, parameters 1.0 MiB"
    assert found == (peak(reason, 3, 2, 1), LINES)


def test_compiled_code_was_looked_at_as_eager_code_and_compares_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "compile_counters", lambda: (1, 1, 1))

    found = findings(tmp_path, lambda: PICTURE, {"peak_allocated_bytes": 6 * MIB})

    reason = (
        "activations 3.0 MiB, parameters 1.0 MiB; looked at in eager code, without "
        "torch.compile"
    )
    assert found == (peak(reason, 3, 1), LINES)


def run_out() -> Any:
    msg = "CUDA out of memory"
    raise RuntimeError(msg)


@pytest.mark.parametrize("look", [lambda: None, run_out], ids=["other peak", "raises"])
def test_where_nothing_can_be_seen_the_lines_remain(
    tmp_path: Path, look: Callable[[], Picture | None]
) -> None:
    assert findings(tmp_path, look) == (LINES,)


def test_the_recording_that_is_kept_names_files_from_the_project_on(
    tmp_path: Path,
) -> None:
    found = explained(
        Recording(lambda: None),
        Subject(step=lambda: None),
        a_measurement(test="t.py::t"),
        tmp_path,
        root=Path("/p"),
    )

    (trace,) = read_snapshot(Path(found.snapshot))["device_traces"]
    assert trace[0]["frames"] == [{"filename": "train.py", "line": 7, "name": "step"}]
