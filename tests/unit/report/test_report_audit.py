"""What an audit found, as a table and as JSON: whole outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_finding
from golden_audits import COUNTS, syncs_of_steps

from pytest_gpuperf.devices.audit_record import (
    CopyDirection,
    StepAudit,
    Totals,
    copy_fields,
)
from pytest_gpuperf.devices.source_lines import Site, where_of
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase
from pytest_gpuperf.report.json.audit import audit_document
from pytest_gpuperf.report.screen.audit import audit_lines
from pytest_gpuperf.report.screen.findings import source_lines


HERE = Path("/home/me/project")


def at(place: str, line: int, function: str) -> Location:
    return Location(file=place, line=line, function=function)


TRAIN = at("/home/me/project/train.py", 12, "train")
MASKS = at("/env/lib/site-packages/models/masks.py", 307, "is_full")
LOSS = at("/home/me/project/loss.py", 3, "loss")

ITEM = Finding(
    kind=FindingKind.SYNC,
    op="aten::_local_scalar_dense",
    reason="the CPU reads one element",
    **where_of(Site(location=TRAIN, innermost=TRAIN, phase=Phase.FORWARD)),
    per_step=2,
)
LEFT = Finding(
    kind=FindingKind.INCONCLUSIVE,
    op="aten::histc",
    reason="there is no CPU kernel to run in its place",
    **where_of(Site(location=TRAIN, innermost=MASKS, phase=Phase.FORWARD)),
    per_step=6,
)
COMPILED = Finding(
    kind=FindingKind.INCONCLUSIVE,
    op="torch.compile",
    reason="judged as eager code",
    **where_of(Site(location=TRAIN, innermost=TRAIN, phase=Phase.FORWARD)),
    per_step=1,
)
COPIES = tuple(
    Finding(
        op="aten::copy_",
        per_step=count,
        **copy_fields(direction, pinned=False),
    )
    for direction, count in (
        (CopyDirection.H2D, 3),
        (CopyDirection.H2D, 1),
        (CopyDirection.D2H, 1),
    )
)


def of_steps(found: StepAudit, steps: int) -> StepAudit:
    return replace(found, steps=steps, syncs=syncs_of_steps(found.findings, steps))


def audit(
    *findings: Finding, ops: int = 7, not_checked: tuple[Finding, ...] = ()
) -> StepAudit:
    certain = [f.per_step for f in findings if f.is_certain]
    return StepAudit(
        findings=findings,
        copies=COPIES if findings else (),
        totals=Totals(
            syncs=sum(certain),
            inconclusive=sum(f.per_step for f in findings) - sum(certain),
            blocking_copies=5,
            counts={**COUNTS, "launches": ops},
        ),
        not_checked=not_checked,
        as_eager=(COMPILED,) if not_checked else (),
    )


BATCHES = at("/env/lib/site-packages/models/trainer.py", 70, "fit")
CLIPPING = at("/env/lib/site-packages/torch/nn/utils/clip_grad.py", 109, "total_norm")


def test_waits_in_libraries_are_separate_below_the_line_that_led_there() -> None:
    read = replace(ITEM, per_step=40, in_steps=20, innermost=BATCHES)
    clip = replace(read, per_step=20, reason="a check", torch=CLIPPING)
    loop = of_steps(audit(clip, read), 20)
    sources = {
        TRAIN: "trainer.fit(model)",
        BATCHES: "logs['loss'] = loss.item()",
        CLIPPING: "if error and total_norm.isnan():",
    }
    lines = {(place.file, place.line): text for place, text in sources.items()}

    shown = audit_lines(loop, (), HERE, line_of=lambda *where: lines[where])

    assert "\n".join(shown[:-1]) == (
        """\
gpuperf: 3 syncs per step on 1 line, 20 steps
each step:
  --> train.py:12 in train
   12 | trainer.fit(model)
      | 3 per step, for 2 causes:
      | 2 per step: the CPU reads one element
  inside   models/trainer.py:70 in fit: logs['loss'] = loss.item()
  fix      none known that keeps the result
      | 1 per step: a check
  inside   models/trainer.py:70 in fit: logs['loss'] = loss.item()
  inside   torch/nn/utils/clip_grad.py:109 in total_norm: if error and
           total_norm.isnan():
  fix      leave error_if_nonfinite out; add up ~norm.isfinite() on the GPU,
           read it every N steps"""
    )


def test_set_up_copies_are_last_and_what_is_rare_comes_after_each_step() -> None:
    setup = replace(ITEM, op="aten::_to_copy", per_step=300, once=True)
    other = replace(ITEM, per_step=1, once=True, location=LOSS)
    rare = replace(ITEM, per_step=20, in_steps=1)
    often = replace(ITEM, per_step=12, in_steps=6, location=LOSS)
    loop = of_steps(audit(setup, rare, other, often), 6)

    lines = audit_lines(loop, (), HERE)

    shown = [line for line in lines if line.startswith("  -->") or line.endswith(":")]
    assert shown == [
        "each step:",
        "  --> loss.py:3 in loss: aten::_local_scalar_dense, 2 per step: the CPU reads",
        "in some steps:",
        "  --> train.py:12 in train: aten::_local_scalar_dense, 20 times, in 1 of 6",
        "once, before the first step was over:",
        "  --> loss.py:3 in loss: aten::_local_scalar_dense, once: the CPU reads one",
        "  --> train.py:12 in train: aten::_to_copy, 300 times: the CPU reads one element",
    ]


def test_a_copy_to_the_gpu_is_not_advised_to_be_printed_less_often() -> None:
    copied = replace(
        ITEM, op="aten::_to_copy", reason="a blocking copy to the GPU from memory"
    )
    source = "print(model(rows.to('cuda')).sum().item())"

    lines = audit_lines(audit(copied), (), HERE, line_of=lambda *_: source)

    assert (
        "  fix      use DataLoader(pin_memory=True) and .to(device, non_blocking=True);"
        in lines
    )


def test_what_is_alike_is_said_once_with_its_count() -> None:
    elsewhere = replace(LEFT, innermost=None, per_step=2)
    other = replace(LEFT, op="aten::eig")

    lines = audit_lines(
        audit(not_checked=(LEFT, elsewhere, LEFT, other)), ("So.", "It.", "So."), HERE
    )

    begin = lines.index("not checked (only a GPU can show):") + 1
    place = "train.py:12 in train"
    assert lines[begin : begin + 4] == (
        f"  --> {place}: aten::histc, 14 times: there is no CPU kernel to run",
        "           in its place",
        "  inside   models/masks.py:307 in is_full",
        "           and on 1 line more",
    )
    assert sum("aten::histc" in line for line in lines) == 1
    assert [line for line in lines if line.startswith("note")] == [
        "note: So. (2 times)",
        "note: It.",
    ]


def test_a_file_from_elsewhere_keeps_its_path() -> None:
    first = audit_lines(audit(ITEM), (), Path("/home/me/proj"))[1]

    assert first.startswith("  --> /home/me/project/train.py:12 in train: ")


@pytest.mark.parametrize(
    ("syncs", "headline"),
    [
        (((19, 19),), "19 syncs in 20 steps on 1 line"),
        (((2, 2),), "0 syncs per step, 20 steps; 2 syncs in some steps"),
        (((20, 20), (38, 19)), "58 syncs in 20 steps on 1 line"),
        (((3, 1),), "0 syncs per step, 20 steps; 3 syncs in some steps"),
    ],
    ids=["all but the first", "every tenth", "beside each", "one of them"],
)
def test_the_headline_counts_per_step_what_the_limit_counts(
    syncs: tuple[tuple[int, int], ...], headline: str
) -> None:
    found = [replace(ITEM, per_step=count, in_steps=steps) for count, steps in syncs]
    loop = of_steps(audit(*found), 20)

    assert audit_lines(loop, (), HERE)[0] == f"gpuperf: {headline}"


def test_the_document_of_what_never_touched_the_gpu_says_that_nothing_was_judged() -> (
    None
):
    document = audit_document(audit(ops=0), ())

    assert document["judged"] is False
    assert document["notes"] == ["nothing ran on the GPU, so nothing was judged"]


@pytest.mark.parametrize("before", ["", "b + " * 40])
@pytest.mark.parametrize("behind", ["", " + b" * 40])
def test_a_line_that_is_too_long_says_where_it_was_cut(
    before: str, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = a_finding(source=f"{before}a.item(){behind}")

    line, mark, *_ = source_lines(found, "the CPU reads", (len(before) + 1, 7))

    source = line.partition(" | ")[2]
    assert len(line) <= 80
    assert source.startswith("...") == bool(before)
    assert source.endswith("...") == bool(behind)
    at = mark.index("^")
    assert line[at : at + 7] == ".item()"
