"""The two commands of the README: what is missing on a machine gets one sentence."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest


ROOT: Final = Path(__file__).parents[1]
ENVIRONMENT: Final = str(ROOT / "tools" / "environment.py")

needs_make = pytest.mark.skipif(not shutil.which("make"), reason="no make here")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What make reads, in a path with a space."""
    folder = tmp_path / "a path"
    folder.mkdir()
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "tools", folder / "tools")
    return folder


def make(folder: Path, *arguments: str, **settings: str) -> list[str]:
    """Run make, which has to fail, and return what it says but for its own last line."""
    done = subprocess.run(
        [shutil.which("make") or "make", *arguments],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return [line for line in done.stderr.splitlines() if "***" not in line]


def said(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Run the maker of environments, which has to refuse, and return its sentence."""
    monkeypatch.setattr("sys.argv", [ENVIRONMENT, str(folder / "venv")])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(ENVIRONMENT, run_name="__main__")
    assert not (folder / "venv").exists()
    return str(end.value.code)


def test_an_old_python_is_named_with_one_that_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "python3.12"
    newer.touch(mode=0o755)
    monkeypatch.setattr("sys.version_info", (3, 8, 10))

    monkeypatch.setenv("PATH", str(tmp_path))
    assert said(monkeypatch, tmp_path) == (
        "make: python3 is Python 3.8 and 3.10 or newer is needed: name it, as in "
        "`make demo PYTHON=python3.12`"
    )
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert said(monkeypatch, tmp_path) == (
        "make: python3 is Python 3.8 and 3.10 or newer is needed: install one, then "
        "name it, as in `make demo PYTHON=python3.12`"
    )


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_learns_how_to_get_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    assert said(monkeypatch, tmp_path) == (
        "make: python3 has no venv: `apt-get install python3-venv` brings it on Debian "
        "and Ubuntu; `make demo PYTHON=...` takes another python3"
    )


@needs_make
def test_a_python_that_is_not_there_is_named(copied: Path) -> None:
    assert make(copied, "demo", "PYTHON=python3.99") == [
        "make: there is no python3.99: install Python 3.10 or newer, or name it with PYTHON="
    ]


@needs_make
@pytest.mark.parametrize("target", ["demo", "test"])
def test_without_a_network_the_first_run_says_what_it_needs(
    target: str, copied: Path
) -> None:
    lines = make(copied, target, f"PYTHON={sys.executable}", PIP_NO_INDEX="1")

    assert lines[-1] == (
        "make: pip failed, for the reason above; the first run needs PyPI, later ones no "
        "network"
    )
    assert any("ERROR: " in line for line in lines)


def test_ci_runs_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    named = re.findall(r"^\$ make (\w+)", readme, flags=re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(re.findall(r"^run (\w+)$", ci, flags=re.MULTILINE))
