"""Real loaders with worker processes: measured, their failures shown, nothing left."""

from __future__ import annotations

import os
import time

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

REAL = """
import os
import signal
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

def nothing(index): pass

class Rows(Dataset):
    def __init__(self, at_row=nothing): self.at_row = at_row
    def __len__(self): return 64
    def __getitem__(self, index):
        self.at_row(index)
        return torch.ones(8), index % 2

class Endless(IterableDataset):
    def __iter__(self):
        while True: yield torch.ones(8), 1

def loader(rows, **settings):
    return DataLoader(rows, batch_size=4, num_workers=2, **settings)

def step_on(device):
    model = torch.nn.Linear(8, 2).to(device)
    def step(batch):
        rows, labels = (each.to(device, non_blocking=True) for each in batch)
        torch.nn.functional.cross_entropy(model(rows), labels).backward()
        return len(rows)
    return step

def boom(index):
    if index == 21: raise KeyError("row 21 is missing")

def die(index):
    if index == 0: os.kill(os.getpid(), signal.SIGKILL)

@gpuperf.budget(loader_wait_pct=99.9, on="cpu")
@gpuperf.budget(syncs=0, pageable_copies=0)
@pytest.mark.parametrize("settings", [
    {"shuffle": True}, {"persistent_workers": True}])
def test_rows(gpuperf, settings):
    given = loader(Rows(), pin_memory=gpuperf.device == "cuda", **settings)
    assert gpuperf.loader(given, step_on(gpuperf.device)) == 4
    share = gpuperf.measurement.times.get("loader_wait_pct")
    assert share is None if gpuperf.device == "cuda" else 0 < share.mean < 100

@gpuperf.budget(syncs=0)
def test_endless(gpuperf):
    gpuperf.loader(loader(Endless()), step_on(gpuperf.device))

def test_raises(gpuperf):
    gpuperf.loader(loader(Rows(boom)), step_on(gpuperf.device))

def test_dies(gpuperf):
    gpuperf.loader(loader(Rows(die)), step_on(gpuperf.device))

def test_leaves_workers(gpuperf, pids=[]):
    held.append(loader(Rows(), persistent_workers=True))
    gpuperf.loader(held[0], step_on(gpuperf.device))
    workers = [str(worker.pid) for worker in held[0]._iterator._workers]
    open("workers.txt", "w").write(" ".join(workers))

held = []
"""


@pytest.mark.parametrize("device", ["simulated", "cpu"])
def test_a_real_loader_with_workers_is_measured_and_its_failures_come_through(
    project: ScriptedProject, device: str
) -> None:
    project.file(REAL)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", f"--gpuperf-device={device}"
    )

    result.assert_outcomes(passed=4, failed=2)
    text = result.stdout.str()
    assert "KeyError: 'row 21 is missing'" in text
    assert "is killed by signal: Killed" in text
    left = (project.path / "workers.txt").read_text().split()
    assert len(left) == 2
    assert [pid for pid in left if is_alive(int(pid))] == []


def is_alive(pid: int) -> bool:
    """Whether a process is there, after it had a minute to be taken away."""
    until = time.monotonic() + 60
    while is_there(pid) and time.monotonic() < until:
        pass
    return is_there(pid)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


RANKS = """
import torch
from torch import distributed
from torch.utils.data import DataLoader

@gpuperf.ranks(2)
@gpuperf.budget(loader_wait_pct=99.9, on="cpu")
def test_loop(gpuperf):
    rows = list(torch.ones(5 + distributed.get_rank(), 4))
    def step(batch):
        distributed.all_reduce(batch)
        return distributed.get_world_size()
    assert gpuperf.loader(DataLoader(rows, batch_size=None), step) == 2
    if gpuperf.measurement is not None:
        assert 0 < gpuperf.measurement.times["loader_wait_pct"].mean < 100
        assert len(gpuperf.measurement.by_rank.step_ms) == 2
"""


def test_ranks_with_loaders_of_their_own_make_the_same_number_of_steps(
    project: ScriptedProject,
) -> None:
    project.file(RANKS)

    result = project.pytester.runpytest_inprocess("--gpuperf", "--gpuperf-device=cpu")

    result.assert_outcomes(passed=1)
    assert "gpuperf: 1 passed on CPU " in result.stdout.str()
