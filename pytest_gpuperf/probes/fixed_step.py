"""A training step that belongs to nobody, to see how a machine's times scatter."""

from __future__ import annotations

from ..devices.protocol import Device
from ..devices.protocol import Step
from ..model.environment import DeviceKind


def fixed_step(device: Device) -> Step:
    """Return a step of a small classifier: about 1 ms on a core, and on a GPU.

    A device that plays its times needs no work.
    """
    if device.kind is DeviceKind.SCRIPTED:
        return lambda: None
    import torch
    from torch import nn

    width, rows = (2048, 512) if device.kind is DeviceKind.CUDA else (256, 64)
    layers = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = nn.Sequential(*layers).to(device.torch_device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows_of_ones = torch.ones(rows, width, device=device.torch_device)
    labels = torch.zeros(rows, dtype=torch.long, device=device.torch_device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows_of_ones), labels).backward()
        optimizer.step()

    return step
