"""``gpuperf ab`` on devices that run a real step: cpu, and simulated without a clock."""

from __future__ import annotations

import json

import pytest
from git_project import GitProject

from pytest_gpuperf.cli import main


pytest.importorskip("torch")

STEP = """
import torch

def test_step(gpuperf):
    weights = torch.rand(64, 64, device=gpuperf.device)
    def step():
        total = (weights @ weights).sum()
        return {result}
    gpuperf(step)
"""


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    """A step in the last commit, and one that waits in the working tree."""
    project_of_commits.tests(STEP.format(result="total"))
    project_of_commits.commit()
    project_of_commits.tests(STEP.format(result="total.item()"))
    return project_of_commits


SLOW = """
import torch

def prepared(rows):
    return sum(range({factor} * rows))

def test_step(gpuperf):
    weights = torch.rand(64, 64, device=gpuperf.device)
    def step():
        total = (weights @ weights).sum()
        prepared({rows})
        return total
    gpuperf(step)
"""


def test_a_slower_step_shows_the_changed_line_that_takes_the_time(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    """So much more work is slower on any machine."""
    project_of_commits.tests(SLOW.format(rows=1, factor=1))
    before = project_of_commits.commit()
    project_of_commits.tests(SLOW.format(rows=100_000, factor=2))
    after = project_of_commits.commit()
    project_of_commits.tests("# Neither version has this line.\n" + SLOW)

    code = main(["ab", "--device=cpu", before, after, "--", "--gpuperf-seconds=20"])

    shown = capsys.readouterr()
    assert code == 1
    assert "gpuperf: the lines that take the time: 1 slower" in shown.err
    lines = shown.out.splitlines()
    assert "  --> test_it.py:5 in prepared" in lines, shown.out
    place = lines.index("  --> test_it.py:5 in prepared")
    assert lines[place + 1] == "    5 | return sum(range(2 * rows))"
    assert f"% of the step's time is spent here, changed since {before}" in (
        " ".join(lines[place + 2 : place + 4])
    )
    assert project_of_commits.is_untouched


def test_without_a_clock_two_pairs_compare_what_is_exact(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["ab", "--device=simulated", "HEAD"])

    assert code == 1
    shown = capsys.readouterr()
    assert shown.err == (
        "gpuperf: training 1 of at most 2: 1 test\n"
        "gpuperf: pair 1 of at most 8: 1 test\ngpuperf: pair 2 of at most 8: 1 test\n"
        "gpuperf: compared in 2 pairs\n"
    )
    assert shown.out.splitlines()[-11:] == [
        "engine: pairs of fresh processes; counts and bytes only: the simulated GPU has",
        "    no clock; 2 pairs a test",
        "verdict  metric  before  after  change  test",
        "worse    syncs        0      1      +1  test_it.py::test_step",
        "test_it.py::test_step: more syncs",
        "  --> test_it.py:8 in step",
        "    8 | return total.item()",
        "      |             ^^^^^^^",
        "      | new: the CPU reads one element, the next step starts late",
        "  fix      add it up on the GPU with .detach(), read it every N steps",
        "gpuperf: 1 worse",
    ]


LAYERS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = {result}
        return x

def test_step(gpuperf):
    net, x = Net().to(gpuperf.device), torch.ones(4, 8, device=gpuperf.device)
    gpuperf(lambda: net(x).sum().backward())
"""


def test_lines_that_run_other_operations_are_named_whatever_they_cost(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.tests(LAYERS.format(result="layer(x)"))
    before = project_of_commits.commit()
    project_of_commits.tests(LAYERS.format(result="layer(x).clone()"))

    main(["ab", "--device=simulated", before, "--json", "--", "--gpuperf-seconds=2"])

    (test,) = json.loads(capsys.readouterr().out)["tests"]
    first = test["operations"][0]
    assert first["ops"] == {"aten::clone": {"before": 0, "after": 3}}
    assert (first["module"], first["location"]["line"]) == ("Net", 11)
