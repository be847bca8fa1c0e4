"""Tests that several ranks execute: real process groups on the cpu device."""

from __future__ import annotations

import pytest
from builders import entries_in
from scripted_project import ScriptedProject


for name in ("torch", "torch._dynamo", "torch.distributed.fsdp"):
    pytest.importorskip(name)  # here: a run in this process forgets what it imports

ON_CPU = ("--gpuperf", "--gpuperf-device=cpu", "--gpuperf-seconds=20")

TRAINING = """
import time
import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard

def layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))

def step_of(model):
    torch.manual_seed(distributed.get_rank())
    rows = torch.randn(16, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    def step():
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    return step

def of_all_ranks(tensor):
    seen = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
    distributed.all_gather(seen, tensor.contiguous())
    return seen

pytestmark = gpuperf.ranks(2)

@gpuperf.budget(collectives=1)
def test_ddp(gpuperf):
    model = nn.parallel.DistributedDataParallel(layers())
    gpuperf(step_of(model))
    ranks = gpuperf.measurement.by_rank
    times = list(zip(ranks.exposed_ms, ranks.communication_ms, strict=True))
    assert len(times) == 2
    assert all(0 <= exposed <= whole and whole > 0 for exposed, whole in times)
    for parameter in model.parameters():
        first, *others = of_all_ranks(parameter.grad)
        assert all(torch.equal(first, other) for other in others)

@gpuperf.budget(collectives=5, skew_pct=1000)
def test_fsdp(gpuperf):
    model = layers()
    for part in (model[0], model[2], model):
        fully_shard(part)
    gpuperf(step_of(model))
    for parameter in model.parameters():
        first, *others = of_all_ranks(parameter.grad.full_tensor())
        assert all(torch.equal(first, other) for other in others)

def test_raises(gpuperf):
    def step():
        if distributed.get_rank() == 1:
            raise ValueError("boom")
        distributed.all_reduce(torch.ones(3))
    gpuperf(step)

@gpuperf.ranks(2, timeout_s=6)
def test_hangs(gpuperf):
    def step():
        if distributed.get_rank() == 1:
            time.sleep(10_000)
        distributed.all_reduce(torch.ones(3))
    gpuperf(step)
"""


def test_ranks_measure_together_and_a_failure_says_where_each_of_them_was(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING)
    source = (project.path / "test_it.py").read_text().splitlines()
    line = {
        word: next(i for i, text in enumerate(source, 1) if word in text)
        for word in ("boom", "sleep", "all_reduce")
    }
    last = max(i for i, text in enumerate(source, 1) if "all_reduce" in text)

    result = project.pytester.runpytest_inprocess(*ON_CPU, "--import-mode=importlib")

    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "OVER LIMIT collectives: 6 per step, limit 5",
            "rank 1 of 2 failed first:",
            f"test_it.py:{line['boom']}: ValueError",
            "rank 0 *",
            f"*test_it.py:{line['all_reduce']}*",
            "the 2 ranks gave no result and were killed: they did nothing for most of *",
            "rank 0 was at",
            f"  *test_it.py:{last} in step",
            "rank 1 was at",
            f"  *test_it.py:{line['sleep']} in step",
        ]
    )
    text = " ".join(result.stdout.str().split())
    assert "a step has 1 all_reduce (9.156 KiB); they run for " in text
    assert "a step has 4 all_gather (18.31 KiB), 2 reduce_scatter (9.156 KiB)" in text
    assert "rank_skew of 1 test, skew_pct=1000 binds on cuda only" in text
    (pending,) = (project.path / ".gpuperf").glob("pending-cpu-*.json")
    ddp = entries_in(pending)["test_it.py::test_ddp"]
    assert ddp["software"]["ranks"] == "2"
    assert ddp["runs"][0]["exact"]["collectives"] == 1


ONE_RANK = """
import os
import torch
from torch import distributed, nn

@gpuperf.ranks(2)
@gpuperf.budget(collectives=1)
def test_step(gpuperf):
    assert distributed.get_world_size() == 1
    assert os.environ["WORLD_SIZE"] == "1"
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
    gpuperf(lambda: model(torch.ones(2, 3)).sum().backward())

def test_after():
    assert not distributed.is_initialized()
"""


def test_a_plain_run_executes_one_rank(project: ScriptedProject) -> None:
    project.file(ONE_RANK)

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=2)


def test_budgets_of_ranks_are_not_checked_without_ranks(
    project: ScriptedProject,
) -> None:
    project.file(
        """
@gpuperf.budget(collectives=1, skew_pct=5, syncs=0)
def test_step(gpuperf): gpuperf(int)
"""
    )

    result = project.run()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "not checked: rank_skew, collectives of 1 test, this test has no ranks to*",
        ]
    )


def test_steps_that_take_turns_have_no_ranks(project: ScriptedProject) -> None:
    project.file(
        """
@gpuperf.ranks(2)
def test_step(gpuperf): gpuperf.compare(int, float)
"""
    )

    result = project.run("--gpuperf-device=cpu")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["gpuperf.compare(before, after): steps take turns in one process, and this *"]
    )
