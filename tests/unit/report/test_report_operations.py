"""Lines that run other operations than before."""

from __future__ import annotations

import pytest

from pytest_gpuperf.model.operations import LineChange
from pytest_gpuperf.report.screen.operations import loop_lines


def change(**ops: tuple[int, int]) -> LineChange:
    return LineChange(
        module="",
        location=None,
        innermost=None,
        source="",
        is_new=False,
        ops={f"aten::{name}": counts for name, counts in ops.items()},
        added_bytes=0,
    )


def test_an_operation_that_a_line_has_begun_to_run_in_a_loop_has_a_fix() -> None:
    assert loop_lines([change(add=(3, 4)), change(amax=(1, 256), stack=(0, 1))]) == (
        "  fix      run aten::amax once on the whole batch, with a dim or torch.vmap, in",
        "           place of 256 times in a loop",
    )


@pytest.mark.parametrize("counts", [(0, 15), (2, 31), (40, 50)])
def test_some_operations_more_are_no_loop(counts: tuple[int, int]) -> None:
    assert loop_lines([change(mul=counts)]) == ()
