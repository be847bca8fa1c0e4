"""The packages of one side: what is installed for it, hidden from it, and said of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pytest_gpuperf.environments import overlay as module
from pytest_gpuperf.environments.overlay import PackageCache
from pytest_gpuperf.environments.overlay import PackageChange
from pytest_gpuperf.environments.overlay import overlay
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.environment import AS_INSTALLED


class Shelf:
    """An installer that has what it is given."""

    def __init__(self, *packages: str) -> None:
        self.packages = packages
        self.installed: list[Sequence[str]] = []

    def needs(self, requirements: Sequence[str]) -> tuple[str, ...]:
        return self.packages

    def install(self, packages: Sequence[str], folder: Path) -> None:
        self.installed.append(packages)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PackageCache]:
    with closing(PackageCache(tmp_path / "packages")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed", lambda: {"rich": "15.0.0", "pluggy": "1"})


def test_what_a_change_needs_is_installed_once_and_said(cache: PackageCache) -> None:
    shelf, said = Shelf("rich==13.0.0", "commonmark==0.9.2"), list[str]()
    change = PackageChange(requirements=("rich<14",))

    found = overlay(change, cache, said.append, shelf)

    assert found.changes == ("rich 15.0.0 -> 13.0.0", "commonmark none -> 0.9.2")
    assert found.hidden == ()
    assert overlay(change, cache, said.append, shelf) == found
    assert said == ["installing rich==13.0.0 commonmark==0.9.2"]
    assert len(shelf.installed) == 1


def test_pins_are_installed_as_they_are(cache: PackageCache) -> None:
    shelf = Shelf("never asked")
    change = PackageChange(requirements=("rich==13.0.0",), pins=True)

    assert overlay(change, cache, print, shelf).changes == ("rich 15.0.0 -> 13.0.0",)


def test_what_is_there_already_changes_nothing(cache: PackageCache) -> None:
    change = PackageChange(requirements=("rich==15.0.0",))

    assert overlay(change, cache, print, Shelf()) == AS_INSTALLED


@pytest.mark.parametrize("name", ["mine", "my code"])
def test_a_package_that_is_a_path_is_another_one_once_its_code_is(
    cache: PackageCache, tmp_path: Path, name: str
) -> None:
    mine = tmp_path / name
    (mine / "__pycache__").mkdir(parents=True)
    shelf = Shelf(f"mine @ {mine.as_uri()}")

    def folder(text: str) -> tuple[str, ...]:
        (mine / "code.py").write_text(text)
        return overlay(PackageChange(requirements=(".",)), cache, print, shelf).path

    first = folder("1")
    (mine / "__pycache__/code.pyc").write_text("compiled")
    (mine / ".git").write_text("hidden")
    assert folder("1") == first
    assert folder("2") != first
    assert folder("1") == first


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


def test_a_package_can_be_hidden(cache: PackageCache) -> None:
    found = overlay(PackageChange(without=("Pluggy",)), cache, print)

    assert (found.hidden, found.without) == (("pluggy",), ("pluggy",))
    with pytest.raises(
        UsageError, match="--without=nosuch: no such package is install"
    ):
        overlay(PackageChange(without=("nosuch",)), cache, print)


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
    cache: PackageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = {"shared": ["pluggy", "other"]}
    monkeypatch.setattr(module, "packages_distributions", lambda: owners)
    monkeypatch.setattr(module, "_tops", lambda package: iter(["shared"]))

    with pytest.raises(UsageError, match="found no module that this package alone has"):
        overlay(PackageChange(without=("pluggy",)), cache, print)


def test_modules_are_known_by_their_files_if_no_file_names_them(
    cache: PackageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "packages_distributions", dict[str, list[str]])

    found = overlay(PackageChange(without=("pluggy",)), cache, print)

    assert set(found.hidden) == {"pluggy"}
