"""What the live bytes of a step are for at their peak, and which lines hold them.

Sizes by hand: a float32 tensor of 1000 elements has 4000 bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.live_memory import PeakLookout, Scope, picture_of_steps
from pytest_gpuperf.devices.memory_picture import (
    MOST_MOMENTS,
    Change,
    Picture,
    StorageRole,
    course_of,
)
from pytest_gpuperf.devices.source_lines import Site, where_of
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase


HERE = Path(__file__)
ROOT = f"{HERE.parent}{os.sep}"
META = torch.device("meta")


@pytest.fixture(autouse=True)
def on_meta() -> Iterator[None]:
    """Meta tensors stand for those of a GPU: their storages have sizes, too."""
    with torch.device(META):
        yield


def looked_at(step: Callable[..., object], *arguments: object) -> Picture:
    """Look around in the third step."""
    step(*arguments)
    picture = picture_of_steps(step, repeat(arguments), Scope(root=ROOT, device=META))
    assert picture is not None
    return picture


def at(
    step: Callable[..., object], line: int, phase: Phase, name: str = "step"
) -> Site:
    where = Location(
        file=str(HERE), line=step.__code__.co_firstlineno + line, function=name
    )
    return Site(location=where, innermost=where, phase=phase)


def held(op: str, site: Site, nbytes: int, blocks: int = 1) -> Finding:
    return Finding(
        kind=FindingKind.MEMORY,
        op=op,
        metrics=(),
        held_bytes=nbytes,
        per_step=blocks,
        **where_of(site),
    )


def test_a_peak_in_the_forward_holds_activations() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    batch = torch.ones(1000)

    def step(x: torch.Tensor) -> None:
        weight.grad = None
        hidden = torch.tanh(x * weight)
        torch.cat([hidden, hidden]).sum()

    picture = looked_at(step, batch)

    second, third = at(step, 2, Phase.FORWARD), at(step, 3, Phase.FORWARD)
    assert picture == Picture(
        op="aten::sum",
        site=third,
        by_role={
            StorageRole.PARAMETERS: 4000,
            StorageRole.INPUTS: 4000,
            StorageRole.ACTIVATIONS: 4000 + 8000 + 4,
        },
        held=(
            held("aten::cat", third, 8000),
            held("aten::tanh", second, 4000),
            held("aten::sum", third, 4),
        ),
    )


def test_a_peak_in_backward_holds_what_the_forward_saved_and_temporaries() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))

    def step() -> None:
        weight.grad = None
        loss = (weight * 2).exp().sum()
        loss.backward()

    picture = looked_at(step)

    forward, backward = at(step, 2, Phase.FORWARD), at(step, 3, Phase.BACKWARD)
    assert picture == Picture(
        op="aten::mul",
        site=backward,
        by_role={
            StorageRole.PARAMETERS: 4000,
            StorageRole.ACTIVATIONS: 4000 + 4,
            StorageRole.TEMPORARIES: 4000 + 4,
        },
        held=(
            held("aten::exp", forward, 4000),
            held("aten::mul", backward, 4000),
            held("aten::sum", forward, 4),
            held("aten::ones_like", backward, 4),
        ),
    )


def test_a_peak_in_the_optimizer_holds_gradients_and_its_state() -> None:
    model = torch.nn.Linear(100, 100, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    batch = torch.ones(1, 100)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    picture = looked_at(step)

    assert picture.op == "aten::_foreach_sqrt"
    assert picture.site == at(step, 3, Phase.OPTIMIZER)
    assert picture.by_role == {
        StorageRole.PARAMETERS: 40_000,
        StorageRole.GRADIENTS: 40_000,
        StorageRole.OPTIMIZER_STATE: 80_000,
        StorageRole.INPUTS: 400,
        StorageRole.TEMPORARIES: 40_000,
    }
    assert picture.held == (
        held("aten::mm", at(step, 2, Phase.BACKWARD), 40_000),
        held("aten::_foreach_sqrt", at(step, 3, Phase.OPTIMIZER), 40_000),
    )


def test_old_gradients_are_gradients_though_they_are_seen_only_as_they_die() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))

    def step() -> None:
        hidden = weight.exp()
        torch.cat([hidden, hidden])
        weight.grad = None
        hidden.sum().backward()

    picture = looked_at(step)

    assert picture.op == "aten::cat"
    assert picture.by_role == {
        StorageRole.PARAMETERS: 4000,
        StorageRole.GRADIENTS: 4000,
        StorageRole.ACTIVATIONS: 4000 + 8000,
    }


def test_what_is_of_several_roles_has_the_first() -> None:
    weight = torch.nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.SGD([weight])
    optimizer.state[weight]["anchor"] = weight

    picture = looked_at(lambda: weight + 1)

    assert picture.by_role == {
        StorageRole.PARAMETERS: 4000,
        StorageRole.ACTIVATIONS: 4000,
    }


class Guarded(torch.Tensor):  # type: ignore[misc]
    """Lets nobody touch it."""

    @classmethod
    def __torch_function__(cls, *_: object) -> object:
        msg = "somebody touched it"
        raise RuntimeError(msg)


def test_tensors_that_refuse_to_be_asked_are_passed_by() -> None:
    guarded = torch.ones(1000).as_subclass(Guarded)

    picture = looked_at(lambda: torch.ones(1000))

    assert picture.by_role == {StorageRole.INPUTS: 4000, StorageRole.ACTIVATIONS: 4000}
    del guarded


def test_memory_over_a_step_is_followed_by_purpose_with_its_phases() -> None:
    model = torch.nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(256, 64)).square().sum().backward()
        optimizer.step()

    picture = looked_at(step)
    assert picture.course is not None
    course = dict(zip(picture.course.purposes, picture.course.kib, strict=True))

    weights, rows = 64 * 64 * 4 // 1024, 256 * 64 * 4 // 1024
    assert course["parameters"] == (weights,)
    assert (course["gradients"][0], min(course["gradients"])) == (weights, 0)
    assert course["gradients"][-1] == weights
    assert 3 * rows <= max(course["activations"]) <= 3 * rows + 1
    phases = [phase for phase, _ in picture.course.phases]
    assert phases == ["forward", "backward", "optimizer"]
    peak = picture.course.peak
    at_peak = sum(row[peak] if len(row) > 1 else row[0] for row in course.values())
    assert abs(at_peak - sum(picture.by_role.values()) / 1024) <= len(course)


def test_a_long_step_keeps_its_peak_among_few_moments() -> None:
    changes = [
        Change(n, 2**20 if n == 777 else 2**10, StorageRole.ACTIVATIONS, Phase.FORWARD)
        for n in range(1000)
    ]

    course = course_of((), changes)

    activations = course.kib[course.purposes.index("activations")]
    assert len(activations) <= MOST_MOMENTS
    assert activations[-1] == 999 + 1024
    assert course.phases == (("forward", 0),)


def test_on_a_gpu_what_the_step_does_not_use_counts_as_well() -> None:
    unused = torch.nn.Parameter(torch.ones(500, device=META))
    batches = iter([(torch.ones(1000, device=META),)] * 2)

    def step(x: torch.Tensor) -> None:
        torch.ones(300, device="cpu")
        x * 2

    picture = picture_of_steps(step, batches, Scope(root=ROOT, device=META))

    line = at(step, 2, Phase.FORWARD)
    assert picture == Picture(
        op="aten::mul",
        site=line,
        by_role={
            StorageRole.PARAMETERS: 2000,
            StorageRole.INPUTS: 4000,
            StorageRole.ACTIVATIONS: 4000,
        },
        held=(held("aten::mul", line, 4000),),
    )
    assert unused.is_meta


def test_a_gpu_s_steps_with_peaks_at_different_moments_are_not_explained() -> None:
    sizes = iter([1, 2])

    def step() -> None:
        kept = [torch.ones(1000, device=META) for _ in range(next(sizes))]
        del kept

    scope = Scope(root=ROOT, device=META)

    assert picture_of_steps(step, repeat(()), scope) is None


def test_a_thread_of_autograd_has_the_line_at_which_the_step_waits_for_it() -> None:
    """On a GPU backward runs in threads of its own, which have no frames of the user."""
    kept: list[Any] = []
    lookout = PeakLookout(Scope(root=ROOT, device=META), expected=3)
    names = {"kept": kept, "lookout": lookout, "torch": torch}
    engine = "with lookout: kept.append(torch.ones(1000, device='meta'))"
    code = compile(engine, "<frozen engine>", "exec")

    def step() -> None:
        thread = threading.Thread(target=exec, args=(code, names))
        for wait in (thread.start, thread.join):  # it may run during either
            wait()

    step()
    picture = lookout.picture()

    assert picture is not None
    assert picture.op == "aten::ones"
    assert picture.site == at(step, 3, Phase.FORWARD)


SEVERAL = """
import sys
import torch
from itertools import repeat
from pytest_gpuperf.devices.live_memory import Scope, picture_of_steps
from pytest_gpuperf.devices.memory_owners import HOST_DEVICE

torch.set_num_threads(int(sys.argv[1]))
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 5)
)
x, y = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
optimizer = torch.optim.AdamW(model.parameters())

def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()

step()
picture = picture_of_steps(step, repeat(()), Scope(root="/", device=HOST_DEVICE))
roles = sorted((role.value, nbytes) for role, nbytes in picture.by_role.items())
print(picture.op, picture.site, roles, picture.held)
"""


@pytest.mark.slow
def test_the_picture_is_the_same_in_every_process_and_with_any_number_of_threads() -> (
    None
):
    said = {
        subprocess.run(
            [sys.executable, "-c", SEVERAL, threads],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed, threads in zip("01234", "11122", strict=True)
    }

    assert len(said) == 1
    assert "optimizer state" in said.pop()
