"""Causes as lines: their place, their reason, what they carry, what may wait."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import a_finding

from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase
from pytest_gpuperf.report.remedies import SYNC_REMEDIES, remedy_of
from pytest_gpuperf.report.screen.findings import (
    causes_of,
    finding_lines,
    inconclusive_remark,
    peak_lines,
)


LINE = Location(file="train.py", line=12, function="step")
ITEM = a_finding(location=LINE, reason="the CPU reads one element", phase=Phase.FORWARD)
INCONCLUSIVE = replace(
    ITEM, kind=FindingKind.INCONCLUSIVE, metrics=(), reason="it is staged and may block"
)
FEED = replace(
    ITEM,
    kind=FindingKind.TRANSFER,
    op="aten::copy_",
    metrics=("h2d_bytes", "pageable_copies"),
    reason="from ordinary (pageable) memory to the GPU",
    moved_bytes=8192,
)


PEAK = replace(
    ITEM,
    kind=FindingKind.PEAK,
    op="aten::add",
    metrics=("peak_allocated_bytes",),
    reason="activations 3.0 MiB, parameters 1.0 MiB",
    held_bytes=4 * 2**20,
)
HELD = replace(
    PEAK,
    kind=FindingKind.MEMORY,
    op="aten::tanh",
    location=replace(LINE, line=7),
    per_step=2,
    phase=Phase.BACKWARD,
    reason="",
    held_bytes=3 * 2**20,
)


def test_a_value_that_compiles_a_function_again_is_no_shape_to_pad() -> None:
    shape, value = (
        a_finding(FindingKind.RECOMPILE, op=None, reason=reason, location=None)
        for reason in (
            "compiled again, once: tensor 'x' size mismatch at index 0",
            "compiled again, once: name == 'first'",
        )
    )

    assert remedy_of(shape) is not None
    assert remedy_of(value) is None


def test_a_sync_has_its_reason_below_it_and_what_may_wait_stands_apart() -> None:
    assert finding_lines([INCONCLUSIVE, FEED, ITEM], {"syncs"}, room=9) == (
        "  --> train.py:12 in step: aten::item, 1 per step: the CPU reads one element",
        "  fix      keep the value on the GPU, and read it every N steps",
        "  --> train.py:12 in step: may wait: aten::item, 1 per step: it is staged and",
        "           may block",
        "  fix      keep the value on the GPU, and read it every N steps",
    )


def test_syncs_explain_what_nothing_else_does_but_allowed_ones_do_not() -> None:
    allowed = replace(ITEM, metrics=(), allowed="logging")

    assert finding_lines([allowed, FEED], {"step_ms"}, room=9) == ()
    assert finding_lines([allowed, FEED, ITEM], {"step_ms"}, room=9) == (
        "  --> train.py:12 in step: aten::item, 1 per step: the CPU reads one element",
        "  fix      keep the value on the GPU, and read it every N steps",
    )


def test_a_backward_names_its_forward_and_an_installed_file_its_package() -> None:
    inner = Location(
        file="/v/lib/python3.11/site-packages/timm/loss.py", line=3, function="forward"
    )
    forward = Location(file="model.py", line=7, function="forward")
    finding = replace(ITEM, phase=Phase.BACKWARD, forward=forward, innermost=inner)

    assert finding_lines([finding], {"syncs"}, room=9) == (
        "  --> train.py:12 in step: aten::item, backward of model.py:7, 1 per step: the",
        "           CPU reads one element",
        "           inside timm/loss.py:3 in forward",
        "  fix      none known that keeps the result",
    )


def test_what_may_wait_is_one_remark() -> None:
    elsewhere = replace(INCONCLUSIVE, location=replace(LINE, line=20), per_step=2)

    assert inconclusive_remark([ITEM, INCONCLUSIVE, elsewhere]) == (
        "inconclusive: 3 more syncs at train.py:12, train.py:20"
    )
    assert inconclusive_remark([ITEM, replace(INCONCLUSIVE, location=None)]) == (
        "inconclusive: 1 more sync at line unknown"
    )
    assert inconclusive_remark([ITEM, FEED]) == ""


PEAK_LINES = (
    "  --> train.py:12 in step: most memory is in use here: aten::add, forward,",
    "           4.000 MiB: activations 3.0 MiB, parameters 1.0 MiB",
    "  --> train.py:7 in step: in use at the peak: aten::tanh, backward, 3.000 MiB in",
    "           2 blocks",
)


def test_memory_is_explained_by_its_peak_and_then_by_what_holds_most() -> None:
    more = replace(HELD, held_bytes=5 * 2**20, per_step=1, location=LINE)
    failing = {"peak_allocated_bytes"}

    assert finding_lines([HELD, ITEM, PEAK], failing, room=9) == PEAK_LINES
    assert finding_lines([HELD, more, PEAK], failing, room=6) == (
        *PEAK_LINES[:2],
        "  --> train.py:12 in step: in use at the peak: aten::tanh, backward, 5.000 MiB",
        "           in 1 block",
        *PEAK_LINES[2:],
    )
    assert finding_lines([HELD, more, PEAK], failing, room=3) == (
        *PEAK_LINES[:2],
        "           and 2 more",
    )


def test_the_peak_is_told_beside_any_verdict_and_nothing_where_there_is_none() -> None:
    assert peak_lines([ITEM, HELD, PEAK]) == PEAK_LINES
    assert peak_lines([ITEM]) == ()


def test_a_peak_of_an_unknown_phase_names_none() -> None:
    assert peak_lines([replace(PEAK, phase=None, reason="")]) == (
        "  --> train.py:12 in step: most memory is in use here: aten::add, 4.000 MiB",
    )


def test_what_has_no_line_says_when_it_was() -> None:
    begins = replace(PEAK, op=None, phase=None, location=None, reason="")
    old = replace(HELD, op=None, phase=None, location=None)
    lost = replace(HELD, op=None, location=None, held_bytes=2**20)

    assert peak_lines([lost, old, begins]) == (
        "  --> when the step begins: most memory is in use here: 4.000 MiB",
        "  --> memory from before the step: in use at the peak: 3.000 MiB in 2 blocks",
        "  --> line unknown: in use at the peak: backward, 1.000 MiB in 2 blocks",
    )


@pytest.mark.parametrize(
    ("line", "op"),
    [
        ("total += loss.item()", "aten::item"),
        ("print(loss.detach().item())", "aten::item"),
        ("if loss.isnan():", "aten::is_nonzero"),
        ("out.append(loss.cpu())", "aten::_to_copy"),
    ],
)
def test_what_only_some_steps_read_is_not_to_be_read_every_n_steps(
    line: str, op: str
) -> None:
    each = replace(ITEM, op=op, source=line, in_steps=20, of_steps=20)
    rare = replace(each, in_steps=2)
    every, less = remedy_of(each), remedy_of(rare)

    assert every is not None
    assert less is not None
    assert "every N steps" in every.do
    assert "every N steps" not in less.do
    assert "less often" in less.do
    assert ("detach()" in less.do) <= ("detach()" not in line)


def test_the_fix_of_a_wait_names_no_variable_that_its_line_may_not_have() -> None:
    line = "acc = (pred == y).sum().item()"
    waits = [remedy.do for remedy in SYNC_REMEDIES]
    read = remedy_of(replace(ITEM, op="aten::item", source=line))

    assert read is not None
    assert "add it up on the GPU with .detach()" in read.do
    assert not [do for do in waits if re.search(r"\b(?:loss|total)\b", do)]


@pytest.mark.parametrize("op", ["aten::item", "Tensor.__repr__"])
def test_a_tensor_that_is_printed_is_advised_to_be_printed_less_often(op: str) -> None:
    remedy = remedy_of(replace(ITEM, op=op, source='print(f"{predictions}")'))

    assert remedy is not None
    assert remedy.do.startswith("print or log it every N steps")


@pytest.mark.parametrize(
    ("source", "op", "memory", "fix"),
    [
        ("z = torch.randn(64, 20).to(device)", "aten::_to_copy", "ordinary", "make it"),
        ("z = torch.zeros(size(x)).cuda()", "aten::_to_copy", "ordinary", "make it"),
        ("x = x.to(device)", "aten::_to_copy", "ordinary", "use DataLoader(pin_memory"),
        ("x = x.to(device)", "aten::_to_copy", "pinned", "pass non_blocking=True"),
        ("x[range(n), y] = 1", "aten::copy_", "ordinary", "keep the index on the GPU"),
        ("t = t.to('cpu')", "aten::_to_copy", "to the CPU", "keep it on the GPU"),
        ("t = t.to(host)", "aten::_to_copy", "to the CPU", "keep it on the GPU"),
        (
            "model = torch.load(file)",
            "aten::_to_copy",
            "ordinary",
            "make it on the GPU",
        ),
    ],
)
def test_the_fix_of_a_copy_fits_its_direction_and_where_its_values_came_from(
    source: str, op: str, memory: str, fix: str
) -> None:
    reasons = {
        "ordinary": "a blocking copy to the GPU from ordinary (pageable) memory",
        "pinned": "a copy to the GPU from pinned memory, but not non_blocking",
        "to the CPU": "a blocking copy to the CPU",
    }

    remedy = remedy_of(replace(ITEM, source=source, op=op, reason=reasons[memory]))

    assert remedy is not None
    assert remedy.do.startswith(fix)


@pytest.mark.parametrize(
    ("file", "function", "setting"),
    [
        ("transformers/trainer.py", "_maybe_log_save_evaluate", "logging_steps=50"),
        ("transformers/trainer.py", "_run_epoch", "logging_nan_inf_filter=False"),
        ("accelerate/utils/operations.py", "send_to_device", "non_blocking=True"),
        ("lightning/fabric/utilities/apply_func.py", "to_item", "log_every_n_steps=50"),
        ("lightning_fabric/utilities/apply_func.py", "to_item", "refresh_rate=50"),
        ("my/transformers/trainer.py", "_run_epoch", "logging_nan_inf_filter=False"),
        ("mytransformers/trainer.py", "_run_epoch", "none known"),
        ("transformers/trainer.py", "compute_loss", "none known"),
    ],
)
def test_a_wait_inside_of_a_framework_names_the_setting_that_avoids_it(
    file: str, function: str, setting: str
) -> None:
    inside = Location(file=f"/x/site-packages/{file}", line=9, function=function)
    source = "gpuperf.trainer(trainer, syncs=loss.item())"
    below = replace(ITEM, source=source, innermost=inside, op="aten::item")

    for wait in (below, replace(below, location=inside, innermost=None)):
        remedy = remedy_of(wait)
        assert remedy is not None
        assert setting in remedy.do


def test_all_of_a_line_is_marked_if_the_cause_is_unclear_or_there_twice() -> None:
    twice = replace(ITEM, source="a.item() + b.item()", reason="", per_step=2)

    assert finding_lines([twice], {"syncs"}, room=9)[1:3] == (
        "   12 | a.item() + b.item()",
        "      | ^^^^^^^^^^^^^^^^^^^ the CPU waits here for the GPU, 2 per step",
    )


def test_a_line_of_source_cannot_move_the_cursor() -> None:
    hostile = replace(ITEM, source="x.item()\x1b[2J", reason="")

    assert "\x1b" not in "".join(finding_lines([hostile], {"syncs"}, room=9))


SLOW = replace(
    ITEM,
    kind=FindingKind.TIME,
    op=None,
    metrics=("step_ms",),
    reason="",
    phase=None,
    percent=34.4,
    source="total += i * i",
)


def slow(line: int, percent: float, changed_since: str = "") -> Finding:
    return replace(
        SLOW,
        location=replace(LINE, line=line),
        percent=percent,
        changed_since=changed_since,
    )


def test_a_slow_line_that_changed_since_the_baseline_comes_alone() -> None:
    found = [slow(3, 60.0), slow(7, 34.4, "3b1a741"), slow(9, 4.0, "3b1a741")]

    assert finding_lines(found, {"step_ms"}, room=9) == (
        "  --> train.py:7 in step",
        "    7 | total += i * i",
        "      | ^^^^^^^^^^^^^^",
        "      | 34 % of the step's time is spent here, changed since 3b1a741",
    )


def test_if_no_slow_line_changed_the_two_slowest_are_named() -> None:
    found = [slow(3, 30.0), slow(7, 40.0), slow(9, 21.0), slow(11, 9.0, "3b1a741")]

    def places(*slowest: Finding) -> list[str]:
        lines = finding_lines(slowest, {"step_ms"}, room=20)
        return [line for line in lines if line.startswith("  -->")]

    unchanged = ["  --> train.py:7 in step", "  --> train.py:3 in step"]
    assert places(*found[:3]) == unchanged
    assert places(*found) == ["  --> train.py:11 in step"]
    assert places(slow(3, 19.0)) == []


def test_slow_lines_explain_no_memory_and_a_new_wait_stands_beside_them() -> None:
    new = replace(ITEM, stored=0)
    old = replace(ITEM, stored=1)

    assert finding_lines([slow(3, 60.0)], {"peak_allocated_bytes"}, room=9) == ()
    assert len(causes_of([slow(3, 60.0), new], {"step_ms"})) == 2
    assert causes_of([slow(3, 60.0), old], {"step_ms"}) == [slow(3, 60.0)]


def test_memory_of_a_line_that_changed_comes_before_the_peak() -> None:
    other = replace(HELD, changed_since="3b1a741")

    first, *_ = peak_lines([PEAK, other])

    assert first.startswith("  --> train.py:7 in step: in use at the peak: aten::tanh")
    assert "changed since 3b1a741" in " ".join(peak_lines([PEAK, other]))


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (FindingKind.RECOMPILE, "recompiles"),
        (FindingKind.TRANSFER, "h2d_bytes"),
        (FindingKind.LEFT, "memory_growth_bytes"),
    ],
)
@pytest.mark.parametrize("room", [0, 4, 40])
@pytest.mark.parametrize("stored", [None, 1])
def test_a_list_that_is_cut_keeps_a_line_of_each_metric_that_failed(
    kind: FindingKind, metric: str, room: int, stored: int | None
) -> None:
    waits = [
        replace(ITEM, location=replace(LINE, line=n), blocked_ms=9.0, stored=0)
        for n in range(1, 12)
    ]
    rare = replace(
        ITEM,
        kind=kind,
        op="cause",
        metrics=(metric,),
        location=replace(LINE, line=99),
        stored=stored,
    )

    lines = finding_lines([rare, *waits], {"syncs", metric}, room=room)

    assert sum("train.py:99" in line for line in lines) == 1
    assert "train.py:1 " in lines[0]


def test_a_time_that_failed_needs_no_line_of_what_was_always_slow() -> None:
    slow = replace(
        ITEM,
        kind=FindingKind.TIME,
        metrics=("step_ms",),
        percent=60.0,
        location=replace(LINE, line=99),
        stored=1,
    )

    lines = finding_lines(
        [slow, replace(ITEM, stored=0)], {"syncs", "step_ms"}, room=40
    )

    assert not [line for line in lines if "train.py:99" in line]
