"""Counts of waits that others published, and what the simulated GPU says of the same code.

    python benchmarks/published_counts.py

needs diffusers (0.35 has the code before these changes) and no GPU.

huggingface/diffusers pull request 14589: 20 steps of ``CogVideoXDDIMScheduler`` wait 39
times on one line and 20 times on another. Pull request 14576: ``index_for_timestep``
waits twice, and not at all once ``set_begin_index(0)`` was called. Exit status: 0 where
all counts come out, 1 where one does not.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from typing import Final

from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.model.finding import Location


STEPS: Final = 20

Waits = Mapping[Location, int]


def waits_in(code: Callable[[], object]) -> Waits:
    """Run *code* on the simulated GPU; return how often each line waits."""
    with pretend_gpu() as gpu:
        gpu.begin_step()
        code()
        audit = gpu.end_step()
    found: Counter[Location] = Counter()
    for finding in audit.findings:
        place = finding.inner
        if finding.is_certain and place is not None:
            found[place] += finding.per_step
    return found


def denoise(scheduler: Any, *, begin: int | None = None) -> Callable[[], None]:
    """Return a loop of ``STEPS`` steps, as the pipelines write it, without a model."""
    import torch

    def loop() -> None:
        scheduler.set_timesteps(STEPS, device="cuda")
        if begin is not None:
            scheduler.set_begin_index(begin)
        sample = torch.zeros(1, 4, 8, 8, device="cuda")
        for timestep in scheduler.timesteps:
            sample = scheduler.scale_model_input(sample, timestep)
            sample = scheduler.step(torch.zeros_like(sample), timestep, sample)[0]

    return loop


def shown(title: str, function: str, waits: Waits, published: list[int]) -> bool:
    """Print the lines of *function* that wait, most first; compare their counts."""
    found = [
        (count, place) for place, count in waits.items() if place.function == function
    ]
    found.sort(key=lambda pair: (-pair[0], pair[1].line))
    print(title)
    for count, place in found:
        source = linecache.getline(place.file, place.line).strip()
        print(f"  {count:3} {Path(place.file).name}:{place.line}  {source}")
    agrees = [count for count, _ in found] == published
    print(
        f"  published: {published or 'none'}, {'the same' if agrees else 'NOT the same'}"
    )
    return agrees


def main() -> int:
    from diffusers import CogVideoXDDIMScheduler
    from diffusers import EulerDiscreteScheduler

    cog = waits_in(denoise(CogVideoXDDIMScheduler()))
    euler = waits_in(denoise(EulerDiscreteScheduler()))
    begun = waits_in(denoise(EulerDiscreteScheduler(), begin=0))
    name = "index_for_timestep"
    agree = [
        shown("14589: CogVideoXDDIMScheduler, 20 steps", "step", cog, [39, 20]),
        shown(f"14576: {name}", name, euler, [1, 1]),
        shown(f"14576: {name} after set_begin_index(0)", name, begun, []),
    ]
    return int(not all(agree))


if __name__ == "__main__":
    sys.exit(main())
