"""A device is asked for without standing still, and a wait is shown of once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpuperf.devices.machine import slots_of
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.sharing.device_lock import DeviceLock, Queue, lock_folder, queue_at


class Told:
    """A clock that is set, and what was announced."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.words: list[str] = []

    def now(self) -> float:
        return self.now_s


@pytest.fixture
def said() -> Told:
    return Told()


def reserving(folder: Path, said: Told) -> Queue:
    lock = DeviceLock(folder, "gpu-0")
    return Queue(lock, 10.0, said.words.append, now=said.now)


def test_a_free_device_is_had_at_once_and_again_after_it_was_given_back(
    tmp_path: Path, said: Told
) -> None:
    ours, theirs = reserving(tmp_path, said), reserving(tmp_path, said)

    assert ours.take()
    assert not theirs.take()
    ours.give_back()
    assert theirs.take()
    assert said.words == []


def test_a_wait_is_announced_after_a_second_and_once(
    tmp_path: Path, said: Told
) -> None:
    ours, theirs = reserving(tmp_path, said), reserving(tmp_path, said)
    ours.take()

    for said.now_s in (100.0, 100.9, 101.0, 105.0):
        assert not theirs.take()

    assert said.words == ["waiting for gpu-0, in use by another process"]


def test_a_device_that_never_comes_free_is_a_usage_error_and_others_may_ask(
    tmp_path: Path, said: Told
) -> None:
    ours, theirs = reserving(tmp_path, said), reserving(tmp_path, said)
    ours.take()
    theirs.take()
    said.now_s = 10.0

    with pytest.raises(UsageError) as refused:
        theirs.take()

    assert str(refused.value) == (
        f"{tmp_path}/gpu-0.lock: gpu-0 is in use by another process, and did not come "
        "free in time: wait for it, or measure on another device [GP411]"
    )
    ours.give_back()
    assert reserving(tmp_path, said).take()


@pytest.mark.parametrize(
    ("runtime", "folder"), [("/run/user/7", "/run/user/7/gpuperf"), ("", None)]
)
def test_all_runs_of_a_user_find_the_same_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str, folder: str | None
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: 7)

    assert lock_folder() == Path(folder or tmp_path / "gpuperf-7")


def test_what_is_counted_on_the_simulated_gpu_waits_for_nobody() -> None:
    (slot,) = slots_of(DeviceKind.SIMULATED, None)
    ours, theirs = queue_at(slot, pytest.fail), queue_at(slot, pytest.fail)

    with ours.alone(), theirs.alone():
        assert slot.lock is None
