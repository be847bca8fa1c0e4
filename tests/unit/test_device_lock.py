"""Users of a device and the one who times on it, in processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.sharing.device_lock import DeviceLock
from pytest_gpuperf.sharing.holders import holders_of


HOLDER = """
import os, sys
from pathlib import Path
from pytest_gpuperf.sharing.device_lock import DeviceLock

lock = DeviceLock(Path(sys.argv[1]), "gpu-0")
with getattr(lock, sys.argv[2])(0):
    forked = os.fork() if sys.argv[3:] else 0
    if forked == 0:
        print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
"""


class Clock:
    """Time passes when somebody pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


def lock_in(folder: Path, name: str = "gpu-0") -> DeviceLock:
    clock = Clock()
    return DeviceLock(folder, name, now=clock.now, pause=clock.pause)


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


def hold(
    held: ExitStack, folder: Path, how: str, *forking: str
) -> subprocess.Popen[str]:
    holder = held.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(folder), how, *forking],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    held.callback(holder.kill)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def is_free(lock: DeviceLock, how: str) -> bool:
    try:
        with getattr(lock, how)(0):
            return True
    except UsageError:
        return False


@pytest.mark.parametrize(
    ("theirs", "ours", "free"),
    [
        ("shared", "shared", True),
        ("shared", "exclusive", False),
        ("exclusive", "shared", False),
        ("exclusive", "exclusive", False),
    ],
)
def test_users_share_a_device_and_who_times_has_it_alone(
    held: ExitStack, folder: Path, theirs: str, ours: str, *, free: bool
) -> None:
    hold(held, folder, theirs)

    assert is_free(lock_in(folder), ours) is free
    assert is_free(lock_in(folder, "gpu-1"), ours)


def test_who_waits_to_time_keeps_new_users_out(folder: Path) -> None:
    user, timer, late = (lock_in(folder) for _ in range(3))
    seen: list[bool] = []
    timer._pause = lambda _: seen.append(is_free(late, "shared"))

    with user.shared(0), pytest.raises(UsageError), timer.exclusive(0.0):
        pass
    timer._now = iter([0.0, 0.0, 2.0]).__next__
    with user.shared(0), pytest.raises(UsageError), timer.exclusive(1.0):
        pass

    assert seen == [False]
    assert is_free(late, "shared")


def test_a_lock_can_be_taken_again_and_again(folder: Path) -> None:
    lock = lock_in(folder)

    for how in ("shared", "exclusive", "shared", "exclusive"):
        assert is_free(lock, how)


def test_a_failure_inside_lets_go(folder: Path) -> None:
    lock = lock_in(folder)

    for how in ("shared", "exclusive"):
        with pytest.raises(ZeroDivisionError), getattr(lock, how)(0):
            _ = 1 / 0

    assert is_free(lock_in(folder), "exclusive")


@pytest.mark.parametrize("how", ["shared", "exclusive"])
def test_the_death_of_its_holder_frees_a_lock_at_once(
    held: ExitStack, folder: Path, how: str
) -> None:
    holder = hold(held, folder, how)

    holder.kill()
    holder.wait()

    assert is_free(lock_in(folder), "exclusive")


def test_a_forked_child_does_not_hold_its_dead_parent_s_lock(
    held: ExitStack, folder: Path
) -> None:
    holder = hold(held, folder, "exclusive", "fork")

    holder.kill()
    holder.wait()

    assert is_free(lock_in(folder), "exclusive")


def test_waiting_ends_with_the_name_of_the_holder(
    held: ExitStack, folder: Path
) -> None:
    holder = hold(held, folder, "exclusive")

    with pytest.raises(UsageError) as refused, lock_in(folder).exclusive(3.0):
        pass

    command = " ".join(f"{sys.executable} -c {HOLDER}".split())[:60]
    assert str(refused.value) == (
        f"{folder / 'gpu-0.lock'}: gpu-0 is in use by pid {holder.pid} ({command}...), "
        "and did not come free in time: wait for it, or measure on another device"
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
        "remove it, or point XDG_RUNTIME_DIR to a folder of yours"
    )


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locks").touch()

    with pytest.raises(UsageError) as refused:
        lock_in(tmp_path / "locks")

    assert str(refused.value) == (
        f"{tmp_path / 'locks'}: expected a folder for locks, found File exists"
    )


def test_a_folder_in_the_place_of_a_lock_is_refused(folder: Path) -> None:
    (folder / "gpu-0.lock").mkdir(parents=True)

    with pytest.raises(UsageError) as refused:
        lock_in(folder)

    assert str(refused.value) == (
        f"{folder / 'gpu-0.lock'}: expected a file to lock, found Is a directory"
    )


def test_a_file_left_by_a_dead_holder_is_no_lock(folder: Path) -> None:
    folder.mkdir()
    (folder / "gpu-0.lock").write_text("pid 1")

    assert is_free(lock_in(folder), "exclusive")
