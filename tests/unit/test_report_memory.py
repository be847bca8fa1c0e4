"""What a program needs, in 80 columns and as JSON."""

from __future__ import annotations

from pathlib import Path

from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.finding import Phase
from pytest_gpuperf.model.forecast import Fit
from pytest_gpuperf.model.forecast import Forecast
from pytest_gpuperf.model.forecast import Saving
from pytest_gpuperf.report.json.audit import memory_document
from pytest_gpuperf.report.screen.memory import memory_lines


MIB = 2**20


def found(kind: FindingKind, nbytes: int, line: int, reason: str = "") -> Finding:
    return Finding(
        kind=kind,
        op="aten::mul",
        api=None,
        per_step=3,
        blocked_ms=0.0,
        location=Location(file="/p/train.py", line=line, function="forward"),
        phase=Phase.FORWARD,
        reason=reason,
        held_bytes=nbytes,
    )


FORECAST = Forecast(
    allocated_bytes=1000 * MIB,
    reserved_bytes=1024 * MIB,
    steps=4,
    findings=(
        found(FindingKind.PEAK, 1000 * MIB, 12, "activations 800.0 MiB"),
        found(FindingKind.MEMORY, 700 * MIB, 9),
    ),
)


def forecast(mib: int) -> Forecast:
    return Forecast(allocated_bytes=mib * MIB, reserved_bytes=mib * MIB, steps=4)


SAVINGS = {
    Saving.EARLY_ZERO_GRAD: forecast(1000),
    Saving.FOR_LOOP: forecast(900),
    Saving.FUSED: forecast(1001),
    Saving.CHECKPOINT: forecast(400),
    Saving.HALF_BATCH: None,
}


def test_the_peak_comes_first_then_what_holds_it_then_what_lowers_it_most() -> None:
    lines = memory_lines(FORECAST, SAVINGS, 8.0, Fit.FITS, Path("/p"))

    assert (
        "\n".join(lines)
        == """\
gpuperf: 1000.0 MiB allocated at the peak of 4 steps, 1024.0 MiB reserved,
           predicted without a GPU
  --> train.py:12 in forward: most memory is in use here: aten::mul, forward,
           1000 MiB: activations 800.0 MiB
  --> train.py:9 in forward: in use at the peak: aten::mul, forward, 700.0 MiB
           in 3 blocks
  savings     400.0 MiB  -60.0%  checkpointing of the repeated blocks
              900.0 MiB  -10.0%  foreach=False in the optimizer
  no help    zero_grad(set_to_none=True) before the forward; fused=True in the
             optimizer
  no answer  half the batch, accumulated over two
gpuperf: fits in 8 GiB"""
    )
    assert max(map(len, lines)) <= 80


def test_a_saving_that_saves_nothing_that_shows_is_no_help() -> None:
    bare = Forecast(allocated_bytes=1000 * MIB, reserved_bytes=1000 * MIB, steps=4)
    again = Forecast(allocated_bytes=1000 * MIB - 512, reserved_bytes=0, steps=4)

    lines = memory_lines(bare, {Saving.FUSED: again}, None, None, Path("/p"))

    assert lines[-1] == "  no help    fused=True in the optimizer"


def test_notes_and_what_only_a_gpu_can_tell_are_said() -> None:
    guessed = Forecast(
        allocated_bytes=MIB,
        reserved_bytes=2 * MIB,
        steps=1,
        not_judged=("aten::nonzero: the size of the result is a guess",),
        notes=("values were given up",),
    )

    lines = memory_lines(guessed, {}, 80.0, Fit.UNKNOWN, Path("/elsewhere"))

    assert lines == (
        "gpuperf: 1.0 MiB allocated at the peak of 1 step, 2.0 MiB reserved, predicted",
        "           without a GPU",
        "  note     values were given up",
        "  unsure   aten::nonzero: the size of the result is a guess",
        "gpuperf: cannot be told in 80 GiB",
    )


def test_json_has_the_forecast_the_savings_and_the_fit() -> None:
    document = memory_document(
        forecast(10),
        {Saving.FUSED: forecast(9), Saving.CHECKPOINT: None},
        80.0,
        Fit.FITS,
    )

    assert document == {
        "allocated_bytes": 10 * MIB,
        "reserved_bytes": 10 * MIB,
        "steps": 4,
        "findings": [],
        "not_judged": [],
        "notes": [],
        "savings": [
            {"saving": "fused=True in the optimizer", "allocated_bytes": 9 * MIB},
            {"saving": "checkpointing of the repeated blocks", "allocated_bytes": None},
        ],
        "gib": 80.0,
        "fit": "fits",
    }
