"""A metric of training: counted anew over all predictions so far, or added up on the device.

The first way reads each prediction to the host, and takes longer with every step.
"""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

import pytest_gpuperf as gpuperf


CLASSES, BATCH = 10, 32


def batch(device):
    """Give the classes that a model predicts, and those that are right."""
    return torch.randint(CLASSES, (2, BATCH), device=device)


def matrix_of(predicted, right):
    """Count how often each class is taken for each."""
    counts = torch.zeros(CLASSES * CLASSES, dtype=torch.int64, device=right.device)
    ones = torch.ones_like(right)
    return counts.scatter_add_(0, right * CLASSES + predicted, ones)


class AllSoFar:
    """Keeps what was predicted on the host, and counts all of it again."""

    def __init__(self):
        self.predicted, self.right = [], []

    def add(self, predicted, right):
        self.predicted.extend(predicted.tolist())
        self.right.extend(right.tolist())
        return matrix_of(torch.tensor(self.predicted), torch.tensor(self.right))


class Streaming:
    """Adds each batch to a matrix that stays where the predictions are."""

    def __init__(self, device):
        shape = CLASSES * CLASSES
        self.matrix = torch.zeros(shape, dtype=torch.int64, device=device)

    def add(self, predicted, right):
        return self.matrix.add_(matrix_of(predicted, right))


@pytest.mark.claim("D18")
@gpuperf.budget(syncs=0)
def test_a_streaming_metric_keeps_nobody_waiting(gpuperf, gpu):
    batches = batch(gpu)
    before, after = AllSoFar(), Streaming(gpu)

    result = gpuperf.compare(lambda: before.add(*batches), lambda: after.add(*batches))

    assert result.syncs.before > result.syncs.after == 0


class Touched(TorchFunctionMode):
    """Counts the elements of all tensors that functions of torch return."""

    elements = 0

    def __torch_function__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        self.elements += result.numel() if isinstance(result, torch.Tensor) else 0
        return result


def elements_touched(metric, steps):
    """Return how many elements each of so many steps touched."""
    touched = []
    for predicted, right in (batch("cpu") for _ in range(steps)):
        with Touched() as step:
            metric.add(predicted, right)
        touched.append(step.elements)
    return touched


@pytest.mark.claim("D18")
def test_a_streaming_metric_does_in_step_100_what_it_did_in_step_1(shown):
    all_so_far = elements_touched(AllSoFar(), steps=100)
    streaming = elements_touched(Streaming("cpu"), steps=100)

    growth = [touched[-1] / touched[0] for touched in (all_so_far, streaming)]
    shown(*growth, "x the work")
    assert growth[0] > 30
    assert len(set(streaming)) == 1


@pytest.mark.claim("D18")
@gpuperf.budget(syncs=0, growth_mb=0)
def test_a_streaming_metric_keeps_nothing_of_a_step(gpuperf):
    metric, batches = Streaming(gpuperf.device), batch(gpuperf.device)

    gpuperf(lambda: metric.add(*batches))


def test_both_count_the_same():
    before, after = AllSoFar(), Streaming("cpu")
    for predicted, right in (batch("cpu") for _ in range(3)):
        matrix = before.add(predicted, right)
        after.add(predicted, right)
    assert torch.equal(matrix, after.matrix)

    metrics = pytest.importorskip("sklearn.metrics")
    counted = metrics.confusion_matrix(before.right, before.predicted)
    assert counted.tolist() == after.matrix.view(CLASSES, CLASSES).tolist()
