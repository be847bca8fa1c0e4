"""Two versions of a project in one process, of which code sees one at a time."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuperf.compare_commits.module_view import Guest
from pytest_gpuperf.compare_commits.module_view import Views
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner.relocation import Relocation
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is imported or set is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setenv("GPUPERF_MARK", "outside")
    monkeypatch.chdir(Path.cwd())
    known, state, environment = set(sys.modules), random.getstate(), dict(os.environ)
    yield
    random.setstate(state)
    os.environ.clear()
    os.environ.update(environment)
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.fixture
def views(tmp_path: Path) -> Views:
    """``pkg_seen`` and what it imports late, in two versions."""
    for name in ("before", "after"):
        for file in ("pkg_seen/__init__.py", "pkg_seen/late.py"):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"NAME = {name!r}\n")
    return Views(guest(tmp_path, "before"), guest(tmp_path, "after"))


def guest(folder: Path, name: str) -> Guest:
    root = str(folder / name)
    project = Project(directory=root, search_path=(root, *sys.path))
    return Guest(
        run=RunRequest(tests=(), device=DeviceKind.CPU, project=project),
        relocation=Relocation(origin=str(folder / "after"), root=root),
        environment={"GPUPERF_MARK": name},
    )


def seen(name: str) -> str:
    return str(importlib.import_module(name).NAME)


def test_each_imports_its_own_at_any_time(views: Views) -> None:
    before, after = views.both
    found = []
    for view, name in (
        (before, "pkg_seen"),
        (after, "pkg_seen"),
        (before, "pkg_seen.late"),
        (after, "pkg_seen.late"),
        (before, "pkg_seen"),
    ):
        views.show(view)
        found.append(seen(name))
    views.hide()

    assert found == ["before", "after", "before", "after", "before"]
    assert list(before.modules) == list(after.modules) == ["pkg_seen", "pkg_seen.late"]
    assert "pkg_seen" not in sys.modules


def test_a_turn_changes_what_is_imported_and_no_random_numbers(views: Views) -> None:
    before, after = views.both
    views.show(before)
    state = random.getstate()

    found = []
    for view in (after, after, before, after):
        views.turn(view)
        found.append(seen("pkg_seen"))

    assert found == ["after", "after", "before", "after"]
    assert random.getstate() == state


def test_a_turn_hands_an_environment_over_that_differs(views: Views) -> None:
    before, after = views.both
    views.show(before)
    os.environ["ONLY_BEFORE"] = "1"
    views.show(after)

    views.turn(before)
    seen_before = os.environ.get("ONLY_BEFORE")
    views.turn(after)

    assert seen_before == "1"
    assert "ONLY_BEFORE" not in os.environ


def test_an_import_statement_finds_what_its_own_version_imported(views: Views) -> None:
    before, after = views.both
    views.show(before)
    seen("pkg_seen.late")
    views.show(after)
    late = "import pkg_seen.late\nfound = pkg_seen.late.NAME\n"
    space: dict[str, str] = {}

    exec(late, space)  # noqa: S102 - the statement is what is tested

    assert space["found"] == "after"


def test_installed_modules_are_shared(views: Views) -> None:
    before, after = views.both
    views.show(before)
    sys.modules.pop("colorsys", None)
    first = importlib.import_module("colorsys")
    views.show(after)

    assert importlib.import_module("colorsys") is first
    assert "colorsys" not in before.modules


def test_a_module_made_by_hand_is_its_maker_s(views: Views) -> None:
    before, after = views.both
    views.show(before)
    sys.modules["made_by_hand"] = ModuleType("made_by_hand")
    sys.modules["colorsys.made"] = ModuleType("colorsys.made")
    views.show(after)

    assert "made_by_hand" not in sys.modules
    assert "made_by_hand" in before.modules
    sys.modules.pop("colorsys.made", None)


def test_a_module_that_forbids_its_import_is_kept(views: Views) -> None:
    before, after = views.both
    views.show(before)
    sys.modules["forbidden"] = None  # type: ignore[assignment]
    views.show(after)
    views.show(before)

    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("forbidden")


def test_each_keeps_its_place_its_environment_and_its_random_numbers(
    views: Views, tmp_path: Path
) -> None:
    before, after = views.both
    random.seed(1)
    expected = [random.getrandbits(64) for _ in range(2)]
    random.seed(1)
    views = Views(guest(tmp_path, "before"), guest(tmp_path, "after"))
    before, after = views.both
    drawn, stood = [], []
    for view in (before, after, before, after):
        views.show(view)
        drawn.append(random.getrandbits(64))
        stood.append((Path.cwd().name, os.environ["GPUPERF_MARK"], sys.path[0]))
        os.environ[f"GPUPERF_{Path.cwd().name.upper()}"] = "was here"

    one, two = ((name, name, str(tmp_path / name)) for name in ("before", "after"))
    assert drawn == [expected[0], expected[0], expected[1], expected[1]]
    assert stood == [one, two, one, two]
    assert "GPUPERF_BEFORE" not in os.environ
    assert os.environ["GPUPERF_AFTER"] == "was here"


def test_what_the_process_had_imported_belongs_to_its_version(tmp_path: Path) -> None:
    root = tmp_path / "after"
    root.mkdir()
    (root / "pkg_early.py").write_text("NAME = 'after'\n")
    sys.path.insert(0, str(root))
    early = importlib.import_module("pkg_early")

    views = Views(guest(tmp_path, "before"), guest(tmp_path, "after"))

    assert "pkg_early" not in sys.modules
    assert [dict(view.modules) for view in views.both] == [{}, {"pkg_early": early}]


def test_showing_what_is_shown_changes_nothing(views: Views) -> None:
    before, _ = views.both
    views.show(before)
    os.environ["GPUPERF_MARK"] = "changed"

    views.show(before)

    assert os.environ["GPUPERF_MARK"] == "changed"


def test_a_package_that_the_process_had_before_both_stays_one_with_what_it_imports_late(
    views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Such as a torch that PYTHONPATH finds, beside no interpreter's own packages.
    for file in ("pkg_outer/__init__.py", "pkg_outer/late.py"):
        path = tmp_path / "elsewhere" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("NAME = 'outer'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    importlib.import_module("pkg_outer")
    both = Views(guest(tmp_path, "before"), guest(tmp_path, "after"))

    both.show(both.both[0])
    assert seen("pkg_outer.late") == "outer"
    assert seen("pkg_seen") == "before"
    both.hide()

    assert list(both.both[0].modules) == ["pkg_seen"]
    assert "pkg_outer.late" in sys.modules
