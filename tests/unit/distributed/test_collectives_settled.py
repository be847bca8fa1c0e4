"""A collective that has returned is over, and no thread of gloo holds its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")

from torch import distributed  # noqa: E402

from pytest_gpuperf.distributed import collectives as module  # noqa: E402
from pytest_gpuperf.distributed.collectives import settled  # noqa: E402
from pytest_gpuperf.distributed.collectives import thread_states  # noqa: E402
from pytest_gpuperf.distributed.group import alone  # noqa: E402


@pytest.fixture
def group() -> Iterator[None]:
    with alone():
        yield


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What gloo's threads do at each look, and then sleep for ever."""
    coming: list[list[str]] = []
    monkeypatch.setattr(
        module, "thread_states", lambda: coming.pop(0) if coming else ["S"]
    )
    return coming


@pytest.mark.usefixtures("group")
def test_a_collective_returns_when_it_is_over_and_its_threads_sleep(
    states: list[list[str]],
) -> None:
    states += [["S", "R"], ["D", "S"], ["S", "S"], ["R"]]

    def step() -> tuple[bool, int]:
        work = distributed.all_reduce(torch.ones(3), async_op=True)
        return work.is_completed(), len(states)

    assert settled(step)() == (True, 1)


@pytest.mark.usefixtures("group")
def test_a_thread_that_never_sleeps_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "thread_states", lambda: ["R"])
    monkeypatch.setattr(module, "MOST_COLLECTIVE_SECONDS", 0.0)

    def step(rows: torch.Tensor) -> torch.Tensor:
        distributed.all_reduce(rows)
        return rows

    assert settled(step)(torch.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.usefixtures("group")
def test_a_functional_collective_is_over_where_the_program_waits_for_it(
    states: list[list[str]],
) -> None:
    functional = torch.ops._c10d_functional
    name = distributed.group.WORLD.group_name
    states += [["R"], ["R"], ["S"], ["R"]]

    def step() -> tuple[int, int]:
        summed = functional.all_reduce(torch.ones(3), "sum", name)
        begun = len(states)
        functional.wait_tensor(summed)
        return begun, len(states)

    assert settled(step)() == (4, 1)


@pytest.mark.usefixtures("group")
def test_what_is_no_collective_waits_for_nothing(states: list[list[str]]) -> None:
    states += [["R"]]

    settled(lambda: torch.ones(3) + 1)()

    assert states == [["R"]]


def task(folder: Path, number: int, name: str, state: str) -> None:
    path = folder / str(number)
    path.mkdir()
    (path / "stat").write_text(f"{number} ({name}) {state} 1 {number} 0 -1\n")


def test_the_states_of_gloos_threads_are_those_that_the_kernel_tells(
    tmp_path: Path,
) -> None:
    task(tmp_path, 10, "python", "R")
    task(tmp_path, 11, "pt_gloo_runloop", "S")
    task(tmp_path, 12, "pt_gloo_runloop", "D")
    task(tmp_path, 13, "a (b) c", "R")
    (tmp_path / "14").mkdir()

    assert sorted(thread_states(tmp_path)) == ["D", "S"]
    assert list(thread_states(tmp_path / "none")) == []


@pytest.mark.usefixtures("group")
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux has it")
def test_gloo_names_its_threads_as_they_are_looked_for() -> None:
    distributed.all_reduce(torch.ones(3))

    assert list(thread_states())
