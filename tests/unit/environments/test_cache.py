"""Folders of packages: made once, whole or not at all, and removed when they are too many."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import closing
from contextlib import nullcontext
from pathlib import Path

import pytest

from pytest_gpuperf.environments import overlay as module
from pytest_gpuperf.environments.overlay import PackageCache
from pytest_gpuperf.environments.overlay import default_place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "packages"


@pytest.fixture
def cache(place: Path) -> Iterator[PackageCache]:
    with closing(PackageCache(place)) as opened:
        yield opened


def kibibyte(folder: Path) -> None:
    (folder / "module.py").write_bytes(b"#" * 1024)


def refuse(folder: Path) -> None:
    kibibyte(folder)
    msg = "no network"
    raise OSError(msg)


def test_the_same_packages_are_installed_once(cache: PackageCache) -> None:
    first = cache.folder(["b==2", "a==1"], kibibyte)

    assert cache.folder(["a==1", "b==2"], refuse) == first
    assert cache.folder(["a==1", "b==3"], kibibyte) != first
    assert {*names_in(cache)} == {"b==2 a==1", "a==1 b==3"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_nothing_is_left_of_what_could_not_be_installed(
    cache: PackageCache, place: Path, error: type[BaseException]
) -> None:
    def fail(folder: Path) -> None:
        kibibyte(folder)
        raise error

    with pytest.raises(error):
        cache.folder(["a==1"], fail)

    assert list(place.iterdir()) == []


def test_who_comes_second_takes_what_is_there(cache: PackageCache, place: Path) -> None:
    def overtaken(folder: Path) -> None:
        with closing(PackageCache(place)) as other:
            other.folder(["a==1"], kibibyte)

    folder = cache.folder(["a==1"], overtaken)

    assert (folder / "module.py").exists()
    assert [*cache.kept()] == [folder]


def test_what_was_not_used_for_longest_goes_and_what_is_in_use_stays(
    place: Path,
) -> None:
    with closing(PackageCache(place)) as used:
        in_use = used.folder(["in use"], kibibyte)
        for number, name in enumerate(("old", "new")):
            with closing(PackageCache(place)) as other:
                folder = other.folder([name], kibibyte)
            os.utime(folder, (2000 + number, 2000 + number))
        os.utime(in_use, (1000, 1000))
        assert set(used.kept().values()) <= set(range(1024, 1100))

        assert used.trim(2 * 1100) == []
        assert len(used.trim(1100)) == 1
        assert names_in(used) == ["new", "in use"]

    with closing(PackageCache(place)) as last:
        assert len(last.trim(0)) == 2
        assert last.kept() == {}


def test_a_new_folder_makes_room_for_itself(place: Path) -> None:
    for name in ("one", "two"):
        with closing(PackageCache(place, most_bytes=1100)) as cache:
            cache.folder([name], kibibyte)

    with closing(PackageCache(place)) as cache:
        assert names_in(cache) == ["two"]


def test_caches_are_where_the_user_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "there")
    assert default_place() == Path("there/gpuperf/packages")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_place() == Path.home() / ".cache/gpuperf/packages"


def test_a_folder_that_another_process_removes_meanwhile_is_made_again(
    place: Path, cache: PackageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PackageCache(place)) as other:
        folder = other.folder(["a==1"], kibibyte)
    calls = iter([True])

    def removed_first(path: Path, how: int) -> AbstractContextManager[None]:
        if next(calls, False):
            shutil.rmtree(folder)
            raise FileNotFoundError
        return nullcontext()

    monkeypatch.setattr(module, "_locked", removed_first)

    assert cache.folder(["a==1"], kibibyte) == folder
    assert (folder / "module.py").exists()


def test_what_killed_processes_left_is_removed_and_what_is_being_made_is_not(
    cache: PackageCache, place: Path
) -> None:
    left = place / "new-left"
    left.mkdir(parents=True)
    (left / ".lock").touch()
    kibibyte(left)

    def making(folder: Path) -> None:
        with closing(PackageCache(place)) as other:
            assert other.trim(0) == []
        assert folder.exists()
        assert not left.exists()

    cache.folder(["a==1"], making)

    assert names_in(cache) == ["a==1"]


def test_a_removal_that_is_cut_off_leaves_no_half_of_a_folder(
    place: Path, cache: PackageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PackageCache(place)) as other:
        folder = other.folder(["a==1"], kibibyte)

    with monkeypatch.context() as cut_off:
        cut_off.setattr(shutil, "rmtree", raising(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache.trim(0)

    assert not folder.exists()
    assert cache.folder(["a==1"], kibibyte) == folder
    assert len(list(place.iterdir())) == 1


def test_a_folder_that_lacks_its_mark_is_made_again(
    place: Path, cache: PackageCache
) -> None:
    with closing(PackageCache(place)) as other:
        folder = other.folder(["a==1"], kibibyte)
    (folder / ".packages").unlink()
    (folder / "module.py").unlink()

    assert cache.folder(["a==1"], kibibyte) == folder
    assert (folder / "module.py").exists()


def names_in(cache: PackageCache) -> list[str]:
    return [(kept / ".packages").read_text("utf-8") for kept in cache.kept()]


def raising(error: type[BaseException]) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
