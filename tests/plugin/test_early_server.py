"""A server of measuring processes starts when a test is known that needs it."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner import fork_server
from pytest_gpuperf.runner.fork_server import ForkServer


PLAIN = "def test_plain(): assert 1 + 1 == 2\n"

MEASURED = PLAIN + "def test_step(\n    gpuperf,\n) -> None: gpuperf(int)\n"

BY_ANOTHER_FIXTURE = """
@pytest.fixture
def step(request): return request.getfixturevalue("gpuperf")
@gpuperf.budget(syncs=0)
def test_step(step): step(int)
"""

WORKERS = ("-p", "xdist.plugin", "-n2")


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Say of each server that starts where the run was: what was collected by then."""
    found: list[str] = []
    start = fork_server.measuring_server

    def counted(kind: DeviceKind | None) -> ForkServer:
        found.append("server")
        return start(kind)

    monkeypatch.setattr(fork_server, "measuring_server", counted)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return found


@pytest.mark.parametrize(
    ("source", "arguments", "servers"),
    [
        pytest.param(PLAIN, (), 0, id="no test takes the fixture"),
        pytest.param(MEASURED, ("-k", "plain"), 0, id="-k deselects those that do"),
        pytest.param(MEASURED, ("--co",), 0, id="tests are only collected"),
        pytest.param("import nothing_like_it\n", (), 0, id="no test can be collected"),
        pytest.param(
            MEASURED,
            ("--gpuperf-device=simulated", "-k", "plain", *WORKERS),
            0,
            id="with workers, and -k deselects those that do",
        ),
        pytest.param(MEASURED, (), 1, id="a test takes the fixture"),
        pytest.param(BY_ANOTHER_FIXTURE, (), 1, id="one has only a budget"),
        pytest.param(MEASURED, WORKERS, 1, id="with workers"),
    ],
)
def test_no_server_starts_where_nothing_is_measured(
    project: ScriptedProject,
    starts: list[str],
    source: str,
    arguments: tuple[str, ...],
    servers: int,
) -> None:
    project.file(source)

    project.run(*arguments)

    assert len(starts) == servers


RECORDS = """
import pytest
from pytest_gpuperf.runner import fork_server
start = fork_server.measuring_server
def recorded(kind):
    print("the server starts")
    return start(kind)
fork_server.measuring_server = recorded
def pytest_unconfigure(): fork_server.measuring_server = start
"""


@pytest.mark.parametrize(
    ("source", "order"),
    [
        pytest.param(
            MEASURED, ["starts", "imported", "collected"], id="its text shows it"
        ),
        pytest.param(
            BY_ANOTHER_FIXTURE,
            ["imported", "starts", "collected"],
            id="its items show it",
        ),
    ],
)
def test_torch_is_imported_while_the_tests_are_collected(
    project: ScriptedProject, source: str, order: list[str]
) -> None:
    after = "\ndef pytest_collection_finish(): print('the tests are collected')\n"
    project.pytester.makeconftest(RECORDS + after)
    project.file("print('the tests are imported')\n" + source)

    result = project.run("-s")

    said = [line.split()[-1] for line in result.outlines if line.startswith("the ")]
    assert said[:3] == order
