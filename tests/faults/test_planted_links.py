"""Links, folders and files that somebody else has put where a run writes.

Each attempt plants one and looks at what is behind it afterwards: nothing there is
written, emptied or deleted, and the refusal is one sentence that names the place.
"""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from builders import CPU, an_entry
from scripted_project import ScriptedProject

from pytest_gpuperf.baselines.store import (
    make_ignored,
    path_of,
    read,
    update,
    write_ignored,
)
from pytest_gpuperf.cli import main
from pytest_gpuperf.errors import BaselineError, UsageError
from pytest_gpuperf.files import PlantedError, no_link, open_own
from pytest_gpuperf.measure.profile import write_trace
from pytest_gpuperf.model.environment import DeviceSlot
from pytest_gpuperf.runner.evidence import forget_traces
from pytest_gpuperf.sharing import device_lock
from pytest_gpuperf.sharing.device_lock import (
    DeviceLock,
    identity_of,
    lock_folder,
    passed_over,
    queue_at,
)


PRECIOUS: Final = "nobody may touch this"
A: Final = "test_it.py::test_a"

FILES: Final = (
    "results.json",
    "comment.md",
)


def precious(folder: Path) -> Path:
    """A folder elsewhere that has a file of each name that a run writes or removes."""
    folder.mkdir(parents=True)
    for name in (*FILES, "pending-scripted.json", "a.json.gz"):
        (folder / name).write_text(PRECIOUS, "utf-8")
    (folder / "traces").mkdir()
    (folder / "traces" / "b.json.gz").write_text(PRECIOUS, "utf-8")
    return folder


def is_untouched(folder: Path) -> bool:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return len(files) == len(FILES) + 3 and all(
        path.read_text("utf-8") == PRECIOUS for path in files
    )


def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make everything that is there another user's."""
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="a gate"),
        pytest.param(("--gpuperf-update=missing",), id="a refresh"),
    ],
)
def test_a_run_refuses_a_link_as_its_folder_and_touches_nothing_behind_it(
    arguments: tuple[str, ...], project: ScriptedProject, tmp_path: Path
) -> None:
    elsewhere = precious(tmp_path / "elsewhere")
    project.file("def test_a(gpuperf): gpuperf(int)\n")
    (project.path / ".gpuperf").symlink_to(elsewhere)

    result = project.run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, result.errlines)
    assert line == (
        f"ERROR: {project.path}/.gpuperf: expected a folder of this project, found a "
        f"link to {elsewhere}: remove it [GP526]"
    )
    assert is_untouched(elsewhere)


def test_the_page_of_a_run_is_not_written_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = precious(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gpuperf").symlink_to(elsewhere)

    assert main(["report", "--results", str(elsewhere)]) == 4

    assert "expected a folder of this project, found a link" in capsys.readouterr().err
    assert is_untouched(elsewhere)


def test_baselines_may_lie_behind_a_link(
    project: ScriptedProject, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (project.path / "baselines").symlink_to(shared)
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    project.refresh().assert_outcomes(passed=1)

    assert list(project.entries()) == [A]
    assert (shared / "scripted.json").is_file()


@pytest.mark.parametrize("name", [*FILES, "pending-scripted.json"])
def test_a_file_behind_a_link_in_the_folder_is_replaced_by_one_of_ours(
    name: str, project: ScriptedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.write_text(PRECIOUS, "utf-8")
    (project.path / ".gpuperf").mkdir()
    (project.path / ".gpuperf" / name).symlink_to(target)
    project.file("def test_a(gpuperf): gpuperf(int)\n")

    project.run().assert_outcomes(passed=1)

    assert target.read_text("utf-8") == PRECIOUS
    written = project.path / ".gpuperf" / name
    assert written.is_file()
    assert not written.is_symlink()


def test_a_link_as_the_folder_of_traces_is_removed_and_nothing_behind_it(
    tmp_path: Path,
) -> None:
    elsewhere = precious(tmp_path / "elsewhere")
    (tmp_path / ".gpuperf").mkdir()
    (tmp_path / ".gpuperf" / "traces").symlink_to(elsewhere)

    forget_traces(tmp_path / ".gpuperf")

    assert is_untouched(elsewhere)
    assert not (tmp_path / ".gpuperf" / "traces").is_symlink()


def test_traces_of_an_earlier_run_are_still_removed(tmp_path: Path) -> None:
    folder = tmp_path / ".gpuperf" / "traces"
    folder.mkdir(parents=True)
    (folder / "a.json.gz").touch()

    forget_traces(tmp_path / ".gpuperf")

    assert list(folder.iterdir()) == []


def test_a_trace_is_not_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(PRECIOUS, "utf-8")
    path = tmp_path / "a.json.gz"
    path.symlink_to(target)

    write_trace(path, "t", [], str)

    assert target.read_text("utf-8") == PRECIOUS
    assert gzip.decompress(path.read_bytes()).startswith(b"{")


def made_ignored(folder: Path) -> None:
    make_ignored(folder)


def written_ignored(folder: Path) -> None:
    write_ignored(folder / "results.json", "new")


def updated(folder: Path) -> None:
    changes = {"a": an_entry(None, exact={"syncs": 1})}
    update(folder.parent / "baselines", CPU, changes, lock_folder=folder)


def named_by_settings(folder: Path) -> None:
    no_link(folder)


@pytest.mark.parametrize(
    "write", [made_ignored, written_ignored, updated, named_by_settings]
)
@pytest.mark.parametrize("target", ["elsewhere", "nowhere", ".gpuperf"])
def test_whatever_writes_refuses_a_link_as_the_folder(
    write: Callable[[Path], None], target: str, tmp_path: Path
) -> None:
    elsewhere = precious(tmp_path / "elsewhere")
    folder = tmp_path / "project" / ".gpuperf"
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / target if target != ".gpuperf" else ".gpuperf")

    with pytest.raises((OSError, UsageError)) as refused:
        write(folder)

    assert "a link to " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert is_untouched(elsewhere)
    assert not (tmp_path / "nowhere").exists()
    assert read(tmp_path / "project" / "baselines", CPU).entries == {}


def test_a_folder_that_a_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")

    write_ignored(tmp_path / "out" / "a.json", "new")

    assert (tmp_path / "elsewhere" / "a.json").read_text("utf-8") == "new"


def test_the_lock_of_a_refresh_is_not_opened_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(PRECIOUS, "utf-8")
    folder = tmp_path / ".gpuperf"
    folder.mkdir()
    (folder / f"{CPU.key}.lock").symlink_to(target)

    with pytest.raises(BaselineError) as refused:
        updated(folder)

    assert f"it or its folder is a link to {target}: remove that" in str(refused.value)
    assert target.read_text("utf-8") == PRECIOUS
    assert not path_of(tmp_path / "baselines", CPU).exists()


class TestLocks:
    @pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
    def test_a_link_as_the_folder_is_refused(self, target: str, tmp_path: Path) -> None:
        elsewhere = precious(tmp_path / "elsewhere")
        (tmp_path / "locks").symlink_to(tmp_path / target)

        with pytest.raises(UsageError) as refused:
            DeviceLock(tmp_path / "locks", "gpu-0")

        assert str(refused.value) == (
            f"{tmp_path}/locks: expected a folder of this user for locks, found a link to "
            f"{tmp_path}/{target}: remove it, or point XDG_RUNTIME_DIR to a folder of "
            "yours [GP412]"
        )
        assert is_untouched(elsewhere)
        assert not (tmp_path / "nowhere").exists()

    @pytest.mark.parametrize(
        ("plant", "found"),
        [
            (lambda lock: lock.symlink_to("theirs"), "a link to theirs"),
            (lambda lock: lock.symlink_to("nowhere"), "a link to nowhere"),
            (os.mkfifo, "no regular file"),
            (
                lambda lock: os.link(lock.with_name("theirs"), lock),
                "a file with a second name elsewhere",
            ),
        ],
    )
    def test_a_lock_is_no_link_no_pipe_and_no_file_of_somebody(
        self, plant: Callable[[Path], None], found: str, tmp_path: Path
    ) -> None:
        (tmp_path / "theirs").write_text(PRECIOUS, "utf-8")
        lock = tmp_path / "gpu-0.lock"
        plant(lock)

        with pytest.raises(UsageError) as refused:
            DeviceLock(tmp_path, "gpu-0")

        assert str(refused.value) == (
            f"{lock}: expected a file of this user to lock, found {found}: remove it [GP412]"
        )
        assert (tmp_path / "theirs").read_text("utf-8") == PRECIOUS
        assert not (tmp_path / "nowhere").exists()

    def test_a_file_of_another_user_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        of_another_user(monkeypatch)

        with pytest.raises(PlantedError, match="one of user"):
            open_own(tmp_path / "gpu-0.lock")

    @pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o755, 0o707])
    def test_a_folder_that_others_may_use_becomes_private(
        self, mode: int, tmp_path: Path
    ) -> None:
        folder = tmp_path / "locks"
        folder.mkdir()
        folder.chmod(mode)

        DeviceLock(folder, "gpu-0").close()

        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_files_are_for_this_user_alone(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            DeviceLock(tmp_path / "locks", "gpu-0").close()
        finally:
            os.umask(before)

        modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "locks").iterdir()}
        assert modes == {0o600}
        assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o700

    @pytest.mark.parametrize("what", ["the folder", "the file"])
    def test_the_name_of_a_folder_is_not_read_through_a_link(
        self, what: str, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "id").write_text(PRECIOUS, "utf-8")
        folder = tmp_path / "locks"
        if what == "the folder":
            folder.symlink_to(tmp_path / "elsewhere")
        else:
            folder.mkdir()
            (folder / "id").symlink_to(tmp_path / "elsewhere" / "id")

        with pytest.raises(UsageError, match=r"found a link to .*: remove it.*GP412"):
            identity_of(folder, "gpu-0")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose folders of locks are all below one that is returned."""
    for name in ("run", "tmp", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(device_lock, "_SAID", set())
    return tmp_path


class TestAnotherPlace:
    @pytest.mark.parametrize(
        ("links", "used"),
        [
            ((), "run/gpuperf"),
            (("run/gpuperf",), "tmp/gpuperf-{uid}"),
            (("run/gpuperf", "tmp/gpuperf-{uid}"), "home/.cache/gpuperf-locks"),
        ],
    )
    def test_a_link_in_a_place_is_passed_over(
        self, links: Sequence[str], used: str, places: Path
    ) -> None:
        for link in links:
            (places / link.format(uid=os.getuid())).symlink_to("nowhere")

        assert lock_folder() == places / used.format(uid=os.getuid())
        assert len(passed_over()) == len(links)

    def test_links_everywhere_are_refused_by_whoever_locks(self, places: Path) -> None:
        (places / "run" / "gpuperf").symlink_to("nowhere")
        (places / "tmp" / f"gpuperf-{os.getuid()}").symlink_to("nowhere")
        (places / "home" / ".cache").mkdir()
        (places / "home" / ".cache" / "gpuperf-locks").symlink_to("nowhere")

        with pytest.raises(
            UsageError, match=r"found a link to nowhere: remove it.*GP412"
        ):
            DeviceLock(lock_folder(), "gpu-0")

    def test_a_folder_of_another_user_is_passed_over(
        self, places: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (places / "run" / "gpuperf").mkdir()
        of_another_user(monkeypatch)

        assert lock_folder() == places / "tmp" / f"gpuperf-{os.getuid()}"

    def test_that_another_place_is_used_is_said_once(self, places: Path) -> None:
        (places / "run" / "gpuperf").symlink_to(places / "home")
        said: list[str] = []

        for name in ("gpu-0", "gpu-1"):
            slot = DeviceSlot(board=None, visible=None, lock=name)
            queue_at(slot, said.append).close()

        other = places / "tmp" / f"gpuperf-{os.getuid()}"
        (sentence,) = said
        assert sentence == (
            f"{places}/run/gpuperf: not used for locks, it is a link or another user's; "
            f"{other} is used"
        )
        assert (other / "gpu-1.lock").is_file()

    def test_there_may_be_no_home(
        self, places: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nobody() -> Path:
            raise RuntimeError

        monkeypatch.setattr(device_lock.Path, "home", nobody)

        assert lock_folder() == places / "run" / "gpuperf"
