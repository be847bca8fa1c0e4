"""A number that is read in the middle of a step splits its graph in two."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch._dynamo.utils import counters

import pytest_gpuperf as gpuperf


def reads(x):
    total = (x * 2).sum()
    print(end=f"{total.item()}"[:0])  # noqa: T201, what Dynamo cannot follow
    return torch.relu(x) + total


def leaves(x):
    total = (x * 2).sum()
    return torch.relu(x) + total


def breaks_of(function):
    torch._dynamo.reset()  # noqa: SLF001, there is no public one
    counters.clear()
    torch.compile(function, backend="eager")(torch.ones(4))
    return sum(counters["graph_break"].values())


@pytest.mark.claim("G7")
def test_a_number_read_in_the_middle_splits_the_graph(shown):
    found, none = breaks_of(reads), breaks_of(leaves)

    shown(found, none, "breaks")
    assert found >= 1
    assert none == 0


@gpuperf.budget(graph_breaks=1, recompiles=1, syncs=0)
def test_other_sizes_are_compiled_once_more_at_most(gpuperf):
    compiled = torch.compile(leaves, backend="eager")
    sizes = itertools.cycle(range(4, 10))
    rows = torch.ones(10, device=gpuperf.device)

    gpuperf(lambda: compiled(rows[: next(sizes)]))
