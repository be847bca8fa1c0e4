"""What a plugin is looked at for in one start of pytest is known in the next."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from _pytest.fixtures import FixtureManager
from scripted_project import ScriptedProject

from pytest_gpuperf.worker import pytest_start
from pytest_gpuperf.worker.pytest_start import (
    LOOK,
    REGISTER,
    plain_plugins_seen,
    skip_plain_plugins,
)


FIXTURE = "import pytest\n\n@pytest.fixture\ndef seven(): return 7\n"


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what is known, and put pytest's method back after each test."""
    monkeypatch.setattr(pytest_start, "_plain", {})
    monkeypatch.setattr(FixtureManager, LOOK, getattr(FixtureManager, LOOK))


def plugin(name: str, code: str) -> tuple[ModuleType, list[str]]:
    """Make a plugin that notes each time when somebody lists its names."""
    module, listed = ModuleType(name), list[str]()
    exec(code, vars(module))  # noqa: S102  our own code

    def names() -> list[str]:
        listed.append(name)
        return sorted(vars(module))

    vars(module)["__dir__"] = names
    return module, listed


def test_a_plugin_without_a_fixture_is_looked_at_once_and_one_with_a_fixture_always(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(seven): assert seven == 7")
    plain, looked_at_plain = plugin("plain", "ANSWER = 42")
    full, looked_at_full = plugin("full", FIXTURE)

    with plain_plugins_seen():
        pytester.inline_run(plugins=[plain, full]).assertoutcome(passed=1)
    skip_plain_plugins()
    seen = len(looked_at_plain), len(looked_at_full)
    pytester.inline_run(plugins=[plain, full]).assertoutcome(passed=1)

    # pluggy lists the names for the hooks among them each time.
    assert seen == (2, 2)
    assert (len(looked_at_plain), len(looked_at_full)) == (3, 4)


def test_a_plugin_that_was_given_a_fixture_since_is_looked_at_again(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("def test_it(seven): assert seven == 7")
    late, _ = plugin("late", "import pytest")

    with plain_plugins_seen():
        pytester.inline_run(plugins=[late]).assertoutcome(failed=1)
    skip_plain_plugins()
    exec(FIXTURE, vars(late))  # noqa: S102  our own code

    pytester.inline_run(plugins=[late]).assertoutcome(passed=1)


@pytest.mark.parametrize("known", [LOOK, REGISTER])
def test_a_release_of_pytest_with_other_names_looks_as_it_does(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        """A manager with one of the two names alone."""

    setattr(Other, known, "as it is")
    monkeypatch.setattr("_pytest.fixtures.FixtureManager", Other)

    with plain_plugins_seen():
        meanwhile = getattr(Other, known)
    skip_plain_plugins()

    assert meanwhile == getattr(Other, known) == "as it is"


CONFTEST = """
from pathlib import Path

def pytest_collection_finish(session):
    tables = [
        table
        for name, table in vars(session._fixturemanager).items()
        if name.startswith("_arg2")
    ]
    known = sorted({name for table in tables for name in table})
    with Path(__file__).with_name("known.txt").open("a") as file:
        print(*known, file=file)
"""


def test_each_process_knows_all_fixtures(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf): gpuperf(lambda: None)")
    project.pytester.makeconftest(CONFTEST)

    project.run().assert_outcomes(passed=1)

    controlling, *measuring = Path(project.path, "known.txt").read_text().splitlines()
    assert {"gpuperf", "tmp_path"} <= set(controlling.split())
    assert set(measuring) == {controlling}
