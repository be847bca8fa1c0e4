"""A red test says which lines run other operations than when its baseline was stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_project import GitProject

from pytest_gpuperf.cli import main


pytest.importorskip("torch")

ON = ("--gpuperf", "--gpuperf-device=simulated", "--gpuperf-seconds=2")

TEST = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

def test_step(gpuperf):
    net, x = Net().to("cuda"), torch.ones(4, 8, device="cuda")
    gpuperf(lambda: net(x).sum().backward())
"""

COPIED = f"# moved\n{TEST}".replace("layer(x)", "layer(x).clone()")

BLAME = "ops +3 operations in Net, new aten::clone x 3 at test_blamed.py:12 in forward"


def side_file(pytester: pytest.Pytester) -> Path:
    (found,) = pytester.path.glob("baselines/operations/simulated-cuda/*.json")
    return found


def test_a_red_test_explains_itself_without_the_old_code(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(test_blamed=TEST)
    pytester.runpytest_inprocess(*ON, "--gpuperf-update=missing")
    stored = side_file(pytester)
    known = stored.read_bytes()
    assert len(known) < 20 * 1024

    pytester.makepyfile(test_blamed=COPIED)
    red = pytester.runpytest_inprocess(*ON)

    red.assert_outcomes(failed=1)
    assert BLAME in " ".join(red.stdout.str().split())

    # What is accepted takes its operations along.
    assert main(["accept", ".gpuperf", "--accept-drift"]) == 0
    capsys.readouterr()
    assert b"aten::clone" not in known
    assert b"aten::clone" in stored.read_bytes()


PROGRAM = f"""{TEST.partition("def test_step")[0]}
net, x = Net().to("cuda"), torch.ones(4, 8, device="cuda")
for _ in range(2):
    net(x).sum().backward()
"""


def test_a_script_says_which_lines_run_other_operations_than_before(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.write("train.py", PROGRAM)
    project_of_commits.commit()
    project_of_commits.write(
        "train.py", PROGRAM.replace("layer(x)", "layer(x).clone()")
    )

    main(["ab", "HEAD", "--", "train.py"])

    assert (
        "train.py: lines that run other operations than before ops +6 operations in Net, "
        "new aten::clone x 6 at train.py:11 in forward"
    ) in " ".join(capsys.readouterr().out.split())
