"""Nothing that a run writes says whose machine it was, where, or with which secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from local_strings import leaks, written
from scripted_project import ON, ScriptedProject


MIB: Final = 2**20


def snapshot_of(project: ScriptedProject, home: str) -> dict[str, Any]:
    """What the allocator did, asked by lines of the project and of the user's home."""
    files = [project.path / "model.py", Path(home, "lib", "layers.py")]
    frames = [{"filename": str(file), "line": 7, "name": "f"} for file in files]
    trace = [{"action": "alloc", "addr": 64, "size": 150 * MIB, "frames": frames}]
    return {"segments": [], "device_traces": [trace]}


SCRIPTED = """
@gpuperf.budget(mem_mb=100)
def test_memory(gpuperf): gpuperf(int)
def test_slower(gpuperf): gpuperf(int)
def test_own(gpuperf):
    import os
    raise OSError(f"{os.environ['HOME']}/batches.pt and {__file__}")
@gpuperf.budget(ms=12)
@pytest.mark.parametrize("x", ["a/b", "/etc/c"])
def test_names(gpuperf, x): gpuperf(int)
"""


@pytest.mark.parametrize(
    "workers", [(), ("-p", "xdist.plugin", "-n2")], ids=["alone", "-n2"]
)
def test_a_red_run_writes_nothing_of_this_machine(
    project: ScriptedProject,
    local_strings: list[str],
    workers: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if workers:
        pytest.importorskip("xdist")
    home = os.environ["HOME"]
    memory = {"mem_mb": 200, "snapshot": snapshot_of(project, home)}
    project.file(SCRIPTED)
    project.script({"*": {"syncs": 1, **memory}})
    project.refresh("-k", "slower")
    project.script({"*": {"syncs": 2, "step_ms": 12.0, **memory}})
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.setenv(name, str(project.baseline.with_name(name)))

    result = project.run(*workers)

    result.assert_outcomes(failed=3, passed=2)
    names = {name.partition("-")[0] for name, _ in written(project)}
    assert names >= {
        ".gpuperf/memory",
        ".gpuperf/pending",
        ".gpuperf/results.json",
        ".gpuperf/traces/test_it.py",
        "baselines/GITHUB_OUTPUT",
        "baselines/GITHUB_STEP_SUMMARY",
        "baselines/scripted.json",
    }
    assert leaks(project, local_strings) == []


def test_colour_that_was_asked_for_stays_out_of_files(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=5)\n" + "def test_slow(gpuperf): gpuperf(int)\n")

    result = project.pytester.runpytest_inprocess(*ON, "--color=yes")

    assert "\x1b[31m" in result.stdout.str()
    assert [name for name, text in written(project) if b"\x1b" in text] == []
