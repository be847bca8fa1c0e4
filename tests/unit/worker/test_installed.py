"""The packages that pytest asks for its plugins: read once, and nowhere else seen."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_gpuperf.worker.child import Installed, KnownPackages, _ask_git_nothing


def package(place: Path, name: str) -> Path:
    """Install a plugin of pytest in *place*, as pip writes it; return its folder."""
    folder = place / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n")
    (folder / "entry_points.txt").write_text(f"[pytest11]\n{name} = {name}.plugin\n")
    (folder / "RECORD").write_text(f"{name}/plugin.py,,\n")
    # Python 3.12 and newer name only files that exist.
    (place / name).mkdir()
    (place / name / "plugin.py").touch()
    return folder


def described(found: Iterable[object]) -> list[tuple[str, list[str], list[str]]]:
    """Return of each package what pytest asks: its name, its plugins, its files."""
    return [
        (
            one.metadata["Name"],  # type: ignore[attr-defined]
            [point.name for point in one.entry_points],  # type: ignore[attr-defined]
            [str(file) for file in one.files or []],  # type: ignore[attr-defined]
        )
        for one in found
    ]


A = ("alpha", ["alpha"], ["alpha/plugin.py"])
B = ("beta", ["beta"], ["beta/plugin.py"])


def test_a_package_is_read_once(tmp_path: Path) -> None:
    folder = package(tmp_path, "alpha")
    installed = Installed([str(tmp_path)])
    for name in ("entry_points.txt", "RECORD"):
        (folder / name).unlink()

    assert described(installed.on([str(tmp_path)])) == [A]


def test_a_place_that_a_project_adds_is_read_and_comes_first(tmp_path: Path) -> None:
    package(tmp_path / "site", "alpha")
    installed = Installed([str(tmp_path / "site")])
    package(tmp_path / "project", "beta")

    path = [str(tmp_path / "project"), str(tmp_path / "site")]
    assert described(installed.on(path)) == [B, A]


def test_another_path_is_read_anew(tmp_path: Path) -> None:
    package(tmp_path / "one", "alpha")
    package(tmp_path / "two", "beta")
    both = [str(tmp_path / "one"), str(tmp_path / "two")]
    installed = Installed(both)
    shutil.rmtree(tmp_path / "one")

    assert described(installed.on(both[1:])) == [B]
    assert described(installed.on(both[::-1])) == [B]


def test_it_is_answered_till_a_conftest_is_loaded(tmp_path: Path) -> None:
    own = importlib.metadata.distributions
    package(tmp_path, "alpha")

    known = KnownPackages(Installed([]))
    with known, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [str(tmp_path)])
        assert described(importlib.metadata.distributions()) == [A]
        elsewhere = importlib.metadata.distributions(path=[])
        assert described(elsewhere) == []
        known.pytest_load_initial_conftests()
        assert importlib.metadata.distributions is own
    assert importlib.metadata.distributions is own


def test_pytest_benchmark_has_a_name_without_asking_git(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = SimpleNamespace(get_tag=lambda: pytest.fail("git was asked"))
    monkeypatch.setitem(sys.modules, "pytest_benchmark.plugin", plugin)

    _ask_git_nothing()

    assert plugin.get_tag() == "measured"
