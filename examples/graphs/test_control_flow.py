"""A branch that values decide: what a trace, a script and a compiler make of it.

Traces and scripts are deprecated; ``torch.cond`` takes a branch into a graph today.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from captured import breaks_of


def turned(x, y):
    if x.sum() < 0:
        return -y
    return torch.squeeze(y)


def as_condition(x, y):
    return torch.cond(x.sum() < 0, lambda y: -y, lambda y: y.clone(), (y,))


UP, DOWN, Y = torch.ones(3), -torch.ones(3), torch.ones(1, 3)


def branches_of(function):
    """Count the branches on which *function* is right."""
    return sum(torch.equal(function(x, Y), turned(x, Y)) for x in (UP, DOWN))


@pytest.mark.claim("G6")
def test_a_trace_remembers_one_branch(shown):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of what is deprecated, and that the trace is wrong
        traced = branches_of(torch.jit.trace(turned, (UP, Y)))
        scripted = branches_of(torch.jit.script(turned))

    shown(traced, scripted, "branches")
    assert (traced, scripted) == (1, 2)


@pytest.mark.claim("G11")
def test_a_compiler_has_both_and_a_whole_graph_only_of_a_condition(shown):
    compiled = torch.compile(turned, backend="eager")
    assert branches_of(compiled) == 2
    breaks = breaks_of(turned, UP, Y), breaks_of(as_condition, UP, Y)

    shown(*breaks, "breaks")
    assert breaks == (1, 0)
    with pytest.raises(torch._dynamo.exc.Unsupported):  # noqa: SLF001
        torch.compile(turned, backend="eager", fullgraph=True)(UP, Y)
