"""A project in two places, and whose module it was."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from pytest_gpuperf.runner import relocation as relocation_module
from pytest_gpuperf.runner.relocation import Relocation, relocate, stranger


@pytest.fixture
def two(tmp_path: Path) -> Relocation:
    """The same project in ``origin`` and, with other values, in ``a copy``."""
    for name in ("origin", "a copy"):
        write(tmp_path / name / "pkg/__init__.py", f"NAME = {name!r}\n")
        write(tmp_path / name / "pkg/inner.py", f"NAME = {name!r}\n")
    return Relocation(origin=str(tmp_path / "origin"), root=str(tmp_path / "a copy"))


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is imported is forgotten, and the search path as it was."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class KnowsByHeart:
    """A finder as an editable install leaves it: a name, and where it stands."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        if name == "spaced" and path is None:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(self._folder / "pkg")]
            return spec
        if name not in {"pkg", "gone"} or path is not None:
            return None
        init = self._folder / name / "__init__.py"
        return importlib.util.spec_from_file_location(
            name, init, submodule_search_locations=[str(init.parent)]
        )


def test_a_path_below_the_origin_is_moved_and_others_stay(two: Relocation) -> None:
    assert two.moved(f"{two.origin}/src") == f"{two.root}/src"
    assert two.moved(two.origin) == two.root
    assert two.moved(f"{two.origin}-2/src") == f"{two.origin}-2/src"
    assert two.moved(two.root) == two.root


def test_a_link_into_the_origin_is_moved(two: Relocation, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(two.origin)

    assert two.moved(str(tmp_path / "link/src")) == f"{two.root}/src"


def test_what_is_installed_inside_the_project_stays(
    two: Relocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", f"{two.origin}/.venv")
    relocation_module._installed.cache_clear()

    assert two.moved(f"{two.origin}/.venv/lib") == f"{two.origin}/.venv/lib"
    assert two.moved(f"{two.origin}/src") == f"{two.root}/src"


def test_a_project_inside_the_environment_is_moved_all_the_same(tmp_path: Path) -> None:
    inside = Relocation(
        origin=f"{os.path.realpath(sys.prefix)}/app", root=str(tmp_path)
    )
    packages = sysconfig.get_path("purelib")

    assert inside.moved(f"{inside.origin}/src") == f"{tmp_path}/src"
    assert inside.moved(packages) == packages


def test_arguments_that_name_files_are_moved(two: Relocation) -> None:
    assert two.replaced(f"{two.origin}/t.py::a") == f"{two.root}/t.py::a"
    assert two.replaced(f"--rootdir={two.origin}/x") == f"--rootdir={two.root}/x"
    assert two.replaced("t.py::a") == "t.py::a"
    assert two.replaced(f"--rootdir={two.origin}") == f"--rootdir={two.root}"
    assert two.replaced(two.origin) == two.root
    assert two.replaced(f"{two.origin}er") == f"{two.origin}er"


@pytest.mark.usefixtures("imports")
def test_the_search_path_is_moved(two: Relocation) -> None:
    sys.path.insert(0, two.origin)

    relocate(two)

    assert importlib.import_module("pkg.inner").NAME == "a copy"


@pytest.mark.usefixtures("imports")
def test_what_a_finder_knows_by_heart_is_moved(two: Relocation) -> None:
    sys.meta_path.append(KnowsByHeart(two.origin))

    relocate(two)

    assert importlib.import_module("pkg").NAME == "a copy"
    assert importlib.import_module("pkg.inner").NAME == "a copy"
    assert importlib.import_module("spaced.inner").NAME == "a copy"


@pytest.mark.usefixtures("imports")
def test_what_only_the_origin_has_is_not_found(two: Relocation) -> None:
    write(Path(two.origin, "gone/__init__.py"), "")
    sys.meta_path.append(KnowsByHeart(two.origin))
    relocate(two)

    with pytest.raises(ModuleNotFoundError) as refused:
        importlib.import_module("gone")

    assert str(refused.value) == (
        f"No module named 'gone': there is no {two.root}/gone/__init__.py"
    )


@pytest.mark.usefixtures("imports")
def test_other_modules_are_found_as_ever(two: Relocation) -> None:
    relocate(two)

    sys.modules.pop("colorsys", None)
    assert importlib.import_module("colorsys").__file__ is not None
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'nowhere'$"):
        importlib.import_module("nowhere")


def modules(**files: str | None) -> dict[str, ModuleType]:
    found = {}
    for name, file in files.items():
        found[name.replace("__", ".")] = module = ModuleType(name)
        module.__file__ = file
    return found


def test_a_module_that_was_left_behind_is_a_stranger(two: Relocation) -> None:
    file = f"{two.origin}/helpers.py"

    assert stranger(modules(helpers=file), two) == ("helpers", file)


def test_a_copy_of_an_own_package_is_a_stranger(
    two: Relocation, tmp_path: Path
) -> None:
    write(Path(two.root, "src/flat/__init__.py"), "")
    file = f"{tmp_path}/installed/flat/part.py"

    assert stranger(modules(flat__part=file), two) == ("flat.part", file)


def test_own_and_foreign_modules_are_none(two: Relocation, tmp_path: Path) -> None:
    write(Path(two.root, "logging/__init__.py"), "")
    loaded = modules(
        pkg=f"{two.root}/pkg/__init__.py",
        other=f"{tmp_path}/installed/other.py",
        logging=f"{tmp_path}/lib/logging/__init__.py",
        pytest_gpuperf__plugin=f"{two.origin}/pytest_gpuperf/plugin/__init__.py",
        builtin=None,
    )

    assert stranger(loaded, two) is None
