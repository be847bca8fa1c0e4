"""``with gpuperf.steps() as step:`` measures a loop as ``gpuperf(step)`` does a step."""

from __future__ import annotations

import json

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

LOOPS = """
import itertools
import json
import torch
import torch.nn.functional as F
from pathlib import Path

def parts(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).to(device)
    rows = [(torch.randn(32, 64), torch.randint(0, 10, (32,))) for _ in range(3)]
    return model, torch.optim.AdamW(model.parameters()), rows

def train(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    assert loss.item() < 100

def keep(gpuperf, name):
    found = gpuperf.measurement
    counted = {f"{f.kind.name} {f.location.line if f.location else 0} {f.op}": f.per_step
               for f in found.findings if f.kind.name in {"SYNC", "TRANSFER", "PEAK"}
               and f.location and f.location.function == "train"}
    Path(name).write_text(json.dumps({"exact": dict(found.exact), "lines": counted,
        "times": sorted(found.times)}))

def test_by_hand(gpuperf):
    device = gpuperf.device
    model, optimizer, rows = parts(device)
    batches = itertools.cycle(rows)
    def step():
        x, y = next(batches)
        train(model, optimizer, x.to(device), y.to(device))
    gpuperf(step, samples=32)
    keep(gpuperf, "hand.json")

def test_by_loop(gpuperf):
    device = gpuperf.device
    model, optimizer, rows = parts(device)
    with gpuperf.steps(samples=32) as step:
        for x, y in itertools.cycle(rows):
            train(model, optimizer, x.to(device), y.to(device))
            step()
    keep(gpuperf, "loop.json")
"""


@pytest.mark.parametrize("device", ["simulated", "cpu"])
def test_a_loop_has_the_numbers_and_lines_of_its_step(
    project: ScriptedProject, device: str
) -> None:
    project.file(LOOPS)

    result = project.run(f"--gpuperf-device={device}", "--gpuperf-seconds=4")

    result.assert_outcomes(passed=2)
    hand, loop = (
        json.loads((project.pytester.path / name).read_text())
        for name in ("hand.json", "loop.json")
    )
    assert loop == hand
    assert hand["exact"].get("syncs") == (3 if device == "simulated" else None)
    assert hand["lines"] or device == "cpu"


ENDINGS = """
import itertools

@gpuperf.budget(syncs=0)
def test_too_short(gpuperf):
    with gpuperf.steps() as step:
        for _ in range(2):
            step()

def test_broken(gpuperf):
    with gpuperf.steps() as step:
        for number in itertools.count():
            step()
            if number == 1:
                raise ValueError("in the third step")

def test_wrong(gpuperf):
    with gpuperf.steps(syncs="none") as step:
        raise AssertionError("the block ran")

def test_goes_on(gpuperf):
    ended = []
    with gpuperf.steps(name="loop") as step:
        while True:
            ended.append(step())
    assert set(ended) <= {None}
"""


def test_a_loop_that_ends_breaks_or_is_wrongly_limited_fails_by_its_own_line(
    project: ScriptedProject,
) -> None:
    project.file(ENDINGS)

    result = project.run()

    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "gpuperf.steps(): it ended after 2 steps, and measuring takes more: let *",
            "  --> test_it.py:* in test_too_short",
            "E *ValueError: in the third step",
            "  --> test_it.py:* in test_wrong",
            "*test_it.py::test_goes_on#loop*",
        ]
    )
    result.stdout.no_fnmatch_line("*handover*")


def test_the_trace_of_a_loop_that_failed_names_its_slow_line(
    project: ScriptedProject,
) -> None:
    project.file(
        """
import torch

def slow(rows):
    return sum(float(one) for one in rows)

def broken(rows):
    torch._dynamo.graph_break()
    return rows + 1

# The break fails it however busy the machine is, when its time is inconclusive.
@gpuperf.budget(graph_breaks=0)
def test_slow(gpuperf):
    rows = torch.ones(2000)
    compiled = torch.compile(broken, backend="eager")
    with gpuperf.steps() as step:
        while True:
            slow(compiled(rows))
            step()
"""
    )

    result = project.run("--gpuperf-device=cpu")

    result.assert_outcomes(failed=1)
    shown = (project.path / ".gpuperf/results.json").read_text("utf-8")
    (report,) = json.loads(shown)["tests"].values()
    found = report["verdicts"][0]["findings"]
    # Too busy a machine looks at the lines too seldom, and still sees its syncs.
    lines = {(one["location"]["file"], one["location"]["line"]) for one in found}
    assert ("test_it.py", 7) in lines
