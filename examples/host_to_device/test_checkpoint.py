"""A step that saves a checkpoint: it waits for each tensor, or for none and no file.

Copies into pinned memory are only handed out; a thread waits for them and writes the file
(``torch.distributed.checkpoint.async_save`` does so for what many ranks hold). The buffers
are free again when the file is written.
"""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import pytest_gpuperf as gpuperf


def network(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)).to(device)


def saved_at_once(model):
    def save():
        return {name: tensor.cpu() for name, tensor in model.state_dict().items()}

    return save


def staged(model):
    state = model.state_dict()
    buffers = {name: torch.empty_like(t, device="cpu") for name, t in state.items()}
    if next(model.parameters()).is_cuda:
        buffers = {name: buffer.pin_memory() for name, buffer in buffers.items()}

    def save():
        for name, tensor in model.state_dict().items():
            buffers[name].copy_(tensor, non_blocking=True)
        return buffers

    return save


@pytest.mark.claim("D22")
@gpuperf.budget(syncs=0, pageable_copies=0)
def test_a_checkpoint_is_staged_without_a_wait(gpuperf, gpu):
    model = network(gpu)

    result = gpuperf.compare(saved_at_once(model), staged(model))

    assert (result.syncs.before, result.syncs.after) == (4, 0)


class Writer(threading.Thread):
    """Writes what was staged, as soon as the disk (``free``) and the GPU are ready."""

    def __init__(self, state, path):
        super().__init__()
        self.state, self.path = state, path
        self.free = threading.Event()
        self.copied = torch.cuda.Event() if torch.cuda.is_available() else None
        if self.copied:
            self.copied.record()

    def run(self):
        self.free.wait(timeout=60)
        if self.copied:
            self.copied.synchronize()
        torch.save(self.state, self.path)


def test_training_goes_on_while_the_file_is_written(tmp_path):
    model = network("cuda" if torch.cuda.is_available() else "cpu")
    as_it_was = {name: t.cpu().clone() for name, t in model.state_dict().items()}
    writer = Writer(staged(model)(), tmp_path / "checkpoint.pt")
    writer.start()

    with torch.no_grad():
        model[0].weight.add_(1)  # a step
    assert not writer.path.exists()
    writer.free.set()
    writer.join()

    torch.testing.assert_close(torch.load(writer.path), as_it_was)
