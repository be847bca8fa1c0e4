"""A public name of torch that a GPU answers ends no program on the simulated GPU."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch


HERE = Path(__file__).parent
sys.path += [str(HERE.parents[1] / "benchmarks"), str(HERE.parent / "unit/simulated")]

from forks import Task, each_in_a_fork
from test_simulated_names import MODULES, asked_for, called_names, made_arguments

from pytest_gpuperf.devices.simulated import simulated_gpu


pytestmark = pytest.mark.gpu

SIDES = {"cuda": nullcontext, "simulated": simulated_gpu}

WITHOUT = {
    "Event.from_ipc_handle": "the memory of another process",
    "CUDAGraph.begin_capture_to_if_node": "a branch of a graph runs no operation",
    "CUDAGraph.end_capture_to_conditional_node": "a branch of a graph",
    "CUDAGraph.get_currently_capturing_graph": "a branch of a graph",
}
"""Public attributes that the simulated GPU has not, and why."""

RETURNS = ("nothing", "a result")


def answer(module: str, name: str, arguments: dict[str, Any]) -> str:
    """One of ``RETURNS``, or why the call failed."""
    call = getattr(import_module(module), name)
    try:
        found = call(*(arguments[each] for each in asked_for(call)))
    except Exception as error:  # noqa: BLE001, of whatever kind
        return f"{type(error).__name__}: {error}"
    return RETURNS[found is not None]


def answers(side: str, module: str, names: list[str]) -> dict[str, str]:
    with SIDES[side]():
        return {f"{module}.{n}": answer(module, n, made_arguments()) for n in names}


def attributes(side: str) -> set[str]:
    """Public ones of objects that ``torch.cuda`` makes."""
    with SIDES[side]():
        kinds = [torch.cuda.Stream(), torch.cuda.Event(), torch.cuda.CUDAGraph()]
        made = {type(each).__name__: each for each in (*kinds, torch.cuda.MemPool())}
        made["get_device_properties(0)"] = torch.cuda.get_device_properties(0)
        return {
            f"{n}.{a}" for n, each in made.items() for a in dir(each) if a[0] != "_"
        }


def in_forks(side: str, *, together: bool) -> dict[str, str]:
    """Ask about each name; one that ends its process has no answer."""
    tasks = [Task(name=side, function=attributes, arguments=(side,))]
    for module in (getattr(m, "values", (m,))[0] for m in MODULES):
        names = sorted(called_names(module))
        for part in [names] if together else [[each] for each in names]:
            task = Task(name=side, function=answers, arguments=(side, module, part))
            tasks.append(task)
    found: dict[str, str] = {}
    for ended in each_in_a_fork(tasks, jobs=2, most_seconds=600):
        found.update(dict.fromkeys(ended.result or (), RETURNS[1]))
        found.update(ended.result if isinstance(ended.result, dict) else {})
    return found


def worth(answer: str) -> int:
    return RETURNS.index(answer) if answer in RETURNS else -1


def test_no_name_ends_a_program_on_the_simulated_gpu_alone() -> None:
    # In a process that has not begun to use CUDA, so that it can fork.
    program = [sys.executable, "-W", "ignore", __file__]
    done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)

    assert (done.stdout, done.returncode) == ("", 0)


if __name__ == "__main__":
    import_module("torch._dynamo")  # for all forks, as it takes seconds
    simulated = in_forks("simulated", together=True)
    for name, real in in_forks("cuda", together=False).items():
        found = simulated.get(name, "missing, or it ended the process")
        if name not in WITHOUT and worth(found) < worth(real):
            print(f"{name}: on a GPU {real}; simulated: {found}")  # noqa: T201
