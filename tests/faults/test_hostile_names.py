"""Names, files and exceptions that would move a cursor, turn letters, or command a CI log.

Each attempt plants such a text where a person or a pull request can put it, runs what
prints it, and looks at every character that arrives.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from builders import a_head, a_test, a_verdict, an_entry, baselines
from desk import Desk, typing_server

from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.baselines.store import path_of
from pytest_gpuperf.cli import main
from pytest_gpuperf.errors import (
    BaselineError,
    ErrorId,
    GpuperfError,
    RunError,
    StepError,
    UsageError,
)
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.ci.github import Sources, commands
from pytest_gpuperf.report.command import accept_command
from pytest_gpuperf.report.json import dumps as dumps_results
from pytest_gpuperf.report.judged_calls import judged_calls
from pytest_gpuperf.visible import VisibleStream, visible, visible_line, visible_text


HOSTILE: Final = {
    "a colour": "a\x1b[31mred",
    "a title of the window": "a\x1b]0;title\x07b",
    "a link that lies": "a\x1b]8;;https://evil\x1b\\b",
    "a cleared screen": "a\x1b[2J\x1b[Hb",
    "an eight-bit control": "a\x9b31mb\x85c",
    "a backspace and a delete": "a\x08\x08\x7fb",
    "a carriage return": "a\rgpuperf: 1 accepted",
    "letters turned around": "a\u202e\u2066b\u2069\u202cc",
    "no width": "a\u200b\u2060\ufeff\u00adb\u200dc",
    "a separator of lines": "a\u2028b\u2029c",
    "letters that are blank": "a\u3164\u2800\u115fb",
    "a tag": "a\U000e0041\U000e0101b",
    "a workflow command": "a\n::set-output name=x::y",
    "a command behind blanks": "a\n \t ::add-mask::y",
    "a command at the start": "::error::forged",
    "an older command": "a##[set-output name=x]y",
    "a command of another service": "a\n##vso[task.setvariable variable=x]y",
    "a forged last line": "a\nFORGED: 1 accepted",
    "a command between words": "a ::error::x" + " ::warning::y" * 12,
}

ALLOWED: Final = re.compile(
    r"::(?:error|warning) (?:file=[^,:]*,line=\d+,)?title=[^:]*::"
)
"""What this package writes for GitHub, and nothing else may look like."""

INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u2800\u3164\uffa0\U000e0100-\U000e01ef]"
)


def objections(text: str, *, annotated: bool = False) -> list[str]:
    """Return what of *text* a screen or a CI service would not take for text."""
    odd = [
        f"{char!r}"
        for char in text
        if not (char.isprintable() or char in "\n\t") or INVISIBLE.match(char)
    ]
    lines = text.split("\n")
    ours = [line for line in lines if annotated and ALLOWED.match(line)]
    said = [
        line
        for line in lines
        if line not in ours
        and (line.lstrip().startswith("::") or re.search(r"##\w*\[", line))
    ]
    return [*odd, *said, *(line for line in lines if line.startswith("FORGED"))]


def stored(path: Path, text: str, step_ms: float, drifted: float = 0.0) -> None:
    """Store runs of a test of that name, with that version of torch, on that CPU."""
    hardware = Hardware(kind=DeviceKind.CPU, name=f"CPU {text}")
    entry = an_entry(
        *[step_ms] * 8,
        exact={"syncs": 0},
        software={"torch": f"2.13 {text}"},
        anchor={"step_ms": drifted} if drifted else {},
    )
    path.mkdir(exist_ok=True)
    document = dumps(baselines(hardware, **{f"t.py::{text}": entry}))
    if path.name == "baselines":
        path_of(path, hardware).write_text(document, "utf-8")
    else:
        (path / f"pending-{hardware.key}.json").write_text(document, "utf-8")


def left(path: Path, text: str, *, selected: str = "") -> None:
    """Leave the results of a run in which a test of that name regressed."""
    judged = a_verdict("step_ms", Outcome.REGRESSED, 12.0, 10.0, because=text)
    call = encode_briefly(a_test(judged, test=f"t.py::{text}", remarks=(text,)))
    record = Record(Ending.FAILED, Outcome.REGRESSED, text, (call,))
    head = a_head(
        version=f"0.1.0{text}",
        hardware=Hardware(kind=DeviceKind.CPU, name=f"CPU {text}"),
        exit_status=1,
        notes=(text,),
        collected=(f"t.py::{text}", selected or f"t.py::{text}"),
        selected=(f"t.py::{text}",),
        unreported=(text,),
    )
    path.mkdir(exist_ok=True)
    found = Results(head=head, tests={f"t.py::{text}": record})
    (path / "results.json").write_text(dumps_results(found), "utf-8")


def look(text: str) -> int:
    stored(Path("baselines"), text, 10.0, drifted=9.0)
    stored(Path(".gpuperf"), text, 12.0)
    return main(["accept", "--dry-run", ".gpuperf"])


def look_for_unknown(text: str) -> int:
    stored(Path(".gpuperf"), text, 12.0)
    return main(["accept", "--dry-run", ".gpuperf", "--only", text + "!"])


def accept(text: str) -> int:
    stored(Path(".gpuperf"), text, 12.0)
    return main(["accept", ".gpuperf"])


def accept_what_drifted(text: str) -> int:
    stored(Path("baselines"), text, 10.0, drifted=10.0)
    stored(Path(".gpuperf"), text, 12.0)
    return main(["accept", ".gpuperf"])


def report(text: str) -> int:
    left(Path(".gpuperf"), text)
    return main(["report", "--out", f"{text.replace('/', '')}.html"])


def export(text: str) -> int:
    left(Path(".gpuperf"), text)
    return main(["export", "pytest-benchmark"])


def export_misshapen(text: str) -> int:
    left(Path(".gpuperf"), "a")
    file = Path(".gpuperf/results.json")
    raw = json.loads(file.read_text("utf-8"))
    file.write_text(
        json.dumps({**raw, text: text, "tests": {text: {text: 1}}}), "utf-8"
    )
    return main(["export", "pytest-benchmark"])


def baseline_misshapen(text: str) -> int:
    stored(Path("baselines"), "a", 10.0)
    (file,) = Path("baselines").iterdir()
    raw = json.loads(file.read_text("utf-8"))
    entry = next(iter(raw["tests"].values()))
    entry[text] = text
    raw["tests"] = {text: entry}
    file.write_text(json.dumps(raw), "utf-8")
    stored(Path(".gpuperf"), "a", 12.0)
    return main(["accept", ".gpuperf"])


def typed(*words: str) -> Callable[[str], int]:
    """A command with the text in one of its words."""

    def run(text: str) -> int:
        return main([word.replace("TEXT", text) for word in words])

    run.__name__ = words[0]
    return run


COMMANDS: Final[tuple[Callable[[str], int], ...]] = (
    *(look, look_for_unknown, accept, accept_what_drifted),
    *(report, export, export_misshapen, baseline_misshapen),
    *(typed("ab", "TEXT"), typed("audit", "TEXT.py"), typed("memory", "TEXT.py")),
    *(typed("doctor", "--device=TEXT"), typed("doctor", "x", "TEXT")),
)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_a_command_prints_nothing_but_text(
    command: Callable[[str], int],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)

    status = command(text)

    output, errors = capsys.readouterr()
    assert objections(output) == []
    assert objections(errors) == []
    assert output or errors
    assert status in {0, 1, 4, 125}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("kind", [UsageError, BaselineError, StepError, RunError])
def test_an_error_is_text(kind: type[GpuperfError], text: str) -> None:
    shown = str(kind(f"found {text}", ErrorId.GP101)).replace("\nFORGED", "")

    assert objections(shown) == []


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_annotation_is_one_command_of_ours(text: str) -> None:
    verdict = a_verdict("step_ms", Outcome.REGRESSED, 12.0, 10.0)
    call = encode_briefly(a_test(verdict, test=text))
    head = a_head(version="", hardware=None)
    tests = {
        text: Record(
            Ending.FAILED, Outcome.REGRESSED, text, (call,), where=f"{text}:3"
        ),
        f"{text}2": Record(Ending.FAILED, None, f"%0A::error::{text}", (), where=text),
    }

    found = commands(
        judged_calls(Results(head=head, tests=tests), "results.json"),
        Sources(is_ours=lambda _: True),
    )

    assert len(found) == 2
    for line in found:
        assert objections(line, annotated=True) == []
        assert ALLOWED.match(line)
        assert "%0A::" not in line


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_printed_command_names_the_test_for_a_shell(text: str) -> None:
    line = accept_command(".gpuperf", "", [text])

    assert objections(line) == []
    run = ["bash", "-c", f'gpuperf() {{ printf "%s\\0" "$@"; }}; {line}']
    ended = subprocess.run(run, capture_output=True, check=True)
    assert text.encode() in ended.stdout.split(b"\0")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_made_visible_stays_as_it_is(text: str) -> None:
    for shown in (visible, visible_line, visible_text):
        assert shown(shown(text)) == shown(text)


@pytest.mark.parametrize(
    "text",
    ["größer 漢字 ❤️ 👩\u200d🚀", "t.py::test_a[x-1]", "a # b [c] ## d", "क्\u200dष"],
)
def test_what_is_no_harm_is_left_alone(text: str) -> None:
    assert visible(text) == visible_line(text) == visible_text(text) == text


def test_lines_and_tabs_of_a_text_stay() -> None:
    assert visible_text("a\r\nb\n\tc\n") == "a\nb\n\tc\n"


class Kept:
    """A stream that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (("a", "::b\n"), "a::b\n"),
        (("a\n", "::b\n"), "a\n\\u003a:b\n"),
        (("a\n  ", "::b\n"), "a\n  \\u003a:b\n"),
        (("", "::b"), "\\u003a:b"),
        (("a\n", "", "::b"), "a\n\\u003a:b"),
        (("\x1b", "[2J"), "\\x1b[2J"),
    ],
)
def test_a_line_that_is_written_in_parts_becomes_no_command(
    parts: tuple[str, ...], shown: str
) -> None:
    kept = Kept()
    stream = VisibleStream(kept)  # type: ignore[arg-type]

    for part in parts:
        stream.write(part)

    assert kept.text == shown


INNER: Final = """
import json, warnings
from pathlib import Path
import pytest
import pytest_gpuperf as gpuperf

NAMES = json.loads(Path(__file__).with_name("names.json").read_text("utf-8"))
each = pytest.mark.parametrize("n", range(len(NAMES)))


@each
def test_raises(gpuperf, n):
    gpuperf(int)
    raise ValueError(f"raises-{n}-" + NAMES[n])


@each
def test_skips(gpuperf, n):
    pytest.skip(f"skips-{n}-" + NAMES[n])


@each
def test_expects(gpuperf, n):
    pytest.xfail(f"expects-{n}-" + NAMES[n])


@each
def test_passes(gpuperf, n):
    gpuperf(int, name=f"passes-{n}-" + NAMES[n])


@each
@gpuperf.budget(ms=5, on="scripted")
def test_fails(gpuperf, n):
    gpuperf(int, name=f"fails-{n}-" + NAMES[n])
"""

SHOWN_IN_PYTEST: Final = (
    *("a title of the window", "an eight-bit control", "letters turned around"),
    *("no width", "a separator of lines", "a workflow command"),
    *("a command of another service", "a command between words"),
)
KINDS: Final = ("raises", "skips", "expects", "passes", "fails")


@pytest.fixture(scope="module")
def printed_by_pytest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run of hostile tests prints as a job of GitHub's."""
    desk = Desk(tmp_path_factory.mktemp("hostile"), typing_server())
    desk.write("test_it.py", INNER)
    desk.write("names.json", json.dumps([HOSTILE[name] for name in SHOWN_IN_PYTEST]))
    desk.play({})
    ended = desk.gate("--gpuperf-explain", "-vrA", GITHUB_ACTIONS="true")
    assert ended.status == 1, ended.text
    return ended.text


def test_all_of_a_run_is_text(printed_by_pytest: str) -> None:
    planted = (f"{k}-{n}-" for k in KINDS for n in range(len(SHOWN_IN_PYTEST)))

    assert objections(printed_by_pytest, annotated=True) == []
    assert [name for name in planted if name not in printed_by_pytest] == []
