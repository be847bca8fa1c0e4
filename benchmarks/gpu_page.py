"""Make a page of what a run of ``benchmarks/gpu.sh`` brought back.

    python benchmarks/gpu_page.py FOLDER

FOLDER has ``status.json`` and ``results.tar.gz``. The page, ``FOLDER/README.md``, has a table a
part and says of each row of "What has never run on hardware" (``benchmarks/evidence/assumptions.md``)
what was found, or that it stays open. What is small enough to be kept beside it is unpacked.
Exit status: 0; 1 if what was found shows an assumption wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET


HERE: Final = Path(__file__).resolve().parent
ASSUMPTIONS: Final = HERE / "evidence" / "assumptions.md"


KEPT: Final = (
    "*.json",
    "*.jsonl",
    "agreement-*.md",
    "baselines/*.json",
    "unchanged-baselines/*.json",
)
MOST_KEPT_BYTES: Final = 2**20

LAST_LINES: Final = 3


# Which result answers which row of "What has never run on hardware".

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


Section = Callable[[Results], Iterator[str]]
Question = Callable[[Results], "Answer | None"]


def tests(pattern: str) -> Question:
    return lambda results: results.of_tests(pattern)


def step_time(results: Results) -> Answer | None:
    """Compare ``step_ms`` with the wall clock, and the tests of clocks and streams."""
    answer = results.of_tests("events_and_the_host_clock|waits_for_streams")
    ratios = [ratio_of(row) for row in results.rows("truth.jsonl")]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or (answer and not answer.holds):
        return answer
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


def syncs_agree(results: Results) -> Answer | None:
    found = re.search(
        r"(\d+) compared, (\d+) differ without an explanation", results.text("syncs")
    )
    return found and Answer(holds=found[2] == "0", why=f"syncs: {found[0]}")


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
    answer = results.of_tests(
        "waits_and_leaks_have_their_lines|what_a_failed_test_keeps"
    )
    found = re.search(r"ratio: .*?([\d.]+) of CPU time", results.text("commands"))
    if found is None or (answer and not answer.holds):
        return answer
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
    "`devices/live_memory.py` on CUDA": tests("what_the_peak_is_for"),
    "`devices/cuda/memory.py`, CUDA graphs": tests("peak_of_a_captured_step"),
    "`devices/cuda/memory.py`, out of memory": tests("runs_out_of_memory"),
    "`devices/cuda/device.py`, warm-up": tests("counters_stand_still"),
    "`devices/cuda/nvml.py`, identity": tests("nvml_found_by_uuid"),
    "`devices/cuda/nvml.py`, reading": reading_is_cheap,
    "`measure/profile.py`": tests("plain_profile_counts|plain_numbers_and_exact_lines"),
    "hidden syncs on CUDA": tests("planted_item|detector_says_what_the_oracle_says"),
    "`devices/cuda/device.py`, lines of syncs": tests(
        "each_wait_has_the_line|does_not_warn_of|wait_in_autograd"
    ),
    "`devices/cuda/suite_watch.py`": watch_is_cheap,
    "copies on CUDA": tests("copies_of_known_sizes"),
    "`devices/sentinels.py`, memory": tests("sentinels_leave_no_memory"),
    "`devices/sentinels.py`, modes": tests(
        "sentinels_launch_the_same|workspace_of_a_captured"
    ),
    "`devices/simulated`": syncs_agree,
    "allowances on CUDA": tests("a_block_and_a_comment_allow"),
    "runs on CUDA": tests("process_killed_in_any_phase"),
    "verdicts on CUDA times": unchanged_is_not_blamed,
    "`devices/machine.py`": tests("process_at_a_slot|slots_are_the_gpus|first_slot"),
    "`ranked/` on CUDA": tests("ranks_have_a_gpu_each|no_two_ranks"),
    "`measure/gpu_activity.py`, busy": tests("gpu_is_as_busy_as_it_is_kept"),
    "`measure/gpu_activity.py`, gaps": tests("planted_cause_is_the_longest_gap"),
    "`measure/gpu_activity.py`, launches": tests(
        "one_launch|cuda_graphs_of_a_compiled"
    ),
    "the 1 % that `launches` may differ by": examples_are_unchanged,
    "`devices/cuda/device.py`: `leaked`, `graphs`": tests("what_each_step_keeps"),
    "`devices/compile.py` on CUDA": tests("a_break_and_the_wait_at_it"),
    "`gpuperf doctor`, what disturbs measuring": tests("circumstances_of_a_gpu|doctor"),
    "`gpuperf.compare` on CUDA, memory": tests("side_of_a_comparison_needs"),
}
"""By the first cell of the row; the others stay open, as no part asks them."""


def rows_of_the_table(page: str) -> Iterator[str]:
    """Yield the first cell of each row of ``assumptions.md``."""
    for line in page.splitlines():
        if line.startswith("| ") and not line.startswith("| part |"):
            yield line.split(" | ")[0].removeprefix("| ").strip()


# The page.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with what came back")
    folder = parser.parse_args().folder
    if missing := [
        n for n in ("status.json", "results.tar.gz") if not (folder / n).exists()
    ]:
        parser.error(f"{folder} has no {missing[0]}: expected what gpu.sh wrote")
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(folder / "results.tar.gz") as archive:
            archive.extractall(name, filter="data")
        unpacked = Path(name) / "results"
        join_answers(unpacked)
        answers = answered(Results(unpacked))
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        page = "\n".join([*lines_of(Results(unpacked), status, answers), ""])
        (folder / "README.md").write_text(page, encoding="utf-8")
        keep(unpacked, folder)
    wrong = [row for row, answer in answers.items() if answer and not answer.holds]
    print(
        f"{folder / 'README.md'}: {len(wrong)} assumptions are wrong", *wrong, sep="\n"
    )
    return int(bool(wrong))


def join_answers(unpacked: Path) -> None:
    """Make the tables of syncs and bytes of the answers, all or not, that came back."""
    scripts = {"syncs": "agreement.py", "bytes": "agreement_bytes.py"}
    for part, program in scripts.items():
        answers = unpacked / part
        if answers.is_dir():
            command = [sys.executable, "-W", "ignore", str(HERE / program)]
            where = ["--join", "--answers", str(answers), "--out", str(unpacked)]
            done = subprocess.run(
                [*command, *where], capture_output=True, text=True, check=False
            )
            with (unpacked / f"{part}.txt").open("a", encoding="utf-8") as file:
                file.write(done.stdout)


def answered(results: Results) -> dict[str, Answer | None]:
    """Answer the rows of the table, in their order; ``None`` where a row stays open."""
    page = ASSUMPTIONS.read_text(encoding="utf-8")
    return {
        row: QUESTIONS[row](results) if row in QUESTIONS else None
        for row in rows_of_the_table(page)
    }


def keep(unpacked: Path, folder: Path) -> None:
    for path in (found for pattern in KEPT for found in unpacked.glob(pattern)):
        if path.stat().st_size <= MOST_KEPT_BYTES:
            target = folder / path.relative_to(unpacked)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


def lines_of(
    results: Results, status: Mapping[str, Any], answers: Mapping[str, Answer | None]
) -> Iterator[str]:
    yield from head(results.document("machine.json"))
    yield from parts(status)
    for title, section in SECTIONS.items():
        if lines := list(section(results)):
            yield from ("", f"## {title}", "", *lines)
    yield from ("", "## What it answers", "")
    yield from table(
        ("part", "answer"),
        [(row, str(answer)) for row, answer in answers.items() if answer],
    )
    still = [row for row, answer in answers.items() if answer is None]
    yield from ("", f"Open after this run: {len(still)} rows.", "")
    yield from (f"- {row}" for row in still)


def head(machine: Mapping[str, Any]) -> Iterator[str]:
    environment = machine.get("environment", {})
    hardware, software = (environment.get(n, {}) for n in ("hardware", "software"))
    yield f"# {hardware.get('name', 'A GPU')}"
    yield ""
    versions = [f"{name} {version}" for name, version in sorted(software.items())]
    yield (
        f"Read on {machine.get('date', 'an unknown day')} by `benchmarks/gpu.sh`, with "
        f"{machine.get('cpu_count', '?')} CPU cores: {', '.join(versions) or 'unknown'}."
    )
    yield ""


def parts(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what became of each part, and what could not be packed."""
    rows = [
        (
            each["part"],
            "no time" if each["exit_status"] is None else f"exit {each['exit_status']}",
            f"{each['seconds']:.0f}",
        )
        for each in status["parts"]
    ]
    yield from table(("part", "outcome", "seconds"), rows)
    if status["left_out"]:
        yield ""
        yield f"Too large to be packed: {', '.join(status['left_out'])}."


def rows_of(file: str, **columns: Callable[[Any], object]) -> Section:
    """Show a line of *file* a row, its cells by column; ``-`` where it has none."""

    def section(results: Results) -> Iterator[str]:
        rows = [
            tuple(
                "-" if (c := cell(row)) is None else str(c) for cell in columns.values()
            )
            for row in results.rows(file)
        ]
        if rows:
            names = tuple(name.replace("_", " ") for name in columns)
            yield from table(names, rows)

    return section


def ms(of: str, name: str) -> Callable[[Any], object]:
    return lambda row: f"{row[of][name]:.3f}" if row[of].get(name) else None


def mib(name: str) -> Callable[[Any], object]:
    return lambda row: f"{row[name]:.0f}" if name in row else None


def tail_of(part: str) -> Section:
    """Show how a part ended, as it printed it."""

    def tail(results: Results) -> Iterator[str]:
        lines = [line for line in results.text(part).splitlines() if line.strip()]
        if lines:
            yield from ("```text", *lines[-LAST_LINES:], "```")

    return tail


def commands(results: Results) -> Iterator[str]:
    ends = r"^(\d+ (?:passed|failed).*|ratio: .*|gpuperf ab: .*)$"
    for line in re.findall(ends, results.text("commands"), re.MULTILINE):
        yield f"- {line}"


SECTIONS: Final[Mapping[str, Section]] = {
    "Time, beside other ways to read it": rows_of(
        "truth.jsonl",
        step=lambda r: r["step"],
        step_ms=ms("plugin_ms", "step_ms"),
        wall=ms("by_hand", "wall_ms"),
        events=ms("by_hand", "events_ms"),
        Timer=ms("by_hand", "timer_ms"),
        step_ms_over_wall=lambda r: f"{ratio:.3f}" if (ratio := ratio_of(r)) else None,
        latency_ms=ms("plugin_ms", "latency_ms"),
        synced_by_hand=ms("by_hand", "synced_ms"),
        syncs=lambda r: r["exact"].get("syncs"),
    ),
    "Syncs": tail_of("syncs"),
    "Unchanged code, and more work": rows_of(
        "unchanged.jsonl",
        GPU_time_added=lambda r: "stored" if r["more_pct"] is None else r["more_pct"],
        exit=lambda r: r["exit_status"],
        seconds=lambda r: f"{r['seconds']:.0f}",
        step_ms=lambda r: r["outcome"],
    ),
    "GPT-2 large, MiB": rows_of(
        "ladder.jsonl",
        rung=lambda r: r["rung"],
        published=mib("published_mib"),
        predicted=mib("predicted_mib"),
        allocated=mib("allocated_mib"),
        reserved=mib("reserved_mib"),
        device_used=mib("device_used_mib"),
        s_per_step=lambda r: f"{r['seconds']:.2f}" if "seconds" in r else None,
    ),
    "The ladder of speed": tail_of("speed"),
    "tests/gpu": tail_of("tests-gpu"),
    "Examples, stored and gated": tail_of("examples"),
    "Two workers, a commit beside itself, watch": commands,
}


def table(names: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


if __name__ == "__main__":
    sys.exit(main())
