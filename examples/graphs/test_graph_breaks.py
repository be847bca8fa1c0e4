"""A number that is read in the middle of a step splits its graph in two."""

from __future__ import annotations

import pytest
import torch
from captured import Graphs, breaks_of, where_it_compiles

import pytest_gpuperf as gpuperf


def clipped_by_a_number(x):
    norm = x.norm().item()  # Python has it now, and no graph
    return torch.relu(x) / max(norm, 1.0)


def clipped_by_a_tensor(x):
    norm = x.norm()
    return torch.relu(x) / norm.clamp(min=1.0)


@pytest.mark.claim("G7")
def test_a_number_read_in_the_middle_splits_the_graph(shown):
    x = torch.linspace(-1, 1, 8)
    torch.testing.assert_close(clipped_by_a_number(x), clipped_by_a_tensor(x))

    before, after = breaks_of(clipped_by_a_number, x), breaks_of(clipped_by_a_tensor, x)

    shown(before, after, "breaks")
    assert (before, after) == (1, 0)


@gpuperf.budget(graph_breaks=0, recompiles=1, syncs=0)
def test_other_sizes_are_compiled_once_more_at_most(gpuperf):
    rows = torch.ones(10, device=where_it_compiles(gpuperf))
    compiled = torch.compile(clipped_by_a_tensor, backend=(graphs := Graphs()))

    for size in range(4, 10):
        compiled(rows[:size])

    assert len(graphs.sizes) == 2  # of the first size, and of any other one
    gpuperf(lambda: compiled(rows))
