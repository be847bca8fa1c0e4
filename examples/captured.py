"""What Dynamo, the front of torch.compile, captures of code: its graphs, and where it breaks."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo


class Graphs:
    """A backend that runs each graph as it is, and remembers how large it was."""

    def __init__(self):
        self.sizes = []

    def __call__(self, graph, _):
        self.sizes.append(sum(node.op == "call_function" for node in graph.graph.nodes))
        return graph.forward


def breaks_of(function, *inputs):
    """Count the places where Dynamo ends a graph and lets Python go on."""
    torch._dynamo.reset()  # noqa: SLF001, there is no public one
    return torch._dynamo.explain(function)(*inputs).graph_break_count  # noqa: SLF001


def where_it_compiles(gpuperf):
    """Name the device; skip on the simulated one, which runs all code as it is written."""
    if gpuperf.device == "cuda" and torch.cuda.get_device_name() == "simulated GPU":
        pytest.skip("the simulated device compiles nothing: no graph is captured there")
    return gpuperf.device
