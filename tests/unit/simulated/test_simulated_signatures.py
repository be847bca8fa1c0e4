"""The simulated torch.cuda takes arguments by the names that torch's own functions have."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.cuda_api import answers
from pytest_gpuperf.devices.simulated.streams import CUDAGraph, Event, Stream


NAMED = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names that *function* takes: some types of torch's C++ have none."""
    try:
        taken = signature(function)
    except ValueError:
        return []
    return [p.name for p in taken.parameters.values() if p.kind in NAMED]


def takes_all(function: Callable[..., Any], names: list[str]) -> bool:
    taken: Signature = signature(function)
    kinds = {p.kind for p in taken.parameters.values()}
    return Parameter.VAR_KEYWORD in kinds or set(names) <= set(taken.parameters)


FUNCTIONS = [
    (name, parameters_of(vars(torch.cuda)[name]), ours)
    for name, ours in answers().items()
    if callable(ours) and parameters_of(vars(torch.cuda).get(name, dict))
]

METHODS = [
    (f"{kind.__name__}.{name}", parameters_of(getattr(kind, name)), getattr(own, name))
    for kind, own in (
        (torch.cuda.Stream, Stream),
        (torch.cuda.Event, Event),
        (torch.cuda.CUDAGraph, CUDAGraph),
    )
    for name in vars(own)
    if not name.startswith("_") and callable(getattr(kind, name, None))
]


@pytest.mark.parametrize(
    ("names", "ours"),
    [pytest.param(names, ours, id=name) for name, names, ours in FUNCTIONS + METHODS],
)
def test_an_argument_has_the_name_that_it_has_in_torch(
    names: list[str], ours: Callable[..., Any]
) -> None:
    assert takes_all(ours, names)


def test_a_stream_and_a_device_are_entered_by_name() -> None:
    with (
        simulated_gpu(),
        torch.cuda.stream(stream=torch.cuda.Stream()),
        torch.cuda.device(device=0),
        torch.cuda.device_of(obj=torch.ones(1, device="cuda")),
    ):
        assert torch.ones(1, device="cuda").is_cuda
