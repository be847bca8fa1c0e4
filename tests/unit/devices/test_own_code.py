"""What the user's own code is: the checkout, and what is installed editable."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_gpuperf.devices import own_code
from pytest_gpuperf.devices.own_code import checkout_of, is_own, name_of


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with packages; of earlier questions nothing is remembered."""
    folder = tmp_path / "env" / "lib" / "site-packages"
    folder.mkdir(parents=True)
    others = [place for place in sys.path if Path(place).name != folder.name]
    monkeypatch.setattr(sys, "path", [*others, str(folder)])
    for remembered in (own_code.is_own, own_code.editable_folders, own_code._checkout):
        remembered.cache_clear()
    return folder


def made(place: Path, text: str = "") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("files", "checkout"),
    [
        (["repo/.git/HEAD"], "repo"),
        (["repo/.git"], "repo"),
        (["repo/pyproject.toml", "repo/one/pyproject.toml"], "repo"),
        (["pyproject.toml", "repo/.git/HEAD"], "repo"),
        (["repo/setup.py"], "repo"),
        (["repo/.git/HEAD", "repo/one/.git"], "repo/one"),
        ([], "repo/one"),
    ],
)
def test_the_checkout_is_the_repository_or_the_outermost_project(
    files: list[str], checkout: str, tmp_path: Path
) -> None:
    (tmp_path / "repo/one").mkdir(parents=True)
    for file in files:
        made(tmp_path / file)

    assert checkout_of(tmp_path / "repo/one") == tmp_path / checkout


def test_what_lies_in_the_checkout_is_own_but_for_what_is_installed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "repo")
    monkeypatch.setattr(sys, "prefix", f"{root}/.venv")

    def owned(file: str) -> bool:
        return is_own(str(tmp_path / file), root)

    assert owned("repo/engine/__init__.py")
    assert not owned("repo/.venv/lib/python3.12/site-packages/library/mask.py")
    assert not owned("repo/.venv/bin/pytest")
    assert not owned("repository/engine.py")
    assert not owned("elsewhere/helpers.py")


def test_neither_python_nor_this_package_nor_text_is_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert not is_own(json.__file__, "/")
    assert not is_own(own_code.__file__, "/")
    assert not is_own("<string>", str(tmp_path))
    assert not is_own("<frozen importlib>", "")


def recorded(packages: Path, project: Path) -> None:
    url = {"url": project.as_uri(), "dir_info": {"editable": True}}
    made(packages / "engine-1.dist-info/direct_url.json", json.dumps(url))


def added_to_the_path(packages: Path, project: Path) -> None:
    lines = f"# of engine\nimport distutils_hack\n\n{project}\n"
    made(packages / "easy-install.pth", lines)


def added_relatively(packages: Path, project: Path) -> None:
    made(packages / "engine.pth", os.path.relpath(project, packages))


def linked(packages: Path, project: Path) -> None:
    recorded(packages, project)
    (packages / "engine").symlink_to(project / "engine")


INSTALLERS = [recorded, added_to_the_path, added_relatively, linked]


@pytest.mark.parametrize("install", INSTALLERS)
def test_what_is_installed_editable_is_own_wherever_it_lies(
    install: Callable[[Path, Path], None], packages: Path, tmp_path: Path
) -> None:
    engine = made(tmp_path / "my libs/engine/train.py")
    install(packages, tmp_path / "my libs")
    repo = str(tmp_path / "repo")

    assert is_own(str(engine), repo)
    assert name_of(str(engine), repo) == "my libs/engine/train.py"
    assert not is_own(str(packages / "other/train.py"), repo)
    if install is linked:
        assert is_own(str(packages / "engine/train.py"), repo)


@pytest.mark.parametrize(
    "record",
    [
        '{"url": "file:///libs"}',
        '{"url": "file:///libs", "dir_info": {}}',
        '{"dir_info": {"editable": true}}',
        "[]",
        "{",
    ],
)
def test_what_is_not_known_to_be_editable_is_not_own(
    record: str, packages: Path, tmp_path: Path
) -> None:
    made(packages / "engine-1.dist-info/direct_url.json", record)
    made(packages / "gone.pth", f"{tmp_path}/gone\n{packages}\n")

    assert not is_own("/libs/engine/train.py", str(tmp_path / "repo"))
    assert own_code.editable_folders() == ()


def test_a_checkout_that_is_reached_by_a_link_is_own(tmp_path: Path) -> None:
    file = made(tmp_path / "repo/train.py")
    (tmp_path / "link").symlink_to(tmp_path / "repo")

    assert is_own(str(file), str(tmp_path / "link"))
    assert is_own(str(tmp_path / "link/train.py"), str(tmp_path / "repo"))


def test_a_file_has_a_name_that_does_not_depend_on_the_machine(tmp_path: Path) -> None:
    made(tmp_path / "repo/.git/HEAD")
    root = str(tmp_path / "repo/projects/one")

    def name(file: str) -> str:
        return name_of(str(tmp_path / file), root)

    assert name("repo/projects/one/train.py") == "train.py"
    assert name("repo/engine/train.py") == "../../engine/train.py"
    assert name("elsewhere/train.py") == str(tmp_path / "elsewhere/train.py")
