import pytest_gpuperf as gpuperf
import torch


@gpuperf.budget(syncs=0)
def test_step(gpuperf):
    weights = torch.rand(256, 256, device=gpuperf.device)
    gpuperf(lambda: weights @ weights)
