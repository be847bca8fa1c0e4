"""A measuring process finds the plugins that plain pytest finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripted_project import ON, ScriptedProject


CONFTEST = """
import importlib.metadata
from pathlib import Path

FUNCTION = f"{importlib.metadata.distributions.__module__}\\n"

def pytest_collection_finish(session):
    known = session.config.pluginmanager.list_plugin_distinfo()
    names = sorted({f"{found.project_name} {found.version}" for _, found in known})
    with Path(__file__).with_name("found.txt").open("a") as file:
        file.write(FUNCTION + "; ".join(names) + "\\n")
"""


def test_each_process_has_all_plugins_and_pythons_own_function(
    project: ScriptedProject,
) -> None:
    project.file("def test_step(gpuperf): gpuperf(lambda: None)")
    project.pytester.makeconftest(CONFTEST)

    project.run().assert_outcomes(passed=1)

    found = Path(project.pytester.path, "found.txt").read_text().splitlines()
    controlling, *measuring = zip(found[::2], found[1::2], strict=True)
    assert set(measuring) == {controlling}
    assert controlling[0] == "importlib.metadata"


GIT = """#!/bin/sh
echo "$*" >> {log}
exec {git} "$@"
"""


def test_no_measuring_process_asks_git_for_the_name_of_a_benchmark(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytest_benchmark")
    git, log = shutil.which("git"), project.path / "asked.txt"
    assert git is not None
    subprocess.run([git, "init", "-q"], cwd=project.path, check=True)
    folder = project.pytester.mkdir("bin")
    (folder / "git").write_text(GIT.format(log=log, git=git))
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for plugins in ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS"):
        monkeypatch.delenv(plugins)
    project.file(
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_step(gpuperf, benchmark, number): gpuperf(lambda: None)"
    )

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *ON],
        cwd=project.path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == pytest.ExitCode.OK, ended.stdout

    questions = log.read_text().splitlines()
    named = [asked for asked in questions if asked.startswith("describe --dirty")]
    # The controlling process, as any pytest, and the server, once for all three.
    assert len(named) == 2
