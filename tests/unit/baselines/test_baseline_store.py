"""Files: read, replaced whole, shared by runs that write at once."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import H200, an_entry, holding
from filelock import FileLock

from pytest_gpuperf.baselines import store, store as atomic
from pytest_gpuperf.baselines.format import dumps
from pytest_gpuperf.baselines.store import (
    path_of,
    pending_path,
    read,
    update,
    write,
    write_pending,
)
from pytest_gpuperf.errors import BaselineError
from pytest_gpuperf.files import scratch_folder
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.sharing.device_lock import DeviceLock


INTACT = "what was stored before is unchanged; solve that and run again"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_each_hardware_has_its_file(tmp_path: Path) -> None:
    assert path_of(tmp_path, H200) == tmp_path / "cuda-nvidia-h200.json"


def test_no_file_and_no_folder_are_no_baselines(tmp_path: Path) -> None:
    assert read(tmp_path, H200) == holding()
    assert read(tmp_path / "none" / "there", H200) == holding()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"

    write(path_of(folder, H200), dumps(holding(a=1)))

    assert read(folder, H200) == holding(a=1)
    assert names_in(folder) == ["cuda-nvidia-h200.json"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()

    write(tmp_path / "x.json", "{}\n")

    assert (tmp_path / "x.json").stat().st_mode == other.stat().st_mode


def test_the_file_and_then_its_folder_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def watch(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        file = tmp_path / "x.json"
        is_folder = inode == tmp_path.stat().st_ino
        synced.append(f"{'folder' if is_folder else 'draft'}, {file.exists()}")

    monkeypatch.setattr(os, "fsync", watch)

    write(tmp_path / "x.json", "{}\n")

    assert synced == ["draft, False", "folder, True"]


def test_a_folder_that_cannot_be_synced_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_sync_folder", failing)

    write(tmp_path / "x.json", "{}\n")

    assert (tmp_path / "x.json").read_text(encoding="utf-8") == "{}\n"


def test_a_file_of_other_hardware_is_refused(tmp_path: Path) -> None:
    a100 = Hardware(kind=DeviceKind.CUDA, name="NVIDIA A100")
    path = path_of(tmp_path, a100)
    write(path, dumps(holding(a=1)))

    with pytest.raises(BaselineError) as refused:
        read(tmp_path, a100)

    assert str(refused.value) == (
        f"{path}: measured on cuda NVIDIA H200, but the name says cuda-nvidia-a100; "
        "rename it to cuda-nvidia-h200.json [GP504]"
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "cannot be read, is a directory; make it a readable file [GP501]"),
        (
            lambda path: path.write_bytes(b"\xff\xfe{"),
            "not UTF-8 text; restore the file from version control [GP501]",
        ),
        (
            Path.touch,
            (
                "the file is empty; restore the file from version control, or delete it and "
                "record it again with --gpuperf-update=all [GP502]"
            ),
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    path = path_of(tmp_path, H200)
    make(path)

    with pytest.raises(BaselineError) as refused:
        read(tmp_path, H200)

    assert str(refused.value) == f"{path}: {said}"


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = path_of(tmp_path, H200)
    write(path, dumps(holding(a=1)))
    owner = os if broken == "fsync" else Path
    monkeypatch.setattr(owner, broken, failing)

    with pytest.raises(BaselineError) as refused:
        write(path, dumps(holding(a=2)))

    assert str(refused.value) == (
        f"{path}: cannot be written, no space left on device; {INTACT} [GP506]"
    )
    assert read(tmp_path, H200) == holding(a=1)
    assert names_in(tmp_path) == ["cuda-nvidia-h200.json"]


def test_a_read_only_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", read_only)

    with pytest.raises(BaselineError) as refused:
        write(tmp_path / "x.json", "{}\n")

    assert str(refused.value) == (
        f"{tmp_path / 'x.json'}: cannot be written, read-only file system; {INTACT} [GP506]"
    )


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "baselines").touch()
    path = tmp_path / "baselines" / "x.json"

    with pytest.raises(BaselineError) as refused:
        write(path, "{}\n")

    assert (
        str(refused.value)
        == f"{path}: cannot be written, file exists; {INTACT} [GP506]"
    )


def test_an_update_adds_replaces_and_removes(tmp_path: Path) -> None:
    write(path_of(tmp_path, H200), dumps(holding(a=1, b=1, c=1)))

    stored = update(
        tmp_path,
        H200,
        {
            "b": an_entry(None, exact={"syncs": 2}),
            "d": an_entry(None, exact={"syncs": 2}),
        },
        removed=["c"],
        lock_folder=tmp_path / ".gpuperf",
    )

    assert stored == holding(a=1, b=2, d=2)
    assert read(tmp_path, H200) == stored


def test_an_update_that_changes_nothing_leaves_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path_of(tmp_path, H200), dumps(holding(a=1)))
    monkeypatch.setattr(store, "write", failing)

    stored = update(
        tmp_path,
        H200,
        {"a": an_entry(None, exact={"syncs": 1})},
        lock_folder=tmp_path / "lock",
    )

    assert stored == holding(a=1)


def test_an_update_without_changes_makes_no_file(tmp_path: Path) -> None:
    update(tmp_path / "baselines", H200, {}, lock_folder=tmp_path / "lock")

    assert names_in(tmp_path / "baselines") == []


WRITER = """
import sys
from pathlib import Path
from builders import H200, an_entry
from pytest_gpuperf.baselines.store import update

folder, name = Path(sys.argv[1]), sys.argv[2]
for number in range(20):
    changes = {f"{name}{number}": an_entry(None, exact={"syncs": number})}
    update(folder, H200, changes, lock_folder=Path(sys.argv[3]))
"""


@pytest.mark.parametrize(
    "lock_of_b", ["lock-a", "lock-b"], ids=["one rootdir", "two rootdirs"]
)
def test_processes_that_update_at_once_lose_nothing(
    tmp_path: Path, lock_of_b: str
) -> None:
    (tmp_path / "b").symlink_to(tmp_path)
    folders = {"a": tmp_path, "b": tmp_path / "b"}
    locks = {"a": "lock-a", "b": lock_of_b}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), name, tmp_path / locks[name]]
        )
        for name, folder in folders.items()
    ]

    assert [writer.wait(timeout=600) for writer in writers] == [0, 0]
    assert read(tmp_path, H200) == holding(
        **{f"{name}{n}": n for name in "ab" for n in range(20)}
    )


def test_a_lock_that_another_run_keeps_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.0)
    path = tmp_path / "cuda-nvidia-h200.lock"

    with FileLock(path), pytest.raises(BaselineError) as refused:
        update(
            tmp_path,
            H200,
            {"a": an_entry(None, exact={"syncs": 1})},
            lock_folder=tmp_path,
        )

    assert str(refused.value) == (
        f"{path}: cannot be locked, another run has had it for 0 s; {INTACT} [GP507]"
    )
    assert read(tmp_path, H200) == holding()


def test_a_folder_that_another_rootdir_keeps_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.0)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    is_open = {*Path("/dev/fd").iterdir()}

    with pytest.raises(BaselineError) as refused:
        update(tmp_path, H200, {}, lock_folder=tmp_path / "lock")
    assert {*Path("/dev/fd").iterdir()} == is_open
    os.close(handle)

    assert str(refused.value) == (
        f"{path_of(tmp_path, H200)}: cannot be written, another run has had it for 0 s; "
        f"{INTACT} [GP506]"
    )
    assert update(tmp_path, H200, {}, lock_folder=tmp_path / "lock") == holding()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_a_file_system_without_locks_is_written_and_measured_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """NFS locks files, and refuses a folder: it is not open for writing."""
    flock = fcntl.flock

    def refuse(handle: int, how: int) -> None:
        if number == errno.EBADF and not stat.S_ISDIR(os.fstat(handle).st_mode):
            return flock(handle, how)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    device = DeviceLock(tmp_path / "locks", "gpu0")
    changes = {"a": an_entry(None, exact={"syncs": 1})}

    with scratch_folder() as folder:
        assert Path(folder).is_dir()
    assert device.try_exclusive()
    device.release()
    device.close()
    assert update(tmp_path / "b", H200, changes, lock_folder=tmp_path / "lock") == (
        holding(a=1)
    )


def test_the_mode_and_the_link_of_a_stored_file_are_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    write(kept, dumps(holding(a=1)))
    kept.chmod(0o640)
    path_of(tmp_path, H200).symlink_to("kept.json")

    changes = {"b": an_entry(None, exact={"syncs": 2})}
    update(tmp_path, H200, changes, lock_folder=tmp_path / "lock")

    assert path_of(tmp_path, H200).readlink() == Path("kept.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    assert read(tmp_path, H200) == holding(a=1, b=2)


def test_a_file_of_another_user_stays_theirs_if_that_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    write(tmp_path / "a.json", "old")
    owner = (tmp_path / "a.json").stat()
    monkeypatch.setattr(os, "fchown", lambda _, *ids: given.append(ids) or refused())

    write(tmp_path / "a.json", "new")
    write(tmp_path / "b.json", "new")

    assert given == [(owner.st_uid, owner.st_gid)]
    assert (tmp_path / "a.json").read_text("utf-8") == "new"


def refused() -> None:
    raise PermissionError


def test_a_lock_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "lock" / "cuda-nvidia-h200.lock"

    with pytest.raises(BaselineError) as refused:
        update(tmp_path, H200, {}, lock_folder=path.parent)

    assert (
        str(refused.value)
        == f"{path}: cannot be locked, not a directory; {INTACT} [GP507]"
    )


def test_the_lock_is_given_back_after_an_error(tmp_path: Path) -> None:
    path_of(tmp_path, H200).write_text("{", encoding="utf-8")

    with pytest.raises(BaselineError):
        update(tmp_path, H200, {}, lock_folder=tmp_path / "lock")

    with FileLock(tmp_path / "lock" / "cuda-nvidia-h200.lock", timeout=0) as lock:
        assert lock.is_locked


def test_pending_results_lie_in_a_folder_that_git_ignores(tmp_path: Path) -> None:
    folder = tmp_path / ".gpuperf"

    path = write_pending(folder, holding(a=1))

    assert (
        path == pending_path(folder, H200) == folder / "pending-cuda-nvidia-h200.json"
    )
    assert path.read_text(encoding="utf-8") == dumps(holding(a=1))
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_folder_that_was_there_gets_no_gitignore(tmp_path: Path) -> None:
    write_pending(tmp_path, holding())

    assert names_in(tmp_path) == ["pending-cuda-nvidia-h200.json"]


def test_a_lock_taken_first_makes_the_folder_ignored_as_well(tmp_path: Path) -> None:
    folder = tmp_path / ".gpuperf"

    update(tmp_path, H200, {}, lock_folder=folder)

    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_a_pending_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file"

    with pytest.raises(BaselineError) as refused:
        write_pending(folder, holding())

    assert str(refused.value) == (
        f"{folder}: cannot be created, file exists; rename the file [GP506]"
    )
