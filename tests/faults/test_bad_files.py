"""Files that are none, or hold what no run wrote: one sentence and exit code 4."""

from __future__ import annotations

import copy
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from builders import SCRIPTED, a_head, an_entry, baselines
from scripted_project import ScriptedProject
from whole_run import Folder

from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.baselines.store import stored_keys
from pytest_gpuperf.cli import main
from pytest_gpuperf.cli.script import _script_code
from pytest_gpuperf.environments import pins_of
from pytest_gpuperf.errors import BaselineError, UsageError
from pytest_gpuperf.measure.memory import read_snapshot
from pytest_gpuperf.model.run import Results
from pytest_gpuperf.plugin.parse_settings import _all_in
from pytest_gpuperf.report import json as results_json


BASELINE = "baselines/scripted.json"
PENDING = ".gpuperf/pending-scripted.json"
RESULTS = ".gpuperf/results.json"

USAGE_ERROR = 4

REPORT = ("report", "--out", "a-report.html")
READERS = (
    (BASELINE, ("accept", "--dry-run", PENDING)),
    (BASELINE, ("accept", PENDING)),
    (BASELINE, REPORT),
    (PENDING, ("accept", "--dry-run", PENDING)),
    (PENDING, ("accept", PENDING)),
    (PENDING, REPORT),
    (RESULTS, ("export", "pytest-benchmark")),
    (RESULTS, REPORT),
)
"""Each file that somebody else may have left, and a command that reads it."""

TESTS = """
@gpuperf.budget(ms=20, syncs=0)
def test_a(gpuperf): gpuperf(lambda: None)
def test_b(gpuperf): gpuperf(lambda: None)
def test_c(gpuperf): gpuperf(lambda: None, name="second")
def test_skipped(gpuperf): pytest.skip("no")
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, what it has stored, and what a later run with a regression left."""
    folder = Folder(tmp_path_factory.mktemp("left"))
    folder.file(TESTS)
    folder.run("--gpuperf-update=missing")
    folder.script({"*": {"step_ms": 10.0}, "test_b": {"step_ms": 20.0, "syncs": 2}})
    folder.run()
    return folder.path


@pytest.fixture
def there(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, and the working directory."""
    folder = tmp_path / "there"
    shutil.copytree(left, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("CI", raising=False)
    return folder


@pytest.mark.usefixtures("there")
def test_all_of_these_commands_work_on_what_a_run_left() -> None:
    codes = {command: main(command) for _, command in READERS}

    assert codes.pop(("accept", PENDING)) == 1  # it drifted too far
    assert set(codes.values()) == {0}


# What is no file


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    place = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def link_to_a_fifo(path: Path) -> None:
    os.mkfifo(path.with_name("a fifo"))
    path.symlink_to("a fifo")


IRREGULAR = [
    pytest.param(fifo, "it is a fifo and no file", id="a FIFO"),
    pytest.param(link_to_a_fifo, "it is a fifo and no file", id="a link to a FIFO"),
    pytest.param(bound_socket, "it is a socket and no file", id="a socket"),
    pytest.param(
        link_to("/dev/zero"), "it is a device and no file", id="endless zeros"
    ),
    pytest.param(link_to("/dev/null"), "it is a device and no file", id="nothing"),
    pytest.param(link_to("gone"), "it is a symbolic link to nothing", id="a dead link"),
    pytest.param(Path.mkdir, "is a directory", id="a folder"),
]


@pytest.mark.parametrize(("make", "found"), IRREGULAR)
@pytest.mark.parametrize(
    ("file", "command"),
    [
        pytest.param(BASELINE, ("accept", PENDING), id="accept into the baseline"),
        pytest.param(PENDING, ("accept", ".gpuperf"), id="accept what is pending"),
        pytest.param(RESULTS, ("export", "pytest-benchmark"), id="export the results"),
    ],
)
def test_what_is_no_file_is_refused_and_never_waited_for(
    there: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], None],
    found: str,
    file: str,
    command: tuple[str, ...],
) -> None:
    Path(file).unlink()
    make(Path(file))

    assert main(command) == USAGE_ERROR
    said = capsys.readouterr().err
    assert said.startswith(f"gpuperf: {file}: cannot be read")
    assert found in said.lower()
    assert said.count("\n") == 1


@pytest.mark.parametrize(("make", "found"), IRREGULAR)
def test_a_run_refuses_it_as_its_baseline_before_it_measures(
    project: ScriptedProject, make: Callable[[Path], None], found: str
) -> None:
    project.file("def test_step(gpuperf): gpuperf(lambda: None)")
    project.baseline.parent.mkdir()
    make(project.baseline)

    result = project.run()

    assert result.ret == USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: *baselines/scripted.json: cannot be read, {found}; *"]
    )


@pytest.mark.parametrize(("make", "found"), IRREGULAR)
def test_one_of_other_hardware_is_passed_over(
    tmp_path: Path, make: Callable[[Path], None], found: str
) -> None:
    assert found
    make(tmp_path / "cpu-x.json")

    assert [*_all_in(tmp_path)] == []
    assert stored_keys(tmp_path) == set()


@pytest.mark.parametrize(("make", "found"), IRREGULAR)
@pytest.mark.parametrize(
    ("read", "name"),
    [
        pytest.param(pins_of, "requirements.txt", id="pins"),
        pytest.param(pins_of, "uv.lock", id="a lock"),
        pytest.param(read_snapshot, "snapshot.pickle", id="a snapshot"),
        pytest.param(_script_code, "train.py", id="a script"),
    ],
)
def test_what_a_user_names_and_is_no_file_is_refused(
    tmp_path: Path,
    make: Callable[[Path], None],
    found: str,
    read: Callable[[Any], object],
    name: str,
) -> None:
    make(tmp_path / name)

    with pytest.raises(UsageError) as refused:
        read(str(tmp_path / name) if read is _script_code else tmp_path / name)

    assert found in str(refused.value).lower() or "is a folder" in str(refused.value)


# Numbers that nothing can have been measured to be


ENTRY = an_entry(10.0, exact={"syncs": 7})
STORED = dumps(baselines(SCRIPTED, **{"t.py::test_a": ENTRY}))


def quartile(ms: str) -> tuple[str, str]:
    return "[10.0, 10.0", f"[10.0, {ms}"


def anchor(value: str) -> tuple[str, str]:
    return '"counts"', f'"anchor": {{{value}}}, "counts"'


NUMBERS = {
    "a count of 10^400": ('"syncs": 7', f'"syncs": 1{"0" * 400}', "up to 1e24"),
    "a count of 10^25": ('"syncs": 7', f'"syncs": 1{"0" * 25}', "up to 1e24"),
    "an infinite count": ('"syncs": 7', '"syncs": 1e999', "from 0 up"),
    "100,000 digits": ('"syncs": 7', f'"syncs": {"9" * 100_000}', ""),
    "the largest time": (*quartile("1e308"), "1e-09 to 1e+12 ms"),
    "the smallest time": (*quartile("5e-324"), "1e-09 to 1e+12 ms"),
    "an anchor out of reach": (*anchor('"step_ms": 1e308'), "1e-09 to 1e+12 ms"),
    "an anchor of 10^400": (*anchor(f'"syncs": 1{"0" * 400}'), "up to 1e24"),
}


@pytest.mark.parametrize(("old", "new", "expected"), NUMBERS.values(), ids=NUMBERS)
def test_a_stored_number_that_nothing_measured_is_refused(
    old: str, new: str, expected: str
) -> None:
    assert old in STORED

    with pytest.raises(BaselineError, match="GP502") as refused:
        loads(STORED.replace(old, new, 1), "b.json")

    assert expected in str(refused.value)


@pytest.mark.parametrize("number", ["1e308", "1" + "0" * 400, "1e999", "true", "null"])
def test_a_sample_that_nobody_waited_for_is_refused(number: str) -> None:
    samples = f'{{"t": [{{"step_ms": [{number}]}}]}}'
    tests = f'{{"t": {{"ending": "passed", "samples": {samples}}}}}'
    head = results_json.dumps(Results(head=a_head())).partition('"tests"')[0]
    text = f'{head}"tests": {tests}}}'

    with pytest.raises(UsageError, match="GP512"):
        results_json.loads(text, "results.json")


# Any other shape


VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e300, 10**400, float("inf"), float("nan")),
    *("", "x", "\ud800", [], [1], [[]], [{}], {}, {"x": 1}),
)
"""What takes the place of each part of a file in turns."""

EVERY = 17
"""One of so many shapes is tried with a command, another one with the next: all take long."""


@pytest.mark.parametrize(
    ("file", "command"),
    [pytest.param(f, c, id=f"{' '.join(c[:2])} on {f}") for f, c in READERS],
)
def test_no_shape_of_a_file_breaks_the_command_that_reads_it(
    there: Path, capsys: pytest.CaptureFixture[str], file: str, command: tuple[str, ...]
) -> None:
    path = Path(file)
    codes = set()
    shapes = _misshapen(json.loads(path.read_text(encoding="utf-8")))
    for text in islice(shapes, len(" ".join(command)) % EVERY, None, EVERY):
        path.write_text(text, encoding="utf-8")
        code = main(command)
        codes.add(code)
        said = capsys.readouterr().err
        assert code in {0, 1, USAGE_ERROR}
        assert code != USAGE_ERROR or said.count("\n") == 1

    assert USAGE_ERROR in codes


def _misshapen(document: Any) -> Iterator[str]:
    """Leave out, and replace, each part of *document*; a part of a list stands for all."""
    values = cycle(VALUES)
    for place in _places(document):
        changed = copy.deepcopy(document)
        _put(changed, place, next(values))
        yield json.dumps(changed)
        changed = copy.deepcopy(document)
        within = _at(changed, place[:-1])
        del within[place[-1]]
        yield json.dumps(changed)


def _places(
    value: Any, at: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    if at:
        yield at
    if isinstance(value, dict):
        for name in value:
            yield from _places(value[name], (*at, name))
    elif isinstance(value, list):
        for number, item in enumerate(value[:1]):
            yield from _places(item, (*at, number))


def _at(value: Any, place: tuple[str | int, ...]) -> Any:
    for part in place:
        value = value[part]
    return value


def _put(value: Any, place: tuple[str | int, ...], new: Any) -> None:
    _at(value, place[:-1])[place[-1]] = new
