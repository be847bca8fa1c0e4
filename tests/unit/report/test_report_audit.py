"""What an audit found, as a table and as JSON: whole outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import a_finding

from pytest_gpuperf.devices.audit_record import CopyDirection
from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.audit_record import StepMark
from pytest_gpuperf.devices.audit_record import Totals
from pytest_gpuperf.devices.audit_record import copy_fields
from pytest_gpuperf.devices.source_lines import Site
from pytest_gpuperf.devices.source_lines import where_of
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.finding import Phase
from pytest_gpuperf.report.json.audit import audit_document
from pytest_gpuperf.report.remedies import remedy_of
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
INSIDE = Finding(
    kind=FindingKind.COPY,
    op="aten::copy_",
    reason="a non_blocking copy to pageable memory returns when it is done",
    **where_of(
        Site(location=TRAIN, innermost=MASKS, phase=Phase.BACKWARD, forward=LOSS)
    ),
    per_step=12,
)
PERHAPS = Finding(
    kind=FindingKind.MAYBE,
    op="aten::mode",
    reason="slices of more than 2048 elements are sorted with waits",
    **where_of(Site(location=None, innermost=MASKS, phase=Phase.OPTIMIZER)),
    per_step=100,
)
NOWHERE = Finding(
    kind=FindingKind.SYNC,
    op="aten::nonzero",
    reason="the size of the result depends on values: their count is read",
    **where_of(Site(location=None, innermost=None, phase=Phase.DATA)),
    per_step=1,
)
LEFT = Finding(
    kind=FindingKind.MAYBE,
    op="aten::histc",
    reason="there is no CPU kernel to run in its place",
    **where_of(Site(location=TRAIN, innermost=MASKS, phase=Phase.FORWARD)),
    per_step=6,
)
COMPILED = Finding(
    kind=FindingKind.MAYBE,
    op="torch.compile",
    reason="judged as eager code",
    **where_of(Site(location=TRAIN, innermost=TRAIN, phase=Phase.FORWARD)),
    per_step=1,
)
COPIES = tuple(
    Finding(
        op="aten::copy_",
        per_step=count,
        **copy_fields(direction, pinned=False, blocking=True),
    )
    for direction, count in (
        (CopyDirection.H2D, 3),
        (CopyDirection.H2D, 1),
        (CopyDirection.D2H, 1),
    )
)


def audit(
    *findings: Finding, ops: int = 7, not_judged: tuple[Finding, ...] = ()
) -> StepAudit:
    certain = [f.per_step for f in findings if f.is_certain]
    return StepAudit(
        findings=findings,
        copies=COPIES if findings else (),
        totals=Totals(
            syncs=sum(certain),
            maybe=sum(f.per_step for f in findings) - sum(certain),
            device_syncs=0,
            pageable_copies=5,
            blocking_copies=5,
            h2d_bytes=5 * 2**20,
            d2h_bytes=12,
            ops=ops,
            flops=48,
        ),
        not_judged=not_judged,
        as_eager=(COMPILED,) if not_judged else (),
    )


def test_findings_come_most_frequent_first_and_the_unsure_last() -> None:
    found = audit(ITEM, PERHAPS, INSIDE, NOWHERE, not_judged=(LEFT,))

    lines = {f"{HERE}/train.py": "losses.append(loss.cpu())"}

    assert "\n".join(
        audit_lines(found, (), HERE, line_of=lambda file, _: lines.get(file, ""))
    ) == (
        """\
gpuperf: 15 waits on 2 lines; 100 maybe, 6 not judged
  --> train.py:12 in train
   12 | losses.append(loss.cpu())
      | 14 times, for 2 causes:
      | 12 times in the backward: a non_blocking copy to pageable memory returns
      |   when it is done
  inside   models/masks.py:307 in is_full
  of       loss.py:3 in loss
  fix      none known that keeps the result
      | 2 times: the CPU reads one element
  fix      keep it on the GPU with detach(), copy it to the CPU every N steps
  --> line unknown: aten::nonzero, once in the data: the size of the result
           depends on values: their count is read
  fix      none known that keeps the result
perhaps (only a GPU can show):
  --> models/masks.py:307 in is_full: aten::mode, 100 times in the optimizer:
           slices of more than 2048 elements are sorted with waits
  fix      none known that keeps the result
not judged (only a GPU can show):
  --> train.py:12 in train: aten::histc, 6 times: there is no CPU kernel to run
           in its place
  inside   models/masks.py:307 in is_full
compiled on a GPU, judged as eager code:
  --> train.py:12 in train: torch.compile, once: judged as eager code
copies: 4 (5.000 MiB) to the GPU, 1 (12 B) to the CPU"""
    )


def test_a_loop_of_several_steps_counts_per_step_and_apart_what_it_did_once() -> None:
    begun = replace(ITEM, per_step=8, once=True, reason="a blocking copy")
    loop = replace(audit(replace(ITEM, per_step=9, in_steps=6), begun), steps=6)

    lines = audit_lines(loop, (), HERE, command="gpuperf audit train.py")

    assert lines == (
        "gpuperf: 1.5 waits per step on 1 line, 6 steps; 8 waits once",
        "each step:",
        "  --> train.py:12 in train: aten::_local_scalar_dense, 1.5 per step: the CPU",
        "           reads one element",
        "  fix      keep the value on the GPU, and read it every N steps",
        "once, before the first step was over:",
        "  --> train.py:12 in train: aten::_local_scalar_dense, 8 times: a blocking copy",
        "copies: 4 (5.000 MiB) to the GPU, 1 (12 B) to the CPU",
        "next: gpuperf audit train.py",
        "      exits with 1 when a wait is added to each step",
    )


BATCHES = at("/env/lib/site-packages/models/trainer.py", 70, "fit")
CLIPPING = at("/env/lib/site-packages/torch/nn/utils/clip_grad.py", 109, "total_norm")


def test_waits_in_libraries_are_separate_below_the_line_that_led_there() -> None:
    read = replace(ITEM, per_step=40, in_steps=20, innermost=BATCHES)
    clip = replace(read, per_step=20, reason="a check", torch=CLIPPING)
    loop = replace(audit(clip, read), steps=20)
    sources = {
        TRAIN: "trainer.fit(model)",
        BATCHES: "logs['loss'] = loss.item()",
        CLIPPING: "if error and total_norm.isnan():",
    }
    lines = {(place.file, place.line): text for place, text in sources.items()}

    shown = audit_lines(loop, (), HERE, line_of=lambda *where: lines[where])

    assert "\n".join(shown[:-1]) == (
        """\
gpuperf: 3 waits per step on 1 line, 20 steps
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
           total_norm.isnan():"""
    )


def test_set_up_copies_are_last_and_what_is_rare_comes_after_each_step() -> None:
    setup = replace(ITEM, op="aten::_to_copy", per_step=300, once=True)
    other = replace(ITEM, per_step=1, once=True, location=LOSS)
    rare = replace(ITEM, per_step=20, in_steps=1)
    often = replace(ITEM, per_step=12, in_steps=6, location=LOSS)
    loop = replace(audit(setup, rare, other, often), steps=6)

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


@pytest.mark.parametrize(
    ("mark", "loop", "said"),
    [
        (StepMark.OPTIMIZER, None, "each step:"),
        (StepMark.REPLAY, None, "a step is a replay of a captured graph"),
        (
            StepMark.BACKWARD,
            None,
            "no optimizer steps: a step is a backward",
        ),
        (
            StepMark.LOADER,
            None,
            "no optimizer steps: a step is a batch of the DataLoader",
        ),
        (
            StepMark.LOOP,
            TRAIN,
            "no optimizer steps: a step is a turn of the loop around train.py:12 in train",
        ),
    ],
)
def test_what_a_step_is_without_an_optimizer_is_said(
    mark: StepMark, loop: Location | None, said: str
) -> None:
    found = replace(
        audit(replace(ITEM, per_step=4, in_steps=4)), steps=4, mark=mark, loop=loop
    )

    assert audit_lines(found, (), HERE)[1] == said


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


def test_a_clean_script_has_no_table() -> None:
    lines = audit_lines(audit(), (), HERE)

    assert lines == (
        "gpuperf: 0 waits",
        "copies: 0 (5.000 MiB) to the GPU, 0 (12 B) to the CPU",
    )


def test_what_is_alike_is_said_once_with_its_count() -> None:
    elsewhere = replace(LEFT, innermost=None, per_step=2)
    other = replace(LEFT, op="aten::eig")

    lines = audit_lines(
        audit(not_judged=(LEFT, elsewhere, LEFT, other)), ("So.", "It.", "So."), HERE
    )

    begin = lines.index("not judged (only a GPU can show):") + 1
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


def test_what_else_must_be_known_stands_above_the_totals() -> None:
    note = (
        "values on the simulated GPU need more than the 1024 MiB of memory that this machine "
        "has left: from there on it runs without values"
    )

    assert audit_lines(audit(), (note,), HERE)[1:3] == (
        "note: values on the simulated GPU need more than the 1024 MiB of memory that",
        "      this machine has left: from there on it runs without values",
    )


def test_a_script_that_never_touched_the_gpu_does_not_look_clean() -> None:
    assert audit_lines(audit(ops=0), (), HERE) == (
        "gpuperf: nothing ran on the GPU, so nothing was judged",
    )


def test_a_file_from_elsewhere_keeps_its_path() -> None:
    first = audit_lines(audit(ITEM), (), Path("/home/me/proj"))[1]

    assert first.startswith("  --> /home/me/project/train.py:12 in train: ")


@pytest.mark.parametrize(
    ("waits", "headline"),
    [
        (((19, 19),), "0.95 waits per step on 1 line, 20 steps"),
        (((2, 2),), "0.1 waits per step on 1 line, 20 steps"),
        (((20, 20), (38, 19)), "2.9 waits per step on 1 line, 20 steps"),
        (((3, 1),), "0 waits per step, 20 steps; 3 waits in a single step"),
    ],
    ids=["all but the first", "every tenth", "beside each", "one of them"],
)
def test_the_headline_counts_per_step_what_the_limit_counts(
    waits: tuple[tuple[int, int], ...], headline: str
) -> None:
    found = [replace(ITEM, per_step=count, in_steps=steps) for count, steps in waits]
    loop = replace(audit(*found), steps=20)

    assert audit_lines(loop, (), HERE)[0] == f"gpuperf: {headline}"


def test_the_document_of_what_never_touched_the_gpu_says_that_nothing_was_judged() -> (
    None
):
    document = audit_document(audit(ops=0), ())

    assert document["judged"] is False
    assert document["notes"] == ["nothing ran on the GPU, so nothing was judged"]


def test_the_document_holds_what_was_found() -> None:
    document = audit_document(
        audit(INSIDE, NOWHERE, not_judged=(LEFT,)), ("It was so.",)
    )

    def fix_of(finding: Finding) -> str | None:
        remedy = remedy_of(finding)
        return remedy.do if remedy else None

    train = {"file": TRAIN.file, "line": 12, "function": "train"}
    masks = {"file": MASKS.file, "line": 307, "function": "is_full"}
    assert document == {
        "judged": True,
        "findings": [
            {
                "kind": "copy",
                "op": "aten::copy_",
                "reason": INSIDE.reason,
                **train,
                "innermost": masks,
                "forward": {"file": LOSS.file, "line": 3, "function": "loss"},
                "phase": "backward",
                "torch": None,
                "count": 12,
                "in_steps": 0,
                "once": False,
                "fix": fix_of(INSIDE),
            },
            {
                "kind": "sync",
                "op": "aten::nonzero",
                "reason": NOWHERE.reason,
                **dict.fromkeys(["file", "line", "function", "innermost", "forward"]),
                "phase": "data",
                "torch": None,
                "count": 1,
                "in_steps": 0,
                "once": False,
                "fix": fix_of(NOWHERE),
            },
        ],
        "not_judged": [
            {
                "op": "aten::histc",
                "reason": LEFT.reason,
                **train,
                "innermost": masks,
                "forward": None,
                "phase": "forward",
                "count": 6,
            }
        ],
        "as_eager": [
            {
                "op": "torch.compile",
                "reason": "judged as eager code",
                **train,
                "innermost": train,
                "forward": None,
                "phase": "forward",
                "count": 1,
            }
        ],
        "notes": ["It was so."],
        "steps": 0,
        "step_mark": None,
        "garbage": None,
        "totals": {
            "syncs": 13,
            "maybe": 0,
            "device_syncs": 0,
            "pageable_copies": 5,
            "blocking_copies": 5,
            "h2d_bytes": 5242880,
            "d2h_bytes": 12,
            "ops": 7,
            "flops": 48,
        },
    }


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
