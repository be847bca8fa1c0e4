"""A profiler that skips the first steps and records one, and says what loading takes of it.

`wait` steps run without it, `warmup` steps with its results thrown away, `active` steps are
kept. In the trace the loader is a range of its own, beside the step that it feeds.
"""

from __future__ import annotations

import pytest
from claims_table import SHOWN
from data.slow_disk import SlowDisk
from models.simplenet import SimpleNet
from torch.nn import functional as F
from torch.profiler import profile, schedule
from torch.utils.data import DataLoader


BATCH = 16

FLOPS = 2 * BATCH * (784 * 512 + 512 * 10)
"""Of the forward: two for each weight and image."""


@pytest.mark.claim("T1")
def test_one_step_of_four_is_recorded_with_its_loading(record_property):
    model, events = SimpleNet(), []
    with profile(
        schedule=schedule(wait=1, warmup=2, active=1, repeat=1),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
        with_modules=True,
        on_trace_ready=lambda profiler: events.extend(profiler.events()),
    ) as profiler:
        for images, labels in DataLoader(SlowDisk(6 * BATCH), BATCH):
            F.cross_entropy(model(images), labels).backward()
            profiler.step()

    (step,) = [event for event in events if event.name.startswith("ProfilerStep")]
    (load,) = [event for event in events if "DataLoader" in event.name]
    forward = [event for event in events if event.name == "aten::addmm"]
    whole, loading = (round(event.cpu_time_total / 1000, 2) for event in (step, load))
    record_property(SHOWN, f"{whole:g} ms, loads {loading:g}")
    assert 0 < loading < whole
    assert sum(event.flops for event in forward) == FLOPS
    assert [BATCH, 784] in forward[0].input_shapes
    assert sum(event.cpu_memory_usage for event in forward) == 4 * BATCH * (512 + 10)
    assert any(event.name.startswith("nn.Module: SimpleNet") for event in events)
