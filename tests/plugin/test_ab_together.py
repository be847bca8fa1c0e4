"""``gpuperf ab`` by one process in which both versions stand, on the scripted device."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from git_project import SCRIPTED
from git_project import GitProject
from witness import PATIENCE_SECONDS
from witness import Witness

from pytest_gpuperf.cli import main
from pytest_gpuperf.compare_commits import side_server


pytest.importorskip("torch")

PROGRESS = """\
gpuperf: pair 1 of at most 8: 1 test
gpuperf: both in one process: 1 test
"""
DONE = "gpuperf: compared in 1 pair\n"

APART = "note: compared in pairs of processes, as one cannot hold both: "


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    """A project whose script may be played together with that of another version."""
    project_of_commits.write("pytest.ini", "[pytest]\npythonpath = .\n")
    play(project_of_commits, step_ms=10.0)
    project_of_commits.commit()
    return project_of_commits


def play(project: GitProject, **steps: object) -> None:
    project.write("script.json", re.sub("'", '"', str({"together": 1, "*": steps})))


def ab() -> int:
    return main(["ab", SCRIPTED, "HEAD"])


def why_apart(capsys: pytest.CaptureFixture[str]) -> str:
    """The note that says why one process could not hold both, in one line."""
    text = " ".join(capsys.readouterr().out.split())
    return text.partition(APART)[2].partition(" gpuperf: ")[0]


def test_a_slower_version_is_seen_in_turns_after_one_pair(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    head = project.git("rev-parse", "--short=7", "HEAD")
    play(project, step_ms=10.5)

    code = ab()

    assert code == 1
    shown = capsys.readouterr()
    assert shown.err == PROGRESS + DONE
    assert shown.out == (
        f"""\
before HEAD ({head}), after working tree ({head}, uncommitted changes), on
    scripted
engine: times by both versions in turns in one process, which share its
    conditions; "sees" is the smallest slowdown that so many steps would have
    shown 9 times in 10; 4296 steps in 62.7 s a test; what is exact by pairs of
    fresh processes; 1 pair a test
verdict  metric     before     after  change          95 %   sees  test
slower   step_ms  10.00 ms  10.50 ms  +5.0 %  +4.7 to +5.3  1.5 %  test_it.py::test_step
test_it.py::test_step: after is slower by more than 1 %: time +5.0 %, 95 %
    interval +4.7 % to +5.3 %; t-test over 6 processes with both versions
gpuperf: 1 worse
"""
    )
    assert project.is_untouched


def test_what_is_exact_is_confirmed_by_a_second_pair(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    play(project, step_ms=10.0, syncs=1)

    code = ab()

    assert code == 1
    shown = capsys.readouterr()
    assert shown.err == (
        f"{PROGRESS}gpuperf: pair 2 of at most 8: 1 test\ngpuperf: compared in 2 pairs\n"
    )
    assert [line.split()[:5] for line in shown.out.splitlines()[7:9]] == [
        ["same", "step_ms", "10.00", "ms", "10.00"],
        ["worse", "syncs", "0", "1", "+1"],
    ]


def test_each_step_imports_its_own_version_whenever_it_does(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says in the name of a fixture which file its own version must read."""
    project.write("pkg/__init__.py", "")
    project.write("pkg/late.py", "NAME = 'old'\n")
    project.write("name.txt", "old")
    project.tests(
        "import os, sys\n"
        "from pathlib import Path\n"
        "def test_step(gpuperf, monkeypatch):\n"
        "    name = Path('name.txt').read_text()\n"
        "    monkeypatch.setenv('NAME', name)\n"
        "    def step():\n"
        "        sys.modules.pop('pkg.late', None)\n"
        "        from pkg.late import NAME\n"
        "        assert NAME == name == os.environ['NAME']\n"
        "        assert Path('name.txt').read_text() == name\n"
        "    gpuperf(step)\n"
    )
    project.commit()
    project.write("pkg/late.py", "NAME = 'new'\n")
    project.write("name.txt", "new")

    code = ab()

    assert code == 0
    shown = capsys.readouterr()
    assert shown.err == PROGRESS + DONE
    assert "224 steps in 3.4 s a test" in shown.out


def test_every_call_of_a_test_is_compared_with_the_same_one(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.tests(
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    gpuperf(int, name='two')\n"
        "    assert gpuperf.measurement.test == 'test_it.py::test_step#two'\n"
    )
    project.commit()
    project.write(
        "script.json",
        '{"together": 1, "*": {"step_ms": 10.0}, "test_step#two": {"step_ms": 11.0}}',
    )

    code = ab()

    assert code == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if "step_ms" in line]
    assert [(row.split()[0], row.split()[-1]) for row in rows] == [
        ("slower", "test_it.py::test_step#two"),
        ("same", "test_it.py::test_step"),
    ]


THERE_ALREADY = """
import builtins
assert not hasattr(builtins, 'gpuperf_test_mark'), 'there is one already'
builtins.gpuperf_test_mark = 1
"""
DIES = """
import builtins, os
if hasattr(builtins, 'gpuperf_test_mark'): os.kill(os.getpid(), 9)
builtins.gpuperf_test_mark = 1
"""
LEAVES = """
import builtins
builtins.gpuperf_test_mark = 1
"""
PATCHES = """
import math
def gcd(a, b): return 1
math.gcd = gcd
"""
SETS = """
import sys
from pathlib import Path
is_new = 'after' in Path(__file__).with_name('name.txt').read_text()
sys.setrecursionlimit(2000 if is_new else 1500)
"""


@pytest.mark.parametrize(
    ("conftest", "why"),
    [
        (
            THERE_ALREADY,
            r"(before|after) beside the other: pytest exited with 4 there and ran no test \[GP606\]",
        ),
        (
            DIES,
            r"the measuring process was killed by signal 9: it printed nothing \[GP602\]",
        ),
        (LEAVES, r"builtins\.gpuperf_test_mark was set there, so both versions see it"),
        (PATCHES, r"(before|after) replaces math\.gcd, which both use"),
        (
            SETS,
            "recursion limit is 1500 before and 2000 after, and a process has it once",
        ),
    ],
)
def test_what_one_process_cannot_hold_is_compared_in_pairs(
    project: GitProject, capsys: pytest.CaptureFixture[str], conftest: str, why: str
) -> None:
    project.write("conftest.py", conftest)
    project.write("name.txt", "before")
    project.commit()
    project.write("name.txt", "after")

    code = ab()

    assert code == 0
    assert re.fullmatch(why, why_apart(capsys))
    assert project.is_untouched


def test_a_test_that_fails_only_beside_the_other_is_compared_in_pairs(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.tests(
        "import os\n"
        "def test_step(gpuperf):\n"
        "    gpuperf(int)\n"
        "    assert os.times and not hasattr(os, 'gpuperf_other'), 'not alone'\n"
        "    os.gpuperf_other = 1\n"
    )
    project.commit()

    code = ab()

    assert code == 0
    assert re.fullmatch(
        "(before|after) failed beside the other: AssertionError: not alone",
        why_apart(capsys),
    )


HANGS = """
import builtins, os
if hasattr(builtins, 'gpuperf_test_mark'):
    os.write(os.open({fifo!r}, os.O_WRONLY), b'!')
    os.read(os.pipe()[0], 1)
builtins.gpuperf_test_mark = 1
"""


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with closing(Witness(tmp_path / "fifo")) as witness:
        yield witness


def test_a_version_that_hangs_beside_the_other_is_given_up(
    project: GitProject,
    witness: Witness,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_server, "SIDE_PATIENCE_SECONDS", 0.0)
    project.write("conftest.py", HANGS.format(fifo=witness.fifo))
    project.commit()

    code = main(["ab", SCRIPTED, "HEAD", "--", "--gpuperf-seconds=4"])

    assert code == 0
    assert re.fullmatch(
        r"the measuring process gave no result and was killed: it did nothing for most of "
        r"\d[.\d]* s \([.\d]+ s of CPU\); does it wait for input, a lock or another "
        r"process\? If it only needs longer, raise --gpuperf-seconds: it printed nothing "
        r"\[GP601\]",
        why_apart(capsys),
    )
    assert witness.all_ended()
    assert project.is_untouched


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_process_that_holds_both(
    project: GitProject, witness: Witness, temporary: Path, number: signal.Signals
) -> None:
    project.write("conftest.py", HANGS.format(fifo=witness.fifo))
    project.commit()

    with subprocess.Popen(
        [sys.executable, "-m", "pytest_gpuperf", "ab", SCRIPTED, "HEAD"],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert witness.has_heard()
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_SECONDS)

    assert witness.all_ended()
    assert project.is_untouched
    assert [path.name for path in temporary.glob("gpuperf-ab-*")] == []
