"""What ``benchmarks/gpu.sh`` runs on a GPU: its parts, their limits, and what is kept."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import gpu_page
import gpu_run
from gpu_page import ASSUMPTIONS, QUESTIONS, Answer, Results, rows_of_the_table
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
        part("ends", "print('told')"),
    ]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 1
    assert statuses(out) == {"raises": 3, "broken": gpu_run.NOT_STARTED, "ends": 0}
    assert packed(out)["results/ends.txt"].endswith("told\n")


def test_a_part_that_hangs_is_ended_and_the_next_one_runs(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = places
    monkeypatch.setattr(gpu_run, "GRACE_S", 0.2)
    hangs = "import time; time.sleep(999)"
    parts = [part("hangs", hangs, limit_s=1), part("ends", "print('told')")]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 1
    assert statuses(out) == {"hangs": gpu_run.ENDED, "ends": 0}


def test_what_does_not_listen_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu_run, "GRACE_S", 0.2)
    hangs = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(999)'])\n"
        "print('begun', flush=True)\n"
        "time.sleep(999)"
    )
    with subprocess.Popen(
        (sys.executable, "-c", hangs), stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        gpu_run.end(process)
        # The child holds the pipe too: it is at its end when both are.
        assert process.stdout.read() == b""

    assert process.returncode == -signal.SIGKILL


def test_a_part_for_which_too_little_time_is_left_is_named_and_a_shorter_one_runs(
    places: tuple[Path, Path],
) -> None:
    folder, out = places
    parts = [
        part("long", "print('long')", limit_s=9000),
        part("short", "print('told')"),
    ]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 1
    assert statuses(out) == {"long": None, "short": 0}


def test_a_part_that_is_asked_for_alone_has_all_the_time_there_is(
    places: tuple[Path, Path],
) -> None:
    folder, out = places

    assert (
        gpu_run.run([part("long", "", limit_s=9000)], folder, out, in_ten_minutes())
        == 0
    )


def test_what_came_before_is_kept_while_a_part_runs(places: tuple[Path, Path]) -> None:
    folder, out = places
    looks = f"import os; print(sorted(os.listdir({str(out)!r})))"

    gpu_run.run(
        [part("first", ""), part("looks", looks)], folder, out, in_ten_minutes()
    )

    assert "['results.tar.gz', 'status.json']" in packed(out)["results/looks.txt"]
    assert sorted(path.name for path in out.iterdir()) == [
        "results.tar.gz",
        "status.json",
    ]


def test_parts_that_read_no_times_run_beside_each_other(
    places: tuple[Path, Path],
) -> None:
    folder, out = places
    meet = (
        "import os, time, pathlib as p; here = p.Path({folder!r})\n"
        "(here / '{own}').touch()\n"
        "while not (here / '{other}').exists(): time.sleep(0.01)"
    )
    parts = [
        part(
            own,
            meet.format(
                folder=str(folder), own=f"{own}-is-here", other=f"{other}-is-here"
            ),
            beside="both",
        )
        for own, other in (("one", "other"), ("other", "one"))
    ]

    assert gpu_run.run(parts, folder, out, in_ten_minutes()) == 0


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


def test_pages_say_what_holds_what_is_wrong_and_what_stays_open(tmp_path: Path) -> None:
    (tmp_path / "tests-gpu.xml").write_text(
        '<testsuites><testsuite><testcase name="test_copies_of_known_sizes_are_counted"/>'
        '<testcase name="test_a_planted_item_is_found"><failure/></testcase>'
        '<testcase name="test_ranks_have_a_gpu_each"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    results = Results(tmp_path)

    assert QUESTIONS["copies on CUDA"](results) == Answer(
        holds=True, why="1 tests passed"
    )
    assert QUESTIONS["hidden syncs on CUDA"](results) == Answer(
        holds=False, why="`test_a_planted_item_is_found` and 0 more"
    )
    assert QUESTIONS["`ranked/` on CUDA"](results) is None


@pytest.mark.parametrize(("step_ms", "holds"), [(10.1, True), (10.5, False)])
def test_a_step_time_that_is_not_the_wall_clock_s_is_wrong(
    tmp_path: Path,
    step_ms: float,
    holds: bool,  # noqa: FBT001
) -> None:
    row = {"plugin_ms": {"step_ms": step_ms}, "by_hand": {"wall_ms": 10.0}}
    (tmp_path / "truth.jsonl").write_text(json.dumps(row) + "\n" + '{"plugin')

    answer = QUESTIONS["`devices/cuda/device.py`, time"](Results(tmp_path))

    assert answer is not None
    assert answer.holds is holds


def brought_back(tmp_path: Path, step_ms: float) -> Path:
    """A folder as ``gpu.sh`` leaves it, of a run that was cut short."""
    results, folder = tmp_path / "results", tmp_path / "cuda-a-gpu"
    results.mkdir()
    folder.mkdir()
    hand = {"wall_ms": 10.0, "events_ms": 10.0, "timer_ms": 10.0, "synced_ms": 9.0}
    row = {
        "step": "training",
        "plugin_ms": {"step_ms": step_ms},
        "by_hand": hand,
        "exact": {"syncs": 0},
    }
    (results / "truth.jsonl").write_text(json.dumps(row) + "\n")
    (results / "speed.txt").write_text("$ pytest\n2 passed in 1 s\n")
    found = [
        gpu_run.PartStatus(part="truth", exit_status=0, seconds=41.4),
        gpu_run.PartStatus(part="commands", exit_status=None),
    ]
    gpu_run.keep(folder, results, found)
    return folder


@pytest.mark.parametrize(("step_ms", "wrong"), [(10.1, 0), (10.5, 1)])
def test_a_page_is_made_of_what_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ms: float, wrong: int
) -> None:
    folder = brought_back(tmp_path, step_ms)
    monkeypatch.setattr("sys.argv", ["gpu_page.py", str(folder)])

    assert gpu_page.main() == wrong

    page = (folder / "README.md").read_text()
    assert "| truth | exit 0 | 41 |\n| commands | no time | 0 |\n" in page
    assert f"| training | {step_ms:.3f} | 10.000 | 10.000 | 10.000 |" in page
    assert "```text\n$ pytest\n2 passed in 1 s\n```" in page
    row = "`devices/cuda/device.py`, time"
    assert f"| {row} | {'WRONG' if wrong else 'holds'}: step_ms over wall" in page
    assert "\n- `devices/cuda/device.py`, memory\n" in page


def test_a_folder_without_results_is_an_error_that_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_page.py", str(tmp_path)])

    with pytest.raises(SystemExit):
        gpu_page.main()

    assert "has no status.json: expected what gpu.sh wrote" in capsys.readouterr().err
