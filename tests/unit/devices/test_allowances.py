"""Syncs that are meant: said by a block or by a comment, taken off by who measures."""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from trace_events import event

from pytest_gpuperf.devices.allow_sync import (
    Allowance,
    allow_sync,
    allowance_in,
    heard_by,
    marker_allowing,
)
from pytest_gpuperf.errors import StepError, UsageError
from pytest_gpuperf.measure.syncs import (
    MeasuredSync,
    find_syncs,
    reason_on_line,
    with_allowances,
)
from pytest_gpuperf.measure.trace import Span
from pytest_gpuperf.model.finding import Finding, FindingKind, Location


CAUSE = Finding(kind=FindingKind.SYNC, op="aten::item")


def block(start_us: float, end_us: float, most: int | None, reason: str) -> Span:
    name = marker_allowing(Allowance(reason=reason, most=most))
    return Span(name, (1, 1), start_us, end_us)


def reasons(waits_at: list[float], *blocks: Span) -> list[str | None]:
    syncs = [MeasuredSync(0, 0.0, CAUSE, at_us) for at_us in waits_at]
    return [wait.cause.allowed for wait in with_allowances(syncs, blocks)]


def test_a_block_is_announced_to_who_listens_and_to_nobody_else() -> None:
    heard: list[str] = []

    @contextmanager
    def listen(allowance: Allowance) -> Iterator[None]:
        heard.append(f"begin {allowance.reason}, {allowance.most}")
        yield
        heard.append("end")

    with allow_sync(reason="before"):
        pass
    with heard_by(listen), allow_sync(2, reason=" logging "):
        heard.append("inside")
    with allow_sync(reason="after"):
        pass

    assert heard == ["begin logging, 2", "inside", "end"]


REASON = 'expected a reason, such as reason="the loss is logged" [GP213]'
NUMBER = (
    "expected a whole number of at least 1, or None for any number of syncs [GP214]"
)


@pytest.mark.parametrize(
    ("n", "reason", "said"),
    [
        *((1, reason, f"reason={reason!r}): {REASON}") for reason in ("", "  ", None)),
        *((n, "logging", f"{n!r}): {NUMBER}") for n in (0, -1, 1.5, True, "2")),
    ],
)
def test_an_allowance_needs_a_reason_and_is_a_whole_number_of_waits(
    n: int, reason: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        allow_sync(n, reason=reason)

    assert str(caught.value) == f"gpuperf.allow_sync({said}"


@pytest.mark.parametrize("most", [None, 3])
def test_an_allowance_survives_the_name_of_a_range(most: int | None) -> None:
    allowance = Allowance(reason='a | "b" % é', most=most)

    marker = marker_allowing(allowance)

    assert marker.isascii()
    assert allowance_in(marker) == allowance


@pytest.mark.parametrize("name", ["", "3", "x|logging", "3|"])
def test_a_broken_name_of_a_range_allows_nothing(name: str) -> None:
    assert allowance_in(f"gpuperf.allow|{name}") is None


def test_waits_inside_a_block_are_allowed_up_to_its_number() -> None:
    inside = block(10, 20, 2, "logging")

    assert reasons([5, 11, 12, 13, 25], inside) == [
        None,
        "logging",
        "logging",
        None,
        None,
    ]


def test_the_innermost_block_that_allows_one_more_takes_a_wait() -> None:
    outer, inner = block(0, 100, None, "outer"), block(10, 20, 1, "inner")

    assert reasons([5, 11, 12, 50], outer, inner) == [
        "outer",
        "inner",
        "outer",
        "outer",
    ]


def test_each_entry_of_a_block_allows_its_number_again() -> None:
    entries = block(0, 10, 1, "logging"), block(20, 30, 1, "logging")

    assert reasons([1, 2, 21, 22], *entries) == ["logging", None, "logging", None]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("loss.item()  # gpuperf: allow-sync it is logged", "it is logged"),
        ("loss.item()  #gpuperf:allow-sync: it is logged  ", "it is logged"),
        ("loss.item()  # noqa # gpuperf: allow-sync it is logged", "it is logged"),
        ("loss.item()  # gpuperf: allow-syncs", None),
        ("loss.item()", None),
    ],
)
def test_a_comment_on_the_line_gives_a_reason(
    tmp_path: Path, line: str, reason: str | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"# gpuperf: allow-sync not this line\n{line}\n", encoding="utf-8")
    linecache.checkcache()

    assert reason_on_line(Location(file=str(path), line=2, function="f")) == reason


def test_a_comment_is_not_looked_for_where_only_the_function_is_known(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    path.write_text("def f():  # gpuperf: allow-sync all of it\n", encoding="utf-8")
    location = Location(file=str(path), line=1, function="f", exact=False)

    assert reason_on_line(location) is None
    assert reason_on_line(None) is None


@pytest.mark.parametrize("inside", [True, False])
def test_a_comment_without_a_reason_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, inside: bool
) -> None:
    path = tmp_path / "source" / "train.py"
    path.parent.mkdir()
    path.write_text("loss.item()  # gpuperf: allow-sync\n", encoding="utf-8")
    if inside:
        monkeypatch.chdir(tmp_path)

    with pytest.raises(StepError) as caught:
        reason_on_line(Location(file=str(path), line=1, function="f"))

    named = "source/train.py" if inside else path
    assert str(caught.value) == (
        f"{named}:1: the comment allow-sync gives no reason, so it allows nothing; write "
        'one behind it, such as "# gpuperf: allow-sync the loss is logged" [GP213]'
    )


def test_on_cuda_a_comment_allows_what_its_line_waits_for(tmp_path: Path) -> None:
    """A sync whose line is unknown is allowed by no comment, not even on its def."""
    path = tmp_path / "train.py"
    path.write_text(
        "def step(loss):  # gpuperf: allow-sync all of it\n"
        "    loss.item()  # gpuperf: allow-sync it is logged\n"
        "    loss.cpu()\n",
        encoding="utf-8",
    )
    events = [
        event("user_annotation", "gpuperf.step", 0, 1000),
        event("python_function", f"{path}(1): step", 1, 900),
        event("user_annotation", f"gpuperf.sync|{path}|2|step", 99, 32),
        event("cuda_runtime", "cudaStreamSynchronize", 100, 30),
        event("user_annotation", f"gpuperf.sync|{path}|3|step", 199, 22),
        event("cuda_runtime", "cudaStreamSynchronize", 200, 20),
        event("cuda_runtime", "cudaStreamSynchronize", 300, 10),
    ]

    syncs = find_syncs(events)

    assert syncs.per_step == 2
    assert [
        (str(f.location).removeprefix(f"{tmp_path}/"), f.allowed, f.metrics)
        for f in syncs.findings
    ] == [
        ("train.py:2 in step", "it is logged", ()),
        ("train.py:3 in step", None, ("syncs",)),
        ("train.py:1 in step (line unknown, this is the def)", None, ("syncs",)),
    ]


def test_outside_of_a_measurement_no_torch_is_imported() -> None:
    code = (
        "import sys, pytest_gpuperf as gpuperf\n"
        "with gpuperf.allow_sync(1, reason='logging'): pass\n"
        "assert gpuperf.allow_sync is vars(gpuperf)['allow_sync']\n"
        "print(sorted(set(sys.modules) & {'torch', 'numpy', 'pynvml'}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
