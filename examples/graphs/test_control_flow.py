"""A branch that values decide: what a trace, a script and a compiler make of it.

Traces and scripts are deprecated; ``torch.cond`` takes a branch into a graph today.
"""

from __future__ import annotations

import warnings

import pytest
import torch


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


def test_a_compiler_has_both_and_a_whole_graph_only_of_a_condition():
    torch._dynamo.reset()  # noqa: SLF001, there is no public one
    compiled = torch.compile(turned, backend="eager")
    whole = torch.compile(as_condition, backend="eager", fullgraph=True)

    assert branches_of(compiled) == 2
    assert [whole(x, Y).sum().item() for x in (UP, DOWN)] == [3, -3]
    torch._dynamo.reset()  # noqa: SLF001, what was compiled before would run on
    with pytest.raises(torch._dynamo.exc.Unsupported):  # noqa: SLF001
        torch.compile(turned, backend="eager", fullgraph=True)(UP, Y)
