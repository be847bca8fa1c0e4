"""The packages of one side: what is installed for it, hidden from it, and said of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_gpuperf import environments as module
from pytest_gpuperf.environments import PackageChange, Packages
from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.environment import AS_INSTALLED, Overlay


class Shelf:
    """An installer that has what it is given."""

    def __init__(self, *packages: str) -> None:
        self.packages = packages
        self.installed: list[Sequence[str]] = []

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        return self.packages

    def install(self, packages: Sequence[str], folder: Path) -> None:
        self.installed.append(packages)


def hidden(package: str) -> Overlay:
    return Packages("", print).overlay(PackageChange(without=(package,)))


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda: {"rich": "15.0.0", "pluggy": "1"})


def test_what_a_change_needs_is_installed_once_and_said(tmp_path: Path) -> None:
    shelf, said = Shelf("rich==13.0.0", "commonmark==0.9.2"), list[str]()
    packages = Packages(str(tmp_path), said.append, shelf)
    change = PackageChange(requirements=("rich<14",))

    found = packages.overlay(change)

    assert found.changes == ("rich 15.0.0 -> 13.0.0", "commonmark none -> 0.9.2")
    assert found.hidden == ()
    assert packages.overlay(change) == found
    assert said == ["installing rich==13.0.0 commonmark==0.9.2"]
    assert len(shelf.installed) == 1


def test_what_could_not_be_installed_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, folders = Shelf(), list[Path]()

    def cut_off(_: object, folder: Path) -> None:
        folder.mkdir()
        folders.append(folder)
        raise UsageError(str(folder), ErrorId.GP718)

    monkeypatch.setattr(shelf, "install", cut_off)
    packages = Packages(str(tmp_path), print, shelf)
    for _ in range(2):
        with pytest.raises(UsageError):
            packages.overlay(PackageChange(requirements=("rich==13.0.0",), pins=True))

    assert len({*folders}) == 2


def test_pins_are_installed_as_they_are(tmp_path: Path) -> None:
    packages = Packages(str(tmp_path), print, Shelf("never asked"))
    change = PackageChange(requirements=("rich==13.0.0",), pins=True)

    assert packages.overlay(change).changes == ("rich 15.0.0 -> 13.0.0",)


def test_what_is_there_already_changes_nothing() -> None:
    change = PackageChange(requirements=("rich==15.0.0",))

    assert Packages("", print, Shelf()).overlay(change) == AS_INSTALLED


@pytest.mark.parametrize(
    "text",
    [
        *("--log=FILE", "-r/etc/passwd", "--index-url=http://127.0.0.1:9/simple"),
        *("-e.", "-cfile", "", " ", "six six", "six\n--log=FILE"),
        *("--find-links=file:///tmp", "six==1 --no-deps"),
    ],
)
def test_what_names_no_package_is_refused_before_an_installer_runs(text: str) -> None:
    with pytest.raises(UsageError, match="names no package"):
        PackageChange(requirements=("six==1.16.0", text))


def test_a_package_may_be_a_folder_or_an_address(tmp_path: Path) -> None:
    there = (
        str(tmp_path),
        "six",
        "six[a]>=1 ; python_version > '3'",
        "git+https://a/b",
    )

    assert PackageChange(requirements=there).requirements == there


def test_a_package_can_be_hidden() -> None:
    found = hidden("Pluggy")

    assert (found.hidden, found.without) == (("pluggy",), ("pluggy",))
    with pytest.raises(
        UsageError, match="--without=nosuch: no such package is install"
    ):
        hidden("nosuch")


def test_a_run_that_compares_nothing_imports_nothing_that_installs() -> None:
    program = (
        "import sys\n"
        "import pytest_gpuperf.plugin.session\n"
        "print([n for n in sys.modules if n.startswith('pytest_gpuperf.env')])\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert printed.stdout == "[]\n"


def test_a_package_without_a_module_of_its_own_cannot_be_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = {"shared": ["pluggy", "other"]}
    monkeypatch.setattr(module, "packages_distributions", lambda: owners)
    monkeypatch.setattr(module, "_tops", lambda package: iter(["shared"]))

    with pytest.raises(UsageError, match="found no module that this package alone has"):
        hidden("pluggy")


def test_modules_are_known_by_their_files_if_no_file_names_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "packages_distributions", dict[str, list[str]])

    found = hidden("pluggy")

    assert set(found.hidden) == {"pluggy"}
