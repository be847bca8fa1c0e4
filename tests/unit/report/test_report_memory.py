"""What a program needs, in 80 columns and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from builders import MIB
from builders import a_finding
from builders import a_location

from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Phase
from pytest_gpuperf.model.forecast import Fit
from pytest_gpuperf.model.forecast import Forecast
from pytest_gpuperf.model.forecast import Saving
from pytest_gpuperf.report.json.audit import memory_document
from pytest_gpuperf.report.screen.memory import MemoryView
from pytest_gpuperf.report.screen.memory import memory_lines


def found(kind: FindingKind, nbytes: int, line: int, reason: str = "") -> Finding:
    return a_finding(
        kind,
        op="aten::mul",
        per_step=3,
        location=a_location(line, "/p/train.py", "forward"),
        phase=Phase.FORWARD,
        reason=reason,
        held_bytes=nbytes,
    )


FORECAST = Forecast(
    allocated_bytes=1000 * MIB,
    reserved_bytes=1024 * MIB,
    steps=4,
    findings=(
        replace(
            found(FindingKind.PEAK, 1000 * MIB, 12),
            held_for=(("activations", 800 * MIB), ("parameters", 200 * MIB)),
        ),
        found(FindingKind.MEMORY, 700 * MIB, 9),
        found(FindingKind.MEMORY, 60 * MIB, 12),
        found(FindingKind.MEMORY, 30 * MIB, 10),
        found(FindingKind.MEMORY, 10 * MIB, 11),
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


SOURCE = {9: "    y = self.wide(x).mul(2)\n", 12: "    return y.mul(x)\n"}


def shown(
    found: Forecast,
    fit: Fit | None = None,
    gib: float | None = None,
    *,
    verbose: bool = False,
) -> Sequence[str]:
    """The lines of a script with some source, asked for in its folder."""
    view = MemoryView(
        name="train.py",
        here=Path("/p"),
        line_of=lambda _file, line: SOURCE.get(line, ""),
        command=lambda gib: f"gpuperf memory {f'--gb={gib:g}' if gib else '-v'}",
        verbose=verbose,
    )
    savings = SAVINGS if found is FORECAST else {}
    return memory_lines(found, savings, gib, fit, view)


def test_the_answer_is_first_then_a_step_with_its_lines_then_fixes_and_set_up() -> None:
    lines = shown(FORECAST, Fit.FITS, 8.0)

    assert (
        "\n".join(lines)
        == """\
train.py needs 1000 MiB at its peak; it fits in 8 GiB
per step: activations 800 MiB
  --> train.py:12 in forward
   12 | return y.mul(x)
      |          ^^^ the peak, in the forward; 60.0 MiB taken here
  --> train.py:9 in forward
    9 | y = self.wide(x).mul(2)
      |                  ^^^ 700 MiB taken here
  --> train.py:10 in forward: 30.0 MiB taken here
           and 1 more, with -v
  fix      checkpoint the repeated blocks (torch.utils.checkpoint): 400 MiB
           (-60.0 %)
           pass foreach=False to the optimizer: 900 MiB (-10.0 %)
once, before the first step was over: parameters 200 MiB
predicted from 4 steps on the simulated GPU; torch would reserve 1.00 GiB, CUDA
  itself 768 MiB"""
    )


def test_everything_that_was_found_and_tried_is_shown_when_asked_for() -> None:
    lines = shown(FORECAST, verbose=True)

    text = "\n".join(lines)
    assert lines[0] == "train.py needs 1000 MiB at its peak; a GPU with 8 GiB is enough"
    assert "60.0 MiB taken here by aten::mul, in 3 blocks" in text
    assert "train.py:11 in forward: 10.0 MiB taken here by aten::mul" in text
    assert "  no help  call zero_grad(set_to_none=True) before the forward" in text
    assert "  failed   halve the batch, and accumulate over two" in text
    assert max(map(len, lines)) <= 80


def test_what_makes_it_fit_is_said() -> None:
    large = {
        "allocated_bytes": 8000 * MIB,
        "reserved_bytes": 8000 * MIB,
    }
    savings = {Saving.CHECKPOINT: forecast(4000), Saving.FUSED: forecast(7900)}

    view = MemoryView(name="train.py", here=Path("/p"))
    lines = memory_lines(replace(FORECAST, **large), savings, 8.0, Fit.TOO_CLOSE, view)

    assert lines[0] == (
        "train.py needs 7.81 GiB at its peak; too close to tell if it fits in 8 GiB"
    )
    text = " ".join(" ".join(lines).split())
    assert "(torch.utils.checkpoint): 3.91 GiB (-50.0 %, then it fits)" in text
    assert "pass fused=True to the optimizer: 7.71 GiB (-1.2 %)" in text


def test_a_fix_that_saves_nothing_that_shows_is_none() -> None:
    bare = Forecast(allocated_bytes=1000 * MIB, reserved_bytes=1000 * MIB, steps=4)
    again = Forecast(allocated_bytes=1000 * MIB - 512, reserved_bytes=0, steps=4)
    view = MemoryView(name="train.py", here=Path("/p"))

    lines = memory_lines(bare, {Saving.FUSED: again}, None, None, view)

    assert "  fix      no known one lowers the peak; -v lists what was tried" in lines


def test_the_next_command_names_the_smallest_gpu_that_is_enough_or_shows_more() -> None:
    assert shown(FORECAST)[-2:] == (
        "next: gpuperf memory --gb=8",
        "      exits with 1 if it does not fit",
    )
    assert shown(FORECAST, Fit.TOO_LARGE, 0.5)[-2:] == (
        "next: gpuperf memory -v",
        "      lists each line that takes memory, and what was tried",
    )
    assert not any("next:" in line for line in shown(FORECAST, Fit.FITS, 8.0))


def test_notes_and_what_only_a_gpu_can_tell_are_said() -> None:
    guessed = Forecast(
        allocated_bytes=MIB,
        reserved_bytes=2 * MIB,
        steps=1,
        not_judged=("aten::nonzero: the size of the result is a guess",),
        notes=("values were given up",),
    )

    lines = shown(guessed, Fit.UNKNOWN, 80.0)

    assert lines == (
        "train.py needs about 1.00 MiB at its peak; only a GPU can tell if 80 GiB is enough",
        "predicted from 1 step on the simulated GPU; torch would reserve 2.00 MiB, CUDA",
        "  itself 768 MiB",
        "  note     values were given up",
        "  unsure   aten::nonzero: the size of the result is a guess",
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
        "as_eager": False,
        "garbage_bytes": 0,
        "uncollected_bytes": 0,
        "savings": [
            {"saving": "fused=True in the optimizer", "allocated_bytes": 9 * MIB},
            {"saving": "checkpointing of the repeated blocks", "allocated_bytes": None},
        ],
        "gib": 80.0,
        "fit": "fits",
    }


def test_what_only_the_collector_frees_comes_with_its_line_and_its_fix() -> None:
    cycle = found(FindingKind.GARBAGE, 40 * MIB, 9, "in a cycle of Node.a -> Node.b")
    lines = shown(
        replace(
            FORECAST,
            findings=(*FORECAST.findings, cycle),
            garbage_bytes=40 * MIB,
            uncollected_bytes=1120 * MIB,
        )
    )

    assert lines[1] == "without a garbage collection, 4 steps need 1.09 GiB"
    first = lines.index("  --> train.py:9 in forward")
    assert lines[first + 2 : first + 8] == (
        "      |                  ^^^",
        "      | 40.0 MiB per step that only the garbage collector frees; 700 MiB taken",
        "      | here",
        "  kept     in a cycle of Node.a -> Node.b",
        "  fix      break the cycle before the step ends, or let one side refer to the",
        "           other by weakref.ref",
    )
