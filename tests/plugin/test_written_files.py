"""Nothing that a run writes says whose machine it was, where, or with which secrets."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from typing import Final

import pytest
from scripted_project import ON
from scripted_project import ScriptedProject


SECRETS: Final = {
    "USER": "usernameofann",
    "LOGNAME": "lognameofann",
    "USERNAME": "usernameofann",
    "HOSTNAME": "hostnameofann",
    "GITHUB_TOKEN": "ghp_tokenofann",
    "CI_JOB_TOKEN": "jobtokenofann",
}
MIB: Final = 2**20
LEAST_HOST: Final = 6
"""Characters of a host name that nothing else is likely to hold."""


@pytest.fixture
def strings(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[str]:
    """What must stand in no file: the user's names, tokens, home and project."""
    home = tmp_path / "home of ann"
    home.mkdir()
    for name, value in {**SECRETS, "HOME": str(home)}.items():
        monkeypatch.setenv(name, value)
    host = socket.gethostname()
    known = [host] if len(host) >= LEAST_HOST else []
    return [*SECRETS.values(), str(home), "home of ann", str(project.path), *known]


def written(project: ScriptedProject) -> Iterator[tuple[str, bytes]]:
    for folder in (".gpuperf", "baselines"):
        for path in sorted((project.path / folder).rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                is_packed = path.suffix == ".gz"
                name = str(path.relative_to(project.path))
                yield name, gzip.decompress(content) if is_packed else content


def leaks(project: ScriptedProject, strings: list[str]) -> list[tuple[str, str]]:
    return [
        (name, string)
        for name, content in written(project)
        for string in strings
        if string.encode() in content or string in name
    ]


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
    project: ScriptedProject, strings: list[str], workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    home = os.environ["HOME"]
    peak = {
        "op": "aten::mm",
        "phase": "backward",
        "at": [f"{home}/lib/layers.py", 7, "f"],
        "mb": {"activations": 150},
        "held": {"aten::mm": 150},
    }
    memory = {
        "mem_mb": 200,
        "snapshot": snapshot_of(project, home),
        "peak": peak,
    }
    project.file(SCRIPTED)
    project.script({"*": {"syncs": 1, **memory}})
    project.refresh("-k", "slower")
    project.script({"*": {"syncs": 2, "step_ms": 12.0, **memory}})

    result = project.run(*workers)

    result.assert_outcomes(failed=3, passed=2)
    names = {name.partition("-")[0] for name, _ in written(project)}
    assert names >= {
        ".gpuperf/memory",
        ".gpuperf/pending",
        ".gpuperf/results.json",
        ".gpuperf/traces/test_it.py",
        "baselines/scripted.json",
    }
    assert leaks(project, strings) == []


TRAINING = """
import os
import torch

@gpuperf.budget(syncs=0, mem_mb=0.001)
def test_item(gpuperf):
    model = torch.nn.Linear(64, 10, device=gpuperf.device)
    x = torch.randn(32, 64, device=gpuperf.device)
    def step():
        with torch.profiler.record_function(f"load {os.environ['HOME']}/x.pt"):
            return model(x).sum().item()
    gpuperf(step)
"""


@pytest.mark.parametrize("device", ["cpu", "pretend"])
def test_a_real_step_leaves_nothing_of_this_machine(
    project: ScriptedProject, strings: list[str], device: str
) -> None:
    pytest.importorskip("torch")
    project.file(TRAINING)
    on = ("--gpuperf", f"--gpuperf-device={device}")

    project.pytester.runpytest_inprocess(*on, "--gpuperf-update=all")
    result = project.pytester.runpytest_inprocess(*on)

    result.assert_outcomes(failed=1)
    assert leaks(project, strings) == []


def test_colour_that_was_asked_for_stays_out_of_files(
    project: ScriptedProject,
) -> None:
    project.file("@gpuperf.budget(ms=5)\n" + "def test_slow(gpuperf): gpuperf(int)\n")

    result = project.pytester.runpytest_inprocess(*ON, "--color=yes")

    assert "\x1b[31m" in result.stdout.str()
    assert [name for name, text in written(project) if b"\x1b" in text] == []
