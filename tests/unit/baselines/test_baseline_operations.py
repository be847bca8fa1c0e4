"""Operations next to a baseline: what is stored, what is not, and what is ignored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import SIMULATED

from pytest_gpuperf.baselines.store import (
    keep_operations,
    operations_path,
    read_operations,
)
from pytest_gpuperf.errors import BaselineError
from pytest_gpuperf.model.baseline import Entry, RunSummary
from pytest_gpuperf.model.finding import CALLED, LineWork, Location


TEST = "t.py::test_step"


def digest(number: int = 7, op: str = "aten::add") -> tuple[LineWork, ...]:
    at = Location(file="net.py", line=number, function="forward")
    inner = Location(file="lib/a.py", line=number, function="f") if number else None
    called = LineWork(module=CALLED, location=at, source="net(x)", ops={CALLED: (1, 0)})
    work = LineWork(module="Net", location=at, source="x + 1", ops={op: (2, 64)})
    return called, work, replace(work, module="", innermost=inner, ops={"b": (1, 8)})


def entry(ops: int = 3) -> Entry:
    return Entry(runs=(RunSummary(exact={"launches": ops}),))


def stored(folder: Path, of: Entry | None = None) -> tuple[LineWork, ...]:
    return read_operations(folder, SIMULATED, TEST, of or entry())


def keep(folder: Path, lines: tuple[LineWork, ...], of: Entry | None = None) -> bytes:
    keep_operations(folder, SIMULATED, {TEST: of or entry()}, {TEST: lines})
    path = operations_path(folder, SIMULATED, TEST)
    return path.read_bytes() if path.exists() else b""


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    keep(tmp_path, digest())

    assert sorted(stored(tmp_path), key=repr) == without_numbers(digest())


def without_numbers(lines: tuple[LineWork, ...]) -> list[LineWork]:
    def place(at: Location | None) -> Location | None:
        return at and replace(at, line=0)

    found = (
        replace(w, location=place(w.location), innermost=place(w.innermost))
        for w in lines
    )
    return sorted(found, key=repr)


def test_a_call_that_does_more_changes_no_file(tmp_path: Path) -> None:
    first = keep(tmp_path, digest())
    call, *rest = digest()

    assert keep(tmp_path, (replace(call, ops={CALLED: (30, 64)}), *rest)) == first


def test_a_line_more_is_one_line_of_the_file_wherever_it_is(tmp_path: Path) -> None:
    lines = set(keep(tmp_path, digest()).splitlines())
    more = [replace(digest()[1], source=text) for text in ("a", "z")]

    found = keep(tmp_path, (*digest(), *more), entry(ops=7)).splitlines()

    assert lines <= set(found)
    assert len(found) == len(lines) + 2


def test_a_line_that_moved_changes_no_file_and_another_operation_does(
    tmp_path: Path,
) -> None:
    first = keep(tmp_path, digest())

    assert keep(tmp_path, digest(number=70)) == first
    assert keep(tmp_path, digest(op="aten::mul")) != first


def test_a_file_is_kept_where_nobody_counted_again(tmp_path: Path) -> None:
    first = keep(tmp_path, digest())

    assert keep(tmp_path, ()) == first


@pytest.mark.parametrize(
    "change",
    [{"schema": 1}, {"test": "u"}, {"line a": 3}, {"line a": {"": {"b": 1}}}],
)
def test_a_file_of_another_shape_explains_nothing(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    keep(tmp_path, digest())
    path = operations_path(tmp_path, SIMULATED, TEST)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))

    assert stored(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null"])
def test_a_broken_file_explains_nothing(tmp_path: Path, content: bytes) -> None:
    keep(tmp_path, digest())
    operations_path(tmp_path, SIMULATED, TEST).write_bytes(content)

    assert stored(tmp_path) == ()


def test_without_a_file_or_an_entry_nothing_is_known(tmp_path: Path) -> None:
    assert stored(tmp_path) == ()
    assert read_operations(tmp_path, SIMULATED, TEST, None) == ()


def test_what_is_pruned_has_no_file(tmp_path: Path) -> None:
    keep(tmp_path, digest())

    keep_operations(tmp_path, SIMULATED, {}, {}, [TEST])

    assert not operations_path(tmp_path, SIMULATED, TEST).exists()


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "operations").symlink_to(tmp_path)

    with pytest.raises(BaselineError, match="a link"):
        keep(tmp_path, digest())
