"""``gpuperf ab`` says first whether both versions train the same."""

from __future__ import annotations

import pytest
from git_project import GitProject

from pytest_gpuperf.cli import main


pytest.importorskip("torch")

TESTS = """
import torch

def step_of(device):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(4, 8, device=device)
    def step():
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = outputs.square().mean(){term}
        loss.backward()
        optimizer.step()
    return step

def test_training(gpuperf):
    gpuperf(step_of(gpuperf.device))

def test_other(gpuperf):
    weight = torch.ones(64, device=gpuperf.device)
    gpuperf(lambda: weight.sum())
"""

TERM = " + 0.01 * outputs.abs().mean()"


@pytest.fixture
def project(project_of_commits: GitProject) -> GitProject:
    project_of_commits.tests(TESTS.format(term=TERM))
    project_of_commits.commit()
    return project_of_commits


def test_a_term_that_is_dropped_from_the_loss_exits_with_2(
    project: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project.tests(TESTS.format(term=""))

    code = main(["ab", "--device=simulated", "HEAD"])

    shown = capsys.readouterr()
    assert code == 2, shown
    assert shown.err.splitlines()[:2] == [
        "gpuperf: training 1 of at most 2: 2 tests",
        "gpuperf: training 2 of at most 2: 1 test",
    ]
    lines = shown.out.splitlines()
    assert lines[2].startswith("same training: 1 of 2; ")
    assert lines[3].startswith(
        "test_it.py::test_training: training differs: loss of step 1: "
    )
    assert lines[-1] == (
        "gpuperf: 1 test trains differently, 1 same; intended? let exit status 2 pass"
    )


PROGRAM = """
import torch

model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr={lr})
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(4, 8, device="cuda")).square().mean().backward()
    optimizer.step()
"""


def test_a_script_trains_the_same_or_names_the_option_that_differs(
    project_of_commits: GitProject, capsys: pytest.CaptureFixture[str]
) -> None:
    project_of_commits.write("train.py", PROGRAM.format(lr=0.1))
    project_of_commits.commit()
    project_of_commits.write("train.py", "# The same.\n" + PROGRAM.format(lr=0.1))

    codes = [main(["ab", "HEAD", "--", "train.py"])]
    project_of_commits.write("train.py", PROGRAM.format(lr=0.2))
    # Named from the root on, it is that of each side.
    codes.append(main(["ab", "HEAD", "--", str(project_of_commits.path / "train.py")]))

    shown = capsys.readouterr().out
    assert codes == [0, 2], shown
    assert "same training: 1 of 1; " in shown
    assert "same training: 0 of 1\n" in shown
    said = "train.py: training differs: lr of weight: 0.1 before, 0.2 after"
    assert said in " ".join(shown.split())
