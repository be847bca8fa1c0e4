"""``gpuperf.fits``: whether a step fits a GPU, asked in a test on a machine without one."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

ASKED = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.narrow(torch.relu(self.wide(x)))

def make_step(batch=8192):
    model = nn.Sequential(*(Block() for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch, 256, device="cuda")
    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return step

def test_fits(gpuperf):
    answer = gpuperf.fits(make_step, gb=4, batch=8192)
    print(answer)
    assert answer
    assert answer.savings["checkpointing of the repeated blocks"] < answer.peak_mb
    assert answer.savings["half the batch, accumulated over two"] < answer.peak_mb

def test_does_not_fit(gpuperf):
    assert gpuperf.fits(make_step, gb=0.9)

def test_without_savings(gpuperf):
    made = []
    def make(batch):
        made.append(batch)
        return make_step(batch)
    answer = gpuperf.fits(make, gb=4, batch=8192, savings=False)
    assert answer
    assert answer.savings == {}
    assert made == [8192]

def test_too_close(gpuperf):
    assert gpuperf.fits(make_step, gb=1.15)

@gpuperf.budget(mem_mb=10)
def test_budget(gpuperf):
    gpuperf.fits(make_step, gb=80)

def test_on_the_host(gpuperf):
    assert gpuperf.fits(lambda: int, gb=80)

def test_no_step(gpuperf):
    gpuperf.fits(lambda: 3, gb=80)
"""


def test_a_step_fits_or_does_not_or_is_too_close_to_tell(
    project: ScriptedProject,
) -> None:
    project.file(ASKED)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=pretend", "-rsA"
    )

    result.assert_outcomes(passed=2, failed=3, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*assert <does not fit in 0.9 GiB: * MiB allocated>*",
            "OVER LIMIT mem_mb: *, limit 10.00 MiB",
            "*most memory is in use here*",
            (
                "gpuperf.fits(make_step): expected a function that returns a step, found one "
                "that returns int; return the step, without calling it [GP216]"
            ),
            "the step needs 330 MiB at its peak; it fits in 4 GiB",
            "predicted from 3 steps on the simulated GPU; *",
            "*SKIPPED*the step needs *; too close to tell if it fits in *",
            "*SKIPPED*the step needs *; only a GPU can tell if * is enough*",
        ]
    )


def test_without_the_pretend_device_the_question_is_skipped_with_the_reason(
    project: ScriptedProject,
) -> None:
    project.file("def test_fits(gpuperf): assert gpuperf.fits(lambda: int, gb=8)")

    plain = project.pytester.runpytest_inprocess("-rs")
    scripted = project.run("-rs")

    plain.assert_outcomes(skipped=1)
    plain.stdout.fnmatch_lines(
        ["SKIPPED * memory is predicted by pytest --gpuperf, and not by plain pytest"]
    )
    scripted.assert_outcomes(skipped=1)
    scripted.stdout.fnmatch_lines(
        [
            (
                "SKIPPED * memory is predicted on the simulated GPU: add "
                "--gpuperf-device=pretend"
            )
        ]
    )


def test_the_answer_is_judged_by_the_test_alone_in_ci_as_well(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    project.file(ASKED)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=pretend", "-k", "test_fits"
    )

    result.assert_outcomes(passed=1, deselected=6)
    assert result.ret == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "3, gb=8",
            (
                "gpuperf.fits(make_step): expected a function that returns a step, found 3 "
                "of type int; pass the function itself [GP216]"
            ),
        ),
        (
            "int, gb=0",
            "gpuperf.fits(gb=0): expected a number of GiB above 0, such as 80 [GP217]",
        ),
        (
            "int, gb='80'",
            "gpuperf.fits(gb='80'): expected a number of GiB above 0, such as 80 [GP217]",
        ),
        (
            "int, gb=8, batch=1",
            "gpuperf.fits(batch=1): expected a batch size of 2 or more [GP217]",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_sentence(
    project: ScriptedProject, arguments: str, sentence: str
) -> None:
    project.file(f"def test_fits(gpuperf): gpuperf.fits({arguments})")

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    assert sentence in result.outlines
