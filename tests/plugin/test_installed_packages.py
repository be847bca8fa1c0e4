"""A measuring process finds the plugins that plain pytest finds."""

from __future__ import annotations

from pathlib import Path

from scripted_project import ScriptedProject


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
