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
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from typing import Final

from on_gpu.questions import ASSUMPTIONS
from on_gpu.questions import QUESTIONS
from on_gpu.questions import Answer
from on_gpu.questions import Results
from on_gpu.questions import ratio_of
from on_gpu.questions import rows_of_the_table


HERE: Final = Path(__file__).resolve().parent


KEPT: Final = (
    "*.json",
    "*.jsonl",
    "agreement-*.md",
    "baselines/*.json",
    "unchanged-baselines/*.json",
)
MOST_KEPT_BYTES: Final = 2**20

LAST_LINES: Final = 3


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
    """Make the tables of waits and bytes of the answers, all or not, that came back."""
    for part, script in {
        "waits": ("agreement.py", "corpus"),
        "bytes": ("agreement_bytes.py",),
    }.items():
        program, *more = script
        answers = unpacked / part
        if answers.is_dir():
            command = [sys.executable, "-W", "ignore", str(HERE / program), *more]
            where = ["--join", "--answers", str(answers), "--out", str(unpacked)]
            done = subprocess.run(
                [*command, *where], capture_output=True, text=True, check=False
            )
            with (unpacked / f"{part}.txt").open("a", encoding="utf-8") as file:
                file.write(done.stdout)


def answered(results: Results) -> dict[str, Answer | None]:
    """Answer the rows of the table, in their order; ``None`` where a row stays open."""
    page = ASSUMPTIONS.read_text(encoding="utf-8")
    return {row: QUESTIONS[row](results) for row in rows_of_the_table(page)}


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
    told = [f"{name} {version}" for name, version in sorted(software.items())]
    yield (
        f"Read on {machine.get('date', 'an unknown day')} by `benchmarks/gpu.sh`, with "
        f"{machine.get('cpu_count', '?')} CPU cores: {', '.join(told) or 'unknown'}."
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


def truth(results: Results) -> Iterator[str]:
    def shown(ms: float | None) -> str:
        return "-" if ms is None else f"{ms:.3f}"

    rows = []
    for row in results.rows("truth.jsonl"):
        plugin, hand = row["plugin_ms"], row["by_hand"]
        ratio = ratio_of(row)
        by_hand = (hand[n] for n in ("wall_ms", "events_ms", "timer_ms"))
        rows.append(
            (
                row["step"],
                shown(plugin.get("step_ms")),
                *map(shown, by_hand),
                "-" if ratio is None else f"{ratio:.3f}",
                shown(plugin.get("latency_ms")),
                shown(hand["synced_ms"]),
                str(row["exact"].get("syncs", "-")),
            )
        )
    names = ("step", "step_ms", "wall", "events", "Timer", "step_ms / wall")
    if rows:
        yield from table((*names, "latency_ms", "synced by hand", "syncs"), rows)


def ladder(results: Results) -> Iterator[str]:
    names = ("published", "predicted", "allocated", "reserved", "device_used")
    rows = [
        (
            row["rung"],
            *(
                f"{row[f'{name}_mib']:.0f}" if f"{name}_mib" in row else "-"
                for name in names
            ),
            f"{row['seconds']:.2f}" if "seconds" in row else "-",
        )
        for row in results.rows("ladder.jsonl")
    ]
    if rows:
        yield from table(("rung", *(f"{n}, MiB" for n in names), "s per step"), rows)


def unchanged(results: Results) -> Iterator[str]:
    rows = [
        (
            "stored" if row["more_pct"] is None else f"+{row['more_pct']} %",
            str(row["exit_status"]),
            f"{row['seconds']:.0f}",
            row["outcome"],
        )
        for row in results.rows("unchanged.jsonl")
    ]
    if rows:
        yield from table(("GPU time added", "exit", "seconds", "step_ms"), rows)


def tail_of(part: str) -> Callable[[Results], Iterator[str]]:
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


SECTIONS: Final[Mapping[str, Callable[[Results], Iterator[str]]]] = {
    "Time, beside other ways to read it": truth,
    "Waits": tail_of("waits"),
    "Unchanged code, and more work": unchanged,
    "GPT-2 large": ladder,
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
