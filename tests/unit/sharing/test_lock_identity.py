"""Processes that cannot see each other can tell whether they have the same lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.sharing import device_lock as lock_identity
from pytest_gpuperf.sharing.device_lock import identity_of


def test_a_lock_has_one_identity_for_ever(tmp_path: Path) -> None:
    first = identity_of(tmp_path, "cpu")

    assert identity_of(tmp_path, "cpu") == first
    assert identity_of(tmp_path, "GPU-1") != first
    assert [path.name for path in tmp_path.iterdir()] == ["id"]


def test_locks_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()

    one, two = (identity_of(folder, "cpu") for folder in folders)

    assert one != two


def test_of_two_that_name_a_folder_at_once_the_first_is_heeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_once = lock_identity._write_once

    def beaten(path: Path) -> None:
        write_once(path)
        write_once(path)

    monkeypatch.setattr(lock_identity, "_write_once", beaten)

    first = identity_of(tmp_path, "cpu")

    assert identity_of(tmp_path, "cpu") == first
    assert [path.name for path in tmp_path.iterdir()] == ["id"]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()

    with pytest.raises(UsageError) as refused:
        identity_of(path, "cpu")

    assert str(refused.value) == (
        f"{path}/id: expected a file that names the folder, found Not a directory [GP412]"
    )
