"""Numbers of each test in JUnit files, under names with their units."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scripted_project import ScriptedProject


STEPS = """
@gpuperf.budget(syncs=0)
def test_step(gpuperf):
    gpuperf(int)
    gpuperf(int, name="second\\x00")
@gpuperf.budget(ms=5)
def test_over(gpuperf): gpuperf(int)
def test_broken(gpuperf): assert False
def test_skipped(gpuperf): pytest.skip("not today")
def test_plain(): pass
"""


def properties(path: Path) -> dict[str, dict[str, str]]:
    """Name and value of our properties, but for the JSON, by test."""
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(path).getroot().iter("testcase"):
        named = {str(p.get("name")): str(p.get("value")) for p in case.iter("property")}
        json.loads(named.pop("gpuperf", "[]"))
        found[str(case.get("name"))] = named
    return found


def test_each_number_has_a_property_of_its_own(project: ScriptedProject) -> None:
    project.file(STEPS)

    project.run("--junitxml=out.xml")

    assert properties(project.path / "out.xml") == {
        "test_step": {
            "gpuperf.outcome": "pass",
            "gpuperf.step_ms": "10",
            "gpuperf.peak_allocated_bytes": "104857600",
            "gpuperf.syncs": "0",
            "gpuperf.step_ms#second\\x00": "10",
            "gpuperf.peak_allocated_bytes#second\\x00": "104857600",
            "gpuperf.syncs#second\\x00": "0",
        },
        "test_over": {
            "gpuperf.outcome": "over budget",
            "gpuperf.step_ms": "10",
            "gpuperf.peak_allocated_bytes": "104857600",
            "gpuperf.syncs": "0",
        },
        "test_broken": {},
        "test_skipped": {},
        "test_plain": {},
    }


LASTS_100_S = """
from pytest_gpuperf.devices.process_time import HostClock
def test_step(gpuperf):
    gpuperf(int)
    now = HostClock.wall_ns
    HostClock.wall_ns = staticmethod(lambda: now() + 100 * 10**9)
def test_plain(): pass
"""


@pytest.mark.parametrize(
    "workers", [(), ("-p", "xdist.plugin", "-n2")], ids=["alone", "-n2"]
)
def test_the_time_of_a_measured_test_is_that_of_its_runs(
    project: ScriptedProject, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    project.file(LASTS_100_S)

    project.run("--junitxml=out.xml", *workers)

    cases = ET.parse(project.path / "out.xml").getroot().iter("testcase")
    times = {case.get("name"): float(str(case.get("time"))) for case in cases}
    assert times["test_step"] >= 100
    assert times["test_plain"] < 100


def test_a_plain_run_has_none(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf): gpuperf(int)\n")

    project.pytester.runpytest_inprocess("--junitxml=out.xml")

    assert properties(project.path / "out.xml") == {"test_step": {}}


RECORDING = """
@gpuperf.budget(ms=12)
@pytest.mark.parametrize("fails", [False, True])
def test_step(gpuperf, record_property, fails):
    record_property("claim", 12)
    gpuperf(int)
    record_property("shown", "4 -> 2 ops")
    assert not fails
"""


@pytest.mark.parametrize(
    "arguments",
    [(), ("-p", "xdist.plugin", "-n2")],
    ids=["alone", "-n2"],
)
def test_what_a_test_records_of_itself_is_kept(
    project: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    if "-n2" in arguments:
        pytest.importorskip("xdist")
    project.file(RECORDING)

    project.run("--junitxml=out.xml", "-o", "junit_family=xunit1", *arguments)

    found = properties(project.path / "out.xml")
    assert set(found) == {"test_step[False]", "test_step[True]"}
    for recorded in found.values():
        assert (recorded["claim"], recorded["shown"]) == ("12", "4 -> 2 ops")
    cases = ET.parse(project.path / "out.xml").getroot().iter("testcase")
    names = [[p.get("name") for p in case.iter("property")] for case in cases]
    assert [name.count("claim") for name in names] == [1, 1]
