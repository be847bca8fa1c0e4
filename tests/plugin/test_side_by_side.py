"""Tests are measured one by one, each alone on its device."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from scripted_project import ON, ScriptedProject

from pytest_gpuperf.sharing import device_lock
from pytest_gpuperf.sharing.device_lock import DeviceLock, lock_folder


FOUR = """
import os

@pytest.mark.parametrize("number", range(4))
def test_step(gpuperf, number):
    with open("seen.txt", "a") as file:
        file.write(f"{number} on {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
    gpuperf(lambda: None)
"""


def seen(project: ScriptedProject) -> set[str]:
    return set(Path(project.path, "seen.txt").read_text().splitlines())


@pytest.fixture
def assigned(project: ScriptedProject) -> ScriptedProject:
    project.file(FOUR)
    gpus = [{"gpu": name} for name in ("gpu-a", "gpu-b", "gpu-a", "gpu-b")]
    tests = {f"test_step[{number}]": played for number, played in enumerate(gpus)}
    project.script({"slots": ["gpu-a", "gpu-b"], "hardware": "pair", **tests})
    return project


def test_every_test_sees_one_gpu_that_of_its_baseline_or_the_first(
    assigned: ScriptedProject,
) -> None:
    assigned.refresh()

    assert seen(assigned) == {f"{number} on gpu-a" for number in range(4)}

    Path(assigned.path, "seen.txt").unlink()
    result = assigned.run("-k", "1 or 3")

    assert seen(assigned) == {"1 on gpu-b", "3 on gpu-b"}
    result.assert_outcomes(passed=2, deselected=2)
    for name in ("gpu-a", "gpu-b"):  # free after the run
        with closing(DeviceLock(lock_folder(), name)) as lock:
            assert lock.try_exclusive()


def test_a_device_that_another_run_measures_on_is_waited_for_and_named(
    assigned: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_lock, "TURN_SECONDS", 1.2)
    with closing(DeviceLock(lock_folder(), "gpu-a")) as lock:
        assert lock.try_exclusive()
        result = assigned.run()

    result.stdout.fnmatch_lines(["waiting for gpu-a, in use by *"])
    result.stderr.fnmatch_lines(
        ["ERROR: */gpu-a.lock: gpu-a is in use by * and did not come free in time: *"]
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR


ORDINARY = """
import os

@pytest.mark.parametrize("number", range(4))
def test_plain(number):
    with open("seen.txt", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " on " +
                   os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")

def test_step(gpuperf):
    gpuperf(lambda: None)
"""


def test_each_worker_sees_one_gpu_before_it_imports_anything(
    project: ScriptedProject,
) -> None:
    pytest.importorskip("xdist")
    project.file(ORDINARY)
    project.script({"slots": ["gpu-a", "gpu-b"]})

    result = project.run("-p", "xdist.plugin", "-n2")

    result.assert_outcomes(passed=5)
    assert seen(project) == {"gw0 on gpu-a", "gw1 on gpu-b"}


def test_a_gpu_that_the_command_line_gives_a_worker_stays_its_own(
    project: ScriptedProject,
) -> None:
    pytest.importorskip("xdist")
    project.file(ORDINARY)
    project.script({"slots": ["gpu-a", "gpu-b"]})

    result = project.pytester.runpytest_subprocess(
        "-p", "xdist", "--dist=load", "--tx=popen//env:CUDA_VISIBLE_DEVICES=7", *ON
    )

    result.assert_outcomes(passed=5)
    assert seen(project) == {"gw0 on 7"}


@pytest.mark.parametrize(
    ("visible", "line"),
    [
        ("4,GPU-b", "gpuperf: -n auto is 2 workers, one a visible GPU"),
        ("4", "gpuperf: -n auto is 1 worker: more would share its device"),
    ],
)
def test_auto_is_a_worker_a_visible_gpu(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, visible: str, line: str
) -> None:
    pytest.importorskip("xdist")
    project.file("def test_step(gpuperf): gpuperf(lambda: None)")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    result = project.run("-p", "xdist.plugin", "-nauto")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([line])
