"""What ``benchmarks/gpu.sh`` runs on a GPU: its parts, their limits, and what is kept."""

from __future__ import annotations

import json
import os
import platform
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import gpu_run
from gpu_page import ASSUMPTIONS, QUESTIONS, rows_of_the_table
from gpu_run import Part, Place


def part(name: str, code: str, limit_s: float = 60, beside: str = "") -> Part:
    command = (sys.executable, "-c", code)
    return Part(name=name, asks="", limit_s=limit_s, commands=(command,), beside=beside)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    folder, out = tmp_path / "results", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    return folder, out


def statuses(out: Path) -> dict[str, int | None]:
    found = json.loads((out / "status.json").read_text())
    return {each["part"]: each["exit_status"] for each in found["parts"]}


def packed(out: Path) -> dict[str, str]:
    with tarfile.open(out / "results.tar.gz") as archive:
        return {
            member.name: opened.read().decode()
            for member in archive
            if (opened := archive.extractfile(member))
        }


def in_ten_minutes() -> float:
    return time.monotonic() + 600


def test_a_part_that_raises_and_one_that_cannot_start_lose_none_of_the_others(
    places: tuple[Path, Path],
) -> None:
    folder, out = places
    broken = replace(part("broken", ""), commands=(("no-such-program",),))
    parts = [
        part("raises", "raise SystemExit(3)"),
        broken,
        part("ends", "print('done')"),
    ]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 1
    assert statuses(out) == {"raises": 3, "broken": gpu_run.NOT_STARTED, "ends": 0}
    assert packed(out)["results/ends.txt"].endswith("done\n")


def test_a_part_for_which_too_little_time_is_left_is_named_and_a_shorter_one_runs(
    places: tuple[Path, Path],
) -> None:
    folder, out = places
    parts = [
        part("long", "print('long')", limit_s=9000),
        part("short", "print('done')"),
    ]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 1
    assert statuses(out) == {"long": None, "short": 0}


def test_the_archive_is_small_enough_to_be_carried(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / "syncs").mkdir(parents=True)
    (folder / "large.bin").write_bytes(os.urandom(3000))
    (folder / "syncs" / "cuda.jsonl").write_text("{}\n")

    left_out = gpu_run.pack(folder, tmp_path / "results.tar.gz", most_bytes=2000)

    assert left_out == ["large.bin"]
    assert (tmp_path / "results.tar.gz").stat().st_size <= 2000
    assert list(packed(tmp_path)) == ["results/syncs/cuda.jsonl"]


def test_nothing_that_is_packed_names_the_machine(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    here = f"{gpu_run.ROOT}/tests/x.py on {platform.node()}, {Path.home()}/.cache"
    (folder / "part.txt").write_text(here)

    gpu_run.pack(folder, tmp_path / "results.tar.gz")

    said = packed(tmp_path)["results/part.txt"]
    assert said.startswith("tests/x.py on HOST")
    assert str(gpu_run.ROOT) not in said


@pytest.mark.parametrize("small", [False, True])
def test_each_part_has_a_question_a_limit_and_commands_of_this_interpreter(
    small: bool,  # noqa: FBT001, pytest passes parameters by name
) -> None:
    parts = Place(folder=Path("results"), small=small).parts()

    assert len({each.name for each in parts}) == len(parts)
    for each in parts:
        assert each.asks
        assert each.limit_s > 0
        assert all(sys.executable in command for command in each.commands[1:])


def test_each_question_answers_a_row_of_what_never_ran() -> None:
    page = ASSUMPTIONS.read_text(encoding="utf-8")

    assert {*QUESTIONS} <= {*rows_of_the_table(page)}
