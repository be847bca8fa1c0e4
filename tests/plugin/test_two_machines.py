"""Two ranks on two machines: network namespaces of this one, as in the example."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch.distributed.run")

SCRIPT: Final = Path(__file__).parents[2] / "examples" / "two_machines.sh"


def namespaces_are_refused() -> str:
    """Say why this process can make no network namespace; nothing where it can."""
    if shutil.which("ip") is None:
        return "there is no ip: apt-get install iproute2"
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    tried = subprocess.run(
        ["unshare", "--net", "true"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no network namespaces here: {tried.stderr}" if tried.returncode else ""


pytestmark = pytest.mark.skipif(
    bool(namespaces_are_refused()), reason=namespaces_are_refused() or "they can be had"
)

TRAINING: Final = """
import os
import socket
import torch
from torch import distributed, nn

pytestmark = gpuperf.ranks(2)

def addresses():
    import subprocess
    return subprocess.check_output(["ip", "-4", "-o", "address"], text=True)

@gpuperf.budget(collectives=1)
def test_ddp(gpuperf):
    own = "10.201.0.1" if distributed.get_rank() == 0 else "10.201.0.2"
    assert own in addresses()
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
    rows = torch.randn(16, 64)
    gpuperf(lambda: model(rows).sum().backward())

def test_raises(gpuperf):
    def step():
        if distributed.get_rank() == 1:
            raise ValueError("boom")
        distributed.all_reduce(torch.ones(3))
    gpuperf(step)
"""


def test_ranks_on_two_machines_are_measured_together(project: ScriptedProject) -> None:
    project.file(TRAINING)

    result = project.pytester.run(
        "env", f"PYTHON={sys.executable}", "sh", SCRIPT, "--gpuperf-seconds=20"
    )

    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["rank 1 of 2 failed first:", "*: ValueError"])
    text = " ".join(result.stdout.str().split())
    assert "a step has 1 all_reduce (2.031 KiB)" in text
    (pending,) = (project.path / ".gpuperf").glob("pending-cpu-*.json")
    software = json.loads(pending.read_text())["tests"]["test_it.py::test_ddp"]
    assert software["software"]["machines"] == "2"
    left = subprocess.check_output(["ip", "netns", "list"], text=True)  # noqa: S607
    assert "gpuperf-" not in left
