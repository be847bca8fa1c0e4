"""What commands say of two versions and of the stored baselines."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from builders import (
    H200,
    MIB,
    USUAL,
    a_comparison,
    a_finding,
    an_entry,
    line_change,
    text_of,
)
from golden_suite import SIDES

from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.baselines.store import path_of, pending_path
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.ab import AbRun, Answer, Comparison, ExactChange, Turn
from pytest_gpuperf.model.baseline import Baselines, Entry, Judged
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.finding import CALLED
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.json import ab_document
from pytest_gpuperf.report.screen.commits import comparison_blocks, markdown_lines
from pytest_gpuperf.report.screen.comparison import sides_blocks


def typed(*words: str) -> str:
    """All that the command prints on a terminal that can show blocks, and its status."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(output), redirect_stderr(output):
        status = main(list(words))
    output.seek(0)
    return f"{output.read()}status {status}\n"


# Two versions.


def exact(metric: str, before: float, after: float, turn: Turn) -> ExactChange:
    return ExactChange(
        metric=metric, before=before, after=after, turn=turn, gated=metric != "launches"
    )


UNCLEAR: Final = a_comparison(Answer.INCONCLUSIVE, 1.02, low=None, smallest=None)
MORE: Final = (
    exact("peak_allocated_bytes", 100 * MIB, 110 * MIB, Turn.WORSE),
    exact("launches", 10, 9, Turn.BETTER),
    exact("syncs", 0, 1, Turn.VARIES),
)
OPERATIONS: Final = (
    line_change({CALLED: (0, 310)}, module=CALLED, line=12),
    line_change({"aten::clone": (0, 4)}, module="Net.layers.*.attn", nbytes=4096),
    line_change({"aten::add": (2, 3), "aten::mul": (0, 1)}, is_new=False),
    line_change({"aten::addmm": (1, 1)}, nbytes=-2 * MIB, is_new=False),
)
CALLS: Final = (
    Comparison(test="t.py::same", pairs=3, time=a_comparison(Answer.SAME, 0.9996)),
    Comparison(test="t.py::fast", pairs=3, time=a_comparison(Answer.FASTER, 0.8)),
    Comparison(
        test="t.py::slow[a|b]",
        pairs=4,
        time=a_comparison(Answer.SLOWER, 1.2),
        findings=(a_finding(source="total += loss.item()", blocked_ms=0.5),),
    ),
    Comparison(test="t.py::unclear", pairs=1, time=UNCLEAR),
    Comparison(
        test="t.py::lost", pairs=3, unmeasured={"speedup": "it had none"}, lost=True
    ),
    Comparison(
        test="t.py::more",
        pairs=8,
        time=a_comparison(),
        exact=MORE,
        operations=OPERATIONS,
    ),
    Comparison(test="t.py::exact", pairs=1, unmeasured={"speedup": "it has no clock"}),
)
COMPARED: Final = AbRun(
    before="main (1234567)",
    after="working tree (89abcde)",
    device="cuda-nvidia-h200",
    engine="pairs",
    calls=CALLS,
    uncompared=(
        Comparison(
            test="t.py::broken", uncompared="failed after: no\nmore of it", broken=True
        ),
        Comparison(test="t.py::old", uncompared="before only"),
    ),
    notes=("something to know",),
)


def two_steps() -> str:
    """What ``gpuperf.compare`` prints of two steps, of one without a time as well."""
    untimed = Comparison(
        before={"syncs": 1}, after={"syncs": 0}, unmeasured={"speedup": "no clock"}
    )
    untold = replace(UNCLEAR, ratio=None, before_ms=None)
    inconclusive = replace(SIDES, time=untold, training=None)
    both = (SIDES, untimed, inconclusive)
    shown = (terminal(sides_blocks(sides)) for sides in both)
    return "\n".join(map(text_of, shown))


# Stored baselines, and what a run left to be accepted.


def save(path: Path, hardware: Hardware, **entries: Entry) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(dumps(Baselines(hardware=hardware, entries=entries)), "utf-8")


def stored() -> None:
    save(
        path_of(Path("baselines"), H200),
        H200,
        slower=an_entry(anchor={"step_ms": 9.9, "syncs": 0}, exact=USUAL),
        far=an_entry(exact=USUAL),
        same=an_entry(exact=USUAL),
        thin=an_entry(5.0, 5.1, exact=USUAL),
        absent=an_entry(1.0, exact={}),
    )


def left_by_a_run() -> None:
    stored()
    regressed = Judged(outcomes={"step_ms": (Outcome.REGRESSED,)})
    disturbed = Judged(outcomes={"step_ms": (Outcome.PASS,)}, disturbed=True)
    more = {"peak_allocated_bytes": 110 * MIB, "syncs": 2}
    save(
        pending_path(Path(".gpuperf"), H200),
        H200,
        slower=an_entry(*[10.2] * 5, judged=regressed, exact=USUAL),
        far=an_entry(*[12.0] * 8, judged=regressed, exact=more),
        same=an_entry(*[10.05] * 8, judged=disturbed, exact=USUAL),
        thin=an_entry(5.3, exact=USUAL),
        new=an_entry(2.0, 2.01, 2.3, 2.02, 2.0, exact=USUAL),
    )


def accept(*words: str) -> str:
    left_by_a_run()
    return typed("accept", ".gpuperf", *words)


def accept_again() -> str:
    """What is accepted at once, and what is left of it the second time."""
    return accept("--accept-drift") + typed("accept", ".gpuperf")


COMMANDS: Final[Mapping[str, Callable[[], str]]] = {
    "ab.txt": lambda: text_of(terminal(comparison_blocks(COMPARED))),
    "ab.md": lambda: text_of(markdown_lines(COMPARED)),
    "ab.json": lambda: f"{json.dumps(ab_document(COMPARED), indent=2)}\n",
    "ab-same.txt": lambda: text_of(
        terminal(
            comparison_blocks(
                replace(COMPARED, calls=CALLS[:1], uncompared=(), notes=())
            )
        )
    ),
    "compare.txt": two_steps,
    "accept-dry-run.txt": partial(accept, "--dry-run"),
    "accept-refused.txt": accept,
    "accept.txt": accept_again,
    "accept-evidence.txt": partial(accept, "--evidence"),
}
