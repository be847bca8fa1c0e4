"""Where a history lies: a folder, or a URL of fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.history.place import Remote
from pytest_gpuperf.history.place import is_url
from pytest_gpuperf.history.place import place_at
from pytest_gpuperf.history.place import shown


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, which is empty."""
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def place_of(kind: str, tmp_path: Path) -> Any:
    if kind == "memory":
        return place_at("memory://bucket/runs")
    return place_at(str(tmp_path / "runs"))


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_what_is_written_can_be_listed_and_read(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "memory":
        request.getfixturevalue("memory")
    place = place_of(kind, tmp_path)

    place.write("a/1.jsonl.gz", b"one")
    place.write("b/2.jsonl.gz", b"three")

    assert dict(place.files()) == {"a/1.jsonl.gz": 3, "b/2.jsonl.gz": 5}
    assert dict(place.read(["b/2.jsonl.gz", "a/1.jsonl.gz"])) == {
        "a/1.jsonl.gz": b"one",
        "b/2.jsonl.gz": b"three",
    }


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    place = Folder(tmp_path / "runs")
    names = [f"{number % 3}/{number}.jsonl.gz" for number in range(60)]

    with ThreadPoolExecutor(max_workers=12) as writers:
        list(writers.map(lambda name: place.write(name, name.encode()), names))

    assert dict(place.read(sorted(place.files()))) == {n: n.encode() for n in names}
    assert len(list((tmp_path / "runs").rglob("*"))) == 3 + 60


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_hidden_files_are_nobody_s(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "memory":
        request.getfixturevalue("memory")
    place = place_of(kind, tmp_path)
    place.write("a/1.jsonl.gz", b"one")
    place.write("a/.1.tmp", b"one")
    place.write(".git/1.jsonl.gz", b"one")

    assert list(place.files()) == ["a/1.jsonl.gz"]


def test_a_remote_place_without_a_file_is_empty(memory: Any) -> None:
    assert dict(Remote("memory://nothing/here").files()) == {}


def test_a_remote_file_that_went_away_says_so(memory: Any) -> None:
    place = Remote("memory://bucket/runs")
    place.write("a/1.jsonl.gz", b"one")

    found = dict(place.read(["a/1.jsonl.gz", "a/2.jsonl.gz"]))

    assert found["a/1.jsonl.gz"] == b"one"
    assert str(found["a/2.jsonl.gz"]).startswith(
        "it cannot be read, FileNotFoundError: "
    )


def test_a_protocol_that_nobody_knows_is_a_usage_error() -> None:
    pytest.importorskip("fsspec")

    with pytest.raises(UsageError) as caught:
        Remote("nosuch://user:secret@host/runs?token=1").files()

    assert str(caught.value) == (
        "nosuch://host/runs: cannot be reached, ValueError: Protocol not known: nosuch "
        "[GP518]"
    )


def test_an_error_of_a_file_system_holds_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "memory://me:secret@host/runs"

    def refuse(_: Remote) -> object:
        msg = f"no access to {url}\nmore"
        raise PermissionError(msg)

    monkeypatch.setattr(Remote, "_opened", refuse)

    with pytest.raises(UsageError) as caught:
        Remote(url).write("a", b"")

    assert str(caught.value) == (
        "memory://host/runs: cannot be reached, PermissionError: no access to "
        "memory://host/runs [GP518]"
    )


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("s3://bucket/runs", True),
        ("simplecache::s3://bucket/runs", True),
        ("runs", False),
        ("/a/b://c", False),
        ("C:runs", False),
    ],
)
def test_a_url_names_its_protocol(location: str, url: bool) -> None:  # noqa: FBT001
    assert is_url(location) is url


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    place_at(f"file://{tmp_path}/two%20words").write("a", b"one")

    assert (tmp_path / "two words" / "a").read_bytes() == b"one"


def test_a_folder_is_shown_as_it_is() -> None:
    assert shown("/data/a@b/runs") == "/data/a@b/runs"
    assert shown("s3://key:secret@bucket/runs") == "s3://bucket/runs"


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Folder(tmp_path / "no").files()

    assert str(caught.value) == (
        f"{tmp_path}/no: there is no such folder; expected that of a history [GP518]"
    )


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")

    with pytest.raises(UsageError) as read:
        Folder(path).files()
    with pytest.raises(UsageError) as written:
        Folder(path).write("a/b", b"")

    assert (
        str(read.value)
        == f"{path}: expected the folder of a history, found a file [GP518]"
    )
    assert str(written.value) == f"{path}: cannot be written, not a directory [GP519]"


def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(UsageError) as caught:
        Folder(tmp_path).write("a/b", b"one")

    assert (
        str(caught.value)
        == f"{tmp_path}: cannot be written, no space left on device [GP519]"
    )
    assert list((tmp_path / "a").iterdir()) == []


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (found,) = Folder(tmp_path).read(["gone.jsonl.gz"])

    assert found == (
        "gone.jsonl.gz",
        "it cannot be read, no such file or directory",
    )
