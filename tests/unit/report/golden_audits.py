"""What commands say of a script, a suite and a machine: audit, memory, watch, doctor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from builders import GIB, MIB, a_finding, a_location, text_of

from pytest_gpuperf.devices.audit_record import (
    CopyDirection,
    StepAudit,
    StepMark,
    Totals,
    copy_fields,
)
from pytest_gpuperf.devices.memory_picture import Garbage
from pytest_gpuperf.devices.source_lines import Site, where_of
from pytest_gpuperf.model.finding import Finding, FindingKind, Phase
from pytest_gpuperf.model.measurement import Fit, Forecast, Saving
from pytest_gpuperf.report.command import audit_command, memory_command
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.json import audit_document, memory_document
from pytest_gpuperf.report.screen.audit import AuditView, audit_blocks
from pytest_gpuperf.report.screen.memory import MemoryView, memory_blocks


HERE: Final = Path("/home/me/project")
TRAIN: Final = a_location(12, f"{HERE}/train.py", "train")
LOSS: Final = a_location(3, f"{HERE}/loss.py", "loss")
LIBRARY: Final = a_location(
    307, "/env/lib/python/site-packages/models/masks.py", "is_full"
)
SOURCES: Final = {
    TRAIN: "losses.append(loss.item())",
    LOSS: "if loss > best:",
    LIBRARY: "return bool(mask.all())",
}


def line_of(file: str, line: int) -> str:
    """The source of a line, where it is known."""
    known = {(place.file, place.line): text for place, text in SOURCES.items()}
    return known.get((file, line), "")


def json_of(document: Any) -> str:
    return json.dumps(document, indent=2) + "\n"


# A script that waits, and one that does not.

ITEM: Final = Finding(
    kind=FindingKind.SYNC,
    op="aten::_local_scalar_dense",
    reason="the CPU reads one element",
    **where_of(Site(location=TRAIN, innermost=TRAIN, phase=Phase.FORWARD)),
    per_step=20,
    in_steps=20,
)
CONDITION: Final = replace(
    ITEM,
    **where_of(Site(location=LOSS, innermost=LOSS, phase=Phase.FORWARD)),
    per_step=2,
    in_steps=2,
)
INSIDE: Final = Finding(
    kind=FindingKind.COPY,
    op="aten::copy_",
    reason="a non_blocking copy to pageable memory returns when it is done",
    **where_of(
        Site(location=TRAIN, innermost=LIBRARY, phase=Phase.BACKWARD, forward=LOSS)
    ),
    per_step=40,
    in_steps=20,
    torch=a_location(9, "/env/lib/python/site-packages/torch/nn/f.py", "clip"),
)
INCONCLUSIVE: Final = Finding(
    kind=FindingKind.INCONCLUSIVE,
    op="aten::mode",
    reason="slices of more than 2048 elements are sorted with syncs",
    **where_of(Site(location=None, innermost=LIBRARY, phase=Phase.OPTIMIZER)),
    per_step=100,
    in_steps=20,
)
SETUP: Final = replace(
    ITEM, op="aten::_to_copy", per_step=300, in_steps=1, once=True, reason="a copy"
)
NOWHERE: Final = replace(
    ITEM,
    op="aten::nonzero",
    **where_of(Site(location=None, innermost=None, phase=Phase.DATA)),
)
UNCHECKED: Final = Finding(
    kind=FindingKind.INCONCLUSIVE,
    op="aten::histc",
    reason="there is no CPU kernel to run in its place",
    **where_of(Site(location=TRAIN, innermost=LIBRARY, phase=Phase.FORWARD)),
    per_step=6,
)
COMPILED: Final = replace(UNCHECKED, op="torch.compile", reason="judged as eager code")
SCRATCH: Final = replace(
    ITEM,
    kind=FindingKind.GARBAGE,
    op="aten::empty",
    reason="",
    held_bytes=24 * MIB,
    per_step=3,
)
COMMAND: Final = audit_command(
    "--max-syncs-per-step=3", ["train.py", "--", "--lr", "0.1 x"]
)


COUNTS: Final = {
    "pageable_copies": 5,
    "h2d_bytes": 5 * MIB,
    "d2h_bytes": 12,
    "launches": 7,
    "flops": 48,
}


def syncs_of_steps(findings: Iterable[Finding], steps: int) -> tuple[int, ...]:
    """The syncs of each step, where the first ones have what only some do."""
    found = [f for f in findings if f.is_certain and not f.once and f.in_steps]
    return tuple(
        sum(f.per_step // f.in_steps for f in found if step < f.in_steps)
        for step in range(steps)
    )


def an_audit(*findings: Finding, steps: int = 20, **fields: Any) -> StepAudit:
    """The record of a program that did this."""
    certain = sum(f.per_step for f in findings if f.is_certain)
    copies = tuple(
        Finding(
            op="aten::copy_",
            per_step=count,
            **copy_fields(direction, pinned=False),
        )
        for direction, count in ((CopyDirection.H2D, 5), (CopyDirection.D2H, 1))
    )
    known: dict[str, Any] = {
        "copies": copies,
        "not_checked": (),
        "as_eager": (),
        "totals": Totals(
            syncs=certain,
            inconclusive=sum(f.per_step for f in findings) - certain,
            blocking_copies=5,
            counts=COUNTS,
        ),
        "mark": StepMark.OPTIMIZER,
        "syncs": syncs_of_steps(findings, steps),
    }
    return StepAudit(findings=findings, steps=steps, **{**known, **fields})


WAITING: Final = an_audit(
    ITEM,
    CONDITION,
    INSIDE,
    INCONCLUSIVE,
    SETUP,
    not_checked=(UNCHECKED,),
    as_eager=(COMPILED,),
    garbage=Garbage(nbytes=24 * MIB, held=(SCRATCH,), cycle="ValueError, traceback"),
)
NOTES: Final = ("values were given up", "values were given up")


def audited(audit: StepAudit, *notes: str, command: str = "") -> str:
    view = AuditView(here=HERE, line_of=line_of, steps=audit.steps)
    return text_of(terminal(audit_blocks(audit, notes, view, command)))


def audit_clean() -> str:
    """Nothing waits; what a step is, in each way that it is found; nothing ran."""
    turn = an_audit(mark=StepMark.LOOP, loop=TRAIN)
    nothing = an_audit(
        copies=(),
        totals=replace(turn.totals, counts={**COUNTS, "launches": 0}),
        steps=0,
    )
    marked = [an_audit(mark=mark) for mark in StepMark if mark is not StepMark.LOOP]
    clean = audited(an_audit(), command=COMMAND)
    return "\n".join([clean, *map(audited, (*marked, turn, nothing))])


def audit_of_one_step() -> str:
    found = (ITEM, CONDITION, INSIDE, INCONCLUSIVE, NOWHERE)
    one = [replace(f, in_steps=0) for f in found]
    audit = an_audit(*one, steps=0, mark=None, not_checked=(UNCHECKED,))
    return audited(audit, command=COMMAND)


READ: Final = "aten::_local_scalar_dense", "the CPU reads one element"
SENT: Final = "aten::_to_copy", "a blocking copy to the GPU from pageable memory"
WAITING_LINES: Final = {
    "torch.cuda.synchronize()": ("torch.cuda.synchronize", "it was asked for"),
    "print(loss)": READ,
    "if loss > best:": READ,
    "best = max(best, loss)": READ,
    "mean = total / count.item()": READ,
    "pair = torch.tensor([loss, other])": READ,
    "score = f1_score(guess.cpu(), labels.cpu())": READ,
    "hot = F.one_hot(labels)": READ,
    "scaler.step(optimizer)": READ,
    "x = F.dropout(x, rate)": READ,
    "for row in rows:": READ,
    "kept = values.tolist()": ("aten::_to_copy", "a copy to the CPU"),
    "noise = torch.randn(8).cuda()": SENT,
    "scale = torch.tensor([0.5, 2.0]).to(device)": SENT,
    "weights = torch.tensor(numbers).to(device)": SENT,
    "x[0] = 1.0": SENT,
    "y = labels.to(device)": (
        "aten::_to_copy",
        "a copy to the GPU from pinned memory, but not non_blocking",
    ),
    "x = x[order]": ("aten::index", "an index tensor on the CPU is copied"),
    "found = mask.nonzero()": ("aten::nonzero", "the count is read"),
    "x = x[mask]": ("aten::index", "a boolean mask: its count is read"),
    "seen = labels.unique()": ("aten::_unique2", "the count is read"),
    "odd = helper(x)": ("aten::odd", "nobody knows why"),
}


def audit_remedies() -> str:
    """Lines that wait as people write them, each with what to do about it."""
    sources = dict(enumerate(WAITING_LINES, start=1))
    places = [a_location(number, f"{HERE}/train.py") for number in sources]
    found = [
        replace(ITEM, location=at, op=op, reason=reason)
        for at, (op, reason) in zip(places, WAITING_LINES.values(), strict=True)
    ]
    audit = an_audit(*found)
    view = AuditView(here=HERE, line_of=lambda _, n: sources[n], steps=audit.steps)
    return text_of(terminal(audit_blocks(audit, (), view)))


# A script whose memory is predicted.


def held(kind: FindingKind, nbytes: int, line: int, **fields: Any) -> Any:
    return a_finding(
        kind,
        location=a_location(line, f"{HERE}/train.py", "train"),
        op="aten::append",
        per_step=3,
        phase=Phase.FORWARD,
        held_bytes=nbytes,
        **fields,
    )


FORECAST: Final = Forecast(
    allocated_bytes=10 * GIB,
    reserved_bytes=11 * GIB,
    steps=4,
    findings=(
        held(
            FindingKind.PEAK,
            10 * GIB,
            12,
            held_for=(
                ("activations", 8 * GIB - 64 * MIB),
                ("parameters", 2 * GIB),
                ("cuBLAS workspaces", 64 * MIB),
            ),
        ),
        held(FindingKind.MEMORY, 7 * GIB, 9),
        held(FindingKind.MEMORY, 600 * MIB, 12),
        held(FindingKind.MEMORY, 300 * MIB, 10),
        held(FindingKind.MEMORY, 200 * MIB, 11),
        held(FindingKind.GARBAGE, 24 * MIB, 12, reason="in a cycle of function f"),
    ),
    garbage_bytes=24 * MIB,
    uncollected_bytes=12 * GIB,
)


def with_peak(nbytes: int) -> Forecast:
    return Forecast(allocated_bytes=nbytes, reserved_bytes=nbytes, steps=4)


SAVINGS: Final = {
    Saving.EARLY_ZERO_GRAD: with_peak(10 * GIB),
    Saving.FOR_LOOP: with_peak(9 * GIB),
    Saving.FUSED: with_peak(10 * GIB + 1),
    Saving.CHECKPOINT: with_peak(4 * GIB),
    Saving.HALF_BATCH: None,
}


def asked(gib: float | None) -> str:
    options = ["-v"] if gib is None else [f"--gb={gib:g}"]
    return memory_command(options, ["-m", "train", "--", "--batch", "8"])


PLACES: Final = AuditView(here=HERE, line_of=line_of, steps=0)
FORECAST_BLOCKS: Final = memory_blocks(
    FORECAST,
    SAVINGS,
    MemoryView(name="train.py", places=PLACES, command=asked, gib=24, fit=Fit.FITS),
)


def predicted(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    gib: float | None = None,
    fit: Fit | None = None,
    **fields: Any,
) -> str:
    view = MemoryView(
        name="train.py", places=PLACES, command=asked, gib=gib, fit=fit, **fields
    )
    return text_of(terminal(memory_blocks(forecast, savings, view)))


def memory_inconclusive() -> str:
    """A script without a step of its own, of which only a GPU can tell a part."""
    guessed = replace(
        with_peak(3 * MIB),
        steps=1,
        not_checked=("aten::nonzero: the size of the result is a guess",),
        notes=("no optimizer steps: all of it is one step",),
    )
    fits = zip((Fit.UNKNOWN, Fit.TOO_CLOSE), (80.0, 8.0), strict=True)
    small = predicted(with_peak(3 * MIB), {}, untried=True)
    helpless = {Saving.FUSED: with_peak(2 * GIB - 512)}
    small += predicted(with_peak(2 * GIB), helpless)
    return small + "".join(predicted(guessed, {}, gib, fit) for fit, gib in fits)


FAILED: Final = "the script failed (exit status 1): this is what it did before"

AUDITS: Final[Mapping[str, Callable[[], str]]] = {
    "audit-clean.txt": audit_clean,
    "audit-findings.txt": partial(audited, WAITING, *NOTES, command=COMMAND),
    "audit-one-step.txt": audit_of_one_step,
    "audit-failed-script.txt": partial(audited, an_audit(ITEM), FAILED),
    "audit-remedies.txt": audit_remedies,
    "audit.json": lambda: json_of(audit_document(WAITING, NOTES)),
    "memory-fits.txt": partial(predicted, FORECAST, SAVINGS, 24.0, Fit.FITS),
    "memory-does-not-fit.txt": partial(
        predicted, FORECAST, SAVINGS, 8.0, Fit.TOO_LARGE
    ),
    "memory-verbose.txt": partial(predicted, FORECAST, SAVINGS, verbose=True),
    "memory-inconclusive.txt": memory_inconclusive,
    "memory.json": lambda: json_of(
        memory_document(FORECAST, SAVINGS, 8.0, Fit.TOO_LARGE)
    ),
}
