"""Watchers of torchrun's ranks, in threads here, that meet at a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from pytest_gpuperf.distributed import torchrun
from pytest_gpuperf.distributed.group import LOCAL_HOST, serve_rendezvous
from pytest_gpuperf.distributed.processes import RankEnd
from pytest_gpuperf.distributed.torchrun import LaunchStore, RankWatchers, order_name
from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.environment import Launch


pytest.importorskip("torch")


PATIENCE_SECONDS = 600.0


@pytest.fixture
def store() -> tuple[Any, int]:
    """The store that torchrun's agent would serve, and its port."""
    return serve_rendezvous(2, PATIENCE_SECONDS)


@pytest.fixture
def launch(store: tuple[Any, int]) -> Launch:
    """Rank 0 of two."""
    return Launch(
        rank=0,
        count=2,
        local_rank=0,
        machines=1,
        host=LOCAL_HOST,
        port=store[1],
        attempt="none/0",
        patience_s=PATIENCE_SECONDS,
    )


def end_of(*said: dict[str, Any], ended_at: float = 0.0) -> RankEnd:
    return RankEnd(said=said, code=0, ended_at=ended_at, stack="", output="")


def both(
    launch: Launch,
    invite: Callable[[RankWatchers], Any],
    come: Callable[[RankWatchers], Any],
) -> tuple[Future[Any], Future[Any]]:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(invite, RankWatchers(launch))
        second = pool.submit(come, RankWatchers(replace(launch, rank=1)))
    return first, second


def test_ranks_begin_a_run_together_and_the_next_has_the_next_number(
    launch: Launch,
) -> None:
    leader, follower = RankWatchers(launch), RankWatchers(replace(launch, rank=1))

    for run in (1, 2):
        with ThreadPoolExecutor(2) as pool:
            led = pool.submit(leader.invite, f"order {run}")
            came = pool.submit(follower.come, run, "")

        assert (led.result(), came.result()) == (run, run)
        assert LaunchStore(launch).read(order_name(run)) == f"order {run}"


def test_a_rank_that_says_why_it_does_not_come_calls_the_run_off(
    launch: Launch,
) -> None:
    led, came = both(
        launch, lambda p: p.invite("order"), lambda p: p.come(1, "it has no GPU")
    )

    assert str(led.exception()) == "rank 1 takes no part: it has no GPU [GP612]"
    assert str(came.exception()) == "rank 1: run 1 was called off [GP612]"


def test_a_rank_that_does_not_come_calls_the_run_off(launch: Launch) -> None:
    with pytest.raises(RunError) as late:
        RankWatchers(replace(launch, patience_s=0.1)).invite("order")

    assert str(late.value) == "rank 1 was not ready in 0.1 s [GP612]"


@pytest.mark.parametrize(("machines", "known"), [(1, [4711, 4712]), (2, [])])
def test_processes_of_other_watchers_are_known_on_the_same_machine(
    launch: Launch, machines: int, known: list[int]
) -> None:
    launch = replace(launch, machines=machines)
    leader, follower = RankWatchers(launch), RankWatchers(replace(launch, rank=1))

    assert leader.pids() == []
    leader.hear_of([4710])
    follower.hear_of([4711, 4712])

    assert leader.pids() == known


def test_a_failure_is_heard_of_in_its_run_alone(launch: Launch) -> None:
    leader, follower = RankWatchers(launch), RankWatchers(replace(launch, rank=1))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(leader.invite, "order")
        pool.submit(follower.come, 1, "")
    before = leader.have_failed()

    follower.hear_of_failure()
    follower.have_failed()  # the answer to a question comes after what was said before

    assert (before, leader.have_failed()) == (False, True)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(leader.invite, "another")
        pool.submit(follower.come, 2, "")
    assert not leader.have_failed()


def test_ends_are_handed_in_with_their_times_since_all_began(launch: Launch) -> None:
    def come(party: RankWatchers) -> None:
        party.come(1, "")
        now = time.monotonic()
        party.hand_in(end_of({"result": "é", "at": now + 7}, ended_at=now + 8))

    def lead(party: RankWatchers) -> list[RankEnd | None]:
        party.invite("order")
        return party.ends_of_others(end_of(), PATIENCE_SECONDS)

    led, _ = both(launch, lead, come)

    (end,) = led.result()
    assert end.said[0]["result"] == "é"
    assert end.said[0]["at"] == pytest.approx(7.0, abs=0.5)
    assert end.ended_at == pytest.approx(8.0, abs=0.5)


@pytest.mark.parametrize(
    ("code", "timeout_s"),
    [(0, 0.0), (None, PATIENCE_SECONDS), (1, PATIENCE_SECONDS)],
    ids=["time is up", "rank 0 was killed", "rank 0 failed"],
)
def test_a_rank_of_which_no_word_comes_is_not_waited_for(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, code: int | None, timeout_s: float
) -> None:
    monkeypatch.setattr(torchrun, "LATE_SECONDS", 0.1)
    own = replace(end_of(), code=code)

    def lead(party: RankWatchers) -> list[RankEnd | None]:
        party.invite("order")
        return party.ends_of_others(own, timeout_s)

    led, _ = both(launch, lead, lambda p: p.come(1, ""))

    assert led.result() == [None]


def test_who_waits_for_several_texts_hears_the_first_that_comes(launch: Launch) -> None:
    listener = LaunchStore(launch)
    LaunchStore(launch).post("over", "1")

    assert listener.first_of("order/1", "over") == "over"
    assert listener.read("over") == "1"


def test_a_store_that_is_gone_says_so(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrun, "CONNECT_SECONDS", 0.5)

    with pytest.raises(RunError) as gone:
        LaunchStore(replace(launch, rank=1, port=1))

    assert str(gone.value).startswith(
        "the store of torchrun at 127.0.0.1:1 cannot be reached, so the machine of rank "
        "0 has ended or is cut off: "
    )
