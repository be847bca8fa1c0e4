"""One process alone times on a device, also where processes are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.sharing.device_lock import DeviceLock, holders_of


pytestmark = pytest.mark.slow


HOLDER = """
import os, sys
from pathlib import Path
from pytest_gpuperf.sharing.device_lock import DeviceLock

lock = DeviceLock(Path(sys.argv[1]), "gpu-0")
assert lock.try_exclusive()
forked = os.fork() if sys.argv[2:] else 0
if forked == 0:
    print("held", flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def lock_in(folder: Path, name: str = "gpu-0") -> DeviceLock:
    return DeviceLock(folder, name)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


def hold(held: ExitStack, folder: Path, *forking: str) -> subprocess.Popen[str]:
    holder = held.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), *forking],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    held.callback(holder.kill)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def is_free(lock: DeviceLock) -> bool:
    try:
        return lock.try_exclusive()
    finally:
        lock.release()


def test_one_process_has_a_device_and_others_have_other_devices(
    held: ExitStack, folder: Path
) -> None:
    hold(held, folder)

    assert not is_free(lock_in(folder))
    assert is_free(lock_in(folder, "gpu-1"))


def test_a_lock_can_be_taken_again_and_again(folder: Path) -> None:
    lock = lock_in(folder)

    assert is_free(lock)
    assert is_free(lock)


@pytest.mark.parametrize("how", [(), ("fork",)], ids=["alone", "with a forked child"])
def test_the_death_of_its_holder_frees_a_lock_at_once(
    held: ExitStack, folder: Path, how: tuple[str, ...]
) -> None:
    holder = hold(held, folder, *how)

    holder.kill()
    holder.wait()

    assert is_free(lock_in(folder))


def test_a_refusal_names_the_holder(held: ExitStack, folder: Path) -> None:
    holder = hold(held, folder)

    command = " ".join(f"{sys.executable} -c {HOLDER}".split())[:60]
    assert str(lock_in(folder).refusal()) == (
        f"{folder / 'gpu-0.lock'}: gpu-0 is in use by pid {holder.pid} ({command}...), "
        "and did not come free in time: wait for it, or measure on another device [GP411]"
    )


def test_a_system_that_does_not_tell_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()

    assert holders_of(path, tmp_path / "missing") == ()
    assert holders_of(tmp_path / "b.lock") == ()


def test_locks_of_other_files_and_waiting_ones_are_no_holders(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.touch()
    inode, table = path.stat().st_ino, tmp_path / "locks"
    table.write_text(
        f"1: FLOCK  ADVISORY  WRITE 999999991 08:01:{inode} 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE 999999992 08:01:{inode} 0 EOF\n"
        f"2: POSIX  ADVISORY  WRITE 999999993 08:01:{inode} 0 EOF\n"
        f"3: FLOCK  ADVISORY  WRITE 999999994 08:01:{inode}1 0 EOF\n"
        f"4: FLOCK  ADVISORY  READ  {os.getpid()} 08:01:{inode} 0 EOF\n"
    )

    assert holders_of(path, table) == ("pid 999999991",)


def test_a_lock_folder_of_another_user_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)

    with pytest.raises(UsageError) as refused:
        lock_in(folder)

    assert str(refused.value) == (
        f"{folder}: expected a folder of this user for locks, found one of user {owner}: "
        "remove it, or point XDG_RUNTIME_DIR to a folder of yours [GP412]"
    )


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locks").touch()

    with pytest.raises(UsageError) as refused:
        lock_in(tmp_path / "locks")

    assert str(refused.value) == (
        f"{tmp_path / 'locks'}: expected a folder of this user for locks, found File exists [GP412]"
    )


def test_a_folder_in_the_place_of_a_lock_is_refused(folder: Path) -> None:
    (folder / "gpu-0.lock").mkdir(parents=True)

    with pytest.raises(UsageError) as refused:
        lock_in(folder)

    assert str(refused.value) == (
        f"{folder / 'gpu-0.lock'}: expected a file of this user to lock, found Is a directory [GP412]"
    )


@pytest.mark.parametrize("content", [b"pid 1", b"\x00\xff garbage \n" * 1000, b""])
def test_a_file_left_by_a_dead_holder_is_no_lock(folder: Path, content: bytes) -> None:
    folder.mkdir()
    path = folder / "gpu-0.lock"
    path.write_bytes(content)

    assert is_free(lock_in(folder))
    assert path.read_bytes() == content


def test_a_file_that_is_used_again_looks_new_to_what_cleans_temporary_folders(
    folder: Path,
) -> None:
    """Were it removed below its holder, another run would hold a lock of its own."""
    lock_in(folder).close()
    path = folder / "gpu-0.lock"
    os.utime(path, (0, 0))

    lock_in(folder)

    assert path.stat().st_mtime > 0


forking = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
"""What the tests loaded may have threads, which a forked child does not touch."""


def in_forked_child(act: Callable[[], bool]) -> bool:
    """Whether *act*, in a forked child, is true."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if act() else 1)
    return os.waitpid(pid, 0)[1] == 0


@forking
def test_a_forked_child_can_take_the_lock_itself(folder: Path) -> None:
    lock = lock_in(folder)

    assert in_forked_child(lambda: is_free(lock))
    assert lock.try_exclusive()
    assert in_forked_child(lambda: not is_free(lock))


@forking
def test_a_forked_child_that_lets_go_takes_nothing_from_its_parent(
    folder: Path,
) -> None:
    lock, other = lock_in(folder), lock_in(folder)

    def let_go() -> bool:
        lock.release()
        lock.close()
        return True

    assert lock.try_exclusive()
    assert in_forked_child(let_go)
    assert not is_free(other)


def test_a_lock_that_is_closed_twice_closes_no_file_of_somebody_else(
    folder: Path,
) -> None:
    lock = lock_in(folder)
    lock.close()

    with Path(os.devnull).open("rb") as stranger:
        lock.close()

        assert stranger.read() == b""
