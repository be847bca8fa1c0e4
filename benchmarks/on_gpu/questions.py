"""Which result answers which row of "What has never run on hardware"."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from typing import Final
from xml.etree import ElementTree as ET


ASSUMPTIONS: Final = Path(__file__).resolve().parents[1] / "evidence" / "assumptions.md"

MOST_OFF: Final = 0.02
"""Of ``step_ms`` from the wall clock."""
MOST_READING_MS: Final = 1.0
MOST_WATCH: Final = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Whether an assumption holds, and what says so."""

    holds: bool
    why: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'WRONG'}: {self.why}"


@dataclass(frozen=True)
class Results:
    """What a run left in *folder*; what is not there is empty."""

    folder: Path

    def rows(self, name: str) -> list[Any]:
        """Return the lines of a file of JSON lines; the last may be half of one."""
        path = self.folder / name
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def document(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def text(self, part: str) -> str:
        path = self.folder / f"{part}.txt"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @cached_property
    def tests(self) -> dict[str, str]:
        """Outcomes of ``tests/gpu`` by name."""
        path = self.folder / "tests-gpu.xml"
        if not path.exists():
            return {}
        cases = ET.parse(path).iter("testcase")  # noqa: S314, pytest wrote it
        return {case.get("name", ""): outcome(case) for case in cases}

    def of_tests(self, pattern: str) -> Answer | None:
        """Return what the tests say whose names hold *pattern*; skipped ones say nothing."""
        found = {n: o for n, o in self.tests.items() if re.search(pattern, n)}
        failed = [name for name, result in found.items() if result == "failed"]
        if failed:
            return Answer(holds=False, why=f"`{failed[0]}` and {len(failed) - 1} more")
        passed = sum(result == "passed" for result in found.values())
        return Answer(holds=True, why=f"{passed} tests passed") if passed else None


def outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


Question = Callable[[Results], "Answer | None"]


def tests(pattern: str) -> Question:
    return lambda results: results.of_tests(pattern)


def left_open(_results: Results) -> None:
    """Answer nothing: these parts do not ask."""


def step_time(results: Results) -> Answer | None:
    """Compare ``step_ms`` with the wall clock, and the tests of clocks and streams."""
    told = results.of_tests("events_and_the_host_clock|waits_for_streams")
    ratios = [ratio_of(row) for row in results.rows("truth.jsonl")]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or (told and not told.holds):
        return told
    worst = max(known, key=lambda ratio: abs(ratio - 1))
    why = f"step_ms over wall time, {len(known)} steps: {min(known):.3f} to {max(known):.3f}"
    return Answer(holds=abs(worst - 1) <= MOST_OFF, why=why)


def ratio_of(row: Mapping[str, Any]) -> float | None:
    step_ms = row["plugin_ms"].get("step_ms")
    return step_ms / row["by_hand"]["wall_ms"] if step_ms else None


def reading_is_cheap(results: Results) -> Answer | None:
    ms = results.document("machine.json").get("disturbance_reading_ms")
    if ms is None:
        return None
    return Answer(holds=ms < MOST_READING_MS, why=f"a reading takes {ms} ms")


def waits_agree(results: Results) -> Answer | None:
    found = re.search(
        r"(\d+) compared, (\d+) differ without an explanation", results.text("waits")
    )
    return found and Answer(holds=found[2] == "0", why=f"waits: {found[0]}")


def unchanged_is_not_blamed(results: Results) -> Answer | None:
    rows = [row for row in results.rows("unchanged.jsonl") if row["more_pct"] == 0]
    red = sum(bool(row["exit_status"]) for row in rows)
    why = f"{red} of {len(rows)} gates of unchanged code are red"
    return Answer(holds=not red, why=why) if rows else None


def examples_are_unchanged(results: Results) -> Answer | None:
    ends = re.findall(
        r"^(\d+ (?:passed|failed).*) in ", results.text("examples"), re.MULTILINE
    )
    if len(ends) < len(("stored", "gated")):
        return None
    return Answer(holds="failed" not in ends[-1], why=f"gated unchanged: {ends[-1]}")


def watch_is_cheap(results: Results) -> Answer | None:
    told = results.of_tests("waits_and_leaks_have_their_lines|what_a_failed_test_keeps")
    found = re.search(r"ratio: .*?([\d.]+) of CPU time", results.text("commands"))
    if found is None or (told and not told.holds):
        return told
    return Answer(
        holds=float(found[1]) <= MOST_WATCH, why=f"watch costs {found[1]} times"
    )


QUESTIONS: Final[Mapping[str, Question]] = {
    "`devices/cuda/device.py`, time": step_time,
    "`devices/cuda/device.py`, memory": tests("peak_of_a_known|memory_is_read_once"),
    "`devices/cuda/memory.py`, leaks and driver": tests(
        "steady_step_ends|driver_s_bytes|planted_leak"
    ),
    "`devices/cuda/memory.py`, snapshots": tests("snapshot_of_a_step"),
    "`devices/cpu/live_memory.py` on CUDA": tests("what_the_peak_is_for"),
    "`devices/cuda/memory.py`, CUDA graphs": tests("peak_of_a_captured_step"),
    "`devices/cuda/memory.py`, out of memory": tests("runs_out_of_memory"),
    "`devices/cuda/device.py`, warm-up": tests("counters_stand_still"),
    "`devices/cuda/device.py`, preflight": left_open,
    "`devices/cuda/nvml.py`, identity": tests("nvml_found_by_uuid"),
    "`devices/cuda/nvml.py`, reading": reading_is_cheap,
    "`devices/cuda/nvml.py`, throttling": left_open,
    "`devices/cuda/nvml.py`, utilisation": left_open,
    "`devices/cuda/nvml.py`, processes": left_open,
    "`judge/early_end.py` on CUDA": left_open,
    "`measure/profile.py`": tests("plain_profile_counts|plain_numbers_and_exact_lines"),
    "`devices/profiler.py`": left_open,
    "hidden syncs on CUDA": tests("planted_item|detector_says_what_the_oracle_says"),
    "`devices/cuda/sync_markers.py`": tests(
        "each_wait_has_the_line|does_not_warn_of|wait_in_autograd"
    ),
    "`devices/cuda/suite_watch.py`": watch_is_cheap,
    "copies on CUDA": tests("copies_of_known_sizes"),
    "`devices/sentinels.py`, memory": tests("sentinels_leave_no_memory"),
    "`devices/sentinels.py`, modes": tests(
        "sentinels_launch_the_same|workspace_of_a_captured"
    ),
    "`devices/pretend`": waits_agree,
    "SM clock on CUDA": left_open,
    "`devices/cuda/flops.py`": left_open,
    "`gpuperf(step, period=...)` on CUDA": left_open,
    "`trainers/` on CUDA": left_open,
    "allowances on CUDA": tests("a_block_and_a_comment_allow"),
    "runs on CUDA": tests("process_killed_in_any_phase"),
    "verdicts on CUDA times": unchanged_is_not_blamed,
    "`devices/slots.py`": tests("process_at_a_slot|slots_are_the_gpus|first_slot"),
    "`ranked/` on CUDA": tests("ranks_have_a_gpu_each|no_two_ranks"),
    "`measure/gpu_activity.py`, NCCL": left_open,
    "`measure/gpu_activity.py`, busy": tests("gpu_is_as_busy_as_it_is_kept"),
    "`measure/bottleneck.py`, causes": tests(
        "planted_cause_comes_first|taking_a_sync_away"
    ),
    "`measure/bottleneck.py`, launching": left_open,
    "`measure/gpu_activity.py`, launches": tests(
        "one_launch|cuda_graphs_of_a_compiled"
    ),
    "`judge/readings.py`: `DISTURBANCE`": left_open,
    "`measure/timing.py`, `devices/cpu/contention.py`": left_open,
    "the 1 % that `launches` may differ by": examples_are_unchanged,
    "`devices/cuda/device.py`: `left_behind`, `graphs`": tests("what_each_step_keeps"),
    "`devices/compile.py` on CUDA": tests("a_break_and_the_wait_at_it"),
    "`measure/dataloader.py` on CUDA": left_open,
    "torchrun with NCCL": left_open,
    "`measure/failed_step.py` on CUDA": left_open,
    "`timers.py`": left_open,
    "`gpuperf doctor`, what disturbs measuring": tests("circumstances_of_a_gpu|doctor"),
    "`gpuperf.compare` on CUDA, memory": tests("side_of_a_comparison_needs"),
    "`gpuperf ab` in one process on CUDA": tests("ab_blames|reference_blames"),
}
"""By the first cell of the row."""


def rows_of_the_table(page: str) -> Iterator[str]:
    """Yield the first cell of each row of ``assumptions.md``."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("| part |"):
            yield line.split(" | ")[0].removeprefix("| ").strip()
