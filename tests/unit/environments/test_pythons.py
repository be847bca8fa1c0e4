"""Another Python: what it gets of the packages of this one, and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import Distribution
from importlib.metadata import distributions
from pathlib import Path
from platform import python_version

import pytest

from pytest_gpuperf.environments import installers
from pytest_gpuperf.environments import lock_files
from pytest_gpuperf.environments.overlay import PackageCache
from pytest_gpuperf.environments.overlay import PackageChange
from pytest_gpuperf.environments.pythons import other_python
from pytest_gpuperf.errors import UsageError


FAKE_UV = """\
#!{python}
import pathlib, sys
typed = sys.argv[1:]
if typed[0] == "python":
    if typed[-1] == "2.7":
        sys.exit("error: No interpreter found for Python 2.7")
    print("{python}")
elif "--dry-run" in typed:
    print(" + rich @ file:///home/me/rich.whl", file=sys.stderr)
    print(" + new==1", file=sys.stderr)
else:
    folder = pathlib.Path(typed[typed.index("--target") + 1])
    folder.mkdir()
    (folder / "asked.txt").write_text("\\n".join(typed[typed.index("--") + 1:]))
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[PackageCache]:
    with closing(PackageCache(tmp_path / "packages")) as opened:
        yield opened


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "uv"
    file.write_text(FAKE_UV.format(python=sys.executable))
    file.chmod(0o755)
    monkeypatch.setattr(installers.shutil, "which", lambda _: str(file))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a project that is installed editable, beside two other packages."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    site = tmp_path / "site"
    package(site, "mine", "0.1", f'{{"url": "file://{project}"}}')
    package(site, "local", "0.2", f'{{"url": "file://{tmp_path}/wheels/local.whl"}}')
    package(site, "Rich", "15.0.0")
    (site / "left.dist-info").mkdir()

    def found() -> Iterator[Distribution]:
        return iter(distributions(path=[str(site)]))

    monkeypatch.setattr(lock_files, "distributions", found)
    return project


def package(site: Path, name: str, version: str, origin: str = "") -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    if origin:
        (folder / "direct_url.json").write_text(origin)


@pytest.mark.usefixtures("uv")
def test_another_python_has_the_same_packages_and_the_code_of_each_side(
    project: Path, cache: PackageCache, tmp_path: Path
) -> None:
    said: list[str] = []

    found = other_python("3.13", PackageChange(), project, cache, said.append)

    assert found.python == sys.executable
    assert found.changes == (f"Python {python_version()} -> {python_version()}",)
    site, *sources = map(Path, found.path)
    assert sources == [project, project / "src"]
    assert set((site / "asked.txt").read_text().splitlines()) == {
        f"local @ file://{tmp_path}/wheels/local.whl",
        "rich==15.0.0",
    }
    assert said == [f"installing 2 packages for Python {python_version()}"]
    assert other_python("3.13", PackageChange(), project, cache, said.append) == found
    assert len(said) == 1


@pytest.mark.usefixtures("uv")
def test_other_packages_replace_those_that_are_installed(
    project: Path, cache: PackageCache
) -> None:
    change = PackageChange(requirements=("./rich.whl",))

    found = other_python("3.13", change, project, cache, print)

    local, *others = (Path(found.path[0]) / "asked.txt").read_text().splitlines()
    assert local.startswith("local @ file://")
    assert others == ["new==1", "rich @ file:///home/me/rich.whl"]
    assert found.changes[1:] == ("new none -> 1", "rich 15.0.0 -> /home/me/rich.whl")


@pytest.mark.usefixtures("uv")
def test_only_what_is_installed_can_be_left_out(
    project: Path, cache: PackageCache
) -> None:
    change = PackageChange(without=("absent",))

    with pytest.raises(UsageError, match="--without=absent: no such package"):
        other_python("3.13", change, project, cache, print)


@pytest.mark.usefixtures("uv")
def test_a_python_that_is_not_there_is_refused_in_the_words_of_uv(
    project: Path, cache: PackageCache
) -> None:
    with pytest.raises(UsageError, match=r"No interpreter found for Python 2\.7"):
        other_python("2.7", PackageChange(), project, cache, print)


def test_without_uv_there_is_no_other_python(
    project: Path, cache: PackageCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installers.shutil, "which", lambda _: None)

    with pytest.raises(UsageError, match=r"--python=3\.13: found no uv") as refused:
        other_python("3.13", PackageChange(), project, cache, print)

    assert refused.value.error_id.name == "GP716"
