"""``gpuperf ab`` on projects that pip really installed editable."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
from git_project import SCRIPTED, GitProject

import pytest_gpuperf


MISSING = [name for name in ("pip", "setuptools") if find_spec(name) is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no {' and no '.join(MISSING)} is here to install with"
)

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{name}"
version = "1"
[tool.setuptools]
package-dir = {{{folder}}}
packages = ["{name}"]
"""

TESTS = """\
import pytest
from known_by_heart import VALUE as finder
from on_the_path import VALUE as path
@pytest.mark.parametrize("both", [f"{finder}-{path}"])
def test_own(gpuperf, both): gpuperf(int)
def test_fine(gpuperf): gpuperf(int)
"""


def environment_of_its_own(folder: Path) -> Path:
    """Make one that also sees what this process has; return its interpreter."""
    venv.create(folder, symlinks=True, with_pip=False)
    (place,) = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    place.joinpath("ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return folder / "bin/python"


def install(python: Path, *folders: str) -> None:
    """Install without a network, by the setuptools that is here."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    editable = [part for folder in folders for part in ("--editable", folder)]
    subprocess.run(
        [*pip, *offline, *editable],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )


def test_each_side_imports_its_own_code_whichever_way_it_was_installed(
    project_of_commits: GitProject, tmp_path: Path
) -> None:
    """A ``.pth`` file leads to one package, a finder knows where the other one is."""
    project = project_of_commits
    src = PYPROJECT.format(name="on_the_path", folder='"" = "src"')
    flat = PYPROJECT.format(name="known_by_heart", folder="")
    project.write("one/pyproject.toml", src)
    project.write("one/src/on_the_path/__init__.py", "VALUE = 'old'\n")
    project.write("two/pyproject.toml", flat)
    project.write("two/known_by_heart/__init__.py", "VALUE = 'old'\n")
    project.tests(TESTS)
    project.commit()
    python = environment_of_its_own(tmp_path / "environment")
    install(python, "./one", "./two")
    project.write("one/src/on_the_path/__init__.py", "VALUE = 'new'\n")
    project.write("two/known_by_heart/__init__.py", "VALUE = 'new'\n")

    places = (Path(pytest_gpuperf.__file__).parents[1], Path(__file__).parents[1])
    done = subprocess.run(
        [str(python), "-m", "pytest_gpuperf", "ab", SCRIPTED, "HEAD"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
    )

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(" only")] == [
        "test_it.py::test_own[old-old]: before only",
        "test_it.py::test_own[new-new]: after only",
    ]
    installed = sorted(
        path.name for path in tmp_path.glob("environment/lib/*/*/__editable__*")
    )
    assert installed == [
        "__editable__.known_by_heart-1.pth",
        "__editable__.on_the_path-1.pth",
        "__editable___known_by_heart_1_finder.py",
    ]
