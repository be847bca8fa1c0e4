"""Causes as lines: their place, their reason, what they carry, what may wait."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import a_finding, a_regression, a_test, line_change
from golden_lines import ITEM, LINE, slow

from pytest_gpuperf.model.finding import Finding, FindingKind, LineChange, Location
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.remedies import SYNC_REMEDIES, remedy_of
from pytest_gpuperf.report.screen.failure import Failure
from pytest_gpuperf.report.screen.findings import (
    SharedCauses,
    badness,
    explained,
    finding_blocks,
    late_in_words,
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
        "ordinary": "a blocking copy to the GPU from pageable memory",
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
        ("mytransformers/trainer.py", "_run_epoch", "the library waits"),
        ("transformers/trainer.py", "compute_loss", "the library waits"),
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


def test_a_line_of_source_cannot_move_the_cursor() -> None:
    hostile = replace(ITEM, source="x.item()\x1b[2J", reason="")

    assert "\x1b" not in "".join(terminal(finding_blocks([hostile], {"syncs"}, room=9)))


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

    lines = terminal(finding_blocks([rare, *waits], {"syncs", metric}, room=room))

    assert sum("train.py:99" in line for line in lines) == 1
    assert "train.py:1 " in lines[0]


def test_a_time_that_failed_needs_no_line_of_what_was_always_slow() -> None:
    always = replace(slow(99, 60.0), stored=1)

    lines = terminal(
        finding_blocks([always, replace(ITEM, stored=0)], {"syncs", "step_ms"}, room=40)
    )

    assert not [line for line in lines if "train.py:99" in line]


LATE = replace(ITEM, waits_after=(80,), operations=200)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (LATE, "120 of 200 operations start late"),
        (replace(LATE, waits_after=(200,)), "the next step starts late"),
        (replace(LATE, is_idle=True), "the GPU is idle already"),
        (replace(LATE, operations=0), ""),
    ],
)
def test_a_wait_says_what_it_leaves_the_gpu_without(
    finding: Finding, words: str
) -> None:
    assert late_in_words(finding) == words
    assert explained(finding).endswith(words)


def test_waits_of_equal_age_come_in_the_order_of_what_they_can_cost() -> None:
    early, late = LATE, replace(LATE, waits_after=(150,))
    idle = replace(LATE, waits_after=(10,), is_idle=True)
    rare = replace(LATE, in_steps=10, of_steps=100)
    new = replace(rare, stored=0)
    found = [rare, idle, late, early, new]

    ordered = sorted(found, key=badness)

    # By identity: where a wait is does not tell findings apart.
    assert [*map(id, ordered)] == [*map(id, (new, early, late, idle, rare))]


LONG = "self.history[epoch].append(metrics['loss'].mean().item() / float(len(batches) + 1))"
READ = a_finding(line=17, stored=0, source=LONG, operations=120)
COPY = a_finding(
    FindingKind.TRANSFER,
    op="aten::_to_copy",
    metrics=("pageable_copies", "h2d_bytes"),
    stored=0,
    moved_bytes=2**26,
    reason="a blocking copy to the GPU from pageable memory",
    source="images = batch['pixel_values'].to(device, non_blocking=True)",
)
LOOP = a_finding(
    FindingKind.WORK,
    op=None,
    metrics=("launches",),
    per_step=512,
    stored=0,
    source="return model(torch.stack([row / row.amax() for row in images]))",
)
LEFT = a_finding(
    FindingKind.LEFT,
    op="aten::mul",
    metrics=("growth_bytes",),
    per_step=2,
    held_bytes=4096,
    source="losses.append(loss)",
)


@pytest.mark.parametrize(
    ("verdicts", "finding", "operations"),
    [
        ((a_regression("syncs", 1, 0),), READ, ()),
        (
            (
                a_regression("pageable_copies", 1, 0),
                a_regression("h2d_bytes", 2**26, 0),
            ),
            COPY,
            (),
        ),
        (
            (a_regression("launches", 516, 5),),
            LOOP,
            (
                line_change({"call": (0, 512)}),
                line_change({"aten::amax": (1, 256), "aten::div": (1, 256)}),
            ),
        ),
        (
            (
                a_regression("growth_bytes", 4096, 0),
                a_regression("retained_graphs", 1, 0),
            ),
            LEFT,
            (),
        ),
    ],
    ids=["sync", "copy", "loop", "leak"],
)
def test_a_failure_of_one_cause_takes_twelve_lines_of_80_columns_also_with_its_tests(
    verdicts: tuple[Verdict, ...],
    finding: Finding,
    operations: tuple[LineChange, ...],
) -> None:
    tests = [
        f"tests/test_train.py::test_{name}_step[a-long-parameter]" for name in "abc"
    ]
    failing = [
        a_test(*verdicts, test=test, findings=(finding,), operations=operations)
        for test in tests
    ]
    shared = SharedCauses()
    for verdict in failing:
        shared.add(verdict.test, verdict)

    text = Failure(failing[0], tests[0], shared=shared).text

    assert "3 fail here" in text
    assert len(text.splitlines()) <= 12, text
