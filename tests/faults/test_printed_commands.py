"""Each command that is printed does what it says, typed where it is printed, or exits with 1.

Every case brings a situation about, reads the command from what was printed there, types
it, and looks for what it promised. ``INVENTORY`` names the case of each command that the
package can print: a new one without a case is red.
"""

from __future__ import annotations

import ast
import html
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from desk import GITHUB, ROOT, Desk, Typed, typing_server

from pytest_gpuperf.cli import COMMANDS


FILE: Final = "test_it.py"
FAULTS: Final = {
    "test_slower": {"step_ms": 12.0},
    "test_waits": {"step_ms": 10.0, "syncs": 1},
    "test_bigger": {"step_ms": 10.0, "mem_mb": 131.0},
    "test_all_of_it": {"step_ms": 12.0, "syncs": 1, "mem_mb": 131.0},
    "test_slowest": {"step_ms": 14.0},
    "test_new": {"step_ms": 10.0},
}
"""What each test of a red run shows; the baseline has 10 ms, no sync and 100 MiB of all
but the last one."""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A project whose one test passes."""
    made = Desk(tmp_path / "project", typing_server())
    made.write("pytest.ini", "[pytest]\n")
    made.tests("test_a")
    made.play({})
    return made


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, Typed]:
    """A project after a run in CI in which each of ``FAULTS`` failed, and what it said."""
    desk = Desk(tmp_path_factory.mktemp("red") / "project", typing_server())
    desk.write("pytest.ini", "[pytest]\n")
    desk.tests(*FAULTS)
    desk.play({})
    desk.store("--deselect", f"{FILE}::test_new")
    desk.play(FAULTS)
    said = desk.gate(**GITHUB, GITHUB_STEP_SUMMARY="summary.md")
    assert f"{len(FAULTS)} failed" in said.output, said.text
    assert desk.type("gpuperf report").status == 0
    return desk, said


def in_blocks(text: str) -> list[str]:
    """Lines of the preformatted blocks of a page."""
    blocks = re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)
    return [line for block in blocks for line in html.unescape(block).splitlines()]


def of(test: str, lines: list[str]) -> str:
    """The command among *lines* that stores *test*."""
    found = [
        line.strip().partition(" ")[2].strip() if line.startswith("  ") else line
        for line in lines
        if re.match(r"  (accept|store) |gpuperf refresh|gpuperf accept", line)
        and re.search(rf"::{test}\b", line)
    ]
    assert found, "\n".join(lines)
    return found[0]


def assert_green(desk: Desk, *tests: str) -> None:
    """The gate of CI passes what was red."""
    done = desk.gate(*tests, **GITHUB)
    assert done.status == 0, done.text


# What a red run prints: in the terminal, in the summary of its job, on its page.

PLACES: Final = {
    "the terminal": lambda _desk, said: said.output.splitlines(),
    "the summary of the job": lambda desk, _said: in_blocks(desk.read("summary.md")),
    "the page": lambda desk, _said: in_blocks(desk.read(".gpuperf/report.html")),
}


@pytest.mark.parametrize(
    ("place", "test"),
    [
        *(("the terminal", test) for test in FAULTS),
        *(("the page", test) for test in ("test_all_of_it", "test_new")),
    ],
)
def test_what_a_red_run_says_to_accept_makes_the_gate_green(
    place: str, test: str, red: tuple[Desk, Typed], tmp_path: Path
) -> None:
    desk = red[0].copy(tmp_path / "project")
    command = of(test, PLACES[place](*red))

    done = desk.type(command)

    assert done.status == 0, done.text
    assert_green(desk, f"{FILE}::{test}")


def test_what_the_summary_says_to_accept_of_many_makes_them_all_green(
    red: tuple[Desk, Typed], tmp_path: Path
) -> None:
    desk = red[0].copy(tmp_path / "project")
    [command] = [
        c for c in in_blocks(desk.read("summary.md")) if c.startswith("gpuperf")
    ]
    assert "--only" not in command

    assert desk.type(command).status == 0
    assert_green(desk)


@pytest.mark.parametrize("test", ["test_all_of_it", "test_new"])
def test_what_the_comment_says_to_accept_of_one_stores_it_alone(
    test: str, red: tuple[Desk, Typed], tmp_path: Path
) -> None:
    desk = red[0].copy(tmp_path / "project")
    desk.gate("-k", test, **GITHUB)
    before = desk.entries()
    comment = in_blocks(desk.read(".gpuperf/comment.md"))
    [command] = [line for line in comment if line.startswith("gpuperf ")]

    done = desk.type(command)

    assert done.status == 0, done.text
    changed = {t for t, e in desk.entries().items() if e != before.get(t)}
    assert changed == {f"{FILE}::{test}"}
    assert_green(desk, f"{FILE}::{test}")


def test_a_red_run_says_how_its_page_is_made(red: tuple[Desk, Typed]) -> None:
    desk, said = red
    (desk.folder / ".gpuperf/report.html").unlink()
    [command] = re.findall(r"as a page: (gpuperf report)\b", said.output)

    assert desk.type(command).status == 0
    assert "test_waits" in desk.read(".gpuperf/report.html")


SLOW: Final = """
import pytest
from pytest_gpuperf.devices.process_time import HostClock

WALL, PASSED_NS = HostClock.wall_ns, [0]
# As if a library had done it: a clock that the project's code replaces is refused.
slow = compile("lambda: WALL() + PASSED_NS[0]", pytest.__file__, "eval")
HostClock.wall_ns = staticmethod(eval(slow))


def test_a(gpuperf):
    import torch

    def step():
        PASSED_NS[0] += 50 * 10**9
        torch.ones(3, device=gpuperf.device).add(1)

    gpuperf(step)
"""


def test_what_had_no_time_to_be_measured_fails_in_ci_and_is_measured_with_more(
    desk: Desk,
) -> None:
    pytest.importorskip("torch")
    desk.write(FILE, SLOW)

    said = desk.type("pytest --gpuperf --gpuperf-device=simulated", CI="true")
    again = desk.type(said.command("again"))

    assert said.status == 1, said.text
    assert "NOT MEASURED: peak memory" in said.output
    assert again.status == 0, again.text
    assert "NOT MEASURED" not in again.output
    assert "1 no baseline on simulated GPU" in again.output


SHARING: Final = """
import torch

def step(x):
    return x.add(1).sum()

def test_a(gpuperf):
    x = torch.ones(3, device="cuda")
    gpuperf(lambda: step(x))

def test_b(gpuperf):
    x = torch.ones(5, device="cuda")
    gpuperf(lambda: step(x))
"""


def test_what_two_tests_say_to_accept_of_one_line_makes_both_green(desk: Desk) -> None:
    pytest.importorskip("torch")
    on_simulated = "pytest --gpuperf --gpuperf-device=simulated"
    desk.write(FILE, SHARING)
    assert desk.type("gpuperf refresh --device=simulated").status == 0
    desk.write(FILE, SHARING.replace(".sum()", ".sum().item()"))

    said = desk.type(on_simulated)
    done = desk.type(said.command("accept"))

    assert said.status == 1, said.text
    assert said.output.count("accept  ") == 1
    assert said.command("accept") == f"gpuperf accept --only {FILE}:5"
    assert done.status == 0, done.text
    assert desk.type(on_simulated).status == 0


WAITING: Final = """
import sys
import torch
for _ in range(int(sys.argv[1])):
    torch.ones((), device="cuda").item()
"""


@pytest.mark.parametrize(
    ("count", "indent", "said"),
    [
        (2, 4, "2 syncs per step: more than --max-syncs-per-step=1"),
        (1, 0, "2 syncs: more than --max-syncs=1"),  # it makes no steps
    ],
)
def test_an_audit_says_how_one_wait_more_fails(
    desk: Desk, count: int, indent: int, said: str
) -> None:
    pytest.importorskip("torch")
    desk.write("train it.py", WAITING)

    first = desk.type(f"gpuperf audit 'train it.py' -- {count}")
    [command] = re.findall(r"^next: (.+)$", first.output, re.MULTILINE)
    same = desk.type(command)
    one_more = f"{' ' * indent}torch.ones((), device='cuda').item()\n"
    desk.write("train it.py", f"{WAITING}{one_more}")
    more = desk.type(command)

    assert (first.status, same.status, more.status) == (0, 0, 1), more.text
    assert said in more.text


BIG: Final = """
import torch
optimizer = torch.optim.SGD([torch.ones(2**20, device="cuda", requires_grad=True)])
for _ in range(3):
    (optimizer.param_groups[0]["params"][0] ** 2).sum().backward()
    optimizer.step()
"""


def test_a_peak_says_how_a_gpu_is_asked_about_and_how_all_is_seen(desk: Desk) -> None:
    pytest.importorskip("torch")
    desk.write("train it.py", BIG)
    said = desk.type("gpuperf memory --no-savings 'train it.py'")
    [gated] = re.findall(r"^next: (.+)$", said.output, re.MULTILINE)
    small = desk.type(gated.replace("--gb=8", "--gb=0.7"))
    [more] = re.findall(r"^next: (.+)$", small.output, re.MULTILINE)

    fits, shown = desk.type(gated), desk.type(more)

    assert (said.status, fits.status) == (0, 0), fits.text
    assert (small.status, shown.status) == (1, 1), shown.text
    assert "it fits in 8 GiB" in fits.output
    assert "taken here by aten::" in shown.output


# Where baselines lie, and what tests are called.


@pytest.mark.parametrize("place", PLACES)
def test_a_command_names_the_folder_of_the_baselines(place: str, desk: Desk) -> None:
    name = "perf/the stored/scripted.json"
    desk.write("pytest.ini", "[pytest]\ngpuperf_baselines = perf/the stored\n")
    desk.store()
    desk.play({"test_a": {"syncs": 1}})
    said = desk.gate(**GITHUB, GITHUB_STEP_SUMMARY="summary.md")
    folder = name.rpartition("/")[0]
    desk.type(f"gpuperf report --baselines '{folder}'")

    assert desk.type(of("test_a", PLACES[place](desk, said))).status == 0
    assert desk.entries(name)[f"{FILE}::test_a"]["runs"][0]["exact"]["syncs"] == 1
    assert not (desk.folder / "baselines").exists()


@pytest.mark.parametrize(
    "option",
    ["-ogpuperf_baselines=elsewhere", "--override-ini=gpuperf_baselines=elsewhere"],
)
def test_a_command_repeats_where_this_command_line_keeps_its_baselines(
    option: str, desk: Desk
) -> None:
    desk.store(option)
    desk.play({"test_a": {"step_ms": 12.0}})
    said = desk.gate(option)

    assert desk.type(said.command("accept")).status == 0
    assert desk.gate(option).status == 0
    assert not (desk.folder / "baselines").exists()


@pytest.mark.parametrize("place", ["perf/deep", "other", ".."])
@pytest.mark.parametrize("label", ["accept", "store"])
def test_a_command_is_typed_in_the_folder_where_the_run_was_started(
    label: str, place: str, desk: Desk
) -> None:
    desk.write("perf/deep/test_deep.py", "def test_a(gpuperf): gpuperf(int)\n")
    desk.write("other/test_other.py", "def test_b(gpuperf): gpuperf(int)\n")
    (desk.folder / FILE).unlink()
    if label == "accept":
        desk.store()
    desk.play({"test_a": {"step_ms": 12.0}})
    tests = os.path.relpath(desk.folder / "perf", desk.folder / place)
    away = replace(desk, place=place)
    said = away.gate(tests, **GITHUB)

    done = away.type(said.command(label))

    assert done.status == 0, done.text
    assert list(desk.entries())[-1:] == ["perf/deep/test_deep.py::test_a"]
    assert away.gate(tests, **GITHUB).status == 0
    assert desk.gate("perf", **GITHUB).status == 0


@pytest.mark.parametrize("place", ["the terminal", "the page"])
def test_a_name_with_blanks_and_quotes_can_be_typed(place: str, desk: Desk) -> None:
    desk.write(
        FILE,
        "import pytest\n@pytest.mark.parametrize('it', [\"a b's $HOME\", 'other'])\n"
        "def test_a(gpuperf, it): gpuperf(int)\n",
    )
    desk.store()
    desk.play({"*": {"step_ms": 10.0, "syncs": 1}})
    said = desk.gate("-k", "HOME", **GITHUB, GITHUB_STEP_SUMMARY="summary.md")
    desk.type("gpuperf report")

    assert desk.type(of("test_a", PLACES[place](desk, said))).status == 0
    stored = [e["runs"][0]["exact"]["syncs"] for e in desk.entries().values()]
    assert sorted(stored) == [0, 1]


def test_the_tolerance_that_a_noisy_refresh_advises_lets_the_gate_pass(
    desk: Desk,
) -> None:
    desk.play({"test_a": {"step_ms": [2.0, 2.18, 2.04, 1.98, 2.2, 2.08, 2.02, 2.1]}})
    said = desk.gate("--gpuperf-update=all")
    [option] = re.findall(r"would with (--gpuperf-tolerance=\S+)", said.words)

    followed = desk.gate("--gpuperf-update=all", option)
    done = desk.gate("--gpuperf-strict", option)

    assert "would rarely pass" in said.words
    assert "would rarely pass" not in followed.words
    assert done.status == 0, done.text


# What a failure does not offer.


# Drift, and what was measured too seldom.


def test_what_refuses_drift_says_how_it_is_stored(desk: Desk, tmp_path: Path) -> None:
    desk.store()
    desk.play({"test_a": {"step_ms": 11.0}})

    refresh = desk.gate("--gpuperf-update=all")
    accept = desk.type("gpuperf accept .gpuperf")

    assert (refresh.status, accept.status) == (1, 1)
    [of_accept] = re.findall(r"^    (gpuperf .+)", accept.output, re.MULTILINE)
    assert refresh.output.count("--accept-drift") == 1
    for number, command in enumerate((refresh.command("accept"), of_accept)):
        copy = desk.copy(tmp_path / str(number))
        assert copy.type(command).status == 0
        assert_green(copy)


@pytest.mark.parametrize(
    "only", [["--only", f"{FILE}::test_a"], []], ids=["named", "all"]
)
def test_what_was_measured_too_seldom_says_how_it_is_measured(
    only: list[str], desk: Desk
) -> None:
    desk.store()
    desk.play({"test_a": {"step_ms": 10.05}})
    assert desk.gate().status == 0
    refused = desk.type(" ".join(["gpuperf accept", *only, ".gpuperf"]))
    assert refused.status == 1, refused.text
    assert desk.entries()[f"{FILE}::test_a"]["anchor"]["step_ms"] == 10.0
    [line] = [t for t in refused.output.splitlines() if t.startswith("    gpuperf")]

    assert desk.type(line).status == 0
    stored = desk.entries()[f"{FILE}::test_a"]["runs"]
    assert {run["times"]["step_ms"]["q50"] for run in stored} == {10.05}


def test_what_another_torch_moved_is_accepted_as_the_run_says(desk: Desk) -> None:
    desk.play({"software": {"torch": "2.12.0"}})
    desk.store()
    desk.play({"software": {"torch": "2.13.0"}, "test_a": {"mem_mb": 150}})
    said = desk.gate(**GITHUB, GITHUB_STEP_SUMMARY="summary.md")
    assert said.status == 1
    [line] = [t for t in said.output.splitlines() if "then accept with: " in t]
    command = line.partition("then accept with: ")[2]
    assert command in html.unescape(desk.read("summary.md"))

    assert desk.type(command).status == 0
    assert_green(desk)


# The device of a refresh.


CPU: Final = {"kind": "cpu", "name": "other"}


def other_baseline(desk: Desk, hardware: dict[str, str], test: str = "test_a") -> None:
    """Put the baseline of this device into a file of another one as well."""
    document = json.loads(desk.read("baselines/scripted.json"))
    [entry, *_] = document["tests"].values()
    document["tests"] = {f"{FILE}::{test}": entry}
    document["hardware"] = hardware
    desk.write(f"baselines/{hardware['kind']}-other.json", json.dumps(document))


@pytest.mark.parametrize("kind", ["all", "improved"])
def test_a_refresh_of_a_named_test_goes_to_the_device_of_its_baseline(
    kind: str, desk: Desk
) -> None:
    desk.store()
    desk.play({"test_a": {"step_ms": 9.0 if kind == "improved" else 10.1}})

    done = desk.type(f"pytest --gpuperf --gpuperf-update={kind} {FILE}::test_a")

    assert done.status == 0, done.text
    assert "gpuperf: refreshing on scripted, which has the baseline" in done.output
    assert [path.name for path in (desk.folder / "baselines").iterdir()] == [
        "scripted.json"
    ]
    assert desk.entries()[f"{FILE}::test_a"]["runs"][0]["times"]["step_ms"]["q50"] < 11


def test_gpuperf_refresh_goes_there_too(desk: Desk) -> None:
    desk.store()
    desk.play({"test_a": {"step_ms": 12.0}})

    assert desk.type(f"gpuperf refresh --accept-drift {FILE}::test_a").status == 0
    assert_green(desk)


def test_a_device_with_baselines_of_other_tests_is_not_meant(desk: Desk) -> None:
    desk.store()
    other_baseline(desk, CPU, "test_other")

    done = desk.type(f"pytest --gpuperf --gpuperf-update=all {FILE}::test_a")

    assert "refreshing on scripted" in done.output


def test_a_refresh_whose_test_has_baselines_on_several_devices_is_refused(
    desk: Desk,
) -> None:
    """The device that pytest takes by itself is none of them."""
    pytest.importorskip("torch")
    desk.store()
    other_baseline(desk, CPU)

    done = desk.type(f"pytest --gpuperf --gpuperf-update=all {FILE}::test_a")

    assert done.status == 4
    assert "on cpu and scripted, and none on simulated; name one with" in done.words
    [option] = re.findall(r"--gpuperf-device\b", done.errors)
    again = f"pytest --gpuperf {option}=scripted --gpuperf-update=all {FILE}::test_a"
    assert desk.type(again).status == 0


def test_a_baseline_that_cannot_be_read_is_no_device(desk: Desk) -> None:
    desk.store()
    desk.write("baselines/cpu-other.json", "{")

    done = desk.type(f"pytest --gpuperf --gpuperf-update=all {FILE}::test_a")

    assert done.status == 0, done.text


# What is said where nothing is there yet, or what is there is broken.


@pytest.fixture
def here(desk: Desk) -> Desk:
    """A project that names its device, so that ``pytest --gpuperf`` is enough."""
    desk.write("pytest.ini", "[pytest]\ngpuperf_device = scripted\n")
    return desk


def quoted(text: str) -> str:
    """The one command that stands between backquotes."""
    [command] = dict.fromkeys(re.findall(r"`([^`]+)`", text))
    return command


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("gpuperf report", 4),
        ("gpuperf export pytest-benchmark", 4),
    ],
)
def test_a_command_that_finds_nothing_says_what_makes_it_find_something(
    command: str, status: int, here: Desk
) -> None:
    missing = here.type(command)
    assert missing.status == status, missing.text
    typed = here.type(quoted(missing.text))
    assert typed.status == 0, typed.text

    found = here.type(command)

    assert found.status == 0, found.text
    assert quoted(missing.text) not in found.text


def test_a_run_on_a_device_without_baselines_names_the_device_that_has_some(
    here: Desk,
) -> None:
    here.store()
    (here.folder / "baselines/scripted.json").rename(
        here.folder / "baselines/cpu-of-another-name.json"
    )
    elsewhere = here.type("pytest --gpuperf")
    assert "there are some of cpu" in elsewhere.words
    [command] = re.findall(r"use them: (pytest --gpuperf \S+)", elsewhere.words)

    there = here.type(command)

    assert there.status == 0, there.text
    assert "on CPU " in there.words
    assert "there are some of" not in there.words


def test_a_broken_baseline_is_recorded_anew_as_the_refusal_says(here: Desk) -> None:
    here.store()
    here.write("baselines/scripted.json", '{"schema": 1')
    refused = here.type("pytest --gpuperf")
    assert refused.status == 4
    [option] = re.findall(r"delete it and record it again with (\S+)", refused.words)
    (here.folder / "baselines/scripted.json").unlink()

    assert here.type(f"pytest --gpuperf {option}").status == 0
    assert_green(here)


def test_a_broken_pending_file_is_measured_again_as_the_refusal_says(
    here: Desk,
) -> None:
    here.write(".gpuperf/pending-scripted.json", "")
    typed = "gpuperf accept .gpuperf/pending-scripted.json"
    refused = here.type(typed)
    assert refused.status == 4

    assert here.type(quoted(refused.errors)).status == 0
    assert here.type(typed).status == 0


def test_what_a_look_says_to_accept_is_accepted(here: Desk) -> None:
    here.store()
    here.play({"test_a": {"syncs": 1}})
    here.type("pytest --gpuperf")
    before = here.read("baselines/scripted.json")
    looked = here.type("gpuperf accept --dry-run --accept-drift .gpuperf")

    assert "nothing was written" in looked.output
    assert here.read("baselines/scripted.json") == before
    assert "would accept 1" in looked.words
    assert here.type(f"{quoted(looked.output)} --accept-drift .gpuperf").status == 0
    assert_green(here)


def test_the_doctor_says_how_baselines_are_recorded(desk: Desk) -> None:
    pytest.importorskip("torch")
    seen = desk.type("gpuperf doctor --device=simulated")
    [command] = re.findall(r"record with: (.+?) gpuperf:", seen.words)
    desk.write(
        FILE,
        "import torch\ndef test_a(gpuperf):\n"
        "  a = torch.ones(8, device=gpuperf.device)\n  gpuperf(lambda: a.sum())\n",
    )

    assert desk.type(command).status == 0
    assert "none in" not in desk.type("gpuperf doctor --device=simulated").words


# What an option would do.


def test_entries_without_a_test_are_removed_by_the_option_named(here: Desk) -> None:
    here.tests("test_a", "test_gone")
    here.store()
    here.tests("test_a")
    said = here.type("pytest --gpuperf")
    [option] = re.findall(r"test any more, (\S+) removes", said.words)

    assert here.type(f"pytest --gpuperf {option}").status == 0
    assert list(here.entries()) == [f"{FILE}::test_a"]


def test_what_is_stored_and_was_not_measured_says_how_it_is_removed(here: Desk) -> None:
    here.tests("test_a", "test_plain")
    here.store()
    here.write(
        FILE,
        here.read(FILE).replace(
            "def test_plain(gpuperf): gpuperf", "def test_plain():"
        ),
    )
    said = here.type("pytest --gpuperf --gpuperf-device=scripted")
    [command] = re.findall(r"remove \w+ with: (.*?--gpuperf-device=\w+)", said.words)

    assert here.type(command).status == 0
    assert list(here.entries()) == [f"{FILE}::test_a"]
    assert here.gate(CI="true").status == 0


def test_a_step_that_ate_the_cap_is_measured_in_full_where_it_is_raised(
    here: Desk,
) -> None:
    here.store()
    here.play({"test_a": {"step_ms": 2000.0}})
    short = here.gate("--gpuperf-seconds=1")
    [option] = set(re.findall(r"too slow to measure within (\S+),", short.words))

    enough = here.gate(f"{option}=600")

    assert (short.status, enough.status) == (1, 1)
    assert "too slow to measure" not in enough.words


def test_a_cap_that_was_too_low_decides_where_it_is_raised(here: Desk) -> None:
    here.store()
    here.play({"test_a": {"step_ms": 10.25}})
    said = here.type("pytest --gpuperf --gpuperf-seconds=0.001")
    [option] = set(re.findall(r"raise (--gpuperf-seconds)", said.words))

    again = here.type(f"pytest --gpuperf {option}=600")

    assert f"raise {option}" not in again.words


@pytest.mark.parametrize(
    "command",
    [
        "pytest --gpuperf --gpuperf-update=all",
        "gpuperf accept .gpuperf",
    ],
)
def test_ci_learns_how_a_job_may_refresh(command: str, here: Desk) -> None:
    here.store()
    refused = here.type(command, CI="true")
    assert refused.status == 4
    [(name, value)] = re.findall(r"set (\w+)=(\d)", refused.words)

    assert here.type(command, CI="true", **{name: value}).status == 0


# Other code.


@pytest.fixture
def repository(here: Desk) -> Desk:
    """The project under git, its baseline of the commit on main."""
    desk = Desk(
        here.folder,
        here.server,
        {
            **{
                f"GIT_{who}_{what}": "a"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
            "GIT_CONFIG_GLOBAL": "/dev/null",
        },
    )
    desk.write(".gitignore", "__pycache__\n.pytest_cache\n.gpuperf\n")
    desk.store()
    git(desk, "init", "--quiet", "--initial-branch=main")
    commit(desk)
    return desk


def git(desk: Desk, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ["git", "-C", str(desk.folder), *author, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def commit(desk: Desk) -> None:
    git(desk, "add", "--all")
    git(desk, "commit", "--quiet", "--message=more")


@pytest.mark.parametrize("place", ["the terminal", "the page"])
def test_a_time_that_failed_is_compared_again(place: str, repository: Desk) -> None:
    repository.play({"test_a": {"step_ms": 11.0}})
    said = repository.type(
        "pytest --gpuperf",
        **GITHUB,
        GITHUB_STEP_SUMMARY="summary.md",
    )
    repository.type("gpuperf report")
    lines = PLACES[place](repository, said)
    [command, *_] = [
        line[line.index("gpuperf ab") :] for line in lines if "gpuperf ab" in line
    ]

    again = repository.type(command)

    assert again.status == 1
    assert "slower" in again.words


def test_a_time_that_failed_is_compared_again_from_a_folder(
    repository: Desk,
) -> None:
    repository.write("perf/README", "in both versions")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--amend", "--no-edit")
    repository.play({"test_a": {"step_ms": 11.0}})
    away = replace(repository, place="perf")
    said = away.type(f"pytest ../{FILE} --gpuperf", **GITHUB)

    again = away.type(said.command("again"))

    assert again.status == 1, again.text
    assert "slower" in again.words


def test_a_comparison_without_a_branch_says_how_a_commit_is_named(
    repository: Desk,
) -> None:
    git(repository, "branch", "--quiet", "-m", "trunk")
    refused = repository.type("gpuperf ab")
    assert refused.status == 125, refused.text
    command = quoted(refused.errors).replace("REF", "HEAD")

    assert repository.type(command).status == 0


def test_a_time_that_nobody_judged_is_decided_by_the_command_named(
    repository: Desk,
) -> None:
    entries = json.loads(repository.read("baselines/scripted.json"))
    for entry in entries["tests"].values():
        del entry["runs"][4:]  # too few to blame
    repository.write("baselines/scripted.json", json.dumps(entries))
    commit(repository)
    repository.play({"test_a": {"step_ms": 10.4}})
    inconclusive = repository.type("pytest --gpuperf")
    assert inconclusive.status == 0
    assert "inconclusive: the time of 1 test" in inconclusive.words
    [command] = re.findall(r"code again: (gpuperf ab .*)", inconclusive.text)

    decided = repository.type(command)

    assert decided.status == 1
    assert "slower" in decided.words


def test_a_session_that_a_reason_asks_for_is_added_to_the_baseline(
    here: Desk,
) -> None:
    """Its reason is of a GPU, where stored days differ; the command is for any device."""
    here.store()
    [before] = here.entries().values()

    assert here.type("gpuperf refresh --sessions 1").status == 0

    [after] = here.entries().values()
    assert after["runs"][: len(before["runs"])] == before["runs"]
    assert len(after["runs"]) == len(before["runs"]) + 5
    assert after["anchor"] == before["anchor"]


# What a suite that is watched does.

PACKAGE_TEXT: Final = """
import torch

CACHE = []

def accuracy(x):
    right = (x > 0).sum()
    return right.item()

def remember(x):
    CACHE.append(x * 2)
"""
WATCHED_TESTS: Final = """
import package, torch

def test_read(): assert package.accuracy(torch.ones(3, device="cuda")) > 0

def test_leak(): package.remember(torch.ones(1000, device="cuda"))
"""
COUNTS: Final = "baselines/watch/simulated-cuda.json"


@pytest.fixture
def watched(tmp_path: Path) -> Desk:
    """A project of ordinary tests, without a baseline."""
    pytest.importorskip("torch")
    made = Desk(tmp_path, typing_server("torch", "torch._dynamo", warm=None))
    made.write("package.py", PACKAGE_TEXT)
    made.write("test_suite.py", WATCHED_TESTS)
    more = WATCHED_TESTS.partition("def test_leak")[0].replace("test_read", "test_more")
    made.write("test_more.py", more)
    return made


def test_what_a_watch_says_stores_what_it_names(watched: Desk) -> None:
    """A line that was edited keeps its count, and a run of one file those of the others."""

    def typed(
        command: str = "pytest --gpuperf-watch", body: str = PACKAGE_TEXT
    ) -> Typed:
        watched.write("package.py", body)
        return watched.type(command)

    def said(typed: Typed) -> str:
        found = r"pytest --gpuperf-watch --gpuperf-update=\w+|--gpuperf-update=improved"
        [command] = re.findall(found, typed.words)
        return f"pytest --gpuperf-watch {command.rpartition(' ')[2]}"

    assert typed(said(typed())).status == 0
    stored = watched.read(COUNTS)
    assert {*json.loads(stored)["tests"]} == {
        "test_more.py::test_more",
        "test_suite.py::test_leak",
        "test_suite.py::test_read",
    }

    some = typed("pytest test_more.py --gpuperf-watch --gpuperf-update=all")
    assert (some.status, watched.read(COUNTS)) == (0, stored)

    edited = PACKAGE_TEXT.replace("right", "hits")
    assert typed(body=edited).status == 0

    twice = edited.replace("hits = ", "hits = bool(x.any()) + ")
    worse = typed(body=twice)
    assert (worse.status, typed(said(worse), twice).status) == (1, 0)
    assert "2 syncs, baseline 1, and more in 1 other test" in worse.words
    assert re.search(r"passed.* 1 count failed in", worse.words)

    better = typed(body=edited)
    assert (better.status, typed(said(better), edited).status) == (0, 0)
    assert "--gpuperf-update" not in typed(body=edited).words


# Every command that the package can print.

TOKEN: Final = re.compile(
    rf"gpuperf (?:{'|'.join(sorted(COMMANDS, reverse=True))})\b|pytest --gpuperf\b|(?<![\w=])--gpuperf-[a-z-]+"
    r"|set \{[^}]*\}=1|set GPUPERF_\w+|--device=[\w{}]+|git -C \{\} fetch|git [a-z]+ --\w+|\bpip install [\w\[\]{}.-]+"
)
"""What somebody may type, in a text."""


# Not importorskip: pytester would unload torch again, and a second import crashes.
WHY: Final = {
    "DESCRIBED": "names what it is about, and asks nobody to type it",
    "MACHINE": "needs a GPU, other ranks, root or a network: typed by tests of its own",
    "MINUTES": "is printed after a minute at the soonest: its cause has tests of its own",
    "PASSED": "is handed to pytest, and printed nowhere",
}

TABLE: Final = """
baselines/format.py | --gpuperf-update | test_a_broken_baseline_is_recorded_anew_as_the_refusal_says
settings.py | set {}=1 | test_ci_learns_how_a_job_may_refresh
judge/stored_times.py | gpuperf refresh | test_a_session_that_a_reason_asks_for_is_added_to_the_baseline
judge/stored_times.py | gpuperf ab | test_a_time_that_nobody_judged_is_decided_by_the_command_named
cli/accept.py | gpuperf accept | test_ci_learns_how_a_job_may_refresh
cli/doctor.py | --gpuperf-device | test_the_doctor_says_how_baselines_are_recorded
plugin/__init__.py | --gpuperf-device | DESCRIBED
plugin/__init__.py | --gpuperf-watch | DESCRIBED
plugin/watch.py | --gpuperf-watch | DESCRIBED
plugin/watch.py | pytest --gpuperf | test_what_a_watch_says_stores_what_it_names
report/screen/watch.py | pytest --gpuperf | test_what_a_watch_says_stores_what_it_names
report/screen/watch.py | --gpuperf-update | test_what_a_watch_says_stores_what_it_names
plugin/watch.py | --gpuperf-device | DESCRIBED
plugin/watch.py | --gpuperf-update | DESCRIBED
report/screen/acceptance.py | pytest --gpuperf | test_a_run_on_a_device_without_baselines_names_the_device_that_has_some
report/screen/acceptance.py | --gpuperf-device | test_a_run_on_a_device_without_baselines_names_the_device_that_has_some
cli/refresh.py | --gpuperf-update | PASSED
cli/shared_options.py | --gpuperf-device | PASSED
compare_commits/side_server.py | --gpuperf-device | PASSED
report/screen/checkup.py | --gpuperf-update | test_the_doctor_says_how_baselines_are_recorded
report/screen/counts.py | gpuperf report | test_a_red_run_says_how_its_page_is_made
report/screen/failure.py | --gpuperf-strict | DESCRIBED
cli/doctor.py | pytest --gpuperf | DESCRIBED
cli/export.py | pytest --gpuperf | test_a_command_that_finds_nothing_says_what_makes_it_find_something
cli/accept.py | pytest --gpuperf | test_a_broken_pending_file_is_measured_again_as_the_refusal_says
cli/report.py | pytest --gpuperf | test_a_command_that_finds_nothing_says_what_makes_it_find_something
cli/shared_options.py | pytest --gpuperf | DESCRIBED
compare_commits/sides.py | git -C {} fetch | MACHINE
compare_commits/sides.py | gpuperf ab | DESCRIBED
compare_commits/pairs.py | pytest --gpuperf | DESCRIBED
compare_commits/side_process.py | pip install -e | MACHINE
runner/git.py | gpuperf ab | test_a_comparison_without_a_branch_says_how_a_commit_is_named
runner/git.py | git fetch --unshallow | MACHINE
runner/git.py | git fetch --deepen | MACHINE
devices/__init__.py | set GPUPERF_SCRIPT | DESCRIBED
devices/__init__.py | --gpuperf-device | DESCRIBED
devices/cuda/device.py | --gpuperf-device | MACHINE
devices/machine.py | pip install nvidia-ml-py | MACHINE
report/html/contents.py | pip install jinja2 | MACHINE
plugin/outputs.py | gpuperf export | MACHINE
plugin/outputs.py | pip install pytest-gpuperf[benchmark] | MACHINE
runner/screening.py | --gpuperf-seconds | test_a_cap_that_was_too_low_decides_where_it_is_raised
worker/ranks_child.py | --gpuperf-device | MACHINE
worker/ranks_child.py | pytest --gpuperf | MACHINE
model/budget.py | --gpuperf-seconds | DESCRIBED
worker/measurer.py | pytest --gpuperf | MACHINE
runner/request.py | --gpuperf-device | test_what_a_red_run_says_to_accept_makes_the_gate_green
measure/emulated.py | --gpuperf-device | MACHINE
measure/further_steps.py | --gpuperf-seconds | MACHINE
measure/plan.py | --gpuperf-seconds | MACHINE
report/screen/acceptance.py | gpuperf accept | test_what_a_look_says_to_accept_is_accepted
measure/timing.py | --gpuperf-seconds | MACHINE
measure/profile.py | --gpuperf-seconds | MACHINE
report/command.py | --gpuperf-update | test_what_is_stored_and_was_not_measured_says_how_it_is_removed
report/command.py | --gpuperf-device | test_a_time_that_failed_is_compared_again
report/command.py | --device={} | test_what_was_measured_too_seldom_says_how_it_is_measured
report/screen/acceptance.py | --gpuperf-update | test_entries_without_a_test_are_removed_by_the_option_named
report/json.py | pytest --gpuperf | DESCRIBED
plugin/parse_settings.py | --gpuperf-update | test_ci_learns_how_a_job_may_refresh
judge/process_pairs.py | --gpuperf-seconds | MINUTES
report/command.py | --gpuperf-seconds | test_what_had_no_time_to_be_measured_fails_in_ci_and_is_measured_with_more
report/screen/counts.py | --gpuperf-tolerance | test_the_tolerance_that_a_noisy_refresh_advises_lets_the_gate_pass
runner/baseline_writer.py | --gpuperf-device | test_a_refresh_whose_test_has_baselines_on_several_devices_is_refused
"""
"""Module, what it may print, and the case that types it, or why none does."""

INVENTORY: Final = {
    (module, token): case
    for module, token, case in (
        line.split(" | ") for line in TABLE.strip().splitlines()
    )
}


def test_a_test_that_waits_more_says_how_its_fix_is_tried(desk: Desk) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("libcst")
    desk.write("test it.py", ADDING)
    said = desk.type("pytest --gpuperf 'test it.py'")
    [command] = re.findall(r"^  try +(.+)$", said.output, re.MULTILINE)

    tried = desk.type(command)

    assert (said.status, tried.status) == (1, 0), tried.text
    assert "+        total += row.sum().detach().double()" in tried.output


ADDING: Final = """
import torch
from pytest_gpuperf import Gpuperf, budget

def add(rows):
    total = 0.0
    for row in rows:
        total += row.sum().item()
    return total

@budget(syncs=0)
def test_sum(gpuperf: Gpuperf) -> None:
    rows = torch.ones(8, 4, device="cuda")
    assert gpuperf(lambda: add(rows)) == 32
"""

BUILT: Final = {
    "diff_command": "test_a_test_that_waits_more_says_how_its_fix_is_tried",
    "audit_command": "test_an_audit_says_how_one_wait_more_fails",
    "memory_command": "test_a_peak_says_how_a_gpu_is_asked_about_and_how_all_is_seen",
    "again_command": (
        "test_what_had_no_time_to_be_measured_fails_in_ci_and_is_measured_with_more"
    ),
    "ab_command": "test_a_time_that_failed_is_compared_again",
    "accept_command": "test_what_the_comment_says_to_accept_of_one_stores_it_alone",
    "accept_lines_command": "test_what_two_tests_say_to_accept_of_one_line_makes_both_green",
    "prune_command": "test_what_is_stored_and_was_not_measured_says_how_it_is_removed",
    "measure_command": "test_what_was_measured_too_seldom_says_how_it_is_measured",
    "refresh_command": "test_what_a_red_run_says_to_accept_makes_the_gate_green",
}
"""By the function that makes it: the case that types such a command."""

PACKAGE: Final = ROOT / "pytest_gpuperf"


def texts_of(path: Path) -> Iterator[str]:
    """The texts in a module that somebody may read: no docstrings, no bare options."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            inside.add(id(node.value))  # a docstring
        if isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                p.value if isinstance(p, ast.Constant) else "{}" for p in node.values
            )
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            bare = re.fullmatch(r"--[a-z-]+=?", node.value)
            if id(node) not in inside and not bare:
                yield node.value


def printable() -> set[tuple[str, str]]:
    return {
        (path.relative_to(PACKAGE).as_posix(), token)
        for path in PACKAGE.rglob("*.py")
        if path.name != "retired.py"  # each of its sentences has a test
        for text in texts_of(path)
        for token in TOKEN.findall(text)
    }


def test_every_command_that_can_be_printed_is_in_the_inventory() -> None:
    assert printable() - set(INVENTORY) == set()


def test_the_inventory_holds_nothing_that_cannot_be_printed() -> None:
    assert set(INVENTORY) - printable() == set()


@pytest.mark.parametrize("case", sorted({*INVENTORY.values(), *BUILT.values()}))
def test_the_inventory_names_cases_that_there_are(case: str) -> None:
    assert case in WHY or callable(globals().get(case))


def test_each_command_that_is_put_together_has_a_case() -> None:
    names = re.findall(
        r"^def (\w+_command)\(",
        (PACKAGE / "report/command.py").read_text(),
        re.MULTILINE,
    )
    quoting = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "shlex.quote" in path.read_text(encoding="utf-8")
    }

    assert set(names) == set(BUILT)
    assert quoting == {"report/command.py"}  # no other module puts a command together
